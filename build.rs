//! Compiles `proto/` to Rust with `protox`, a protobuf compiler in Rust, so that a
//! machine with nothing but Rust on it can build the whole workspace.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

const FILES: &[&str] = &[
    "seenset/v1/dedup_service.proto",
    "seenset/v1/filter_service.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto/seenset");

    // Source information carries the comments into the descriptor set, and from there
    // through server reflection to whoever asks grpcurl to `describe` a message.
    let descriptors = protox::Compiler::new(["proto"])?
        .include_imports(true)
        .include_source_info(true)
        .open_files(FILES)?
        .file_descriptor_set();
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;

    // The codec tells requests from responses by their names.
    let mut config = tonic_prost_build::Config::new();
    config.enable_type_names();
    // With a codec of our own, because the stock one answers a malformed message with INTERNAL,
    // and the contract says INVALID_ARGUMENT.
    tonic_prost_build::configure()
        .codec_path("crate::codec::ContractCodec")
        .compile_fds_with_config(descriptors, config)?;
    Ok(())
}
