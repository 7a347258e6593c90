//! The arguments, and their help: the user's documentation of each command.

use std::{ffi::OsString, path::PathBuf, pin::pin, time::Duration};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, parser::ValueSource, value_parser};
use seenset_proto::units;
use tokio::time::timeout;

pub(super) use bench::Bench;
pub(super) use filter::{FilterCommand, FormatArg, Import, Rebuild};
pub(super) use matching::Match;
pub(super) use spec::{
    AgingArgs, HashFunctionArg, KindArg, LayoutArg, OnFullArg, Profile, ScalingArgs, Spec,
    SpecChange,
};

use super::{
    failure::Failure,
    key::Key,
    lines::{BATCH_BYTES, Limits, RecordFormat},
    notes::note,
    output::OutputFormat,
};
use seenset_client::{Client, Options};

/// The default time limit of a call, for commands that run for a long time. It leaves time for a
/// restart of the server.
pub(super) const RUN_TIMEOUT: Duration = Duration::from_secs(60);

/// The time after which the command prints that it still waits for a connection.
const QUIET: Duration = Duration::from_secs(2);

/// The formats of input files; part of the help of all commands that read files.
macro_rules! files_help {
    () => {
        "
Formats of input files:
  Files and standard input can be plain, gzip or zstd. The command recognises the format by
  the first bytes, not by the name. It reads several compressed pieces in one file as one text,
  and skips NULs after a piece. FILE:LINE counts the lines after decompression. The output is
  not compressed.
  Text is UTF-8. A byte order mark of UTF-8 at the beginning of a line is not part of the key,
  and is written unchanged. A file with the mark of UTF-16 or UTF-32 ends the run with exit
  code 1 before any of its lines is used: convert it first, for instance with
  iconv -f UTF-16 -t UTF-8.
  NULs and Ctrl-Z after the last line are padding, and are skipped. A line with a NUL anywhere
  else is bad.
  A zstd frame that asks for a window of more than 128 MiB (zstd --long=27) is refused. A
  truncated or damaged file ends the run with exit code 1, and the message names the line up to
  which everything is done. A checksum comes after the data that it protects. If only the
  checksum shows the damage, some lines before it are wrong, and the command has used them."
    };
}

mod bench;
mod filter;
mod matching;
mod spec;

/// The rules that turn lines into keys; part of the help of `dedup` and `load`.
const LINES_HELP: &str = concat!(
    "\
Keys in input files:
  A line ends with LF or CRLF. The key is the line without its ending. Spaces, and a CR
  anywhere else, are part of the key. The last line can lack its ending.
  A key is bytes: lines do not have to be UTF-8, and the same bytes are the same key.
  Empty lines are not keys: the command skips and counts them.
  Lines longer than --max-key-bytes and lines with a NUL are bad: the command skips and counts
  them, and prints the first 10 on standard error as FILE:LINE: reason. The run continues, and
  its exit code is 1.
  With --null, a key ends with a NUL and can contain any other byte. With --binary, the length
  of a key comes before it, in 4 bytes, the highest byte first (big-endian), and the key can
  contain any byte. In both formats the command does not look for byte order marks or padding,
  and FILE:LINE counts keys. A file that ends inside a key of --binary ends the run with exit
  code 1, and the message gives the offset of that key in the decompressed data.
  With --hex, each line has the bytes of a key as hexadecimal digits, in upper or lower case. A
  line with anything else is bad.
  If the connection breaks or the server restores its filters, the command retries the batches
  in flight until --timeout is over. A retry gets the first answer again. If the server refuses
  a batch or does not come back in time, the run ends with exit code 1 and prints the file and
  line up to which everything is done. To continue a run of dedup with --continue from there,
  with the first answers, run the same command again.
",
    files_help!()
);

/// Queries and operates seenset, the networked deduplication service.
///
/// A duration is written as 90 (seconds), 500ms, 5min or 12h, and a size as 12GiB, 64MB or a number
/// of bytes. The help of each option of all commands names its environment variable. This program
/// ignores the variables of seenset-server, and seenset-server ignores the variables of this
/// program.
///
/// A command does nothing and fails if standard output is closed, or if an input file is also the
/// output.
///
/// Exit codes: 0 success, 1 failure, 2 wrong usage, 130 ended by a signal, 141 if the reader of the
/// output of `dedup` has closed the pipe.
#[derive(Debug, Parser)]
#[command(name = "seenset", version)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) global: Global,
    #[command(subcommand)]
    pub(super) command: Command,
}

