//! The messages with many keys, as the server reads and writes them.
//!
//! Decoded the ordinary way every key becomes a `String`: an allocation, a copy and a check of
//! its own, several times what all else costs that is done for it. Here the message is kept as
//! the bytes that came, and the keys are parts of it. On the wire nothing differs: all batch
//! requests of the contract have the filter in field 1, the keys in field 2 (as text) or 5 (as
//! bytes), the request's id in field 3 and the greatest age in field 4, and all their responses
//! the answers in field 1 and, where keys are added, a warning in field 2.

use std::ops::RangeInclusive;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::{
    DecodeError, Message,
    encoding::{self, DecodeContext, WireType, WireType::LengthDelimited},
};

use crate::{codec::Decode, v1::CapacityWarning};

/// Field numbers of the requests.
const FILTER: u32 = 1;
const KEYS: u32 = 2;
const REQUEST_ID: u32 = 3;
const MAX_AGE: u32 = 4;
const BINARY_KEYS: u32 = 5;
/// Field numbers of the responses.
const SEEN: u32 = 1;
const CAPACITY_WARNING: u32 = 2;

/// The field that keys come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Form {
    /// `keys`: UTF-8.
    #[default]
    Text = KEYS as isize,
    /// `binary_keys`: any bytes.
    Binary = BINARY_KEYS as isize,
}

impl Form {
    /// Field number and wire type, one byte.
    const fn tag(self) -> u8 {
        (self as u8) << 3 | LengthDelimited as u8
    }

    /// The name of the field.
    const fn name(self) -> &'static str {
        match self {
            Self::Text => "keys",
            Self::Binary => "binary_keys",
        }
    }
}

/// Lengths up to this are one byte, and an ASCII character.
const MAX_SHORT: u8 = 0x7f;

/// `QueryBatchRequest`, `AddBatchRequest`, `QueryAndAddBatchRequest`, `RemoveBatchRequest` and
/// `QueryAndAddStreamRequest`.
#[derive(Debug, Clone)]
pub struct BatchRequest {
    /// The filter's name. Empty: the filter named `default`.
    pub filter: String,
    /// The keys, if they came in one field.
    pub keys: Result<Keys, BothForms>,
    /// What a retry of the call repeats. Optional.
    pub request_id: String,
    /// How old a key may be to be seen. Optional.
    pub max_age: Option<prost_types::Duration>,
}

/// A message with keys in `keys` and in `binary_keys`: the contract has one of the two set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BothForms {
    /// The number of keys in `keys`.
    pub text: usize,
    /// The number of keys in `binary_keys`.
    pub binary: usize,
}

/// The keys of a [`BatchRequest`], in the message that they came in. Those of the field `keys` are
/// UTF-8, those of `binary_keys` any bytes.
///
/// Takes the memory of the message and no more; cloning it copies nothing.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    /// Fields of a message: those of keys, and others between them.
    message: Bytes,
    /// The field of all the keys.
    form: Form,
    count: usize,
    lengths: Lengths,
}

/// The bytes of the shortest and of the longest of some keys.
#[derive(Debug, Clone, Copy)]
struct Lengths {
    shortest: usize,
    longest: usize,
}

impl Default for Lengths {
    /// Those of no key.
    fn default() -> Self {
        Self {
            shortest: usize::MAX,
            longest: 0,
        }
    }
}

impl Lengths {
    #[inline]
    fn note(&mut self, key: &[u8]) {
        self.shortest = self.shortest.min(key.len());
        self.longest = self.longest.max(key.len());
    }
}

impl Keys {
    /// The number of keys.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The name of the field that they came in; `keys` if there is none.
    pub fn field(&self) -> &'static str {
        self.form.name()
    }

    /// The bytes of the message: all keys, and what stands around them.
    pub fn message_bytes(&self) -> usize {
        self.message.len()
    }

    /// The bytes of the shortest key and of the longest one; nothing if there is none. Costs
    /// nothing.
    pub fn lengths(&self) -> Option<RangeInclusive<usize>> {
        let Lengths { shortest, longest } = self.lengths;
        (!self.is_empty()).then_some(shortest..=longest)
    }

    /// The keys in their order. Finding the next one costs a few nanoseconds.
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            rest: &self.message,
            tag: self.form.tag(),
            left: self.count,
        }
    }
}

