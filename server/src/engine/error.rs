//! Why the engine refuses a call or fails it. The edge turns each into a status.

use std::{fmt, io, path::PathBuf, time::Duration};

use thiserror::Error;

use super::budget::OverBudget;
use crate::{
    filter::{
        exchange::ExchangeError,
        spec::{FilterSpec, Layout, SpecError},
    },
    store::{FilterName, NameError, StoreError},
};

/// An error of the layer below, whichever that is; for the log, not for callers.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a filter that is full does not grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// It was told to take no more keys then.
    Rejects,
    /// It has all layers that it may have.
    AllLayers {
        /// The most memory that its spec allows, in bytes, if that is a bound.
        max_memory_bytes: Option<u64>,
    },
    /// The budget of the server has no room for another layer.
    OverBudget(OverBudget),
    /// The system has no address space for another layer, which takes so many bytes.
    OutOfMemory {
        /// What the layer takes.
        needed_bytes: u64,
    },
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejects => f.write_str("its scaling.on_full says REJECT"),
            Self::AllLayers {
                max_memory_bytes: Some(bytes),
            } => write!(
                f,
                "its scaling.max_memory_bytes of {bytes} leaves no room for a layer"
            ),
            Self::AllLayers {
                max_memory_bytes: None,
            } => f.write_str("it has all the layers that a filter can have"),
            Self::OverBudget(over) => write!(
                f,
                "its next layer needs {} bytes of memory, and of the budget of {} (--max-memory) {} \
                 are left",
                over.needed_bytes, over.limit_bytes, over.left_bytes
            ),
            Self::OutOfMemory { needed_bytes } => write!(
                f,
                "the system refuses the {needed_bytes} bytes of memory for its next layer"
            ),
        }
    }
}

