//! The arguments, and their help: the user's documentation of each command.

use std::{ffi::OsString, path::PathBuf, pin::pin, time::Duration};

use clap::{
    CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, parser::ValueSource,
    value_parser,
};
use seenset_proto::units;
use tokio::time::timeout;

pub(super) use bench::Bench;
pub(super) use matching::Match;
pub(super) use spec::{
    AgingArgs, HashFunctionArg, KindArg, LayoutArg, OnFullArg, Profile, ScalingArgs, Spec,
    SpecChange,
};

use super::{
    failure::Failure,
    key::Key,
    lines::{BATCH_BYTES, Limits, RecordFormat},
    output::note,
};
use seenset_client::{Client, Options};

/// The default time for a call of a command that runs for long: a server that starts again is waited
/// for.
pub(super) const RUN_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a connection is waited for without a word.
const QUIET: Duration = Duration::from_secs(2);

/// What files may be; part of the help of all commands that read them.
macro_rules! files_help {
    () => {
        "
What files may be:
  Plain, gzip or zstd, by their first bytes and whatever their names, standard input as
  well; what was compressed in several pieces is read as one, and NULs after a piece are
  skipped. FILE:LINE counts lines as they were before. What is written is plain.
  Text is UTF-8. A byte order mark of UTF-8 at the beginning of a line is not part of the key,
  and is written as it came. A file with the mark of UTF-16 or UTF-32 ends the run with exit
  code 1 before any of its lines is taken: convert it first, as with iconv -f UTF-16 -t UTF-8.
  NULs and Ctrl-Z behind the last line are padding, and are skipped. A line with a NUL anywhere
  else is bad.
  A zstd frame that asks for a window of more than 128 MiB (zstd --long=27) is refused. A
  file that is cut short or damaged ends the run with exit code 1, and the message names the
  line up to which everything is done. A checksum stands behind what it is for: if nothing
  else finds the damage, lines before it are wrong, and were taken as they came."
    };
}

mod bench;
mod matching;
mod spec;

/// How lines become keys; part of the help of `dedup` and `load`.
const LINES_HELP: &str = concat!(
    "\
How lines become keys:
  A line ends with LF or CRLF, and the key is the line without its ending; spaces and a CR
  elsewhere are part of it. The last line may lack the ending.
  A key is bytes: lines need not be UTF-8, and two of the same bytes are the same key.
  Empty lines are no keys: they are left out, and counted.
  Lines longer than --max-key-bytes and lines with a NUL are bad: they are left out,
  counted, and reported on standard error as FILE:LINE: reason (the first 10). The run goes
  on, and the exit code at its end is 1.
  With --null a key ends with a NUL and may have any other byte; with --binary its length
  stands before it, in 4 bytes, the highest first, and it may have any byte. Nothing else in
  such files is looked at, marks of encodings neither. FILE:LINE counts keys then. A file
  that ends within a key of --binary ends the run with exit code 1, and the message says at
  which byte that key begins, before any compression.
  With --hex each line has the bytes of a key in hexadecimal digits, upper or lower case; a
  line of anything else is bad.
  If the connection breaks or the server restores its filters, what was in flight is sent
  again until --timeout is over, and answered as it would have been the first time. If the
  server refuses a batch or does not come back in time, the run ends with exit code 1 and
  names the file and line up to which everything is done. A run of dedup with --continue
  goes on from there, with the first answers, when the same command is run again.
",
    files_help!()
);

