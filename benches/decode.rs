//! The cost of reading a batch, and of the UTF-8 rule of it: `cargo bench -p seenset-proto`.
//!
//! Messages of 1,000 keys of 60 bytes, ASCII and not. The server's own form of a batch, read and
//! walked through once, of text and of the same keys as bytes, against the ordinary one, in which
//! each key is a `String`, and against one that takes whatever bytes come; then the check alone, as
//! the server does it for all keys of a message together, and key by key. The contenders take
//! turns; what counts is the ratios, by medians.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark prints its result, and is asked for by nobody else"
)]

use std::{hint::black_box, time::Instant};

use bytes::Bytes;
use prost::Message;
use seenset_proto::{batch::BatchRequest, codec::Decode, v1::QueryAndAddStreamRequest as Strings};

/// The ordinary message, with keys of any bytes.
#[derive(Clone, PartialEq, Message)]
struct AnyBytes {
    #[prost(string, tag = "1")]
    filter: String,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    keys: Vec<Bytes>,
}

/// A name, its messages, and what it does with one.
type Contender<'a> = (&'a str, &'a [Bytes], &'a dyn Fn(&Bytes));

const KEYS: usize = 1000;
const KEY_BYTES: usize = 60;
const MESSAGES: usize = 20;
const ROUNDS: usize = 401;

fn main() {
    compare("ASCII", "x");
    compare("three bytes a character", "字");
}

fn compare(what: &str, character: &str) {
    let messages: Vec<Bytes> = (0..MESSAGES).map(|i| message(i, character)).collect();
    let binary: Vec<Bytes> = messages.iter().map(as_binary).collect();
    let walk = |message: &Bytes| {
        let request = BatchRequest::decode(message.clone()).unwrap();
        request.keys.unwrap().iter().for_each(|key| {
            black_box(key);
        });
    };
    let contenders: [Contender; 8] = [
        ("seenset", &messages, &walk),
        ("seenset, binary", &binary, &walk),
        ("prost, strings", &messages, &|message| {
            black_box(<Strings as Message>::decode(message.clone()).unwrap());
        }),
        ("prost, bytes", &messages, &|message| {
            black_box(<AnyBytes as Message>::decode(message.clone()).unwrap());
        }),
        ("keys alone", &messages, &|message| {
            each_key(message, |key| {
                black_box(key);
            });
        }),
        ("check, together", &messages, &|message| {
            black_box(simdutf8::basic::from_utf8(message).unwrap());
        }),
        ("check, each", &messages, &|message| {
            each_key(message, |key| {
                black_box(simdutf8::basic::from_utf8(key).unwrap());
            });
        }),
        ("check, each, std", &messages, &|message| {
            each_key(message, |key| {
                black_box(str::from_utf8(key).unwrap());
            });
        }),
    ];
    let mut times = contenders.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for ((_, messages, read), times) in contenders.iter().zip(&mut times) {
            let begun = Instant::now();
            black_box(*messages).iter().for_each(read);
            times.push(begun.elapsed().as_nanos() as f64 / (MESSAGES * KEYS) as f64);
        }
    }
    times
        .iter_mut()
        .for_each(|times| times.sort_by(f64::total_cmp));
    let first = times[0][ROUNDS / 2];
    println!("\n{what}; ns a key");
    println!(
        "  {:18} {:>8} {:>8} {:>8} {:>7}",
        "", "10 %", "median", "90 %", "ratio"
    );
    for ((name, ..), times) in contenders.iter().zip(&times) {
        let at = |share: usize| times[ROUNDS * share / 100];
        let (low, median, high) = (at(10), at(50), at(90));
        println!(
            "  {name:18} {low:8.2} {median:8.2} {high:8.2} {:7.2}",
            median / first
        );
    }
}

fn message(number: usize, character: &str) -> Bytes {
    let key = |i: usize| {
        let mut key = format!("{:09}", number * KEYS + i);
        while key.len() < KEY_BYTES {
            key.push_str(character);
        }
        key
    };
    let request = Strings {
        keys: (0..KEYS).map(key).collect(),
        ..Strings::default()
    };
    request.encode_to_vec().into()
}

/// The same keys in the field for any bytes.
fn as_binary(message: &Bytes) -> Bytes {
    let texts = <Strings as Message>::decode(message.clone()).unwrap();
    let request = Strings {
        binary_keys: texts.keys.into_iter().map(String::into_bytes).collect(),
        ..Strings::default()
    };
    request.encode_to_vec().into()
}

/// Walks over the keys of a message, which are all there is in it and short.
fn each_key(mut rest: &[u8], mut visit: impl FnMut(&[u8])) {
    while let [_, length, behind @ ..] = rest {
        let (key, behind) = behind.split_at(usize::from(*length));
        visit(key);
        rest = behind;
    }
}
