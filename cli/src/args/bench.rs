//! The arguments of `bench`, and the load that they describe.

use std::time::Duration;

use clap::{ValueEnum, value_parser};
use seenset_proto::units;

use seenset_client::MAX_MESSAGE_BYTES;
use seenset_load::{Calls, Load, MIN_KEY_BYTES};

use crate::failure::Failure;

/// The meaning of the result; part of the help.
pub(super) const RESULT_HELP: &str = "\
Result:
  The latency of a call, or of a batch of a stream, is the time from sending it until its whole
  answer has arrived. The rates count everything that was answered after the warm-up.
  False positives are new keys that the server reports as seen. Up to the capacity of the filter
  their expected share is its false-positive rate; past the capacity it is higher.
  If the server does not know a key that it has acknowledged, the exit code is 1.

One thread sends the load, with messages that are prepared in advance. It uses one core. If
this core is always busy, the command measures itself and not the server: start the command
several times in parallel. A server on the same machine should have other cores.";

/// The default of `--batch-keys`.
const BATCH_KEYS: u32 = 1000;
/// The default of `--window`.
const WINDOW: u32 = 16;
/// The maximum number of bytes of a key in a message, in addition to the key itself.
const KEY_OVERHEAD_BYTES: u64 = 5;

/// The arguments of `bench`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Bench {
    /// The form of the calls.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) mode: Mode,
    /// The number of keys in each batch, in the modes stream and batch [default: 1000].
    #[arg(long, value_name = "KEYS", value_parser = value_parser!(u32).range(1..=1_000_000))]
    batch_keys: Option<u32>,
    /// The number of batches in flight on each stream, in the mode stream [default: 16].
    #[arg(long, value_name = "BATCHES", value_parser = value_parser!(u32).range(1..=1024))]
    window: Option<u32>,
    /// The number of connections. One core of the server serves all calls of a connection.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = value_parser!(u32).range(1..=1024))]
    connections: u32,
    /// The number of callers on all connections together. Each caller has one call, or one stream,
    /// at a time. A server serves 256 at once on each connection; the others wait [default: in the
    /// mode stream one on each connection; in the other modes on all connections together: batch
    /// 16, single 100, coalesced 512].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100_000))]
    callers: Option<u32>,
    /// The length of each key, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 60,
          value_parser = value_parser!(u32).range(MIN_KEY_BYTES as i64..=8 * 1024 * 1024))]
    pub(crate) key_bytes: u32,
    /// The share of calls or batches, 0 to 1, whose keys were answered before. The warm-up adds
    /// these keys; without a warm-up, the first calls add them.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pub(crate) seen: f64,
    /// The time to measure, for instance 30s or 5min.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = units::nonzero_duration)]
    pub(crate) duration: Duration,
    /// The time to load the server with new keys before the measurement; 0s for no warm-up. In this
    /// time the kernel gives the new filter its memory, which takes longer than adding keys.
    #[arg(long, value_name = "DURATION", default_value = "1s",
          value_parser = units::duration)]
    pub(crate) warmup: Duration,
    /// The number of keys that the command's own filter is made for, at a false-positive rate of
    /// 0.001. It decides how much memory the server needs [default: 100000000, which take 198 MB].
    #[arg(short = 'n', long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub(crate) capacity: Option<u64>,
}

/// The form of the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Mode {
    /// QueryAndAddStream: batches one after another, several in flight.
    #[default]
    Stream,
    /// QueryAndAddBatch: one call for each batch.
    Batch,
    /// QueryAndAdd: one call for each key.
    Single,
    /// Calls for one key each, which the client crate sends together in batches.
    Coalesced,
}

impl Bench {
    /// Returns the load: the kind of calls, and the numbers of connections and callers.
    pub(crate) fn load(&self) -> Result<Load, Failure> {
        let usage = |message: String| Err(Failure::Usage(message));
        if self.batch_keys.is_some() && !matches!(self.mode, Mode::Stream | Mode::Batch) {
            return usage("--batch-keys is for the modes stream and batch".to_owned());
        }
        if self.window.is_some() && self.mode != Mode::Stream {
            return usage("--window is for the mode stream".to_owned());
        }
        let batch_keys = self.batch_keys.unwrap_or(BATCH_KEYS);
        let keys = batch_keys as usize;
        let (calls, callers) = match self.mode {
            Mode::Stream => {
                let window = self.window.unwrap_or(WINDOW) as usize;
                (Calls::Stream { keys, window }, 1)
            }
            Mode::Batch => (Calls::Batch { keys }, 16),
            Mode::Single => (Calls::Single, 100),
            Mode::Coalesced => (Calls::Coalesced, 512),
        };
        let bytes = u64::from(batch_keys) * (u64::from(self.key_bytes) + KEY_OVERHEAD_BYTES);
        if matches!(self.mode, Mode::Stream | Mode::Batch) && bytes > MAX_MESSAGE_BYTES as u64 {
            return usage(format!(
                "a batch of {batch_keys} keys of {} bytes takes {bytes} bytes, and a message \
                 holds {MAX_MESSAGE_BYTES}: fewer --batch-keys or --key-bytes",
                self.key_bytes
            ));
        }
        let callers = self.callers.unwrap_or(callers.max(self.connections));
        if callers < self.connections {
            return usage(format!(
                "--callers {callers} would leave some of --connections {} idle",
                self.connections
            ));
        }
        Ok(Load {
            calls,
            connections: self.connections as usize,
            callers: callers as usize,
        })
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("not a number from 0 to 1".to_owned()),
    }
}
