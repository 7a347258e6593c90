//! The attacks.

mod connections;
mod frames;
mod malformed;
mod memory;
mod work;

use std::{future::Future, pin::Pin};

use anyhow::Result;
use seenset_proto::v1::{
    dedup_service_client::DedupServiceClient, filter_service_client::FilterServiceClient,
};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout_at},
};
use tonic::transport::{Channel, Endpoint};

/// The address of the attacked server, and the end of the attack.
#[derive(Debug, Clone)]
pub struct Target {
    pub address: String,
    pub until: Instant,
}

type Running<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// An attack.
pub struct Attack {
    pub name: &'static str,
    /// Prepares the server for the attack.
    pub prepare: fn(Target) -> Running<()>,
    /// Attacks until the end of the given time, and describes the result.
    pub run: fn(Target) -> Running<String>,
    /// The memory that the server's own work for the attack takes: filters and remembered requests.
    pub engine_bytes: u64,
}

/// All attacks.
pub const ATTACKS: &[Attack] = &[
    memory::BEGUN,
    memory::DECLARED,
    memory::UNREAD_STREAMS,
    memory::UNREAD_LISTS,
    memory::UNREAD_SOCKETS,
    memory::SMALL_PIECES,
    memory::LARGE_HEADERS,
    memory::HEADER_TABLES,
    connections::SILENT,
    connections::SLOW,
    connections::CHURN,
    frames::PINGS,
    frames::SETTINGS,
    frames::PRIORITIES,
    frames::WINDOWS,
    frames::UNKNOWN,
    frames::EMPTY_DATA,
    frames::PADDING,
    frames::RESETS,
    frames::CONTINUATIONS,
    malformed::MALFORMED,
    work::HEAVY_BATCHES,
    work::HEAVY_BATCHES_AND_STORES,
    work::HEAVY_BATCHES_AND_CALLS_OF_THEIR_ID,
    work::HEAVY_BATCHES_TO_A_REBUILT_FILTER,
    work::MEASUREMENTS,
    work::CREATIONS,
];

fn nothing(_: Target) -> Running<()> {
    Box::pin(async { Ok(()) })
}

impl Target {
    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Runs an action on many connections until the time is over. An action that ends sooner begins
    /// again, like a client that reconnects.
    async fn repeat<F>(
        &self,
        connections: usize,
        act: impl Fn(Self) -> F + Clone + Send + 'static,
    ) -> Result<String>
    where
        F: Future<Output = Result<()>> + Send,
    {
        let mut attackers = JoinSet::new();
        for _ in 0..connections {
            let (target, act) = (self.clone(), act.clone());
            attackers.spawn(async move {
                let mut times = 0;
                while !target.is_over() {
                    times += 1;
                    // Fails if the server closes the connection.
                    let _ = timeout_at(target.until, act(target.clone())).await;
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
                times
            });
        }
        let times: u64 = attackers.join_all().await.into_iter().sum();
        Ok(format!("{times} connections"))
    }

    async fn channel(&self) -> Result<Channel> {
        Ok(Endpoint::from_shared(format!("http://{}", self.address))?
            .connect()
            .await?)
    }

    async fn dedup(&self) -> Result<DedupServiceClient<Channel>> {
        Ok(DedupServiceClient::new(self.channel().await?))
    }

    async fn filters(&self) -> Result<FilterServiceClient<Channel>> {
        Ok(FilterServiceClient::new(self.channel().await?))
    }
}
