//! The composition root: from a configuration to a running server.
//!
//! [`bind`] takes the data directory and the port, so that an error of either is known at once, and
//! answers health checks with NOT_SERVING. [`Server::recover`] restores the filters and lets calls
//! in. [`Server::shutdown`] lets the calls in flight finish and stores all changes.

mod error;
mod log_lines;
mod memory;
mod watch;

use std::{
    future::{self, Future},
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use tokio::{task::JoinHandle, time::timeout};

pub use self::error::ServerError;

use self::{
    log_lines::{log_filter, log_outcomes, log_torn, log_usage, telling_every},
    memory::Memory,
    watch::{watch_disk, watch_files, watch_memory},
};
use crate::{
    config::{Address, Config, DurabilityMode, MAX_MESSAGE_BYTES},
    connections::{self, Connections},
    cores::Cores,
    engine::{Engine, EngineError, Limits, Recovered, Settings},
    grpc::{self, Calls, ClientMemory, Drain, Health, Services},
    listeners::{ListenError, Listeners},
    net::http2,
    store::{DataDirectory, FilterName},
    telemetry::{metrics, scrape},
};

/// The interval at which a long start logs its progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// The time that connections may take to close after the last answer. A client that ignores the
/// request to close must not hold up the stop.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    config: Config,
    engine: Engine,
    health: Health,
    calls: Calls,
    connections: Connections,
    services: Services,
    client_memory: ClientMemory,
    watching_memory: JoinHandle<()>,
    watching_files: JoinHandle<()>,
    cores: Cores,
    serving: JoinHandle<Result<(), String>>,
    storing: Option<JoinHandle<()>>,
    /// Clears expired keys from filters.
    clearing: Option<JoinHandle<()>>,
    /// Samples the number of keys of each filter.
    sampling: Option<JoinHandle<()>>,
    /// Sets health to NOT_SERVING while keys are refused or wait for the disk.
    watching: Option<JoinHandle<()>>,
    /// The sockets that metrics are served on, and the task that serves them.
    metrics: Option<(Connections, JoinHandle<()>)>,
}

/// Checks that the process may open the files that it needs without any connection. Must be called
/// before the runtime starts: with too few files, tokio panics instead of returning an error.
///
/// # Errors
///
/// [`ServerError::OpenFiles`].
pub fn check_open_files() -> Result<(), ServerError> {
    let needed = connections::OTHER_FILES;
    let limit = connections::allow_files(needed);
    if limit < needed {
        return Err(ServerError::OpenFiles { limit, needed });
    }
    Ok(())
}

/// Opens the data directory, listens, and serves. Until [`Server::recover`] is done, health is
/// NOT_SERVING and all other calls fail with UNAVAILABLE.
///
/// # Errors
///
/// [`ServerError`], in one line that says what to do.
pub async fn bind(config: Config) -> Result<Server, ServerError> {
    let directory = DataDirectory::open(&config.data_dir)?;
    let limits = connections::ConnectionLimits {
        connections: config.max_connections,
        for_each_address: config.max_connections_per_address,
    };
    let connections = listen("--listen", &config.listen, limits).await?;
    let metrics = match &*config.metrics_listen {
        [] => None,
        addresses => Some(listen("--metrics-listen", addresses, scrape::LIMITS).await?),
    };

    let limits = Limits {
        max_key_bytes: config.max_key_bytes,
        max_batch_keys: config.max_batch_keys,
        max_filters: config.max_filters,
    };
    let memory = Memory::of(&config)?;
    let settings = Settings {
        limits,
        max_memory_bytes: memory.filter_bytes,
        durability: config.durability(),
        segment_bytes: config.log_segment_size.bytes(),
        requests: config.requests(),
    };
    let engine = Engine::new(directory, settings);
    let rpcs = grpc::rpcs(engine.clone(), MAX_MESSAGE_BYTES).await?;

    let mut drain = rpcs.calls.drain_state();
    let cores = Cores::start().map_err(ServerError::Cores)?;
    let end = async move {
        // An error means that the server was dropped: end then too.
        let _ = drain.wait_for(|drain| *drain >= Drain::Begun).await;
    };
    let client_memory = ClientMemory::new(memory.client_bytes);
    let serving = serve(&cores, &rpcs.services, &client_memory, &connections, end);
    let metrics = metrics.map(|connections| {
        let serving = serve_metrics(connections.clone(), engine.clone());
        (connections, serving)
    });
    Ok(Server {
        config,
        watching_files: watch_files(&engine),
        engine,
        health: rpcs.health,
        calls: rpcs.calls,
        connections,
        services: rpcs.services,
        watching_memory: watch_memory(&client_memory),
        client_memory,
        cores,
        serving,
        storing: None,
        clearing: None,
        sampling: None,
        watching: None,
        metrics,
    })
}

