//! The gRPC contract of seenset as Rust: the messages, clients and servers generated
//! from `proto/seenset/v1/*.proto`, and the descriptor set that server reflection serves.
//!
//! The `.proto` files are the documentation of the contract. This crate adds only the [`codec`] of
//! the generated code, the form of messages with many keys in the server ([`batch`]), and the text
//! form of durations and sizes that both programs use (`units`).

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

/// The encoded `google.protobuf.FileDescriptorSet` of package `seenset.v1` and of all its imports,
/// including comments.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost_types::FileDescriptorSet;

    use super::FILE_DESCRIPTOR_SET;

    /// Without `go_package`, protoc-gen-go refuses a file. Without `java_package`, the classes of a
    /// file have a package that Java cannot use.
    #[test]
    fn files_say_where_generated_code_goes() {
        let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
        let ours = set
            .file
            .iter()
            .filter(|file| file.package() == "seenset.v1");
        let options: Vec<_> = ours.map(|file| file.options.clone().unwrap()).collect();
        assert_eq!(options.len(), 2);
        for options in options {
            assert_eq!(options.go_package(), "seenset/v1;seensetv1");
            assert_eq!(options.java_package(), "com.seenset.v1");
            assert!(options.java_multiple_files());
            assert_eq!(options.csharp_namespace(), "Seenset.V1");
            assert_eq!(options.ruby_package(), "Seenset::V1");
            assert_eq!(options.php_namespace(), r"Seenset\V1");
            assert_eq!(options.objc_class_prefix(), "SXX");
        }
    }
}
