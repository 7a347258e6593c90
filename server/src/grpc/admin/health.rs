//! `grpc.health.v1.Health`: reports whether the server serves calls.

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

use crate::grpc::{DRAIN_SILENCE, wire::calls::Drain};

/// The service that takes keys.
const DEDUP: &str = dedup_service_server::SERVICE_NAME;

/// The names of services in health checks. The empty name is the server as a whole.
const SERVICES: [&str; 3] = ["", DEDUP, filter_service_server::SERVICE_NAME];

/// The health status of the server and of each of its services.
#[derive(Debug, Clone)]
pub struct Health {
    reporter: HealthReporter,
}

impl Health {
    /// Returns a health that is NOT_SERVING, and the service that reports it to callers.
    pub async fn new(draining: watch::Receiver<Drain>) -> (Self, HealthServer<EndingWatches>) {
        let health = Self {
            reporter: HealthReporter::new(),
        };
        health.not_serving().await;
        let inner = HealthService::from_health_reporter(health.reporter.clone());
        let service = HealthServer::new(EndingWatches { inner, draining });
        (health, service)
    }

    /// Sets all services to SERVING.
    pub async fn serving(&self) {
        self.set(ServingStatus::Serving).await;
    }

    /// Sets whether the service that takes keys refuses them because they cannot be logged. The
    /// server as a whole stays SERVING: it answers queries, and a restart would not help.
    pub async fn read_only(&self, is_read_only: bool) {
        let status = match is_read_only {
            true => ServingStatus::NotServing,
            false => ServingStatus::Serving,
        };
        self.reporter.set_service_status(DEDUP, status).await;
    }

    /// Sets all services to NOT_SERVING: the server recovers, or is about to stop.
    pub async fn not_serving(&self) {
        self.set(ServingStatus::NotServing).await;
    }

    async fn set(&self, status: ServingStatus) {
        // The empty name is included: otherwise it is reported as serving from the start.
        for service in SERVICES {
            self.reporter.set_service_status(service, status).await;
        }
    }
}

/// The stock health service, except that its watches end when the server drains. A load balancer
/// keeps a watch for as long as it runs, and each watch would delay the stop for the whole drain
/// timeout.
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
            // An error means that the server is gone; the watch ends then too.
            let _ = draining.wait_for(|drain| *drain >= Drain::Begun).await;
            // The time is long enough for the watcher to receive NOT_SERVING first.
            sleep(DRAIN_SILENCE).await;
        };
        Ok(Response::new(Box::pin(statuses.take_until(end))))
    }
}
