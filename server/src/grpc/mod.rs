//! The rpcs: thin services that convert, call the engine and map its errors.

mod calls;
mod convert;
mod dedup;
mod filters;
mod health;
mod intake;
mod malformed;
mod one_key;
mod services;
mod status;
mod stream;
#[cfg(test)]
mod testing;

use std::time::Duration;

use seenset_proto::server::filter_service_server::FilterServiceServer;
use tonic::service::Routes;
use tonic_reflection::server::Error as ReflectionError;

pub use calls::{Calls, Drain};
pub use health::Health;
pub use malformed::correct_response;
pub use services::Services;
pub use stream::WINDOW_BYTES as STREAM_WINDOW_BYTES;

use self::{dedup::Dedup, filters::Filters};
use crate::engine::Engine;

/// How long a stream may be silent while the server drains. A client at work sends its next
/// batch sooner; waiting for one that is not would use up the whole drain timeout.
const DRAIN_SILENCE: Duration = Duration::from_secs(1);

/// What the services tell the rest of the server, and are told by it.
#[derive(Debug)]
pub struct Rpcs {
    /// All services, to be served on each core.
    pub services: Services,
    /// Who reports whether calls are welcome.
    pub health: Health,
    /// The calls in flight, as a layer for the services.
    pub calls: Calls,
}

/// Builds all services. They end idle streams once the calls are drained.
///
/// # Errors
///
/// If the descriptor set that reflection is to serve does not decode.
pub async fn rpcs(engine: Engine, max_message_bytes: usize) -> Result<Rpcs, ReflectionError> {
    let calls = Calls::default();
    let (health, health_service) = Health::new(calls.drain_state()).await;

    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(seenset_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let dedup = Dedup::new(engine.clone(), calls.drain_state());
    let filters =
        FilterServiceServer::new(Filters::new(engine)).max_decoding_message_size(max_message_bytes);
    let rest = Routes::new(filters)
        .add_service(health_service)
        .add_service(reflection().build_v1()?)
        // What grpcurl knew before its version 1.9.
        .add_service(reflection().build_v1alpha()?);
    Ok(Rpcs {
        services: Services::new(dedup, rest, max_message_bytes),
        health,
        calls,
    })
}
