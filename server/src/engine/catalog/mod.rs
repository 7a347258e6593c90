//! The filters of a server by name, and the operations on whole filters: one file for each, from the
//! call of the operator to the bits and the files.

mod copy;
mod exchange;
mod filters;
mod merge;
mod mirror;
mod names;
mod rebuild;
mod registry;
mod rename;
mod reset;

pub use self::{
    exchange::{Export, FileFormat, Import},
    filters::{Creation, Page},
    names::{Creating, Promised},
    rebuild::change_both,
    registry::{Entry, Registry},
};
