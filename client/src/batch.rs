//! A batch of keys, stored as the bytes that go over the wire.
//!
//! A message with a `Vec<String>` would cost one allocation and two copies for each key, and a
//! third copy of each key when a call is repeated. Here a key is copied once, when it is pushed,
//! and repeating a call copies nothing.
//!
//! All batch requests of the contract have the filter in field 1 and keys of any bytes in field 5,
//! so one encoding serves them all. Text keys use field 5 too: the same bytes are the same key, and
//! this needs no check for UTF-8.

use std::{fmt, marker::PhantomData};

use bytes::{BufMut, Bytes};
use prost::Message as _;
use seenset_proto::codec::{ContractCodec, ContractDecoder};
use tonic::{
    Status,
    codec::{Codec, EncodeBuf, Encoder},
};

use crate::{error::Error, sent::Sent};

/// The maximum size of a message of the contract in bytes, in both directions.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Room for the fields of a message besides its keys, in bytes: the name of the filter and the id
/// of the request hardly take more.
const REST_BYTES: usize = 256;

/// Field number and wire type of `repeated bytes binary_keys = 5`.
const KEYS_TAG: u8 = 5 << 3 | 2;
/// Field number and wire type of `string filter = 1`.
const FILTER_TAG: u8 = 1 << 3 | 2;
/// Field number and wire type of `string request_id = 3`.
const REQUEST_ID_TAG: u8 = (3 << 3) | 2;
/// Field number and wire type of the message `max_age = 4`.
const MAX_AGE_TAG: u8 = (4 << 3) | 2;

/// The keys of one call, in order. A batch can contain a key twice.
///
/// A key is any bytes: a `&str`, a `String`, a digest as `[u8; 20]`, a `Vec<u8>`. The type does not
/// matter: the same bytes are the same key.
///
/// Pushing a key copies it, and allocates only when the batch has to grow. A batch takes as much
/// memory as its message: the keys, and 2 to 4 bytes for each key.
///
/// ```
/// use seenset_client::KeyBatch;
///
/// let mut batch = KeyBatch::from(["https://example.org/", "https://example.org/a"]);
/// batch.push("https://example.org/b");
/// batch.push([0xff, 0xfe]);
/// assert_eq!(batch.len(), 4);
///
/// let digests: Vec<[u8; 20]> = vec![[7; 20], [8; 20]];
/// assert_eq!(KeyBatch::from(&digests).len(), 2);
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KeyBatch {
    encoded: Vec<u8>,
    count: usize,
}

impl KeyBatch {
    /// Creates a batch without keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a batch without keys, with room for keys of `encoded_bytes` bytes in total (see
    /// [`encoded_bytes`](Self::encoded_bytes)). Up to this size the batch grows without moving. If
    /// there is not enough memory, the batch has no such room.
    pub fn with_room(encoded_bytes: usize) -> Self {
        let mut encoded = Vec::new();
        // If this fails, pushing asks for the memory again when it needs it.
        let _ = encoded.try_reserve(encoded_bytes.saturating_add(REST_BYTES));
        Self { encoded, count: 0 }
    }

    /// Appends a key. The server checks its length: 1 to 65,536 bytes, unless configured otherwise.
    pub fn push(&mut self, key: impl AsRef<[u8]>) {
        self.encoded.push(KEYS_TAG);
        put_delimited(&mut self.encoded, key.as_ref());
        self.count += 1;
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether the batch has no keys.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the size of the encoded keys in the message, in bytes. Together with the name of the
    /// filter it must not exceed [`MAX_MESSAGE_BYTES`].
    pub fn encoded_bytes(&self) -> usize {
        self.encoded.len()
    }

    /// Returns the keys as the message has them: for each key the tag of its field, its length, and
    /// its bytes.
    pub fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    /// Returns the keys, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut left = self.encoded.as_slice();
        std::iter::from_fn(move || {
            let (_, behind) = left.split_first()?;
            let (key, behind) = take_delimited(behind)?;
            left = behind;
            Some(key)
        })
    }

    /// Encodes the message that asks `filter` about these keys, with this `request_id`. An empty
    /// `request_id` means none.
    pub(crate) fn into_message(
        mut self,
        filter: &str,
        request_id: &str,
        max_age: Option<prost_types::Duration>,
    ) -> Result<Message, Error> {
        // Fields can come in any order. Appended after the keys, they move nothing.
        for (tag, text) in [(FILTER_TAG, filter), (REQUEST_ID_TAG, request_id)] {
            if !text.is_empty() {
                self.encoded.push(tag);
                put_delimited(&mut self.encoded, text.as_bytes());
            }
        }
        if let Some(age) = max_age {
            self.encoded.push(MAX_AGE_TAG);
            put_delimited(&mut self.encoded, &age.encode_to_vec());
        }
        if self.encoded.len() > MAX_MESSAGE_BYTES {
            return Err(Error::TooLarge {
                encoded_bytes: self.encoded.len(),
                limit_bytes: MAX_MESSAGE_BYTES,
            });
        }
        Ok(Message {
            bytes: self.encoded.into(),
            sent: Sent::default(),
        })
    }
}

/// Appends the length of `bytes` and then `bytes`, as protobuf does.
fn put_delimited(encoded: &mut Vec<u8>, bytes: &[u8]) {
    let mut length = bytes.len();
    while length >= 0x80 {
        encoded.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    encoded.push(length as u8);
    encoded.extend_from_slice(bytes);
}

/// Returns the bytes that [`put_delimited`] has written, and the bytes after them.
fn take_delimited(mut encoded: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0;
    for shift in (0..usize::BITS).step_by(7) {
        let (&byte, behind) = encoded.split_first()?;
        encoded = behind;
        length |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    encoded.split_at_checked(length)
}

impl fmt::Debug for KeyBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyBatch")
            .field("len", &self.count)
            .field("encoded_bytes", &self.encoded.len())
            .finish()
    }
}