/// What came of a call instead of an answer. Names of fields are those of the contract.
#[derive(Debug, Error)]
pub enum EngineError {
    /// Filters are still being restored.
    #[error("the server is restoring its filters; try again when its health says SERVING")]
    Recovering,
    /// The server has stored what there was for the last time.
    #[error("the server is stopping and takes no more keys")]
    Stopping,
    /// A call whose caller had stopped waiting before it began.
    #[error(
        "the deadline of the call (grpc-timeout) passed before it began, and it has changed nothing; \
         repeat it with a longer one"
    )]
    DeadlineOver,
    /// A call whose caller went away before it began.
    #[error("the call was cancelled before it began, and it has changed nothing")]
    Cancelled,
    /// No filter has the name.
    #[error("there is no filter named \"{name}\": create it, or correct the name")]
    UnknownFilter {
        /// The name asked for.
        name: FilterName,
    },
    /// A filter whose keys are there for good.
    #[error(
        "the filter \"{name}\" does not count, so that no key can be removed from it: make one \
         whose spec has counting"
    )]
    NotCounting {
        /// The filter's name.
        name: FilterName,
    },
    /// New keys for a filter that takes no more of them.
    #[error(
        "the filter \"{name}\" is full, and {why}; none of the call's keys were added. Make a larger \
         filter, or one whose scaling.on_full is another; keys that it has are answered for as \
         before"
    )]
    FilterFull {
        /// The filter's name.
        name: FilterName,
        /// Why it takes no more.
        why: Full,
    },
    /// There is no memory for the layers that a filter is to take from another.
    #[error(
        "the filter \"{target}\" cannot take the layers of \"{source_name}\", for {why}; none of its \
         keys were taken"
    )]
    NoRoomToMerge {
        /// The filter whose keys were to be taken.
        source_name: FilterName,
        /// The one that was to take them.
        target: FilterName,
        /// Why it has no room.
        why: Full,
    },
    /// An age was asked for where keys have none.
    #[error(
        "max_age is given, and the filter \"{name}\" does not age: leave it out, or make a filter \
         whose spec has aging"
    )]
    NotAging {
        /// The filter's name.
        name: FilterName,
    },
    /// An age that keys cannot have.
    #[error(
        "max_age is {asked:?}; it must be above 0 and at most {most:?}, for which the filter \
         remembers its keys"
    )]
    MaxAge {
        /// The age asked for.
        asked: Duration,
        /// What the filter's spec has.
        most: Duration,
    },
    /// A filter of another spec has the name.
    #[error(
        "a filter named \"{name}\" exists with another spec: {}",
        shown(existing)
    )]
    FilterExists {
        /// The name asked for.
        name: FilterName,
        /// The spec of the filter that has it.
        existing: Box<FilterSpec>,
    },
    /// A filter has the name that another is to get, or is about to have it.
    #[error(
        "a filter named \"{name}\" exists or is being made: choose another name, or rename or \
         delete that filter first"
    )]
    NameTaken {
        /// The name.
        name: FilterName,
    },
    /// Two filters that have no union which would be right.
    #[error("the filter \"{source_name}\" cannot be merged into \"{target}\": {reason}")]
    NotMergeable {
        /// The one whose keys were to be taken.
        source_name: FilterName,
        /// The one that was to take them.
        target: FilterName,
        /// Why not.
        reason: String,
    },
    /// No filter can take the place of another as it was asked.
    #[error("the filter \"{name}\" cannot be rebuilt so: {reason}")]
    NotRebuildable {
        /// The filter that was to be rebuilt.
        name: FilterName,
        /// Why not.
        reason: String,
    },
    /// A filter that takes part in a rebuild, and so cannot be changed as a whole.
    #[error(
        "the filters \"{name}\" and \"{other}\" belong together, for one of them is rebuilt as the \
         other: finish that, or delete the new one, first"
    )]
    Rebuilding {
        /// The filter.
        name: FilterName,
        /// The one that it rebuilds, or is rebuilt as.
        other: FilterName,
    },
    /// No rebuild is there to be finished.
    #[error(
        "the filter \"{name}\" is not being rebuilt as \"{new_name}\": start that first, or correct \
         the names"
    )]
    NotRebuilding {
        /// The filter.
        name: FilterName,
        /// The one that was to take its place.
        new_name: FilterName,
    },
    /// The number of filters is at its limit.
    #[error(
        "there are {limit} filters, as many as there may be: delete one, or start the server with a \
         greater --max-filters"
    )]
    TooManyFilters {
        /// The limit.
        limit: usize,
    },
    /// Another filter has the name, or it has another heir, since room in the log was reserved for a
    /// call. The call has changed nothing, and is made again by the engine.
    #[error("the filter has just been replaced; try again")]
    FilterReplaced,
    /// The call would have to block on a thread that serves connections. It has changed nothing; the
    /// engine runs it again on a worker.
    #[error("the filter is busy; try again")]
    FilterBusy,
    /// Two names of one filter, where there should be two filters.
    #[error("target: the filter \"{name}\" is the source as well: a merge takes two filters")]
    MergedWithItself {
        /// The name.
        name: FilterName,
    },
    /// A file that is none of the program that it is said to be of, or not as long as was said.
    #[error("the file cannot be imported: {0}")]
    Import(#[from] ExchangeError),
    /// A file that goes on behind its filter.
    #[error(
        "data goes on behind size_bytes, which is {file_bytes}: give the length of the whole file"
    )]
    LongImport {
        /// What its length was said to be.
        file_bytes: u64,
    },
    /// As many imports are under way as may be.
    #[error(
        "{} imports are under way, and no more may be at one time: try again when one has ended",
        super::exchange::MAX_IMPORTS
    )]
    TooManyImports,
    /// A filter that no other program has.
    #[error(
        "the filter \"{name}\" has the layout {layout}, and filters of the layouts guava and \
         guava-mitz-32 can be exported: make one with that layout"
    )]
    NotExportable {
        /// The filter's name.
        name: FilterName,
        /// Its layout.
        layout: Layout,
    },
    /// A filter that is gone before all of it was handed out.
    #[error(
        "the filter \"{name}\" was deleted, reset or rebuilt while it was exported: begin again"
    )]
    ExportEnded {
        /// The filter's name.
        name: FilterName,
    },
    /// A name that no filter can have.
    #[error("{field}: {source}")]
    Name {
        /// The field that holds the name.
        field: &'static str,
        /// What is wrong with it.
        source: NameError,
    },
    /// A spec that no filter can have.
    #[error("spec.{0}")]
    Spec(#[from] SpecError),
    /// A name of a request that is too long.
    #[error("request_id has {bytes} bytes; it must have at most {limit}: a UUID is enough")]
    RequestId {
        /// Its length.
        bytes: usize,
        /// The most bytes that it may have.
        limit: usize,
    },
    /// A name of a request that many have.
    #[error(
        "request_id is used for many calls: {keys} keys were new to those that had it, and one call \
         has at most {limit} (the server's --max-batch-keys); name each call differently, and use \
         the name again only to repeat it"
    )]
    RequestReused {
        /// The keys that were new.
        keys: usize,
        /// The most that one call may have.
        limit: usize,
    },
    /// A key that is empty or too long.
    #[error("{} has {bytes} bytes; a key must have 1 to {limit} (the server's \
         --max-key-bytes)", element(field, *index))]
    KeyLength {
        /// The field that it came in.
        field: &'static str,
        /// Its place in the batch; `None` for the key of a single call.
        index: Option<usize>,
        /// Its length.
        bytes: usize,
        /// The longest that it may be.
        limit: usize,
    },
    /// Too many keys at once.
    #[error(
        "{field} has {keys} keys; a batch may have at most {limit} (the server's --max-batch-keys): \
         send several"
    )]
    BatchLength {
        /// The field that they came in.
        field: &'static str,
        /// Their number.
        keys: usize,
        /// The most there may be.
        limit: usize,
    },
    /// A page size below 0.
    #[error(
        "page_size is {value}; it must be at least 0 (0 means {})",
        super::filters::DEFAULT_PAGE_SIZE
    )]
    PageSize {
        /// What was asked for.
        value: i32,
    },
    /// A filter that does not fit beside those there are.
    #[error(
        "the filter needs {} bytes of memory, and of the budget of {} (--max-memory) {} are \
         left: ask for fewer bits, or delete a filter",
        .0.needed_bytes, .0.limit_bytes, .0.left_bytes
    )]
    OverBudget(OverBudget),
    /// A snapshot of a filter that does not fit beside those there are.
    #[error(
        "{} holds a filter of {} bytes of memory, and of the budget of {} (--max-memory) {} \
         are left: raise --max-memory, or move all files of the filter out of the data directory \
         to start without it",
        path.display(), over.needed_bytes, over.limit_bytes, over.left_bytes
    )]
    RestoreOverBudget {
        /// The snapshot.
        path: PathBuf,
        /// What is missing.
        over: OverBudget,
    },
    /// Keys of the log for a filter that must grow for them and cannot.
    #[error(
        "the log holds keys for which the filter \"{name}\" must grow, and {why}: raise \
         --max-memory, or move all files of the filter out of the data directory to start without it"
    )]
    NoRoomToRestore {
        /// The filter's name.
        name: FilterName,
        /// Why it does not grow.
        why: Full,
    },
    /// A filter within the budget, and yet past what the system gives.
    #[error(
        "the system refuses {needed_bytes} bytes of memory for the filter: {source}; ask for \
         fewer bits"
    )]
    OutOfMemory {
        /// What the filter takes.
        needed_bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// What keeps the filters is full: nothing more can be stored.
    #[error("{0}")]
    StorageFull(BoxError),
    /// What keeps the filters fails.
    #[error("{0}")]
    StorageFailed(BoxError),
    /// What keeps the filters is full or fails, and what the answer rests on is not as durable as
    /// it is to be. Whether the changes of the call will be found after a crash is not known.
    #[error("{0}")]
    NotDurable(BoxError),
    /// What was stored cannot be used.
    #[error("{0}")]
    Snapshot(BoxError),
    /// The system refused what a server must have.
    #[error("{what}: {detail}")]
    Internal {
        /// What was tried.
        what: &'static str,
        /// What the system said; for the log, not for callers.
        detail: String,
    },
}

