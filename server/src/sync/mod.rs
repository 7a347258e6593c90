//! The synchronization primitives, under names of this crate. The package `seenset-models` compiles
//! the engine with `--cfg loom`, and then they are those of loom. Its tests try all orders in which
//! threads can meet.

#[cfg(loom)]
mod loom;
#[cfg(not(loom))]
mod machine;

#[cfg(loom)]
pub use self::loom::*;
#[cfg(not(loom))]
pub(crate) use self::machine::*;
