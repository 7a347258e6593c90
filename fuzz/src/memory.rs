//! An allocator that ends the program when one allocation is large. No input is, so what allocates
//! that much believes a length in a file before it has verified it.

#![allow(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout, System};

/// The largest allocation.
const MAX_BYTES: usize = 64 << 20;

struct Limited;

#[global_allocator]
static LIMITED: Limited = Limited;

impl Limited {
    fn check(bytes: usize) {
        if bytes > MAX_BYTES {
            eprintln!("an allocation of {bytes} bytes, more than {MAX_BYTES}");
            std::process::abort();
        }
    }
}

// SAFETY: the allocator of the system does it all; nothing is done but to look at the size first.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::check(layout.size());
        // SAFETY: as promised to this method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::check(layout.size());
        // SAFETY: as promised to this method.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        Self::check(bytes);
        // SAFETY: as promised to this method.
        unsafe { System.realloc(memory, layout, bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as promised to this method.
        unsafe { System.dealloc(memory, layout) }
    }
}
