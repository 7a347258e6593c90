//! The program `seenset` and its parts, against the real server and against services that fail on
//! demand.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bench;
mod binary;
mod capacity;
mod cli;
mod compressed;
mod continuing;
mod environment;
mod exchange;
mod matching;
mod real;
mod run;
mod scaling;
mod server;
mod sockets;
mod streams;
mod text;
mod whole_filters;
