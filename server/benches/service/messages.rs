//! The messages of the contract as prost alone decodes them, and as bytes ready to be sent.

use bytes::{BufMut, Bytes, BytesMut};

/// The length of every key.
pub const KEY_BYTES: usize = 60;
/// The digits at the end of a key that tell it from others.
const DIGITS: usize = 8;
/// What gRPC puts before a message.
pub const PREFIX_BYTES: usize = 5;
/// The tag and the length of a key.
const KEY_HEADER: [u8; 2] = [0x12, KEY_BYTES as u8];

/// `QueryAndAddRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Key {
    #[prost(string, tag = "1")]
    pub filter: String,
    #[prost(string, tag = "2")]
    pub key: String,
    #[prost(string, tag = "3")]
    pub request_id: String,
}

/// `QueryAndAddResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Answer {
    #[prost(bool, optional, tag = "1")]
    pub seen: Option<bool>,
}

/// `QueryAndAddBatchRequest`, and that of the stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Keys {
    #[prost(string, tag = "1")]
    pub filter: String,
    #[prost(string, repeated, tag = "2")]
    pub keys: Vec<String>,
    #[prost(string, tag = "3")]
    pub request_id: String,
}

/// `QueryAndAddBatchResponse`, and that of the stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Answers {
    #[prost(bool, repeated, tag = "1")]
    pub seen: Vec<bool>,
}

/// Requests of as many keys each, encoded: a key has the same bytes in a message for one and in
/// one for many, so this does for all.
pub struct Template(Bytes);

impl Template {
    /// For requests of `count` keys.
    pub fn new(count: usize) -> Self {
        let host = b"https://www.example.com/";
        let bytes = count * (KEY_HEADER.len() + KEY_BYTES);
        let mut message = BytesMut::with_capacity(PREFIX_BYTES + bytes);
        message.put_u8(0);
        message.put_u32(u32::try_from(bytes).unwrap());
        for _ in 0..count {
            message.put_slice(&KEY_HEADER);
            message.put_slice(host);
            message.put_bytes(b'-', KEY_BYTES - host.len());
        }
        Self(message.freeze())
    }

    /// A request for the keys of these numbers.
    pub fn fill(&self, numbers: impl Iterator<Item = u32>) -> Bytes {
        let mut message = BytesMut::from(&*self.0);
        let (keys, _) = message[PREFIX_BYTES..].as_chunks_mut::<{ KEY_HEADER.len() + KEY_BYTES }>();
        for (key, number) in keys.iter_mut().zip(numbers) {
            key[KEY_HEADER.len() + KEY_BYTES - DIGITS..].copy_from_slice(&digits(number));
        }
        message.freeze()
    }
}

/// A number in hexadecimal, in a few instructions: writing keys must cost the sender less than
/// reading them costs anybody.
fn digits(number: u32) -> [u8; DIGITS] {
    let mut spread = u64::from(number);
    spread = (spread | spread << 16) & 0x0000_ffff_0000_ffff;
    spread = (spread | spread << 8) & 0x00ff_00ff_00ff_00ff;
    spread = (spread | spread << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // Those from ten on become letters.
    let letters = ((spread + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    (spread + 0x3030_3030_3030_3030 + letters * u64::from(b'a' - b'9' - 1)).to_be_bytes()
}
