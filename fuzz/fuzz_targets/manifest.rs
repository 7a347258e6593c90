//! Manifests: any bytes, unchanged or with the right length and checksum.

#![no_main]

use libfuzzer_sys::fuzz_target;
use seenset_fuzz::{repair::Repairs, start::start};
use seenset_server::store::fuzzing::reencode_manifest;

fuzz_target!(|bytes: &[u8]| {
    attempt(bytes.to_vec());
    let mut repaired = bytes.to_vec();
    Repairs::ALL.manifest(&mut repaired);
    attempt(repaired);
});

fn attempt(bytes: Vec<u8>) {
    match reencode_manifest(&bytes) {
        Ok(encoded) => {
            assert_eq!(encoded.len(), bytes.len(), "what is read is all there is");
            let again = reencode_manifest(&encoded).expect("what was accepted once");
            assert_eq!(again, encoded);
        }
        Err(error) => assert!(error.to_string().contains("MANIFEST"), "{error}"),
    }
    start(&[("MANIFEST".to_owned(), bytes)].into());
}
