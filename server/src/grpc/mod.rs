//! The rpcs: thin services that convert, call the engine and map its errors.

mod convert;
mod dedup;
mod filters;
mod oversize;
mod status;
mod stream;

use seenset_proto::v1::{
    dedup_service_server::{self, DedupServiceServer},
    filter_service_server::{self, FilterServiceServer},
};
use tokio::sync::watch;
use tonic::service::Routes;
use tonic_health::{ServingStatus, server::HealthReporter};
use tonic_reflection::server::Error as ReflectionError;

pub use oversize::name_the_limit;

use self::{dedup::Dedup, filters::Filters};
use crate::engine::Engine;

/// The names under which health is asked for; the empty one is the server as a whole.
const SERVICES: [&str; 3] = [
    "",
    dedup_service_server::SERVICE_NAME,
    filter_service_server::SERVICE_NAME,
];

/// What the services tell the rest of the server, and are told by it.
#[derive(Debug)]
pub struct Rpcs {
    /// All services, ready to be served.
    pub routes: Routes,
    /// Who reports whether calls are welcome.
    pub health: Health,
}

/// Builds all services. They end idle streams once `draining` says so.
///
/// # Errors
///
/// If the descriptor set that reflection is to serve does not decode.
pub async fn rpcs(
    engine: Engine,
    max_message_bytes: usize,
    draining: watch::Receiver<bool>,
) -> Result<Rpcs, ReflectionError> {
    let (reporter, health_service) = tonic_health::server::health_reporter();
    let health = Health { reporter };
    health.set(ServingStatus::NotServing).await;

    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(seenset_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let dedup = DedupServiceServer::new(Dedup::new(engine.clone(), draining))
        .max_decoding_message_size(max_message_bytes);
    let filters =
        FilterServiceServer::new(Filters::new(engine)).max_decoding_message_size(max_message_bytes);
    let routes = Routes::new(dedup)
        .add_service(filters)
        .add_service(health_service)
        .add_service(reflection().build_v1()?)
        // What grpcurl knew before its version 1.9.
        .add_service(reflection().build_v1alpha()?);
    Ok(Rpcs { routes, health })
}

/// What `grpc.health.v1.Health` answers, for the server and for each of its services.
#[derive(Debug, Clone)]
pub struct Health {
    reporter: HealthReporter,
}

impl Health {
    /// Says that calls are welcome.
    pub async fn serving(&self) {
        self.set(ServingStatus::Serving).await;
    }

    /// Says that they are not: the server recovers, or is about to stop.
    pub async fn not_serving(&self) {
        self.set(ServingStatus::NotServing).await;
    }

    async fn set(&self, status: ServingStatus) {
        // The empty name too: it is reported as serving from the start otherwise.
        for service in SERVICES {
            self.reporter.set_service_status(service, status).await;
        }
    }
}
