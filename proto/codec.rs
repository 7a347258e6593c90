//! The codec of the contract: protobuf, with decoding failures blamed on the sender.
//!
//! The stock codec answers a request that does not parse, or a `string` in it that is not
//! UTF-8, with `INTERNAL`. The bytes came from the caller, so the contract calls it
//! `INVALID_ARGUMENT`, and the message names the field: prost reports the path to it. A
//! response that does not parse is still `INTERNAL`: the call may have been carried out.

use std::marker::PhantomData;

use bytes::{Buf, Bytes};
use prost::{
    DecodeError, Message, Name,
    encoding::{self, DecodeContext},
};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder},
};
use tonic_prost::{ProstCodec, ProstEncoder};

/// The most fields that a message may have, each key of a batch being one. A key of no bytes
/// takes two on the wire and 24 in memory: what a message asks for is known before it is given.
pub const MAX_FIELDS: usize = 1 << 20;

/// The fewest bytes of a field: its tag, and its length or value.
const FIELD_BYTES: usize = 2;

/// Encodes `T` and decodes `U`, see the [module](self).
#[derive(Debug, Clone)]
pub struct ContractCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for ContractCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

/// A message that can be decoded.
pub trait Decode: Sized {
    /// Whether it is a client's, who is told what is wrong with it.
    const IS_REQUEST: bool;

    /// Decodes a message, of all the bytes that there are.
    ///
    /// # Errors
    ///
    /// What is wrong with the message, and in which field.
    fn decode(message: Bytes) -> Result<Self, DecodeError>;
}

impl<M: Message + Name + Default> Decode for M {
    // Each rpc has a Request and a Response of its own: the contract says so, and `buf lint`
    // checks it.
    const IS_REQUEST: bool = matches!(
        Self::NAME.as_bytes(),
        [.., b'R', b'e', b'q', b'u', b'e', b's', b't']
    );

    fn decode(message: Bytes) -> Result<Self, DecodeError> {
        Message::decode(message)
    }
}

impl<T, U> Codec for ContractCodec<T, U>
where
    T: Message + Send + 'static,
    U: Decode + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ContractDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, ()>::raw_encoder(Default::default())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ContractDecoder(PhantomData)
    }
}

/// Decodes one message of type `U`.
#[derive(Debug, Clone)]
pub struct ContractDecoder<U>(PhantomData<U>);

impl<U: Decode> Decoder for ContractDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // Copies nothing: it is a part of what has been received.
        decode(buf.copy_to_bytes(buf.remaining())).map(Some)
    }
}

/// Decodes a message.
///
/// # Errors
///
/// INVALID_ARGUMENT for a request, and INTERNAL for a response: what is wrong with it, and in
/// which field.
pub fn decode<U: Decode>(message: Bytes) -> Result<U, Status> {
    let invalid = |error| format!("the message is not valid protobuf of the contract: {error}");
    let decoded = match fields(&message).map_err(invalid) {
        Ok(fields) if fields > MAX_FIELDS => Err(format!(
            "the message has {fields} keys and other fields; it may have at most \
             {MAX_FIELDS}: send several smaller batches"
        )),
        Ok(_) => U::decode(message).map_err(invalid),
        Err(message) => Err(message),
    };
    decoded.map_err(|message| {
        if U::IS_REQUEST {
            Status::invalid_argument(message)
        } else {
            Status::internal(message)
        }
    })
}

/// The number of fields of a message, or 0 where it is too short to have too many.
fn fields(mut message: &[u8]) -> Result<usize, DecodeError> {
    if message.len() <= MAX_FIELDS * FIELD_BYTES {
        return Ok(0);
    }
    let mut fields = 0;
    while message.has_remaining() {
        let (tag, wire_type) = encoding::decode_key(&mut message)?;
        encoding::skip_field(wire_type, tag, &mut message, DecodeContext::default())?;
        fields += 1;
    }
    Ok(fields)
}