impl Args {
    /// Reads the arguments of the process and its environment.
    pub(super) fn read() -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches()?;
        let mut args = Self::from_arg_matches(&matches)?;
        // Only the flag can choose a filter for `bench`. With the variable, `bench` would fill a
        // filter that is in use.
        let is_variable = matches.value_source("filter") == Some(ValueSource::EnvVariable);
        if is_variable && matches!(args.command, Command::Bench(_)) {
            args.global.filter = None;
        }
        Ok(args)
    }
}

/// The arguments of every command.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options of all commands")]
pub(super) struct Global {
    /// The address of the server: host:port, http://host:port or unix:/PATH.
    #[arg(
        long,
        global = true,
        env = "SEENSET_SERVER",
        value_name = "ADDRESS",
        default_value = "http://127.0.0.1:9090"
    )]
    pub(super) server: String,

    /// The name of the filter to use [default: the filter named default; of `store`: all filters;
    /// of `bench`, which does not read the variable: a filter of its own].
    #[arg(long, global = true, env = "SEENSET_FILTER", value_name = "NAME")]
    pub(super) filter: Option<String>,

    /// The format of results and summaries. json prints one object on each line. `dedup` and
    /// `match` write lines unchanged in both formats, and write their summary as the last line of
    /// standard error. Error messages are always text.
    #[arg(
        long,
        global = true,
        env = "SEENSET_OUTPUT",
        value_enum,
        default_value_t
    )]
    pub(super) output: OutputFormat,

    /// The time limit of one call: 5 (seconds), 500ms or 2min. Until it is over, the command waits
    /// for a server that cannot be reached, restores its filters or breaks the connection, and
    /// retries the call if that is safe [default: 10s; of `health`: 3s; of `load`, `dedup` and
    /// `match`: 1min; of `store`, `filter copy`, `filter merge`, `filter rebuild`, `filter import`
    /// and `filter export`: 10min].
    #[arg(long, global = true, env = "SEENSET_TIMEOUT", value_name = "DURATION",
          value_parser = units::nonzero_duration)]
    timeout: Option<Duration>,
}

impl Global {
    /// Connects to the server, for the keys of the chosen filter.
    pub(super) async fn connect(&self) -> Result<Client, Failure> {
        self.connect_with(self.options()).await
    }

    /// Connects to the server. The time limit of each call is the user's --timeout, or else
    /// `timeout`.
    pub(super) async fn connect_for(&self, timeout: Duration) -> Result<Client, Failure> {
        self.connect_with(Options {
            deadline: self.timeout.unwrap_or(timeout),
            ..self.options()
        })
        .await
    }

    async fn connect_with(&self, options: Options) -> Result<Client, Failure> {
        let mut connecting = pin!(Client::connect_with(&self.server, options));
        let client = match timeout(QUIET, &mut connecting).await {
            Ok(client) => client?,
            Err(_) => {
                let waits = humantime::format_duration(options.deadline);
                note(&format!(
                    "seenset: no connection to {} yet; waits up to {waits}",
                    self.server
                ));
                connecting.await?
            }
        };
        Ok(client.filter(self.filter.as_deref().unwrap_or_default()))
    }

    /// Returns the options of the client, with the user's --timeout.
    pub(super) fn options(&self) -> Options {
        let mut options = Options::default();
        if let Some(timeout) = self.timeout {
            options.deadline = timeout;
        }
        options
    }

    /// Returns the time limit of a call that takes a long time, such as a copy.
    pub(super) fn long_timeout(&self) -> Duration {
        self.timeout.unwrap_or(Duration::from_secs(600))
    }
}

