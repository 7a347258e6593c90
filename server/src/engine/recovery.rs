//! The start: filters come back from their snapshots and the log.

mod order;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::Instant,
};

use self::order::Order;
use super::{
    Durability, EngineError, FilterName, FilterStatus, Inner, Torn,
    guarded::GuardedFilter,
    journal::Journal,
    requests::{Remembered, Requests},
    workers::Workers,
};
use crate::{
    filter::hash::KeyHash,
    store::{Counted, FilterId, FoundLog, LogReader, Record, RecordHead},
};

/// How many keys of the log are added at once.
const REPLAY_KEYS: usize = 4096;

/// How much of the log is read before that is told.
const REPORT_BYTES: u64 = 1 << 20;

/// How far a start has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// What is being read: the snapshots of a filter, or else the log.
    pub filter: Option<FilterName>,
    /// How much of that has been read.
    pub read_bytes: u64,
    /// How much there is.
    pub bytes: u64,
}

impl Progress {
    /// Tells that so much more has been read.
    fn advance(&mut self, bytes: u64, tell: &mut impl FnMut(&Self)) {
        self.read_bytes += bytes;
        tell(self);
    }
}

/// What was there at the start.
#[derive(Debug)]
pub struct Recovered {
    /// The filters.
    pub filters: Vec<FilterStatus>,
    /// The keys that came from the log.
    pub replayed_keys: u64,
    /// What a crash left behind the end of the log.
    pub torn: Option<Torn>,
}

impl Inner {
    /// Restores all filters, and then opens a log behind the end of the one there is.
    pub(super) fn recover(
        &self,
        tell: &mut impl FnMut(&Progress),
    ) -> Result<Recovered, EngineError> {
        let workers = Workers::new();
        let workers =
            workers.map_err(|error| EngineError::internal("the kernel gives no thread", error))?;
        // A second start of one engine uses the workers of the first.
        self.workers.get_or_init(|| workers);
        let mut filters = BTreeMap::new();
        for name in self.directory.filters() {
            if let Some(stored) = self.directory.read_filter(&name)? {
                let mut progress = Progress {
                    bytes: stored.bytes(),
                    filter: Some(name),
                    read_bytes: 0,
                };
                let advance = |bytes| {
                    progress.advance(bytes, tell);
                    self.barrier.pass().map(|_| ())
                };
                let filter = GuardedFilter::restore(stored, &self.budget, &self.clock, advance)?;
                filters.insert(filter.id(), filter);
            }
        }
        let Replayed {
            mut found,
            keys: replayed_keys,
            filters: with_log,
        } = {
            let log = self.directory.log()?;
            let mut progress = Progress {
                filter: None,
                read_bytes: 0,
                bytes: log.bytes()?,
            };
            let advance = |bytes| {
                progress.advance(bytes, tell);
                self.barrier.pass().map(|_| ())
            };
            replay(&log, &filters, &self.requests, advance)?
        };
        filters.values_mut().for_each(GuardedFilter::go_on);
        if self.durability != Durability::Snapshot {
            let log = self.directory.open_log(&mut found, self.segment_bytes)?;
            // Those whose log held nothing new have no need of it any more. Of one that is not
            // there nothing is known.
            let gone = &self.directory.oddities().gone;
            let needs_no_more =
                |name: &FilterName, id| !with_log.contains(&id) && !gone.contains(name);
            // Those that were read stay where they are until the log is shortened.
            let requests_from = match self.directory.requests_from() {
                _ if !self.requests.is_on() => 0,
                0 => log.sequence(),
                first => first,
            };
            let begun = self
                .directory
                .begin_log(log.sequence(), needs_no_more, requests_from);
            match begun {
                // As with a log that has no room for a segment: queries can be answered.
                Err(error)
                    if error.is_full() && self.directory.is_logged(self.requests.is_on()) => {}
                begun => begun?,
            }
            let journal = Journal::start(
                log,
                self.durability,
                self.segment_bytes,
                self.is_read_only.clone(),
            )?;
            filters
                .values_mut()
                .for_each(|filter| filter.set_log(&journal));
            // Nobody else recovers.
            let _ = self.journal.set(journal);
        } else {
            // From now on they are remembered in memory alone.
            self.directory.begin_log(0, |_, _| false, 0)?;
        }
        let recovered = Recovered {
            filters: filters.values().map(GuardedFilter::status).collect(),
            replayed_keys,
            torn: found.torn,
        };
        for filter in filters.into_values() {
            filter.sample(Instant::now());
            self.registry.insert(Arc::new(filter));
        }
        self.go_on_with_rebuilds()?;
        Ok(recovered)
    }
}

