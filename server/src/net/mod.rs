//! Connections: what is read of them and written to them, and HTTP/2.

mod call;
mod flood;
mod frames;
mod header_table;
pub mod http2;
mod traffic;