impl<K: AsRef<[u8]>> Extend<K> for KeyBatch {
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        for key in keys {
            self.push(key);
        }
    }
}

impl<K: AsRef<[u8]>> FromIterator<K> for KeyBatch {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        let mut batch = Self::new();
        batch.extend(keys);
        batch
    }
}

impl<K: AsRef<[u8]>> From<&[K]> for KeyBatch {
    fn from(keys: &[K]) -> Self {
        keys.iter().collect()
    }
}

impl<K: AsRef<[u8]>, const N: usize> From<[K; N]> for KeyBatch {
    fn from(keys: [K; N]) -> Self {
        keys.iter().collect()
    }
}

impl<K: AsRef<[u8]>> From<Vec<K>> for KeyBatch {
    fn from(keys: Vec<K>) -> Self {
        keys.iter().collect()
    }
}

impl<K: AsRef<[u8]>> From<&Vec<K>> for KeyBatch {
    fn from(keys: &Vec<K>) -> Self {
        keys.iter().collect()
    }
}

/// An encoded batch request. Cloning it copies nothing.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) bytes: Bytes,
    /// The state of the attempt: waiting, sent or closed.
    pub(crate) sent: Sent,
}

impl Message {
    /// Returns the same message for another attempt.
    pub(crate) fn again(&self) -> Self {
        Self {
            bytes: self.bytes.clone(),
            sent: Sent::default(),
        }
    }
}

/// Sends a [`Message`] unchanged, and decodes `U`.
pub(crate) struct MessageCodec<U>(PhantomData<U>);

impl<U> Default for MessageCodec<U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<U: prost::Message + prost::Name + Default + Send + 'static> Codec for MessageCodec<U> {
    type Encode = Message;
    type Decode = U;
    type Encoder = MessageEncoder;
    type Decoder = ContractDecoder<U>;

    fn encoder(&mut self) -> MessageEncoder {
        MessageEncoder
    }

    fn decoder(&mut self) -> ContractDecoder<U> {
        ContractCodec::<(), U>::default().decoder()
    }
}

/// The encoding half of [`MessageCodec`].
pub(crate) struct MessageEncoder;

impl Encoder for MessageEncoder {
    type Item = Message;
    type Error = Status;

    fn encode(&mut self, message: Message, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        if !message.sent.note() {
            return Err(Status::cancelled("the attempt is over"));
        }
        buf.reserve(message.bytes.len());
        buf.put_slice(&message.bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use seenset_proto::v1;

    use super::*;

    #[test]
    fn a_batch_is_encoded_as_the_contract_has_it() {
        let keys: Vec<Vec<u8>> = [1, 2, 127, 128, 300, 16_383, 16_384, 65_536]
            .into_iter()
            .map(|length| vec![0xff; length])
            .chain(["https://example.org/ä?q=1".into(), Vec::new()])
            .collect();
        let age = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
        for (filter, request_id, max_age) in [
            ("", "", None),
            ("crawl", "9b4", age(86_400, 1)),
            (&"f".repeat(128), "", age(0, 0)),
        ] {
            let batch = KeyBatch::from(&keys);
            assert_eq!(batch.len(), keys.len());
            assert!(batch.iter().eq(&keys));
            let Message { bytes, .. } = batch.into_message(filter, request_id, max_age).unwrap();
            let request = v1::QueryAndAddBatchRequest {
                filter: filter.to_owned(),
                binary_keys: keys.clone(),
                request_id: request_id.to_owned(),
                max_age,
                ..Default::default()
            };
            assert_eq!(bytes.len(), request.encoded_len());
            assert_eq!(
                v1::QueryAndAddBatchRequest::decode(&bytes[..]).unwrap(),
                request
            );
            let add = v1::AddBatchRequest::decode(&bytes[..]).unwrap();
            assert_eq!(add.binary_keys, keys);
            let query = v1::QueryBatchRequest::decode(&bytes[..]).unwrap();
            assert_eq!((query.filter.as_str(), &query.binary_keys), (filter, &keys));
            let remove = v1::RemoveBatchRequest::decode(&bytes[..]).unwrap();
            assert_eq!(remove.binary_keys, keys);
            let streamed = v1::QueryAndAddStreamRequest::decode(&bytes[..]).unwrap();
            assert_eq!(streamed.binary_keys, keys);
            assert_eq!(streamed.max_age, max_age);
        }
    }

    #[test]
    fn a_key_is_its_bytes_whatever_its_type() {
        let shared = bytes::Bytes::from_static(b"ab");
        let batches = [
            KeyBatch::from(["ab"]),
            KeyBatch::from(vec!["ab".to_owned()]),
            KeyBatch::from(&vec![b"ab".to_vec()]),
            KeyBatch::from([*b"ab"]),
            KeyBatch::from(&[&b"ab"[..]][..]),
            KeyBatch::from_iter([shared]),
        ];
        for batch in &batches {
            assert_eq!(batch, &batches[0]);
        }
        assert!(batches[0].iter().eq([b"ab"]));
    }

    #[test]
    fn a_batch_over_the_message_limit_is_refused_here() {
        let key = "k".repeat(65_536);
        let batch: KeyBatch = std::iter::repeat_n(&key, 256).collect();
        match batch.into_message("", "", None) {
            Err(Error::TooLarge { encoded_bytes, .. }) => assert!(encoded_bytes > 256 * 65_536),
            other => panic!("{other:?}"),
        }
        assert!(KeyBatch::from([&key]).into_message("", "", None).is_ok());
    }
}
