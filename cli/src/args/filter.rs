//! The arguments of `seenset filter`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum, value_parser};

use super::{LINES_HELP, Lines, Profile, Spec, SpecChange};

/// The commands on filters.
#[derive(Debug, Subcommand)]
pub(crate) enum FilterCommand {
    /// Create an empty filter. If a filter with this name and spec exists, nothing changes.
    Create {
        /// The name of the filter.
        name: String,
        #[command(flatten)]
        spec: Spec,
        #[command(flatten)]
        profile: Profile,
    },
    /// Show one filter.
    Get {
        /// The name of the filter [default: the name that --filter gives, or default].
        name: Option<String>,
    },
    /// Show every filter.
    List,
    /// Rename a filter. Calls in flight under the old name continue.
    Rename {
        /// The name of the filter.
        name: String,
        /// The new name of the filter.
        new_name: String,
    },
    /// Copy a filter. The copy has the same spec and the same keys.
    Copy {
        /// The name of the filter to copy.
        name: String,
        /// The name of the copy.
        new_name: String,
    },
    /// Add all keys of a filter, the source, to another filter, the target. The source does not
    /// change. Both must be copies of one filter. In counting filters, the counts of both add up.
    Merge {
        /// The name of the filter whose keys are added.
        source: String,
        /// The name of the filter that the keys are added to.
        target: String,
    },
    /// Create a filter from a file of another program. The filter has the layout of the file.
    Import(Import),
    /// Write a filter with the layout guava or guava-mitz-32 to a file that Guava reads
    /// (BloomFilter.readFrom).
    Export {
        /// The name of the filter.
        name: String,
        /// The file to write; `-` is standard output. An existing file is replaced when the whole
        /// filter has arrived, and keeps its mode and owner; symbolic links are followed. A file
        /// that cannot be replaced is written in place: a device, a pipe, /dev/fd/N, a file with
        /// several names, or a file in a directory where no file can be created. If such a file is
        /// not written completely, the exit code is not 0.
        file: PathBuf,
    },
    /// Remove all keys from a filter, in one step. The filter keeps its spec.
    Reset {
        /// The name of the filter.
        name: String,
    },
    /// Fill a new filter with the lines of files, and replace a filter by it in one step. Until
    /// then, new keys go to both filters. Reads plain, gzip and zstd files.
    ///
    /// Afterwards the filter has the keys of the files and all keys that were added since the
    /// command began. It forgets keys that were added before and are in no file. If the command
    /// ends early, the old filter has not changed, and the new filter still exists. To continue,
    /// run the same command again. To cancel the rebuild, delete the new filter.
    #[command(after_long_help = LINES_HELP)]
    Rebuild(Rebuild),
    /// Delete a filter and its snapshot. Its keys are forgotten.
    Delete {
        /// The name of the filter.
        name: String,
    },
}

/// The arguments of `filter rebuild`.
#[derive(Debug, clap::Args)]
pub(crate) struct Rebuild {
    /// The name of the filter.
    pub(crate) name: String,
    /// The name of the new filter, until it gets the name of the old one [default: NAME.rebuild].
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) new_name: Option<String>,
    #[command(flatten)]
    pub(crate) change: SpecChange,
    /// The files to read; `-` is standard input.
    // At least one file is required. If standard input were the default, an empty input would make
    // the filter forget all its keys.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) lines: Lines,
}

/// The arguments of `filter import`.
#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    /// The name of the new filter.
    pub(crate) name: String,
    /// The file to read; `-` is standard input. A file that is not a regular file, for instance a
    /// pipe, is first copied to a temporary file in TMPDIR.
    pub(crate) file: PathBuf,
    /// The format of the file.
    #[arg(long, value_enum)]
    pub(crate) format: FormatArg,
    /// The number of distinct keys that the filter is made for (n) [default: the number that suits
    /// its bits best, or the number that the file states].
    #[arg(short = 'n', long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub(crate) capacity: Option<u64>,
}

/// The format of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
    /// The format that BloomFilter.writeTo of Guava writes.
    Guava,
    /// The replies of BF.SCANDUMP of RedisBloom, one pair after another: the iterator and the
    /// length of the data, 8 bytes each, the lowest byte first (little-endian), and then the data.
    /// The last pair is left out.
    Redisbloom,
}
