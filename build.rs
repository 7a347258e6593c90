//! Compiles `proto/` to Rust with `protox`, a protobuf compiler in Rust, so that a
//! machine with nothing but Rust on it can build the whole workspace.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

const FILES: &[&str] = &[
    "seenset/v1/dedup_service.proto",
    "seenset/v1/filter_service.proto",
];

/// The calls that the server answers with a stream of one message: the same on the wire, and
/// that message can be made after the head of the response.
const LATE: &[&str] = &["Query", "Add", "QueryAndAdd"];

/// What the server has in the place of generated messages.
const BATCH_MESSAGES: &[(&str, &str)] = &[
    ("QueryBatchRequest", "crate::batch::BatchRequest"),
    ("QueryBatchResponse", "crate::batch::BatchResponse"),
    ("AddBatchRequest", "crate::batch::BatchRequest"),
    ("QueryAndAddBatchRequest", "crate::batch::BatchRequest"),
    ("QueryAndAddBatchResponse", "crate::batch::BatchResponse"),
    ("QueryAndAddStreamRequest", "crate::batch::BatchRequest"),
    ("QueryAndAddStreamResponse", "crate::batch::BatchResponse"),
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto/seenset");

    // Source information carries the comments into the descriptor set, and from there
    // through server reflection to whoever asks grpcurl to `describe` a message.
    let mut descriptors = protox::Compiler::new(["proto"])?
        .include_imports(true)
        .include_source_info(true)
        .open_files(FILES)?
        .file_descriptor_set();
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;

    // The codec tells requests from responses by their names.
    let mut config = tonic_prost_build::Config::new();
    config.enable_type_names();
    builder().compile_fds_with_config(descriptors.clone(), config)?;

    // What our server implements: the same, but for the messages with many keys, which it reads
    // without an allocation for each, and for answers that it makes late.
    let out = out.join("server");
    fs::create_dir_all(&out)?;
    let mut server = builder()
        .build_client(false)
        .out_dir(&out)
        .extern_path(".seenset.v1", "crate::v1");
    for (message, own) in BATCH_MESSAGES {
        server = server.extern_path(format!(".seenset.v1.{message}"), own);
    }
    let services = descriptors
        .file
        .iter_mut()
        .flat_map(|file| &mut file.service);
    for method in services.flat_map(|service| &mut service.method) {
        if LATE.contains(&method.name()) {
            method.server_streaming = Some(true);
        }
    }
    server.compile_fds(descriptors)?;
    Ok(())
}

/// With a codec of our own, because the stock one answers a malformed message with INTERNAL, and
/// the contract says INVALID_ARGUMENT.
fn builder() -> tonic_prost_build::Builder {
    tonic_prost_build::configure().codec_path("crate::codec::ContractCodec")
}