/// Asks and operates seenset, the networked deduplication service.
///
/// A duration is written as 90 (seconds), 500ms, 5min or 12h; a size as 12GiB, 64MB or a number of
/// bytes. Each option of all commands has an environment variable, which its help names. The variables
/// of seenset-server do no harm here, nor these there.
///
/// Nothing is done while standard output is closed, or if an input is the output as well.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage, 130 ended by a signal, 141 if nobody reads
/// what `dedup` writes.
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
        // It would fill a filter that is in use, which only a flag can mean.
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
    /// The server: host:port, http://host:port or unix:/PATH.
    #[arg(
        long,
        global = true,
        env = "SEENSET_SERVER",
        value_name = "ADDRESS",
        default_value = "http://127.0.0.1:9090"
    )]
    pub(super) server: String,

    /// The filter that the keys go to [default: the one named default; of `store`: all; of
    /// `bench`, which does not read the variable: one of its own].
    #[arg(long, global = true, env = "SEENSET_FILTER", value_name = "NAME")]
    pub(super) filter: Option<String>,

    /// How results and summaries are printed. json: one object a line. The lines that `dedup` and
    /// `match` write are as they came; their summary is the last line of standard error. Failures
    /// are told as text.
    #[arg(
        long,
        global = true,
        env = "SEENSET_OUTPUT",
        value_enum,
        default_value_t
    )]
    pub(super) output: OutputFormat,

    /// The time that one call may take: 5 (seconds), 500ms or 2min. Until it is over, a server that
    /// cannot be reached, restores its filters or breaks the connection is waited for, and asked
    /// again where that is safe [default: 10s; of `health`: 3s; of `load`, `dedup` and `match`: 1min;
    /// of `store`, `filter copy`, `filter merge`, `filter rebuild`, `filter import` and `filter
    /// export`: 10min].
    #[arg(long, global = true, env = "SEENSET_TIMEOUT", value_name = "DURATION",
          value_parser = units::nonzero_duration)]
    timeout: Option<Duration>,
}

impl Global {
    /// Connects to the server, for the keys of the chosen filter.
    pub(super) async fn connect(&self) -> Result<Client, Failure> {
        self.connect_with(self.options()).await
    }

    /// Connects for calls that may take `timeout` each, unless the user says something else.
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

    /// How long calls may take.
    pub(super) fn options(&self) -> Options {
        let mut options = Options::default();
        if let Some(timeout) = self.timeout {
            options.deadline = timeout;
        }
        options
    }

    /// The time that a call may take that takes long by nature.
    pub(super) fn long_timeout(&self) -> Duration {
        self.timeout.unwrap_or(Duration::from_secs(600))
    }
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum OutputFormat {
    /// For people, and for cut and awk.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Tell whether keys have been seen: prints `seen` or `new`, a tab, the key.
    Query(AgedKeys),
    /// Mark keys as seen.
    ///
    /// Past its capacity a filter that does not grow calls more and more new keys seen: `seenset
    /// filter get` says how full it is.
    Add(Keys),
    /// Tell whether keys have been seen, and mark them: prints `seen` or `new`, a tab,
    /// the key.
    ///
    /// Past its capacity a filter that does not grow calls more and more new keys seen: `seenset
    /// filter get` says how full it is.
    QueryAndAdd(AgedKeys),
    /// Take keys out of a counting filter again: prints `removed` or `absent`, a tab, the key.
    ///
    /// Remove only what was added: a key that is there by chance alone is taken for others, and
    /// some of these may then be forgotten.
    Remove(Keys),
    /// Mark every line of files as seen, and print a summary. Reads gzip and zstd as well.
    ///
    /// The summary warns of a filter that is at 80 % of its capacity or more. Past it, a filter that
    /// does not grow calls more and more new keys seen.
    #[command(after_long_help = LINES_HELP)]
    Load(Load),
    /// Write only the lines that were never seen before, in their order, and mark them. Reads
    /// gzip and zstd as well.
    ///
    /// A line is written as it came, ending included; a last line without one gets an
    /// LF. The summary goes to standard error. SIGINT and SIGTERM end the run cleanly:
    /// what was sent is answered and written first, and the exit code is 130. A second
    /// one ends it at once. If the program that reads the lines ends first, nothing is
    /// said, but lines that it has not read are marked as seen: the exit code is then 141.
    ///
    /// The summary warns of a filter that is at 80 % of its capacity or more. Past it, a filter that
    /// does not grow calls more and more new keys seen, and `dedup` does not write their lines.
    #[command(after_long_help = LINES_HELP)]
    Dedup(Dedup),
    /// Write the lines that have a word of the filter, in their order. Marks nothing. Reads
    /// gzip and zstd as well.
    ///
    /// The filter holds a list of words, one a line, as `seenset load` adds it. A line is
    /// written as it came, ending included; a last line without one gets an LF. The summary
    /// goes to standard error. SIGINT and SIGTERM end the run, and the exit code is 130.
    #[command(after_long_help = matching::WORDS_HELP)]
    Match(Match),
    /// Write a snapshot of every filter, or of the one named by --filter.
    Store,
    /// Make, show, rename, copy, merge, reset, rebuild and remove filters.
    #[command(subcommand)]
    Filter(FilterCommand),
    /// Show what a filter makes of a key: its canonical form, its hash and its bits, and
    /// which of them are set. Marks nothing.
    Explain(Explain),
    /// Compute the size of a filter for a number of keys and a false-positive rate. Asks
    /// no server.
    Plan(Spec),
    /// Measure how fast a server answers: keys a second, and a histogram of latencies.
    ///
    /// The keys go to a filter that the command makes for itself, named bench- and a
    /// random number, and deletes at the end, whatever ends it; only a second signal, or one
    /// that cannot be caught, leaves it behind. With --filter they go to that filter and
    /// STAY IN IT, millions of them in a second: never name one that is in use.
    ///
    /// The keys are new to any server, but for the share that --seen says. SIGINT and SIGTERM
    /// end the run and print what was measured so far; the exit code is 130. A filter that is at
    /// 80 % of its capacity or more is warned of.
    #[command(after_long_help = bench::RESULT_HELP)]
    Bench(Bench),
    /// Tell whether the server serves, by the exit code: 0 if it does, else 1. For
    /// container health checks.
    Health(Health),
}

/// Keys as arguments.
#[derive(Debug, clap::Args)]
pub(super) struct Keys {
    /// The keys, for instance URLs. They need not be UTF-8.
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
    /// The keys are given, and printed, as hexadecimal digits: 9f86d081, for instance a digest.
    #[arg(long)]
    hex: bool,
}

impl Keys {
    /// The keys.
    pub(super) fn parse(&self) -> Result<Vec<Key>, Failure> {
        let keys = self.keys.iter();
        keys.map(|key| Key::parse(key, self.hex)).collect()
    }
}

/// Keys as arguments, for a question.
#[derive(Debug, clap::Args)]
pub(super) struct AgedKeys {
    #[command(flatten)]
    pub(super) keys: Keys,
    #[command(flatten)]
    pub(super) age: Age,
}

/// How old keys may be.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Age {
    /// In an aging filter, how old a key may be that counts as seen: 12h, 30days [default: as old
    /// as the filter remembers it].
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    max_age: Option<Duration>,
}

