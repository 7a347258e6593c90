//! The Bloom filter algorithms of seenset, on plain memory.
//!
//! If the filter has a [`profile`], a key is brought into its canonical form. It is then hashed
//! once, to 128 keyed bits ([`hash`]). A filter's [`spec`] gives the number of keys and the
//! false-positive rate. [`sizing`] computes the bits for these, and the rate for given bits. The
//! spec determines the [`shape`]: the division of the bits into shards. The [`mod@format`] of
//! the memory determines the bits that a key sets: in one cache line ([`blocked`]) or anywhere in a
//! shard ([`classic`]). A filter that can forget has a [cell](cells) of four bits in the place of
//! each bit, and a key has its cells in [two lines](two_lines). The cell is a counter, so that keys
//! can be removed ([`counters`]), or a stamp of the time, so that keys are forgotten after a while
//! ([`stamps`]). A filter that can grow has layers ([`scaling`]). Canaries, keys that no client can
//! add, measure the real rate of a filter ([`canary`]). Filters of other programs hash and divide in
//! their own ways ([`exchange`]).
//!
//! Nothing here takes a lock, reads a clock, opens a file or allocates a filter. The caller brings
//! the memory, and the readers and writers for files of other programs. It is a separate crate so
//! that the compiler enforces this, and so that the command line can plan a filter without the
//! server.
//!
//! # References
//!
//! * B. H. Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", CACM 1970
//! * L. Fan, P. Cao, J. Almeida, A. Broder, "Summary Cache: A Scalable Wide-Area Web Cache
//!   Sharing Protocol", IEEE/ACM Transactions on Networking 2000
//! * A. Kirsch, M. Mitzenmacher, "Less Hashing, Same Performance: Building a Better Bloom
//!   Filter", ESA 2006
//! * P. S. Almeida, C. Baquero, N. Preguiça, D. Hutchison, "Scalable Bloom Filters", Information
//!   Processing Letters 2007
//! * F. Putze, P. Sanders, J. Singler, "Cache-, Hash- and Space-Efficient Bloom Filters",
//!   WEA 2007
//! * S. J. Swamidass, P. Baldi, "Mathematical Correction for Fingerprint Similarity Measures to
//!   Improve Chemical Retrieval", J. Chem. Inf. Model. 2007

pub mod blocked;
pub mod canary;
pub mod cells;
pub mod classic;
pub mod counters;
pub mod exchange;
pub mod format;
pub mod hash;
pub mod key_set;
pub mod limits;
mod names;
pub mod profile;
pub mod scaling;
pub mod shape;
pub mod shard_map;
pub mod sizing;
pub mod spec;
pub mod stamps;
pub mod two_lines;
pub mod union;
