//! The rpcs: thin services that convert messages, call the engine and map its errors to statuses.

mod admin;
mod convert;
mod core;
mod dedup;
mod services;
mod status;
#[cfg(test)]
mod testing;
mod wire;

use std::time::Duration;

use seenset_proto::v1::filter_service_server::FilterServiceServer;
use tonic::service::Routes;
use tonic_reflection::server::Error as ReflectionError;

pub use admin::health::Health;
pub use dedup::stream::WINDOW_BYTES as STREAM_WINDOW_BYTES;
pub use services::{CoreServices, Services};
pub use status::unanswered;
pub use wire::{
    calls::{Calls, Drain},
    memory::{CALL_BYTES, Charge, ClientMemory, ConnectionMemory, MemoryError, QueuePlace},
    received::Received,
    response::{Sendable, trailers},
};

use self::admin::filters::Filters;
use crate::engine::Engine;

/// The time that a stream may be silent while the server drains. An active client sends its next
/// batch sooner; waiting for one that does not would use up the whole drain timeout.
const DRAIN_SILENCE: Duration = Duration::from_secs(1);

/// The longest message to the services that tonic answers.
const SMALL_MESSAGE_BYTES: usize = 64 << 10;

/// The time that a request to these services has to arrive.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// The time that a request still has to arrive after a stop has begun. A call whose request has not
/// arrived has not begun, and is not worth the whole drain timeout.
const ARRIVAL_PATIENCE: Duration = Duration::from_secs(3);

/// The services, and the handles that the rest of the server uses to control them.
#[derive(Debug)]
pub struct Rpcs {
    /// All services, to be served on each core.
    pub services: Services,
    /// The status of the health checks.
    pub health: Health,
    /// The calls in flight.
    pub calls: Calls,
}

/// Builds all services. They end idle streams once the calls are drained.
///
/// # Errors
///
/// The error of decoding the descriptor set that reflection serves.
pub async fn rpcs(engine: Engine, max_message_bytes: usize) -> Result<Rpcs, ReflectionError> {
    let calls = Calls::default();
    let (health, health_service) = Health::new(calls.drain_state()).await;

    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(seenset_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // grpcurl before version 1.9 knows `v1alpha` alone.
    let (reflection, old_reflection) = (reflection().build_v1()?, reflection().build_v1alpha()?);
    let filters = FilterServiceServer::new(Filters::new(engine.clone(), calls.drain_state()));
    let rest = Routes::new(filters.max_decoding_message_size(SMALL_MESSAGE_BYTES))
        .add_service(health_service.max_decoding_message_size(SMALL_MESSAGE_BYTES))
        .add_service(reflection.max_decoding_message_size(SMALL_MESSAGE_BYTES))
        .add_service(old_reflection.max_decoding_message_size(SMALL_MESSAGE_BYTES));
    Ok(Rpcs {
        services: Services::new(engine, calls.clone(), max_message_bytes, rest),
        health,
        calls,
    })
}