/// What came of reading the log.
struct Replayed {
    found: FoundLog,
    /// The keys that were added.
    keys: u64,
    /// The filters that they were added to.
    filters: BTreeSet<FilterId>,
}

/// Adds to the filters what the log holds and their snapshots do not.
fn replay(
    log: &LogReader<'_>,
    filters: &BTreeMap<FilterId, GuardedFilter>,
    requests: &Requests,
    mut advance: impl FnMut(u64) -> Result<(), EngineError>,
) -> Result<Replayed, EngineError> {
    // Many small records of one epoch, or one layer, are added together: it is enough that the
    // version is not less.
    let mut waiting: BTreeMap<(FilterId, Option<u64>), Waiting> = BTreeMap::new();
    let mut orders: BTreeMap<FilterId, Order> = BTreeMap::new();
    let mut keys = 0;
    let mut unreported_bytes = 0;
    let visit = |record: Record| -> Result<(), EngineError> {
        unreported_bytes += record.encoded_bytes();
        if unreported_bytes >= REPORT_BYTES {
            advance(mem::take(&mut unreported_bytes))?;
        }
        let head = record.head;
        // Others have been deleted.
        let Some(filter) = filters.get(&head.filter) else {
            return Ok(());
        };
        if filter.is_stored(head.version) {
            remember(requests, &record);
            return Ok(());
        }
        keys += record.hashes.len() as u64;
        if let Some(counted) = head.counted {
            // What was salvaged of a log is not counted, and is older. A key may have been removed
            // since.
            if let Some(before) = waiting.get_mut(&(head.filter, None)) {
                before.add_to(filter)?;
            }
            // Also if the record is of no account: a version is given once.
            filter.pass_version(head.version);
            let behind = || Order::behind(filter.stored_version());
            let order = orders.entry(head.filter).or_insert_with(behind);
            order.take(counted, record, &mut |record| {
                count(filter, requests, &record);
            });
            return Ok(());
        }
        remember(requests, &record);
        // Where records tell the layer their order is of no account, and calls may come to several
        // in turn. Those of a log from before that did are all older, and come to where there is
        // room: first, as at every start, or what has come since would be there before them.
        if head.layer.is_some()
            && let Some(before) = waiting.get_mut(&(head.filter, None))
        {
            before.add_to(filter)?;
        }
        let waiting = waiting.entry((head.filter, head.layer));
        let waiting = waiting.or_insert_with(|| Waiting::new(head));
        if head.epoch != waiting.head.epoch {
            waiting.add_to(filter)?;
            waiting.head.epoch = head.epoch;
        }
        waiting.head.version = head.version.max(waiting.head.version);
        waiting.hashes.extend(record.hashes);
        if waiting.hashes.len() >= REPLAY_KEYS {
            waiting.add_to(filter)?;
        }
        Ok(())
    };
    let found = log.read(visit, &mut Err)?;
    for ((id, _), waiting) in &mut waiting {
        if let Some(filter) = filters.get(id) {
            waiting.add_to(filter)?;
        }
    }
    let waited = waiting.into_keys().map(|(id, _)| id);
    Ok(Replayed {
        found,
        keys,
        filters: waited.chain(orders.into_keys()).collect(),
    })
}

/// Keys of the log that wait until there are enough of them.
struct Waiting {
    /// What the last record says, with the greatest version of all.
    head: RecordHead,
    hashes: Vec<KeyHash>,
}

impl Waiting {
    fn new(head: RecordHead) -> Self {
        let hashes = Vec::new();
        Self { head, hashes }
    }

    fn add_to(&mut self, filter: &GuardedFilter) -> Result<(), EngineError> {
        filter.replay(&self.head, &self.hashes)?;
        self.hashes.clear();
        Ok(())
    }
}

/// Counts the keys of a record whose turn it is.
fn count(filter: &GuardedFilter, requests: &Requests, record: &Record) {
    remember(requests, record);
    if let Some(Counted { direction, .. }) = record.head.counted {
        filter.replay_counted(record.head.version, direction, &record.hashes);
    }
}

/// Remembers what the request of a record has won, if it has an id.
fn remember(requests: &Requests, record: &Record) {
    if let Some(request) = record.head.request {
        let remembered = Remembered {
            filter: record.head.filter,
            request,
            hashes: record.hashes.clone(),
        };
        // They may be in any segment.
        requests.remember(remembered, 0);
    }
}
