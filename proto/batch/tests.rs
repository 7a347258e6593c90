//! Compares this module with prost, message by message.

use super::*;
use crate::v1::{QueryAndAddBatchRequest, QueryAndAddBatchResponse};

fn decode(message: &[u8]) -> Result<BatchRequest, DecodeError> {
    BatchRequest::decode(Bytes::copy_from_slice(message))
}

/// Asserts that prost and this module decode a message to the same value, or both refuse it.
fn assert_same(message: &[u8]) {
    match (
        decode(message),
        <QueryAndAddBatchRequest as Message>::decode(message),
    ) {
        (Ok(own), Ok(expected)) => {
            assert_eq!(own.filter, expected.filter);
            assert_eq!(own.request_id, expected.request_id);
            assert_eq!(own.max_age, expected.max_age);
            assert_same_keys(own.keys, &expected.keys, &expected.binary_keys);
        }
        (Err(own), Err(expected)) => {
            let expected = expected.to_string();
            let expected = expected.replace("QueryAndAddBatchRequest", "BatchRequest");
            assert_eq!(own.to_string(), expected, "{message:?}");
        }
        (own, expected) => panic!("{message:?}: {own:?}, not {expected:?}"),
    }
}

/// Asserts that the keys are those of the one field that has keys.
fn assert_same_keys(own: Result<Keys, BothForms>, texts: &[String], binaries: &[Vec<u8>]) {
    let (text, binary) = (texts.len(), binaries.len());
    if text > 0 && binary > 0 {
        assert_eq!(own.unwrap_err(), BothForms { text, binary });
        return;
    }
    let own = own.unwrap();
    let field = if binary > 0 { "binary_keys" } else { "keys" };
    assert_eq!(own.field(), field);
    let texts = texts.iter().map(String::as_bytes);
    let keys: Vec<&[u8]> = texts.chain(binaries.iter().map(Vec::as_slice)).collect();
    assert_eq!(own.len(), keys.len());
    assert!(own.iter().eq(keys.iter().copied()), "{keys:?}");
    let lengths = || keys.iter().map(|key| key.len());
    let ends = lengths().min().zip(lengths().max());
    let ends = ends.map(|(shortest, longest)| shortest..=longest);
    assert_eq!(own.lengths(), ends, "{keys:?}");
}

/// Returns bytes that are not valid text.
fn binary_key(length: usize) -> Vec<u8> {
    (0..length).map(|at| !(at as u8)).collect()
}

fn key(length: usize) -> String {
    "kä/".chars().cycle().take(length).collect()
}

#[test]
fn a_request_is_what_prost_reads() {
    for (filter, request_id) in [("", ""), ("crawl", "9b4"), (&key(200), &key(300))] {
        let lengths = [1, 60, 61, 127, 128, 85, 86, 0, 300, 16_384, 3, 2, 1];
        let request = QueryAndAddBatchRequest {
            filter: filter.to_owned(),
            keys: lengths.into_iter().map(key).collect(),
            request_id: request_id.to_owned(),
            ..Default::default()
        };
        let mut message = request.encode_to_vec();
        let decoded = decode(&message).unwrap().keys.unwrap();
        assert_eq!(decoded.len(), lengths.len());
        assert_same(&message);
        // Fields can come in any order and more than once. Some belong to a later version.
        let later = [0x32, 2, 0xff, 0xff, 0x38, 1, 0x12, 1, b'x', 0x0a, 1, b'f'];
        message.extend(later);
        assert_same(&message);
        assert_same(&[&later[..], &message].concat());
    }
    assert_same(&[]);
}

#[test]
fn keys_of_bytes_are_what_prost_reads() {
    let lengths = [1, 20, 127, 128, 0, 300, 16_384, 3];
    let request = QueryAndAddBatchRequest {
        filter: "crawl".to_owned(),
        request_id: "9b4".to_owned(),
        binary_keys: lengths.into_iter().map(binary_key).collect(),
        ..Default::default()
    };
    let message = request.encode_to_vec();
    assert_eq!(
        decode(&message).unwrap().keys.unwrap().field(),
        "binary_keys"
    );
    assert_same(&message);
    let others = [
        0x32, 2, 0xff, 0xff, 0x0a, 1, b'f', 0x2a, 1, 0xc3, 0x1a, 1, b'i',
    ];
    assert_same(&[&message[..], &others].concat());
    assert_same(&[&others[..], &message].concat());

    // Adds text keys in any place, short and long ones.
    for text in [key(3), key(300)] {
        let texts = QueryAndAddBatchRequest {
            keys: vec![text],
            ..Default::default()
        };
        let texts = texts.encode_to_vec();
        for mixed in [
            [&texts[..], &message].concat(),
            [&message[..], &texts].concat(),
        ] {
            let (text, binary) = (1, lengths.len());
            let refused = decode(&mixed).unwrap().keys.unwrap_err();
            assert_eq!(refused, BothForms { text, binary });
            assert_same(&mixed);
        }
    }
}

#[test]
fn what_prost_refuses_is_refused() {
    let request = QueryAndAddBatchRequest {
        filter: "crawl".to_owned(),
        keys: [5, 130, 7, 60].map(key).to_vec(),
        request_id: "1".to_owned(),
        ..Default::default()
    };
    let binary = QueryAndAddBatchRequest {
        binary_keys: [5, 130, 7, 60].map(binary_key).to_vec(),
        ..Default::default()
    };
    for message in [request.encode_to_vec(), binary.encode_to_vec()] {
        assert_damaged_is_same(&message);
    }
    // A character is split: half is at the end of one key, half at the start of the next.
    assert_same(&[0x12, 1, 0xc3, 0x12, 1, 0xa4]);
    assert_same(&[0x2a, 1, 0xc3, 0x12, 1, 0xa4]);
}

fn assert_damaged_is_same(message: &[u8]) {
    for length in 0..message.len() {
        assert_same(&message[..length]);
    }
    for place in 0..message.len() {
        for byte in [0, 0x0b, 0x12, 0x18, 0x2a, 0x2d, 0x7f, 0x80, 0xc3, 0xff] {
            let mut message = message.to_vec();
            message[place] = byte;
            assert_same(&message);
        }
    }
}

#[test]
fn a_response_is_what_prost_writes() {
    for count in [0, 1, 127, 128, 70_000] {
        let seen: Vec<bool> = (0..count).map(|i| i % 3 == 0).collect();
        let warning = CapacityWarning {
            keys: 900,
            capacity: 1000,
            false_positive_rate: 0.01,
            predicted_false_positive_rate: 0.007,
        };
        for capacity_warning in [None, Some(warning)] {
            let expected = QueryAndAddBatchResponse {
                seen: seen.clone(),
                capacity_warning,
            };
            let response = BatchResponse {
                seen: seen.clone(),
                capacity_warning,
            };
            assert_eq!(response.encode_to_vec(), expected.encode_to_vec());
            assert_eq!(response.encoded_len(), expected.encoded_len());
            let decoded = <BatchResponse as Message>::decode(&expected.encode_to_vec()[..]);
            assert_eq!(decoded.unwrap(), response);
        }
    }
}