impl Age {
    /// As the user may write it.
    pub(super) fn text(self) -> Option<String> {
        let age = self.max_age.map(humantime::format_duration);
        age.map(|age| age.to_string())
    }

    /// The client, for keys of this age.
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
    /// The key, for instance a URL. It need not be UTF-8.
    pub(super) key: OsString,
    /// The key is given, and printed, as hexadecimal digits.
    #[arg(long)]
    pub(super) hex: bool,
}

/// The arguments of `load`.
#[derive(Debug, clap::Args)]
pub(super) struct Load {
    /// The files to read; `-`, or none, is standard input.
    #[arg(value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) lines: Lines,
}

/// The arguments of `dedup`.
#[derive(Debug, clap::Args)]
pub(super) struct Dedup {
    /// The files to read; `-`, or none, is standard input.
    #[arg(value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// Save checkpoints in this file, and continue from it if it is there: run the same command
    /// again until it is gone. The files must be regular ones, and the output is appended to (>>).
    #[arg(long = "continue", value_name = "FILE")]
    pub(super) continue_from: Option<PathBuf>,
    #[command(flatten)]
    pub(super) lines: Lines,
    #[command(flatten)]
    pub(super) age: Age,
}

/// How lines are read and sent.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Lines {
    /// Keys end with a NUL instead of LF, as find -print0 and sort -z write them.
    #[arg(short = '0', long, group = "records")]
    null: bool,
    /// The length of each key stands before it: 4 bytes, the highest first (big-endian).
    #[arg(long, group = "records")]
    binary: bool,
    /// Each line is a key in hexadecimal digits: a digest, a fingerprint of Scrapy.
    #[arg(long, group = "records")]
    hex: bool,
    /// The longest key; longer lines are left out and reported.
    #[arg(long, value_name = "BYTES", default_value_t = 65_536,
          value_parser = value_parser!(u32).range(1..=8 * 1024 * 1024))]
    pub(super) max_key_bytes: u32,
    /// The most keys in one batch.
    #[arg(long, value_name = "KEYS", default_value_t = 1000,
          value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(super) batch_keys: u32,
    /// The most batches that are sent and not yet answered.
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

