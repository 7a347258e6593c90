//! The connections: reading, writing, and HTTP/2.

mod call;
mod flood;
mod frames;
mod header_table;
pub mod http2;
mod traffic;
