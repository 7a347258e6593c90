//! The log, written by the server's own writer and edited.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use seenset_fuzz::{
    edit::Edit, filter::Filter, log::Log, repair::Repairs, start::start, written::Written,
};

#[derive(Debug, Arbitrary)]
struct Input {
    repairs: Repairs,
    edits: Vec<Edit>,
    log: Log,
}

fuzz_target!(|input: Input| {
    let Input {
        log,
        edits,
        repairs,
    } = input;
    let written = Written {
        filters: vec![Filter::with_log()],
        log: Some(log),
        edits,
        repairs,
    };
    start(&written.files());
});
