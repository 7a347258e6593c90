//! `grpc.health.v1.Health`: whether calls are welcome.

use std::pin::Pin;

use futures_util::{Stream, StreamExt};
use seenset_proto::v1::{dedup_service_server, filter_service_server};
use tokio::{sync::watch, time::sleep};
use tonic::{Request, Response, Status, async_trait};
use tonic_health::{
    ServingStatus,
    pb::{
        HealthCheckRequest, HealthCheckResponse,
        health_server::{Health as HealthRpcs, HealthServer},
    },
    server::{HealthReporter, HealthService},
};

use super::{DRAIN_SILENCE, Drain};

/// The service that takes keys.
const DEDUP: &str = dedup_service_server::SERVICE_NAME;

/// The names under which health is asked for; the empty one is the server as a whole.
const SERVICES: [&str; 3] = ["", DEDUP, filter_service_server::SERVICE_NAME];

/// What health checks are answered, for the server and for each of its services.
#[derive(Debug, Clone)]
pub struct Health {
    reporter: HealthReporter,
}

impl Health {
    /// Health that says NOT_SERVING, and the service that tells it to callers.
    pub(super) async fn new(
        draining: watch::Receiver<Drain>,
    ) -> (Self, HealthServer<EndingWatches>) {
        let health = Self {
            reporter: HealthReporter::new(),
        };
        health.not_serving().await;
        let inner = HealthService::from_health_reporter(health.reporter.clone());
        let service = HealthServer::new(EndingWatches { inner, draining });
        (health, service)
    }

    /// Says that calls are welcome.
    pub async fn serving(&self) {
        self.set(ServingStatus::Serving).await;
    }

    /// Says whether the service that takes keys refuses them because they cannot be logged. The
    /// server as a whole still serves: it answers queries, and to start it again would not help.
    pub async fn read_only(&self, is_read_only: bool) {
        let status = match is_read_only {
            true => ServingStatus::NotServing,
            false => ServingStatus::Serving,
        };
        self.reporter.set_service_status(DEDUP, status).await;
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

/// The stock service, but that its watches end when the server drains: balancers hold one
/// for as long as they live, and each would hold up the stop for the whole drain timeout.
pub struct EndingWatches {
    inner: HealthService,
    draining: watch::Receiver<Drain>,
}

#[async_trait]
impl HealthRpcs for EndingWatches {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        self.inner.check(request).await
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let statuses = self.inner.watch(request).await?.into_inner();
        let mut draining = self.draining.clone();
        let end = async move {
            // An error means that the server is gone, which is an end too.
            let _ = draining.wait_for(|drain| *drain >= Drain::Begun).await;
            // Long enough for the watcher to be told NOT_SERVING first.
            sleep(DRAIN_SILENCE).await;
        };
        Ok(Response::new(Box::pin(statuses.take_until(end))))
    }
}
