//! The measured client: it makes one call for one key after the other, on a connection of its own.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use seenset_proto::v1::{QueryAndAddRequest, dedup_service_client::DedupServiceClient};
use tokio::runtime::Builder;
use tonic::transport::Endpoint;

/// The pause between two calls.
const PAUSE: Duration = Duration::from_millis(2);

/// The time limit of a call. A call that takes longer is an error.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A client on a thread of its own.
pub struct Polite {
    measure: mpsc::Sender<Duration>,
    measured: mpsc::Receiver<Latencies>,
}

/// The measurements of the client.
#[derive(Debug, Default)]
pub struct Latencies {
    calls: Vec<Duration>,
    pub errors: usize,
    pub last_error: Option<String>,
}

impl Latencies {
    /// Returns the latency that the given part of the calls does not exceed.
    pub fn quantile(&self, part: f64) -> Duration {
        let mut calls = self.calls.clone();
        calls.sort_unstable();
        let index = (calls.len() as f64 * part) as usize;
        let index = index.min(calls.len().saturating_sub(1));
        calls.get(index).copied().unwrap_or(TIMEOUT)
    }
}

impl Polite {
    /// Connects.
    pub fn start(address: &str) -> Result<Self> {
        let (measure, measures) = mpsc::channel::<Duration>();
        let (done, measured) = mpsc::channel();
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?.timeout(TIMEOUT);
        thread::spawn(move || {
            // The priority is higher than that of the attackers, which share the core: the client
            // must wait for the server, not for them. Raising the priority needs a right that not
            // every user has.
            #[cfg(target_os = "linux")]
            let _ = rustix::process::nice(-19);
            let Ok(runtime) = Builder::new_current_thread().enable_all().build() else {
                return;
            };
            runtime.block_on(async {
                let mut client = DedupServiceClient::new(endpoint.connect_lazy());
                let mut number = 0_u64;
                while let Ok(duration) = measures.recv() {
                    let mut latencies = Latencies::default();
                    let end = Instant::now() + duration;
                    while Instant::now() < end {
                        number += 1;
                        let request = QueryAndAddRequest {
                            key: format!("https://polite.example/{number}"),
                            ..Default::default()
                        };
                        let begun = Instant::now();
                        let answer = client.query_and_add(request).await;
                        latencies.calls.push(begun.elapsed());
                        if let Err(status) = answer {
                            latencies.errors += 1;
                            latencies.last_error = Some(status.to_string());
                        }
                        tokio::time::sleep(PAUSE).await;
                    }
                    let _ = done.send(latencies);
                }
            });
        });
        Ok(Self { measure, measured })
    }

    /// Requests keys for some time, and returns the latencies.
    pub fn measure(&self, duration: Duration) -> Latencies {
        let sent = self.measure.send(duration).map_err(|error| anyhow!(error));
        let measured = sent.and_then(|()| Ok(self.measured.recv()?));
        measured.unwrap_or_default()
    }
}
