//! The gRPC contract of seenset as Rust: the messages, clients and servers generated
//! from `proto/seenset/v1/*.proto`, and the descriptor set that server reflection serves.
//!
//! The `.proto` files are the documentation of the contract; nothing is added here but
//! the [`codec`] that the generated code encodes and decodes with, and the form that messages
//! with many keys have in the server ([`batch`]), and how durations and sizes are written where
//! both programs take them (`units`).

pub mod batch;
pub mod codec;
#[cfg(feature = "units")]
pub mod units;

/// Package `seenset.v1`.
#[allow(
    missing_docs,
    reason = "generated: its documentation is in the .proto files"
)]
#[allow(clippy::all, reason = "generated")]
pub mod v1 {
    tonic::include_proto!("seenset.v1");
}

/// The encoded `google.protobuf.FileDescriptorSet` of package `seenset.v1` with all it
/// imports, comments included.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