/// Listens on the addresses given by `flag`.
async fn listen(
    flag: &'static str,
    addresses: &[Address],
    limits: connections::ConnectionLimits,
) -> Result<Connections, ServerError> {
    let listeners = Listeners::bind(addresses).await;
    let listeners = listeners.map_err(|ListenError { address, source }| ServerError::Listen {
        address,
        flag,
        source,
    })?;
    Ok(Connections::new(listeners, limits))
}

/// Serves metrics until aborted.
fn serve_metrics(connections: Connections, engine: Engine) -> JoinHandle<()> {
    let metrics = move || {
        let engine = engine.clone();
        async move {
            let filters = engine
                .all_filters()
                .await
                .map_err(|error| error.to_string())?;
            metrics::text(&filters).map_err(|error| error.to_string())
        }
    };
    tokio::spawn(scrape::serve(connections, metrics))
}

/// Serves until `end` completes. Then it accepts no more connections and asks the open ones to
/// close.
fn serve(
    cores: &Cores,
    services: &Services,
    memory: &ClientMemory,
    connections: &Connections,
    end: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<Result<(), String>> {
    let server = |incoming| {
        let services = services.for_core();
        http2::serve(incoming, memory.clone(), move |request| {
            services.answer(request)
        })
    };
    cores.serve(connections.clone(), server, end)
}

impl Server {
    /// Returns the first address that the server listens on. The port is the one that the kernel
    /// chose if the configuration says 0. Returns `0.0.0.0:0` if the server listens on Unix sockets
    /// alone.
    pub fn local_addr(&self) -> SocketAddr {
        let first = self.connections.listeners().addresses().next();
        first.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
    }

    /// Returns the first address that metrics are served on, or `None` if they are not served.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        let (connections, _) = self.metrics.as_ref()?;
        connections.listeners().addresses().next()
    }

    /// Restores every filter of the data directory, creates the default filter if the directory has
    /// none, and lets calls in.
    ///
    /// # Errors
    ///
    /// [`ServerError::Engine`]. The server then goes on refusing calls, and no file has been
    /// changed.
    pub async fn recover(&mut self) -> Result<(), ServerError> {
        let begun = Instant::now();
        let request = self.config.default_filter();
        let request = request.map_err(EngineError::from)?;
        for name in &self.engine.startup_warnings().missing {
            tracing::warn!(filter = %name, "no file of the filter is there: it is not served");
        }
        for file in &self.engine.startup_warnings().unknown {
            tracing::warn!(file = %file.display(), "the manifest does not name the file: it is not read");
        }
        let Recovered {
            filters: restored,
            replayed_keys,
            torn,
        } = self
            .engine
            .recover_telling(Some(request.clone()), telling_every(PROGRESS_INTERVAL))
            .await?;
        torn.iter().for_each(log_torn);
        for filter in &self.engine.all_filters().await? {
            let is_default = filter.name.as_str() == FilterName::DEFAULT;
            if restored.contains(&filter.name) {
                log_filter(filter, "filter restored");
                // It holds a user's keys; a changed flag does not throw them away.
                if is_default && !filter.spec.answers(&request) {
                    tracing::warn!(
                        "the default filter was made with other settings than are configured now, \
                         and is kept as it is; to make it anew, delete it (seenset filter delete \
                         default) and start again"
                    );
                }
            } else if is_default {
                log_filter(filter, "filter created");
            }
        }
        if let Some(interval) = self.config.store_interval.nonzero() {
            let engine = self.engine.clone();
            self.storing = Some(tokio::spawn(async move {
                engine
                    .store_periodically(interval, |outcomes| {
                        log_outcomes(&outcomes);
                    })
                    .await;
            }));
        }
        let engine = self.engine.clone();
        self.clearing = Some(tokio::spawn(async move {
            engine.clear_periodically().await;
        }));
        let engine = self.engine.clone();
        self.sampling = Some(tokio::spawn(async move {
            engine.sample_periodically().await;
        }));
        if self.config.durability == DurabilityMode::Snapshot {
            tracing::warn!(
                "there is no log (--durability snapshot): if the server does not end by a stop, what \
                 has changed since the last snapshot is lost"
            );
        }
        self.health.serving().await;
        self.watching = Some(watch_disk(&self.health, &self.engine));
        if let Some((connections, _)) = &self.metrics {
            let address = connections.listeners();
            tracing::info!(%address, "metrics are served at /metrics");
        }
        tracing::info!(
            address = %self.connections.listeners(),
            data_dir = %self.config.data_dir.display(),
            filters_restored = restored.len(),
            replayed_keys,
            durability = %self.config.durability,
            duration = ?begun.elapsed(),
            "serving"
        );
        Ok(())
    }

    /// Waits until the server stops serving on its own, which it should not, and returns the cause.
    pub async fn failed(&mut self) -> ServerError {
        ServerError::Serving(match (&mut self.serving).await {
            Ok(Ok(())) => "no more connections are accepted".to_owned(),
            Ok(Err(error)) => error,
            Err(error) => error.to_string(),
        })
    }

    /// Stops the server: sets health to NOT_SERVING, lets the calls in flight finish until the
    /// drain timeout is over or `hurry` completes, and stores all changes.
    ///
    /// # Errors
    ///
    /// [`ServerError::LastStore`] if not everything could be stored.
    pub async fn shutdown(mut self, hurry: impl Future<Output = ()>) -> Result<(), ServerError> {
        tracing::info!("stopping: calls in flight may finish");
        if let Some(watching) = self.watching.take() {
            watching.abort();
            // It must not set health to SERVING after the next line sets NOT_SERVING.
            let _ = watching.await;
        }
        self.health.not_serving().await;
        for task in [&self.storing, &self.clearing, &self.sampling] {
            task.iter().for_each(JoinHandle::abort);
        }
        // The open connections are asked to close. New ones reach a server that answers health
        // checks and refuses all other calls, so that a health checker sees NOT_SERVING and not
        // silence.
        let draining = async {
            let all_ended = self.calls.drain().await;
            // Gives the last answers time to leave.
            if !self.serving.is_finished() {
                let _ = timeout(CLOSE_TIMEOUT, &mut self.serving).await;
            }
            all_ended
        };
        let draining_serving = serve(
            &self.cores,
            &self.services,
            &self.client_memory,
            &self.connections,
            future::pending(),
        );
        let drain_timeout = self.config.drain_timeout.get();
        let drain = async {
            tokio::select! {
                drained = timeout(drain_timeout, draining) => drained.unwrap_or(false),
                () = hurry => false,
            }
        };
        // The first snapshot begins at once: a supervisor may kill the server before the drain
        // ends.
        let (drained, outcomes) = tokio::join!(drain, self.engine.store_changed());
        log_outcomes(&outcomes);
        if !drained && timeout(CLOSE_TIMEOUT, self.calls.cut()).await.is_err() {
            tracing::warn!("some calls did not finish in time and are cut off");
        }
        self.serving.abort();
        // Aborting ends no open connection. Calls that still arrive on one are refused from here
        // on: otherwise they would be acknowledged and not stored.
        self.engine.close();
        let outcomes = self.engine.store_changed().await;
        draining_serving.abort();
        self.watching_memory.abort();
        self.watching_files.abort();
        log_usage(&self.engine).await;
        let metrics = self.metrics.map(|(_, serving)| serving);
        metrics.iter().for_each(JoinHandle::abort);
        // The tasks that serve hold the engine, and with it the lock of the data directory. So do
        // the tasks below.
        self.cores.stop().await;
        // A finished task must not be awaited a second time.
        let serving = Some(self.serving).filter(|serving| !serving.is_finished());
        for task in [serving, Some(draining_serving)].into_iter().flatten() {
            // The error only says that the task was aborted, here and below.
            let _ = task.await;
        }
        let tasks = [self.storing, self.clearing, self.sampling, metrics];
        let watching = [self.watching_memory, self.watching_files];
        for task in tasks.into_iter().flatten().chain(watching) {
            let _ = task.await;
        }
        match log_outcomes(&outcomes) {
            None => {
                tracing::info!("stopped");
                Ok(())
            }
            Some(error) => Err(ServerError::LastStore(error)),
        }
    }
}

#[cfg(test)]
mod tests;
