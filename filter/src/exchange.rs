//! Filters of other programs: their hashes, the bits that their keys set, and their files.
//!
//! [`guava`] is the filter of Google's Guava for Java: it can be read, written and created here.
//! [`redisbloom`] is the output of `BF.SCANDUMP` of RedisBloom: it can be read. Both answer here
//! exactly as they do there, bit for bit. So they keep their hashes and their arithmetic, and each
//! has its own [`Layout`](crate::spec::Layout): the bits of a key lie anywhere in one whole array,
//! of which a filter has [`ForeignBits`]. Their hashes have no secret. An attacker who can choose
//! keys can choose some that look seen, here and there.
//!
//! No field of a file is trusted: each is checked against the others and against the length of the
//! file before the caller gets a size that it might allocate. The bits are handed over in pieces of
//! [`MAX_PIECE_WORDS`].

mod array;
mod error;
mod foreign_bits;
pub mod guava;
mod piece;
pub mod redisbloom;

pub use error::ExchangeError;
pub(crate) use foreign_bits::either;
pub use foreign_bits::{ForeignBits, Part};
pub use piece::MAX_PIECE_WORDS;
