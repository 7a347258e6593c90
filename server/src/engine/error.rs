//! The errors of the engine. The edge turns each into a status.

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

/// An error of the layer below, of any type; for the log, not for callers.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The reason why a full filter does not grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// Its spec says that it takes no more keys when it is full.
    Rejects,
    /// It has all the layers that it can have.
    AllLayers {
        /// The most memory that its spec allows, in bytes; `None` if the spec sets no bound.
        max_memory_bytes: Option<u64>,
    },
    /// The budget of the server has no room for another layer.
    OverBudget(OverBudget),
    /// The kernel has no address space for another layer.
    OutOfMemory {
        /// The size of the layer.
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

/// The error of one call. Names of fields are the names in the contract.
#[derive(Debug, Error)]
pub enum EngineError {
    /// Recovery still restores the filters.
    #[error("the server is restoring its filters; try again when its health says SERVING")]
    Recovering,
    /// The server is stopping and takes no more keys.
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
    /// A removal from a filter that does not count, and so cannot remove keys.
    #[error(
        "the filter \"{name}\" does not count, so that no key can be removed from it: make one \
         whose spec has counting"
    )]
    NotCounting {
        /// The filter's name.
        name: FilterName,
    },
    /// New keys for a filter that is full.
    #[error(
        "the filter \"{name}\" is full, and {why}; none of the call's keys were added. Make a larger \
         filter, or one whose scaling.on_full is another; keys that it has are answered for as \
         before"
    )]
    FilterFull {
        /// The filter's name.
        name: FilterName,
        /// The reason why it does not grow.
        why: Full,
    },
    /// A merge for whose layers the target has no room.
    #[error(
        "the filter \"{target}\" cannot take the layers of \"{source_name}\", for {why}; none of its \
         keys were taken"
    )]
    NoRoomToMerge {
        /// The source of the merge.
        source_name: FilterName,
        /// The target of the merge.
        target: FilterName,
        /// The reason why it has no room.
        why: Full,
    },
    /// A `max_age` for a filter whose keys do not age.
    #[error(
        "max_age is given, and the filter \"{name}\" does not age: leave it out, or make a filter \
         whose spec has aging"
    )]
    NotAging {
        /// The filter's name.
        name: FilterName,
    },
    /// A `max_age` that is out of range.
    #[error(
        "max_age is {asked:?}; it must be above 0 and at most {most:?}, for which the filter \
         remembers its keys"
    )]
    MaxAge {
        /// The age asked for.
        asked: Duration,
        /// The greatest age that the filter's spec allows.
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
    /// A new name that another filter has, or that is reserved for a filter that is being created.
    #[error(
        "a filter named \"{name}\" exists or is being made: choose another name, or rename or \
         delete that filter first"
    )]
    NameTaken {
        /// The name.
        name: FilterName,
    },
    /// Two filters that cannot be merged correctly.
    #[error("the filter \"{source_name}\" cannot be merged into \"{target}\": {reason}")]
    NotMergeable {
        /// The source of the merge.
        source_name: FilterName,
        /// The target of the merge.
        target: FilterName,
        /// The reason.
        reason: String,
    },
    /// A rebuild that is not possible as it was asked for.
    #[error("the filter \"{name}\" cannot be rebuilt so: {reason}")]
    NotRebuildable {
        /// The filter that was to be rebuilt.
        name: FilterName,
        /// The reason.
        reason: String,
    },
    /// A change of a whole filter that takes part in a rebuild.
    #[error(
        "the filters \"{name}\" and \"{other}\" belong together, for one of them is rebuilt as the \
         other: finish that, or delete the new one, first"
    )]
    Rebuilding {
        /// The filter.
        name: FilterName,
        /// The filter that it rebuilds, or that it is rebuilt as.
        other: FilterName,
    },
    /// The end of a rebuild that was not started.
    #[error(
        "the filter \"{name}\" is not being rebuilt as \"{new_name}\": start that first, or correct \
         the names"
    )]
    NotRebuilding {
        /// The filter.
        name: FilterName,
        /// The filter that was to take its place.
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
    /// Since the call reserved room in the log, another filter got the name, or the filter got
    /// another mirror. The call has changed nothing; the engine runs it again.
    #[error("the filter has just been replaced; try again")]
    FilterReplaced,
    /// The call would have to block on a thread that serves connections. It has changed nothing;
    /// the engine runs it again on a worker.
    #[error("the filter is busy; try again")]
    FilterBusy,
    /// A merge whose source and target are the same filter.
    #[error("target: the filter \"{name}\" is the source as well: a merge takes two filters")]
    MergedWithItself {
        /// The name.
        name: FilterName,
    },
    /// An import of a file that is not in the given format, or does not have the given length.
    #[error("the file cannot be imported: {0}")]
    Import(#[from] ExchangeError),
    /// An import of a file that has data after the end of its filter.
    #[error(
        "data goes on behind size_bytes, which is {file_bytes}: give the length of the whole file"
    )]
    LongImport {
        /// The length that the call gave.
        file_bytes: u64,
    },
    /// An import while the greatest number of imports is in progress.
    #[error(
        "{} imports are under way, and no more may be at one time: try again when one has ended",
        super::call::limits::Limits::MAX_IMPORTS
    )]
    TooManyImports,
    /// An export of a filter whose layout no other program has.
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
    /// An export of a filter that was deleted, reset or rebuilt before the export ended.
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
        /// The error in the name.
        source: NameError,
    },
    /// A spec that no filter can have.
    #[error("spec.{0}")]
    Spec(#[from] SpecError),
    /// A request id that is too long.
    #[error("request_id has {bytes} bytes; it must have at most {limit}: a UUID is enough")]
    RequestId {
        /// Its length.
        bytes: usize,
        /// The most bytes that an id can have.
        limit: usize,
    },
    /// A request id that is used for many calls.
    #[error(
        "request_id is used for many calls: {keys} keys were new to those that had it, and one call \
         has at most {limit} (the server's --max-batch-keys); name each call differently, and use \
         the name again only to repeat it"
    )]
    RequestReused {
        /// The number of keys that were new.
        keys: usize,
        /// The most keys that one call can have.
        limit: usize,
    },
    /// A key that is empty or too long.
    #[error("{} has {bytes} bytes; a key must have 1 to {limit} (the server's \
         --max-key-bytes)", element(field, *index))]
    KeyLength {
        /// The field that holds it.
        field: &'static str,
        /// Its index in the batch; `None` for the key of a single call.
        index: Option<usize>,
        /// Its length.
        bytes: usize,
        /// The greatest length of a key.
        limit: usize,
    },
    /// A batch of too many keys.
    #[error(
        "{field} has {keys} keys; a batch may have at most {limit} (the server's --max-batch-keys): \
         send several"
    )]
    BatchLength {
        /// The field that holds them.
        field: &'static str,
        /// Their number.
        keys: usize,
        /// The most keys of a batch.
        limit: usize,
    },
    /// A page size below 0.
    #[error(
        "page_size is {value}; it must be at least 0 (0 means {})",
        super::call::limits::Limits::DEFAULT_PAGE_SIZE
    )]
    PageSize {
        /// The page size asked for.
        value: i32,
    },
    /// A new filter that does not fit into the memory budget beside the others.
    #[error(
        "the filter needs {} bytes of memory, and of the budget of {} (--max-memory) {} are \
         left: ask for fewer bits, or delete a filter",
        .0.needed_bytes, .0.limit_bytes, .0.left_bytes
    )]
    OverBudget(OverBudget),
    /// A snapshot of a filter that does not fit into the memory budget beside the others.
    #[error(
        "{} holds a filter of {} bytes of memory, and of the budget of {} (--max-memory) {} \
         are left: raise --max-memory, or move all files of the filter out of the data directory \
         to start without it",
        path.display(), over.needed_bytes, over.limit_bytes, over.left_bytes
    )]
    RestoreOverBudget {
        /// The snapshot.
        path: PathBuf,
        /// The size of the filter and of the budget.
        over: OverBudget,
    },
    /// Keys in the log for a filter that must grow to hold them, and cannot.
    #[error(
        "the log holds keys for which the filter \"{name}\" must grow, and {why}: raise \
         --max-memory, or move all files of the filter out of the data directory to start without it"
    )]
    NoRoomToRestore {
        /// The filter's name.
        name: FilterName,
        /// The reason why it does not grow.
        why: Full,
    },
    /// A filter that is within the budget, but for which the kernel gives no memory.
    #[error(
        "the system refuses {needed_bytes} bytes of memory for the filter: {source}; ask for \
         fewer bits"
    )]
    OutOfMemory {
        /// The size of the filter.
        needed_bytes: u64,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The storage is full: nothing more can be stored.
    #[error("{0}")]
    StorageFull(BoxError),
    /// The storage fails.
    #[error("{0}")]
    StorageFailed(BoxError),
    /// The storage is full or fails, and the changes that the answer depends on are not as durable
    /// as configured. It is not known whether the changes of the call survive a crash.
    #[error("{0}")]
    NotDurable(BoxError),
    /// The stored files cannot be used.
    #[error("{0}")]
    Snapshot(BoxError),
    /// The kernel refused something that the server needs.
    #[error("{what}: {detail}")]
    Internal {
        /// The action that failed.
        what: &'static str,
        /// The error of the kernel; for the log, not for callers.
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
            | StoreError::NewerFormat { .. }
            | StoreError::OlderFormat { .. } => Self::Snapshot(error.into()),
        }
    }
}

/// Returns the name of a field, or of an element of a repeated field.
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
        spec.body.bit_count(),
        spec.body.hash_count(),
        spec.body.layout(),
        spec.hash_function,
        spec.body.kind(),
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
