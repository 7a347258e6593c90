//! Filters of other programs: how they hash, which bits they set, and their files.
//!
//! [`guava`] is the filter of Google's Guava for Java, read, written and made here;
//! [`redisbloom`] is what `BF.SCANDUMP` of RedisBloom hands out, which is read. Both answer
//! here as they do there, bit for bit, so they keep their hashes and their arithmetic, and
//! have a [`Layout`](crate::spec::Layout) each: the bits of a key lie anywhere in one
//! whole array, of which a filter has [`Parts`]. Their hashes have no secret. Whoever may choose keys can choose some that
//! look seen, here as well as there.
//!
//! A file is believed only as far as its bytes bear it out: every field is checked against
//! the others and against the length of the file before the caller hears of a size that it
//! might allocate, and the bits are handed over in pieces of [`MAX_PIECE_WORDS`].

mod array;
mod error;
pub mod guava;
mod murmur;
mod parts;
mod piece;
pub mod redisbloom;

pub use error::ExchangeError;
pub(crate) use parts::either;
pub use parts::{Part, Parts};
pub use piece::MAX_PIECE_WORDS;