/// The command to run.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Query whether keys have been seen. Prints `seen` or `new`, a tab, and the key.
    Query(AgedKeys),
    /// Mark keys as seen.
    ///
    /// A filter that does not grow reports more and more new keys as seen when it is past its
    /// capacity. `seenset filter get` shows its number of keys.
    Add(Keys),
    /// Query whether keys have been seen, and mark them as seen. Prints `seen` or `new`, a tab, and
    /// the key.
    ///
    /// A filter that does not grow reports more and more new keys as seen when it is past its
    /// capacity. `seenset filter get` shows its number of keys.
    QueryAndAdd(AgedKeys),
    /// Remove keys from a counting filter. Prints `removed` or `absent`, a tab, and the key.
    ///
    /// Remove only keys that were added. A key that was never added can look seen by chance (a
    /// false positive). If such a key is removed, the filter can forget other keys.
    Remove(Keys),
    /// Mark every line of files as seen, and print a summary. Reads plain, gzip and zstd files.
    ///
    /// The summary warns of a filter that is at 80 % of its capacity or more. A filter that does
    /// not grow reports more and more new keys as seen when it is past its capacity.
    #[command(after_long_help = LINES_HELP)]
    Load(Load),
    /// Write only the lines that were never seen before, in their order, and mark them as seen.
    /// Reads plain, gzip and zstd files.
    ///
    /// A line is written unchanged, with its ending. A last line without an ending gets an LF. The
    /// summary goes to standard error.
    ///
    /// SIGINT and SIGTERM end the run: the command waits for the answers to the lines that it has
    /// sent, writes the new ones of these lines, and exits with code 130. A second signal ends the
    /// run at once. If the reader of the output closes the pipe, the command prints no message and
    /// exits with code 141: lines that the reader has not read are marked as seen.
    ///
    /// The summary warns of a filter that is at 80 % of its capacity or more. A filter that does
    /// not grow reports more and more new keys as seen when it is past its capacity, and `dedup`
    /// does not write their lines.
    #[command(after_long_help = LINES_HELP)]
    Dedup(Dedup),
    /// Write the lines that contain a word of the filter, in their order. Marks no keys. Reads
    /// plain, gzip and zstd files.
    ///
    /// The filter holds a list of words. `seenset load` adds the list from a file with one word on
    /// each line. A line is written unchanged, with its ending. A last line without an ending gets
    /// an LF. The summary goes to standard error. SIGINT and SIGTERM end the run with exit code
    /// 130.
    #[command(after_long_help = matching::WORDS_HELP)]
    Match(Match),
    /// Write a snapshot of every filter, or of the filter that --filter names.
    Store,
    /// Create, show, rename, copy, merge, import, export, reset, rebuild and delete filters.
    #[command(subcommand)]
    Filter(FilterCommand),
    /// Show the canonical form of a key in a filter, its hash, its bits, and which of the bits are
    /// set. Marks no keys.
    Explain(Explain),
    /// Compute the size of a filter for a number of keys and a false-positive rate. Needs no
    /// server.
    Plan(Spec),
    /// Measure the throughput and latency of a server: keys per second, and a histogram of
    /// latencies.
    ///
    /// The command creates a filter of its own, named bench- and a random number. It deletes this
    /// filter at the end, also after an error or a signal; only a second signal, or a signal that
    /// cannot be caught, leaves the filter on the server. With --filter the keys go to that filter
    /// and STAY IN IT, millions of them per second: never name a filter that is in use.
    ///
    /// The keys are new to any server, except for the share that --seen sets. SIGINT and SIGTERM
    /// end the run and print the measurements so far; the exit code is 130. The result warns of a
    /// filter that is at 80 % of its capacity or more.
    #[command(after_long_help = bench::RESULT_HELP)]
    Bench(Bench),
    /// Check whether the server serves. The exit code is 0 if it does, and 1 if not. For container
    /// health checks.
    Health(Health),
}

/// Keys as arguments.
#[derive(Debug, clap::Args)]
pub(super) struct Keys {
    /// The keys, for instance URLs. They do not have to be UTF-8.
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
    /// Read and print keys as hexadecimal digits, for instance a digest: 9f86d081.
    #[arg(long)]
    hex: bool,
}

impl Keys {
    /// Returns the keys.
    pub(super) fn parse(&self) -> Result<Vec<Key>, Failure> {
        let keys = self.keys.iter();
        keys.map(|key| Key::parse(key, self.hex)).collect()
    }
}

