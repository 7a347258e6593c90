//! Files of the server, with [`loom`]'s locks and atomic numbers instead of the usual ones. So loom
//! can try all orders in which threads meet, including those of a processor with weaker memory
//! ordering than this machine.
//!
//! The server's code around these files is reduced to the minimum that they need.
// The files' own tests belong to the server and are left out.
#![cfg(not(test))]
#![allow(
    missing_docs,
    dead_code,
    unused_imports,
    clippy::new_without_default,
    clippy::unwrap_used,
    reason = "a part of the tests, of which the server uses more than they do"
)]

pub use seenset_filter as filter;

pub mod engine;
pub mod store;
pub mod sync;

mod planted {
    /// The planted bugs. No bug is active here.
    #[derive(Clone, Copy)]
    pub enum Bug {
        NoReservation,
    }

    impl Bug {
        pub const fn is_planted(self) -> bool {
            false
        }
    }
}
