//! The codec of the contract: protobuf, with decoding failures blamed on the sender.
//!
//! The stock codec answers a request that does not parse, or a `string` in it that is not
//! UTF-8, with `INTERNAL`. The bytes came from the caller, so the contract calls it
//! `INVALID_ARGUMENT`, and the message names the field: prost reports the path to it. A
//! response that does not parse is still `INTERNAL`: the call may have been carried out.

use std::marker::PhantomData;

use prost::{Message, Name};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder},
};
use tonic_prost::{ProstCodec, ProstEncoder};

/// Encodes `T` and decodes `U`, see the [module](self).
#[derive(Debug, Clone)]
pub struct ContractCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for ContractCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for ContractCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Name + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ContractDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(Default::default())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ContractDecoder(PhantomData)
    }
}

/// Decodes one message of type `U`.
#[derive(Debug, Clone)]
pub struct ContractDecoder<U>(PhantomData<U>);

impl<U: Message + Name + Default> Decoder for ContractDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        U::decode(buf).map(Some).map_err(|error| {
            let message = format!("the message is not valid protobuf of the contract: {error}");
            // Each rpc has a Request and a Response of its own: the contract says so, and
            // `buf lint` checks it.
            if U::NAME.ends_with("Request") {
                Status::invalid_argument(message)
            } else {
                Status::internal(message)
            }
        })
    }
}