/// Keys as arguments of a query, and their maximum age.
#[derive(Debug, clap::Args)]
pub(super) struct AgedKeys {
    #[command(flatten)]
    pub(super) keys: Keys,
    #[command(flatten)]
    pub(super) age: Age,
}

/// The maximum age of keys.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Age {
    /// The maximum age of a key that counts as seen, in an aging filter: 12h, 30days [default: the
    /// time for which the filter remembers keys].
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    max_age: Option<Duration>,
}

impl Age {
    /// Returns the age as text, in the form of the argument.
    pub(super) fn text(self) -> Option<String> {
        let age = self.max_age.map(humantime::format_duration);
        age.map(|age| age.to_string())
    }

    /// Returns the client with this maximum age.
    pub(super) fn of(&self, client: Client) -> Client {
        match self.max_age {
            Some(age) => client.with_max_age(age),
            None => client,
        }
    }
}

/// The arguments of `explain`.
#[derive(Debug, clap::Args)]
pub(super) struct Explain {
    /// The key, for instance a URL. It does not have to be UTF-8.
    pub(super) key: OsString,
    /// Read and print the key as hexadecimal digits.
    #[arg(long)]
    pub(super) hex: bool,
}

/// The arguments of `load`.
#[derive(Debug, clap::Args)]
pub(super) struct Load {
    /// The files to read. `-`, or no file, is standard input.
    #[arg(value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) lines: Lines,
}

/// The arguments of `dedup`.
#[derive(Debug, clap::Args)]
pub(super) struct Dedup {
    /// The files to read. `-`, or no file, is standard input.
    #[arg(value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// Save checkpoints in this file, and continue from it if it exists. If a run ends early, run
    /// the same command again, until the file is gone. The input files must be regular files, and
    /// the output must be appended to (>>).
    #[arg(long = "continue", value_name = "FILE")]
    pub(super) continue_from: Option<PathBuf>,
    #[command(flatten)]
    pub(super) lines: Lines,
    #[command(flatten)]
    pub(super) age: Age,
}

/// The format of the lines, and the limits of the batches.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Lines {
    /// Read keys that end with a NUL instead of LF, as find -print0 and sort -z write them.
    #[arg(short = '0', long, group = "records")]
    null: bool,
    /// Read keys with their length before them: 4 bytes, the highest byte first (big-endian).
    #[arg(long, group = "records")]
    binary: bool,
    /// Read each line as a key in hexadecimal digits: a digest, a fingerprint of Scrapy.
    #[arg(long, group = "records")]
    hex: bool,
    /// The maximum length of a key, in bytes. Lines with a longer key are skipped and reported.
    #[arg(long, value_name = "BYTES", default_value_t = 65_536,
          value_parser = value_parser!(u32).range(1..=8 * 1024 * 1024))]
    pub(super) max_key_bytes: u32,
    /// The maximum number of keys in one batch.
    #[arg(long, value_name = "KEYS", default_value_t = 1000,
          value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(super) batch_keys: u32,
    /// The maximum number of batches that are sent and not yet answered.
    #[arg(long, value_name = "BATCHES", default_value_t = 16,
          value_parser = value_parser!(u32).range(1..=1024))]
    pub(super) window: u32,
}

impl Lines {
    pub(super) fn format(&self) -> RecordFormat {
        match (self.null, self.binary, self.hex) {
            (true, ..) => RecordFormat::Null,
            (_, true, _) => RecordFormat::Binary,
            (.., true) => RecordFormat::HexLines,
            _ => RecordFormat::Lines,
        }
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            max_line_bytes: self.max_key_bytes as usize,
            max_line_argument: "--max-key-bytes",
            with_empty_lines: false,
            only_utf8: false,
            format: self.format(),
            batch_lines: self.batch_keys as usize,
            batch_bytes: BATCH_BYTES,
            whole_batches: false,
        }
    }
}

/// The arguments of `health`.
#[derive(Debug, clap::Args)]
pub(super) struct Health {
    /// The name of the service to check. seenset.v1.DedupService does not serve while the server
    /// refuses keys because the disk is full or fails. The server as a whole (an empty name) still
    /// serves then, because it answers queries.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(super) service: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Args::command().debug_assert();
    }
}
