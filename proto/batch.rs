//! The messages with many keys, as the server reads and writes them.
//!
//! The usual decoder makes a `String` of every key. Each needs an allocation, a copy and a check,
//! which together cost several times more than all other work for the key. This module keeps the
//! message as the received bytes, and the keys are parts of them. The wire format is the same.
//!
//! All batch requests of the contract have the filter in field 1, the keys in field 2 (as text) or
//! 5 (as bytes), the request's id in field 3 and the greatest age in field 4. All their responses
//! have the answers in field 1. If keys are added, field 2 has a warning.

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

/// The field that contains the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Form {
    /// `keys`: UTF-8.
    #[default]
    Text = KEYS as isize,
    /// `binary_keys`: any bytes.
    Binary = BINARY_KEYS as isize,
}

impl Form {
    /// Returns the field number and the wire type in one byte.
    const fn tag(self) -> u8 {
        (self as u8) << 3 | LengthDelimited as u8
    }

    /// Returns the name of the field.
    const fn name(self) -> &'static str {
        match self {
            Self::Text => "keys",
            Self::Binary => "binary_keys",
        }
    }
}

/// The greatest length that takes one byte. The byte is an ASCII character.
const MAX_SHORT: u8 = 0x7f;

/// `QueryBatchRequest`, `AddBatchRequest`, `QueryAndAddBatchRequest`, `RemoveBatchRequest` and
/// `QueryAndAddStreamRequest`.
#[derive(Debug, Clone)]
pub struct BatchRequest {
    /// The filter's name. If empty, the filter named `default`.
    pub filter: String,
    /// The keys, if all of them came in one field.
    pub keys: Result<Keys, BothForms>,
    /// The idempotency key: a retry of the call repeats it. Optional.
    pub request_id: String,
    /// The greatest age of a key that counts as seen. Optional.
    pub max_age: Option<prost_types::Duration>,
}

/// The error for a message with keys in both `keys` and `binary_keys`. The contract allows only one
/// of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BothForms {
    /// The number of keys in `keys`.
    pub text: usize,
    /// The number of keys in `binary_keys`.
    pub binary: usize,
}

/// The keys of a [`BatchRequest`], in the message that contained them. The keys of the field `keys`
/// are UTF-8, the keys of `binary_keys` are any bytes.
///
/// Uses only the memory of the message. A clone copies nothing.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    /// The fields of a message: keys, and other fields between them.
    message: Bytes,
    /// The field that contains all the keys.
    form: Form,
    count: usize,
    lengths: Lengths,
}

/// The lengths in bytes of the shortest and the longest key.
#[derive(Debug, Clone, Copy)]
struct Lengths {
    shortest: usize,
    longest: usize,
}

impl Default for Lengths {
    /// Returns the lengths for no keys.
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
    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the name of the field that contained the keys, or `keys` if there are none.
    pub fn field(&self) -> &'static str {
        self.form.name()
    }

    /// Returns the length of the message: all keys and the bytes between them.
    pub fn message_bytes(&self) -> usize {
        self.message.len()
    }

    /// Returns the lengths of the shortest and the longest key, or `None` without keys. The lengths
    /// are stored, so this is free.
    pub fn lengths(&self) -> Option<RangeInclusive<usize>> {
        let Lengths { shortest, longest } = self.lengths;
        (!self.is_empty()).then_some(shortest..=longest)
    }

    /// Returns the keys in their order. Each step costs a few nanoseconds.
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
    /// The tag of the field with the keys.
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
        // The message was decoded once before, so no error occurs.
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

/// Returns the key at the start of a message and the rest of the message, if the key has the given
/// tag and at most [`MAX_SHORT`] bytes.
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
    /// Removes the first field from the rest of a message.
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

/// Returns the bytes of a length-delimited value.
fn delimited<'k>(wire_type: WireType, rest: &mut &'k [u8]) -> Result<&'k [u8], DecodeError> {
    encoding::check_wire_type(LengthDelimited, wire_type)?;
    let mut behind = *rest;
    // Fails if the message ends before the value does.
    encoding::skip_field(wire_type, KEYS, &mut behind, DecodeContext::default())?;
    encoding::decode_varint(rest)?;
    let (value, _) = rest.split_at(rest.len() - behind.len());
    *rest = behind;
    Ok(value)
}

/// Decodes the text of a field.
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

/// Checks that short text keys, one after the other as they stand in a message, are UTF-8.
///
/// Checks them together. The bytes between the keys are ASCII characters, so they belong to no
/// other character: each key is UTF-8 if and only if the whole run is. Long pieces are checked many
/// times as fast as short ones.
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
/// `RemoveBatchResponse`, which has `removed` instead of `seen`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BatchResponse {
    /// A flag for each key, in the order of the keys: the key had been seen.
    pub seen: Vec<bool>,
    /// The capacity warning, for calls that add keys.
    pub capacity_warning: Option<CapacityWarning>,
}

impl Message for BatchResponse {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        if !self.seen.is_empty() {
            encoding::encode_key(SEEN, LengthDelimited, buf);
            encoding::encode_varint(self.seen.len() as u64, buf);
            // A bool is a byte of 0 or 1, both in memory and on the wire.
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
mod tests;
