//! Snapshots of one or more filters, written by the server's own writer and edited.

#![no_main]

use libfuzzer_sys::fuzz_target;
use seenset_fuzz::{start::start, written::Written};

fuzz_target!(|written: Written| {
    start(&written.files());
});