/// The commands on filters.
#[derive(Debug, Subcommand)]
pub(super) enum FilterCommand {
    /// Make an empty filter. If it is there with the same spec, nothing changes.
    Create {
        /// The filter's name.
        name: String,
        #[command(flatten)]
        spec: Spec,
        #[command(flatten)]
        profile: Profile,
    },
    /// Show one filter.
    Get {
        /// The filter's name [default: that of --filter, or default].
        name: Option<String>,
    },
    /// Show every filter.
    List,
    /// Give a filter another name. Calls that have found it under the old one go on.
    Rename {
        /// The filter's name.
        name: String,
        /// The name that it is to have.
        new_name: String,
    },
    /// Make a filter of the same spec and with the same keys as another.
    Copy {
        /// The name of the filter to copy.
        name: String,
        /// The name that the copy is to have.
        new_name: String,
    },
    /// Have a filter take all keys of another, which stays as it is. Both must be copies of one
    /// filter. Where keys are counted, the counts of both add up.
    Merge {
        /// The name of the filter whose keys are taken.
        source: String,
        /// The name of the filter that takes them.
        target: String,
    },
    /// Make a filter of a file of another program. It has the layout that the file has.
    Import(Import),
    /// Write a filter of the layout guava or guava-mitz-32 to a file that Guava reads
    /// (BloomFilter.readFrom).
    Export {
        /// The filter's name.
        name: String,
        /// The file to write; `-` is standard output. One that is there is replaced when all of
        /// the filter has come, and keeps its mode and owner; links are followed. What cannot be
        /// replaced is written to: a device, a pipe, /dev/fd/N, a file with several names or in a
        /// directory where no file can be made. If that is not all written, the exit code is not 0.
        file: PathBuf,
    },
    /// Have a filter forget all its keys, in one step. Its spec stays.
    Reset {
        /// The filter's name.
        name: String,
    },
    /// Fill a new filter with the lines of files, while what comes to the filter comes to both, and
    /// have the new one take its place in one step. Reads gzip and zstd as well.
    ///
    /// Afterwards the filter has the keys of the files and all that were added since the command
    /// began; keys that were added before and stand in no file are forgotten. If it does not come
    /// to its end, nothing has changed but that there is the new filter, and the same command goes
    /// on with it.
    #[command(after_long_help = LINES_HELP)]
    Rebuild(Rebuild),
    /// Remove a filter and its snapshot. Its keys are forgotten.
    Delete {
        /// The filter's name.
        name: String,
    },
}

/// The arguments of `filter rebuild`.
#[derive(Debug, clap::Args)]
pub(super) struct Rebuild {
    /// The filter's name.
    pub(super) name: String,
    /// The name of the new filter, until it takes that of the other [default: NAME.rebuild].
    #[arg(long = "as", value_name = "NAME")]
    pub(super) new_name: Option<String>,
    #[command(flatten)]
    pub(super) change: SpecChange,
    /// The files to read; `-` is standard input.
    // Not by default: the filter would forget all its keys if there is nothing to read.
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) lines: Lines,
}

/// The arguments of `filter import`.
#[derive(Debug, clap::Args)]
pub(super) struct Import {
    /// The name that the filter is to have.
    pub(super) name: String,
    /// The file to read; `-` is standard input. What is no regular file is copied to a temporary
    /// one first, in TMPDIR.
    pub(super) file: PathBuf,
    /// Whose file it is.
    #[arg(long, value_enum)]
    pub(super) format: FormatArg,
    /// The number of distinct keys that the filter is for (n) [default: what its bits suit best, or
    /// what the file says].
    #[arg(short = 'n', long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub(super) capacity: Option<u64>,
}

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum FormatArg {
    /// What BloomFilter.writeTo of Guava writes.
    Guava,
    /// What BF.SCANDUMP of RedisBloom hands out, pair after pair: the iterator and the length of the
    /// data, 8 bytes each, the lowest first, and the data; without the last pair.
    Redisbloom,
}

/// The arguments of `health`.
#[derive(Debug, clap::Args)]
pub(super) struct Health {
    /// The service to ask about. seenset.v1.DedupService does not serve while keys are refused
    /// because the disk is full or fails; the server as a whole (empty) still answers queries
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
