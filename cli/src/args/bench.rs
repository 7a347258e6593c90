//! The arguments of `bench`, and what they ask for.

use std::time::Duration;

use clap::{ValueEnum, value_parser};
use seenset_proto::units;

use seenset_client::MAX_MESSAGE_BYTES;
use seenset_load::{Calls, Load, MIN_KEY_BYTES};

use crate::failure::Failure;

/// What is printed, and what it means; part of the help.
pub(super) const RESULT_HELP: &str = "\
What it prints:
  The latency of a call, or of a batch of a stream, counts from its sending until all of
  its answer has come. The rates count all that was answered after the warm-up.
  False positives are new keys that the server says it has seen. It may, for the share of
  keys that its filter is made for; once more keys were added than that, for more.
  If the server does not know a key that it has acknowledged, the exit code is 1.

The load comes from one thread, with messages that are made ahead, so it uses one core. If
that is busy all the time, it is what is measured: start the command several times at once.
A server on the same machine should have other cores.";

/// The default of `--batch-keys`.
const BATCH_KEYS: u32 = 1000;
/// The default of `--window`.
const WINDOW: u32 = 16;
/// What a key takes in a message besides itself, at most.
const KEY_OVERHEAD_BYTES: u64 = 5;

/// The arguments of `bench`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Bench {
    /// The form of the calls.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) mode: Mode,
    /// The keys of each batch, of the modes stream and batch [default: 1000].
    #[arg(long, value_name = "KEYS", value_parser = value_parser!(u32).range(1..=1_000_000))]
    batch_keys: Option<u32>,
    /// The batches in flight on each stream, of the mode stream [default: 16].
    #[arg(long, value_name = "BATCHES", value_parser = value_parser!(u32).range(1..=1024))]
    window: Option<u32>,
    /// The connections. All of a connection is served by one core of the server.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = value_parser!(u32).range(1..=1024))]
    connections: u32,
    /// The callers on all connections together, each with one call, or stream, at a time.
    /// A server takes 256 at once on each connection; the others wait [default: in the mode
    /// stream one on each connection, in the others on all together batch 16, single 100,
    /// coalesced 512].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100_000))]
    callers: Option<u32>,
    /// The length of every key.
    #[arg(long, value_name = "BYTES", default_value_t = 60,
          value_parser = value_parser!(u32).range(MIN_KEY_BYTES as i64..=8 * 1024 * 1024))]
    pub(crate) key_bytes: u32,
    /// The share of calls or batches, 0 to 1, whose keys were answered before. The warm-up
    /// adds them; without it, the first calls do.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pub(crate) seen: f64,
    /// How long to measure, for instance 30s or 5min.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = units::nonzero_duration)]
    pub(crate) duration: Duration,
    /// How long to load the server, with new keys, before measuring; 0s for not at all. The
    /// memory of a new filter comes from the system then, which takes longer than adding to it.
    #[arg(long, value_name = "DURATION", default_value = "1s",
          value_parser = units::duration)]
    pub(crate) warmup: Duration,
    /// The number of keys that the filter of the command's own is made for, at a
    /// false-positive rate of 0.001: the memory that the server needs [default: 100000000,
    /// which take 198 MB].
    #[arg(short = 'n', long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub(crate) capacity: Option<u64>,
}

/// The form of the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Mode {
    /// QueryAndAddStream: batches one behind the other, several in flight.
    #[default]
    Stream,
    /// QueryAndAddBatch: a call for each batch.
    Batch,
    /// QueryAndAdd: a call for each key.
    Single,
    /// Calls for one key each, which the client crate sends together.
    Coalesced,
}

impl Bench {
    /// What is asked, and by how many at once.
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
