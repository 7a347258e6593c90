//! A server on a free port of the loopback interface, and its clients.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod program;
pub mod raw;
pub mod redisbloom;

use std::{path::Path, time::Duration};

use seenset_proto::v1::{
    FilterSpec, Plain, dedup_service_client::DedupServiceClient,
    filter_service_client::FilterServiceClient, filter_spec::Kind,
};
use seenset_server::{
    config::{Config, Period},
    engine::KindName,
    server::{self, Server},
};
use tonic::transport::Channel;

/// Longer than any stop of a test takes: calls in flight have five seconds.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the configuration of a test: a free port, a small plain filter, snapshots only on
/// request.
pub fn config(data_dir: &Path) -> Config {
    Config {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        data_dir: data_dir.to_owned(),
        capacity: 1_000_000,
        kind: Some(KindName::Plain),
        store_interval: Period::from_secs(0),
        drain_timeout: Period::from_secs(5),
        ..Config::default()
    }
}

/// Returns a server that has recovered.
pub async fn start(config: Config) -> Server {
    let mut server = server::bind(config).await.unwrap();
    server.recover().await.unwrap();
    server
}

/// Stops a server like SIGTERM does.
pub async fn stop(server: Server) {
    let stopped = server.shutdown(std::future::pending());
    let stopped = tokio::time::timeout(STOP_TIMEOUT, stopped).await;
    stopped.expect("a server that stops").unwrap();
}

/// Returns a separate connection.
pub async fn channel(server: &Server) -> Channel {
    Channel::from_shared(format!("http://{}", server.local_addr()))
        .unwrap()
        .connect()
        .await
        .unwrap()
}

/// Returns a client for keys on a separate connection.
pub async fn dedup(server: &Server) -> DedupServiceClient<Channel> {
    DedupServiceClient::new(channel(server).await)
}

/// Returns a client for filters on a separate connection.
pub async fn filters(server: &Server) -> FilterServiceClient<Channel> {
    FilterServiceClient::new(channel(server).await)
}

/// Returns the spec of a plain filter by capacity and rate.
pub fn spec(capacity: u64, false_positive_rate: f64) -> FilterSpec {
    FilterSpec {
        capacity,
        false_positive_rate,
        kind: Some(Kind::Plain(Plain {})),
        ..FilterSpec::default()
    }
}