/// Iterates over [`Keys`].
#[derive(Debug, Clone)]
pub struct Iter<'k> {
    rest: &'k [u8],
    /// That of the field of the keys.
    tag: u8,
    left: usize,
}

impl<'k> Iterator for Iter<'k> {
    type Item = &'k [u8];

    #[inline]
    fn next(&mut self) -> Option<&'k [u8]> {
        self.left = self.left.checked_sub(1)?;
        if let Some((key, rest)) = short_key(self.rest, self.tag) {
            self.rest = rest;
            return Some(key);
        }
        // What was decoded once has no errors.
        loop {
            if let Field::Key(_, key) = Field::take(&mut self.rest).ok()? {
                return Some(key);
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// The key of the field of a tag that a message begins with, if it has no more than [`MAX_SHORT`]
/// bytes, and the rest of the message.
#[inline]
fn short_key(message: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    match message {
        [first, length @ ..=MAX_SHORT, rest @ ..] if *first == tag => {
            rest.split_at_checked(*length as usize)
        }
        _ => None,
    }
}

/// A field of a message.
enum Field<'k> {
    Key(Form, &'k [u8]),
    Filter(&'k [u8]),
    RequestId(&'k [u8]),
    MaxAge(&'k [u8]),
    Unknown,
}

impl<'k> Field<'k> {
    /// Takes the first field of what is left of a message.
    fn take(rest: &mut &'k [u8]) -> Result<Self, DecodeError> {
        let (tag, wire_type) = encoding::decode_key(rest)?;
        let name = match tag {
            FILTER => "filter",
            KEYS => Form::Text.name(),
            BINARY_KEYS => Form::Binary.name(),
            REQUEST_ID => "request_id",
            MAX_AGE => "max_age",
            _ => {
                encoding::skip_field(wire_type, tag, rest, DecodeContext::default())?;
                return Ok(Self::Unknown);
            }
        };
        let value = delimited(wire_type, rest).map_err(|error| blame(error, name))?;
        Ok(match tag {
            FILTER => Self::Filter(value),
            REQUEST_ID => Self::RequestId(value),
            MAX_AGE => Self::MaxAge(value),
            BINARY_KEYS => Self::Key(Form::Binary, value),
            _ => Self::Key(Form::Text, value),
        })
    }
}

/// A value with its length before it.
fn delimited<'k>(wire_type: WireType, rest: &mut &'k [u8]) -> Result<&'k [u8], DecodeError> {
    encoding::check_wire_type(LengthDelimited, wire_type)?;
    let mut behind = *rest;
    // An error if the message ends before the value does.
    encoding::skip_field(wire_type, KEYS, &mut behind, DecodeContext::default())?;
    encoding::decode_varint(rest)?;
    let (value, _) = rest.split_at(rest.len() - behind.len());
    *rest = behind;
    Ok(value)
}

/// The text of a field.
fn text(bytes: &[u8], name: &'static str) -> Result<String, DecodeError> {
    let mut field = BytesMut::new();
    encoding::encode_varint(bytes.len() as u64, &mut field);
    field.put_slice(bytes);
    let mut text = String::new();
    encoding::string::merge(
        LengthDelimited,
        &mut text,
        &mut field,
        DecodeContext::default(),
    )
    .map_err(|error| blame(error, name))?;
    Ok(text)
}

/// Checks that short keys of text, one after the other as they stand in a message, are UTF-8.
///
/// Together, for what stands between them are ASCII characters: so none is a part of another,
/// and each key is UTF-8 if and only if all of it is. Long pieces are checked many times as fast
/// as short ones.
fn check_run(run: &[u8]) -> Result<(), DecodeError> {
    if simdutf8::basic::from_utf8(run).is_ok() {
        return Ok(());
    }
    let mut rest = run;
    while let Some((key, behind)) = short_key(rest, Form::Text.tag()) {
        check_key(key)?;
        rest = behind;
    }
    Ok(())
}

fn check_key(key: &[u8]) -> Result<(), DecodeError> {
    if simdutf8::basic::from_utf8(key).is_ok() {
        return Ok(());
    }
    text(key, Form::Text.name()).map(drop)
}

fn blame(mut error: DecodeError, field: &'static str) -> DecodeError {
    error.push("BatchRequest", field);
    error
}

impl Decode for BatchRequest {
    const IS_REQUEST: bool = true;

    fn decode(message: Bytes) -> Result<Self, DecodeError> {
        let [mut filter, mut request_id] = [const { String::new() }; 2];
        let mut max_age: Option<prost_types::Duration> = None;
        let (mut texts, mut binaries, mut lengths) = (0, 0, Lengths::default());
        let mut rest = &message[..];
        loop {
            let texts_begin = rest;
            while let Some((key, behind)) = short_key(rest, Form::Text.tag()) {
                rest = behind;
                texts += 1;
                lengths.note(key);
            }
            let (unchecked, _) = texts_begin.split_at(texts_begin.len() - rest.len());
            check_run(unchecked)?;
            while let Some((key, behind)) = short_key(rest, Form::Binary.tag()) {
                rest = behind;
                binaries += 1;
                lengths.note(key);
            }
            if rest.is_empty() {
                break;
            }
            match Field::take(&mut rest)? {
                Field::Key(Form::Text, key) => {
                    check_key(key)?;
                    texts += 1;
                    lengths.note(key);
                }
                Field::Key(Form::Binary, key) => {
                    binaries += 1;
                    lengths.note(key);
                }
                Field::Filter(name) => filter = text(name, "filter")?,
                Field::RequestId(id) => request_id = text(id, "request_id")?,
                Field::MaxAge(age) => {
                    let merged = max_age.get_or_insert_default().merge(age);
                    merged.map_err(|error| blame(error, "max_age"))?;
                }
                Field::Unknown => {}
            }
        }
        let of = |form, count| Keys {
            message,
            form,
            count,
            lengths,
        };
        let keys = match (texts, binaries) {
            (count, 0) => Ok(of(Form::Text, count)),
            (0, count) => Ok(of(Form::Binary, count)),
            (text, binary) => Err(BothForms { text, binary }),
        };
        Ok(Self {
            filter,
            keys,
            request_id,
            max_age,
        })
    }
}

/// `QueryBatchResponse`, `QueryAndAddBatchResponse` and `QueryAndAddStreamResponse`, and
/// `RemoveBatchResponse`, which says `removed` in the place of `seen`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BatchResponse {
    /// Whether each key had been seen, in the order of the keys.
    pub seen: Vec<bool>,
    /// The warning for those who add keys.
    pub capacity_warning: Option<CapacityWarning>,
}

impl Message for BatchResponse {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        if !self.seen.is_empty() {
            encoding::encode_key(SEEN, LengthDelimited, buf);
            encoding::encode_varint(self.seen.len() as u64, buf);
            // A bool is a byte of 0 or 1, in memory as on the wire.
            buf.put_slice(bytemuck::cast_slice(&self.seen));
        }
        if let Some(warning) = &self.capacity_warning {
            encoding::message::encode(CAPACITY_WARNING, warning, buf);
        }
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            SEEN => encoding::bool::merge_repeated(wire_type, &mut self.seen, buf, context),
            CAPACITY_WARNING => {
                let warning = self.capacity_warning.get_or_insert_default();
                encoding::message::merge(wire_type, warning, buf, context)
            }
            _ => encoding::skip_field(wire_type, tag, buf, context),
        }
    }

    fn encoded_len(&self) -> usize {
        let seen = match self.seen.len() {
            0 => 0,
            count => encoding::key_len(SEEN) + encoding::encoded_len_varint(count as u64) + count,
        };
        let warning = self.capacity_warning.as_ref();
        seen + warning.map_or(0, |warning| {
            encoding::message::encoded_len(CAPACITY_WARNING, warning)
        })
    }

    fn clear(&mut self) {
        self.seen.clear();
        self.capacity_warning = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{QueryAndAddBatchRequest, QueryAndAddBatchResponse};

    fn decode(message: &[u8]) -> Result<BatchRequest, DecodeError> {
        BatchRequest::decode(Bytes::copy_from_slice(message))
    }

    /// Asserts that a message means the same to prost and here, or nothing to both.
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

    /// Asserts that the keys are those of one of two fields.
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

    /// Bytes that no text has.
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
            // Fields come in any order, more than once, and some are of a later version.
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

        // With keys of text in any place, short and long ones.
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
        // Half a character at the end of one key, and half at the start of the next.
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
}
