//! Files of the server, with the locks and atomic numbers of [`loom`] in the place of their own,
//! so that all orders can be tried in which threads meet there, also those that a processor with
//! a weaker memory than that of this machine would have.
//!
//! What stands around them in the server is here as small as they need it.
// Not with the files' own tests, which are the server's.
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
    /// None is.
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
