//! Whole directories: edited files of all formats so far, beside files of any bytes.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use seenset_fuzz::{
    edit::{self, Edit, Name},
    files::Files,
    inspection::inspect,
    repair::Repairs,
    start::start,
};
use seenset_server::store::fuzzing;

#[derive(Debug, Arbitrary)]
struct Input {
    /// The format of the files in the directory.
    format: u8,
    repairs: Repairs,
    edits: Vec<Edit>,
    /// The files that are added to the directory.
    files: Vec<(Name, Vec<u8>)>,
}

fuzz_target!(|input: Input| {
    fuzzing::restart_salts();
    let kept: &[(&str, &[u8])] = match input.format % 8 {
        1 => &SNAPSHOT_1,
        2 => &SNAPSHOT_2,
        3 => &LOG_1,
        4 => &SNAPSHOT_3,
        5 => &SNAPSHOT_6,
        6 => &SNAPSHOT_7,
        7 => &LOG_4,
        _ => &[],
    };
    let kept = kept
        .iter()
        .map(|(name, bytes)| (name.to_string(), bytes.to_vec()));
    let put = input.files.iter();
    let put = put.map(|(name, bytes)| (name.text(), bytes.clone()));
    let mut files: Files = kept.chain(put).collect();
    edit::apply(&input.edits, &mut files);
    input.repairs.apply(&mut files);
    start(&files);
    inspect(&files);
});

/// A file that a server of an older format left, as the tests of the server keep it.
macro_rules! kept {
    ($format:literal, $file:literal) => {
        (
            $file,
            include_bytes!(concat!("../../server/tests/formats/", $format, "/", $file)),
        )
    };
}

const SNAPSHOT_1: [(&str, &[u8]); 2] = [
    kept!("snapshot-1", "classic.snapshot"),
    kept!("snapshot-1", "default.snapshot"),
];

const SNAPSHOT_2: [(&str, &[u8]); 3] = [
    kept!("snapshot-2", "MANIFEST"),
    kept!("snapshot-2", "classic.snapshot.0000000000000005"),
    kept!("snapshot-2", "default.snapshot.0000000000000006"),
];

const LOG_1: [(&str, &[u8]); 8] = [
    kept!("log-1", "MANIFEST"),
    kept!("log-1", "classic.snapshot.0000000000000006"),
    kept!("log-1", "default.snapshot.0000000000000003"),
    kept!("log-1", "0000000000000001.log"),
    kept!("log-1", "0000000000000002.log"),
    kept!("log-1", "0000000000000003.log"),
    kept!("log-1", "0000000000000004.log"),
    kept!("log-1", "log.tail"),
];

const SNAPSHOT_3: [(&str, &[u8]); 10] = [
    kept!("snapshot-3", "0000000000000001.log"),
    kept!("snapshot-3", "0000000000000002.log"),
    kept!("snapshot-3", "0000000000000003.log"),
    kept!("snapshot-3", "0000000000000004.log"),
    kept!("snapshot-3", "0000000000000005.log"),
    kept!("snapshot-3", "MANIFEST"),
    kept!("snapshot-3", "classic.snapshot.0000000000000006"),
    kept!("snapshot-3", "default.snapshot.0000000000000003"),
    kept!("snapshot-3", "log.tail"),
    kept!("snapshot-3", "urls.snapshot.0000000000000009"),
];

/// A filter of each kind.
macro_rules! each_kind {
    ($format:literal) => {
        [
            kept!($format, "0000000000000001.log"),
            kept!($format, "0000000000000002.log"),
            kept!($format, "0000000000000003.log"),
            kept!($format, "0000000000000004.log"),
            kept!($format, "0000000000000005.log"),
            kept!($format, "0000000000000006.log"),
            kept!($format, "0000000000000007.log"),
            kept!($format, "0000000000000008.log"),
            kept!($format, "0000000000000009.log"),
            kept!($format, "000000000000000a.log"),
            kept!($format, "000000000000000b.log"),
            kept!($format, "000000000000000c.log"),
            kept!($format, "MANIFEST"),
            kept!($format, "aged.snapshot.000000000000000f"),
            kept!($format, "classic.snapshot.0000000000000006"),
            kept!($format, "counted.snapshot.000000000000000c"),
            kept!($format, "default.snapshot.0000000000000003"),
            kept!($format, "grown.snapshot.0000000000000012"),
            kept!($format, "java.snapshot.0000000000000015"),
            kept!($format, "log.tail"),
            kept!($format, "redis.snapshot.0000000000000017"),
            kept!($format, "urls.snapshot.0000000000000009"),
        ]
    };
}

const SNAPSHOT_6: [(&str, &[u8]); 22] = each_kind!("snapshot-6");
const SNAPSHOT_7: [(&str, &[u8]); 22] = each_kind!("snapshot-7");
const LOG_4: [(&str, &[u8]); 22] = each_kind!("log-4");
