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
    let kept: &[(&str, &[u8])] = match input.format % 2 {
        1 => &FORMAT_1,
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

/// A file that the first server of a format left, as the tests of the server keep it.
macro_rules! kept {
    ($format:literal, $file:literal) => {
        (
            $file,
            include_bytes!(concat!("../../server/tests/formats/", $format, "/", $file)),
        )
    };
}

const FORMAT_1: [(&str, &[u8]); 25] = [
    kept!("1", "0000000000000001.log"),
    kept!("1", "0000000000000002.log"),
    kept!("1", "0000000000000003.log"),
    kept!("1", "0000000000000004.log"),
    kept!("1", "0000000000000005.log"),
    kept!("1", "0000000000000006.log"),
    kept!("1", "0000000000000007.log"),
    kept!("1", "0000000000000008.log"),
    kept!("1", "0000000000000009.log"),
    kept!("1", "000000000000000a.log"),
    kept!("1", "000000000000000b.log"),
    kept!("1", "000000000000000c.log"),
    kept!("1", "000000000000000d.log"),
    kept!("1", "000000000000000e.log"),
    kept!("1", "MANIFEST"),
    kept!("1", "aged.snapshot.000000000000000f"),
    kept!("1", "classic.snapshot.0000000000000006"),
    kept!("1", "counted.snapshot.000000000000000c"),
    kept!("1", "default.snapshot.0000000000000003"),
    kept!("1", "grown.snapshot.0000000000000015"),
    kept!("1", "java.snapshot.0000000000000018"),
    kept!("1", "log.tail"),
    kept!("1", "redis.snapshot.000000000000001a"),
    kept!("1", "sharded.snapshot.0000000000000012"),
    kept!("1", "urls.snapshot.0000000000000009"),
];
