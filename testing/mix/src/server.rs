//! The server and its clients.

use std::{collections::BTreeMap, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result};
use seenset_process::{ARGUMENTS, ServerProcess, Signal};
use seenset_proto::v1::{
    ListFiltersRequest, QueryBatchRequest, dedup_service_client::DedupServiceClient,
    filter_service_client::FilterServiceClient,
};
use tonic::{
    Code, Request, Status,
    transport::{Channel, Endpoint},
};

use crate::{
    filter_name, key_text,
    model::{Key, Listed, Name, Outcome},
};

/// The deadline of calls that must be answered.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that will be killed or stopped.
pub struct Server {
    process: ServerProcess,
    endpoint: Endpoint,
    was_killed: bool,
}

/// Clients on a connection of their own.
#[derive(Debug, Clone)]
pub struct Clients {
    pub dedup: DedupServiceClient<Channel>,
    pub filters: FilterServiceClient<Channel>,
}

impl Server {
    pub fn start(program: &Path, directory: &Path, durability: &str) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .args(ARGUMENTS)
            .args(["--max-memory=512MiB", "--store-interval=1s"])
            .arg(format!("--durability={durability}"))
            .arg("--data-dir")
            .arg(directory);
        let process = ServerProcess::start(&mut command)
            .with_context(|| format!("cannot start {}", program.display()))?;
        let endpoint = Endpoint::from_shared(format!("http://{}", process.address()))?;
        Ok(Self {
            process,
            endpoint,
            was_killed: false,
        })
    }

    pub fn clients(&self) -> Clients {
        let channel = self.endpoint.connect_lazy();
        Clients {
            dedup: DedupServiceClient::new(channel.clone()),
            filters: FilterServiceClient::new(channel),
        }
    }

    pub fn kill(&mut self) -> Result<()> {
        self.was_killed = true;
        self.process.signal(Signal::KILL)?;
        self.process.wait()?;
        Ok(())
    }

    /// Stops the server with SIGTERM, so that it stores all filters.
    pub fn stop(&mut self) -> Result<()> {
        self.process.signal(Signal::TERM)?;
        let status = self.process.wait()?;
        anyhow::ensure!(status.success(), "the server stopped with {status}");
        Ok(())
    }

    pub fn was_killed(&self) -> bool {
        self.was_killed
    }
}

impl Clients {
    /// Returns all filters except the default one.
    pub async fn list(&mut self) -> Result<BTreeMap<Name, Listed>> {
        let listed = self.filters.list_filters(ListFiltersRequest::default());
        let listed = listed.await?.into_inner().filters.into_iter();
        Ok(listed
            .filter_map(|filter| {
                let name = filter.name.strip_prefix("filter-")?.parse().ok()?;
                let listed = Listed {
                    rebuilt_as: filter.rebuilt_as,
                };
                Some((name, listed))
            })
            .collect())
    }

    /// Returns a flag for each key: the key is there.
    pub async fn query(&mut self, name: Name, keys: &[Key]) -> Result<Vec<bool>> {
        let request = QueryBatchRequest {
            filter: filter_name(name),
            keys: keys.iter().copied().map(key_text).collect(),
            ..QueryBatchRequest::default()
        };
        Ok(self.dedup.query_batch(request).await?.into_inner().seen)
    }
}

/// Returns a request with a deadline. One request in eight has at most 10 ms, so that some miss it.
pub fn request<T>(message: T, rng: &mut fastrand::Rng) -> Request<T> {
    let mut request = Request::new(message);
    let short = Duration::from_micros(rng.u64(200..10_000));
    request.set_timeout(if rng.u8(..8) == 0 { short } else { PATIENCE });
    request
}

/// Returns the outcome of an rpc. It is unknown if the server can have carried out the call.
pub fn outcome<T>(answer: Result<T, Status>) -> Outcome<T> {
    match answer {
        Ok(answer) => Outcome::Done(answer),
        Err(status) => match status.code() {
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unknown
            | Code::Internal => Outcome::Unknown,
            _ => Outcome::Refused(status),
        },
    }
}