impl EngineError {
    pub(super) fn internal(what: &'static str, detail: impl ToString) -> Self {
        Self::Internal {
            what,
            detail: detail.to_string(),
        }
    }
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Io { .. } if error.is_full() => Self::StorageFull(error.into()),
            StoreError::Io { .. } => Self::StorageFailed(error.into()),
            StoreError::InDoubt(_) => Self::NotDurable(error.into()),
            StoreError::Locked { .. }
            | StoreError::Damaged { .. }
            | StoreError::NewerFormat { .. } => Self::Snapshot(error.into()),
        }
    }
}

/// The name of a field, or of an element of one that is repeated.
fn element(field: &str, index: Option<usize>) -> String {
    index.map_or_else(|| field.to_owned(), |index| format!("{field}[{index}]"))
}

fn shown(spec: &FilterSpec) -> String {
    let profile = spec.key_profile.as_ref();
    let profile = profile.map_or_else(|| "none".to_owned(), ToString::to_string);
    format!(
        "capacity {}, false_positive_rate {}, bit_count {}, hash_count {}, layout {}, \
         hash_function {}, kind {}, key_profile {}",
        spec.capacity,
        spec.false_positive_rate,
        spec.bit_count,
        spec.hash_count,
        spec.layout,
        spec.hash_function,
        spec.kind,
        profile
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_a_broken_one() {
        let of = |kind: io::ErrorKind| {
            EngineError::from(StoreError::Io {
                action: "write",
                path: "file".into(),
                source: kind.into(),
            })
        };
        use io::ErrorKind::{FileTooLarge, Other, QuotaExceeded, StorageFull};
        for full in [StorageFull, QuotaExceeded, FileTooLarge] {
            assert!(matches!(of(full), EngineError::StorageFull(_)), "{full}");
        }
        assert!(matches!(of(Other), EngineError::StorageFailed(_)));
    }
}
