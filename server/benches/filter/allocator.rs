//! Where the memory of the contenders comes from.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use mimalloc::MiMalloc;

/// Whether the other crates' filters get huge pages.
pub static HUGE_PAGES: AtomicBool = AtomicBool::new(false);

/// That of the server, mimalloc, but for blocks of a filter's size: those come from the system's,
/// as they do in a program that has not thought of it. mimalloc asks for huge pages for them.
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
// SAFETY: a block is freed where it came from, for its layout says where that was, and
// `HUGE_PAGES` is set before there is a large one.
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
