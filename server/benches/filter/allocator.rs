//! The allocator of the contenders.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use mimalloc::MiMalloc;

/// True if the other crates' filters get huge pages.
pub static HUGE_PAGES: AtomicBool = AtomicBool::new(false);

/// The server's allocator, mimalloc, except for blocks of a filter's size. These come from the
/// default allocator, as in a program that has not chosen one. mimalloc would request huge pages
/// for them.
pub struct Allocator;

impl Allocator {
    const LARGE: usize = 1 << 20;

    fn of(layout: Layout) -> &'static dyn GlobalAlloc {
        if layout.size() < Self::LARGE || HUGE_PAGES.load(Relaxed) {
            &MiMalloc
        } else {
            &System
        }
    }
}

#[allow(unsafe_code, reason = "hands on what it is given")]
// SAFETY: a block is freed by the allocator that it came from, because its layout shows which one
// that was, and `HUGE_PAGES` is set before the first large block.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as demanded of the caller.
        unsafe { Self::of(layout).alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as demanded of the caller.
        unsafe { Self::of(layout).alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as demanded of the caller.
        unsafe { Self::of(layout).dealloc(block, layout) }
    }
}
