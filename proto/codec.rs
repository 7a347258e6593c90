//! The codec of the contract: protobuf, with decoding failures attributed to the sender.
//!
//! The stock codec answers a request that does not parse, or that has a `string` that is not UTF-8,
//! with `INTERNAL`. But the bytes came from the caller, so the contract requires
//! `INVALID_ARGUMENT`. The message names the field: prost reports the path to it.
//!
//! A response that does not parse is still `INTERNAL`, because the server may have carried out the
//! call.

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

/// The most fields that a message can have. Each key of a batch is one field.
///
/// An empty key takes two bytes on the wire and 24 in memory. The field count shows the memory that
/// a message needs before the memory is allocated.
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
    /// True for messages of clients. A client gets a description of the decoding error.
    const IS_REQUEST: bool;

    /// Decodes a message from all of the bytes.
    ///
    /// # Errors
    ///
    /// A description of the error, with the field.
    fn decode(message: Bytes) -> Result<Self, DecodeError>;
}

impl<M: Message + Name + Default> Decode for M {
    // Each rpc has its own Request and Response type: the contract requires it, and `buf lint`
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
        // Copies nothing: the message is a slice of the received bytes.
        decode(buf.copy_to_bytes(buf.remaining())).map(Some)
    }
}

/// Decodes a message.
///
/// # Errors
///
/// INVALID_ARGUMENT for a request, INTERNAL for a response. The message describes the error and
/// names the field.
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

/// Returns the number of fields of a message, or 0 if the message is too short to have too many.
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
