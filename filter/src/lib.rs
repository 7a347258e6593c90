//! The Bloom filter algorithms of seenset, on plain memory.
//!
//! A key is brought into its canonical form where the filter has a [`profile`], and hashed once,
//! to 128 keyed bits ([`hash`]). A filter's [`spec`] says for how
//! many keys and which false-positive rate it is made; [`sizing`] computes the bits that
//! takes, and back from bits to rates. The [`shape`] that follows from the spec says how
//! the bits are divided into shards and which of them a key sets: one cache line
//! ([`blocked`]) or anywhere in a shard ([`classic`]). A filter that can forget has a [cell](cells) of
//! four bits in the place of each: a counter, so that keys can be removed ([`counting`]), or a stamp
//! of the time, so that they are forgotten after a while ([`aging`]). One that can grow has layers
//! ([`scaling`]). What its rate really is, keys tell that nobody can add ([`canary`]). Filters that other programs have made hash and divide in
//! ways of their own ([`exchange`]).
//!
//! Nothing here takes a lock, reads a clock, opens a file or allocates a filter: the caller
//! brings the memory, and what files of other programs are read from or written to. It is a
//! crate of its own so that the compiler keeps it so, and so that the command line can plan a
//! filter without the server.
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

pub mod aging;
pub mod blocked;
pub mod canary;
pub mod cells;
pub mod classic;
pub mod counting;
pub mod division;
pub mod exchange;
pub mod hash;
pub mod profile;
pub mod scaling;
pub mod shape;
pub mod sizing;
pub mod spec;
pub mod union;
