//! Recovery: restores filters from their snapshots and the log.

mod order;
mod restore;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use self::order::Order;
use crate::{
    engine::{
        Engine,
        call::{filter_name, requests::Requests, workers::Workers},
        catalog::Catalog,
        commit::{Durability, Journal, Remembered},
        error::EngineError,
        filter::Filter,
    },
    filter::{hash::KeyHash, spec::SpecRequest},
    store::{FilterId, FilterName, FoundLog, LogReader, Record, RecordHead, RecordKind, Torn},
};

/// The number of keys of the log that are added at once.
const REPLAY_KEYS: usize = 4096;

/// The number of bytes of the log between two progress reports.
const REPORT_BYTES: u64 = 1 << 20;

/// The progress of a recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The filter whose snapshots are being read; `None` for the log.
    pub filter: Option<FilterName>,
    /// The number of bytes read.
    pub read_bytes: u64,
    /// The number of bytes in all.
    pub bytes: u64,
}

impl Progress {
    /// Adds to the bytes read, and reports the progress.
    fn advance(&mut self, bytes: u64, report: &mut impl FnMut(&Self)) {
        self.read_bytes += bytes;
        report(self);
    }
}

/// The result of a recovery.
#[derive(Debug)]
pub struct Recovered {
    /// The names of the filters.
    pub filters: BTreeSet<FilterName>,
    /// The number of keys replayed from the log.
    pub replayed_keys: u64,
    /// The torn write that a crash left after the end of the log.
    pub torn: Option<Torn>,
}

impl Engine {
    /// Restores every filter from its snapshots and the log, and then accepts calls. If there is no
    /// default filter, creates it from `default`, if given.
    ///
    /// # Errors
    ///
    /// Fails if a file is damaged, has a newer format, or does not fit the memory budget. Fails
    /// with [`EngineError::Stopping`] soon after [`Self::close`]. The engine then still refuses
    /// calls, and no file is changed.
    pub async fn recover(&self, default: Option<SpecRequest>) -> Result<Recovered, EngineError> {
        self.recover_telling(default, |_| {}).await
    }

    /// [`Self::recover`], which also calls `report` with its progress whenever some MiB have been
    /// read.
    ///
    /// # Errors
    ///
    /// As [`Self::recover`].
    pub async fn recover_telling(
        &self,
        default: Option<SpecRequest>,
        mut report: impl FnMut(&Progress) + Send + 'static,
    ) -> Result<Recovered, EngineError> {
        let recover = move |catalog: &Catalog| catalog.recover(&mut report);
        let recovered = self.blocking(recover).await?;
        if let Some(request) = default {
            let name = filter_name("name", FilterName::DEFAULT)?;
            if self.data.registry.get(&name).is_none() {
                self.create(name, request).await?;
            }
        }
        self.data.recovered.store(true, Ordering::Release);
        Ok(recovered)
    }
}

impl Catalog {
    /// Restores all filters, and then opens a log after the end of the existing one.
    pub(in crate::engine) fn recover(
        &self,
        report: &mut impl FnMut(&Progress),
    ) -> Result<Recovered, EngineError> {
        let workers = Workers::new();
        let workers =
            workers.map_err(|error| EngineError::internal("the kernel gives no thread", error))?;
        // A second start of one engine uses the workers of the first.
        self.data.workers.get_or_init(|| workers);
        let mut filters = BTreeMap::new();
        for name in self.directory.filters() {
            if let Some(stored) = self.directory.read_filter(&name)? {
                let mut progress = Progress {
                    bytes: stored.bytes(),
                    filter: Some(name),
                    read_bytes: 0,
                };
                let advance = |bytes| {
                    progress.advance(bytes, report);
                    self.data.barrier.pass().map(|_| ())
                };
                let filter = Filter::restore(stored, &self.budget, &self.clock, advance)?;
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
                progress.advance(bytes, report);
                self.data.barrier.pass().map(|_| ())
            };
            replay(&log, &filters, &self.data.requests, advance)?
        };
        filters.values_mut().for_each(Filter::go_on);
        if self.data.durability != Durability::Snapshot {
            let log = self.directory.open_log(&mut found, self.segment_bytes)?;
            // Filters for which the log held nothing new need it no longer. Of a filter whose files
            // are missing nothing is known, so it keeps its log.
            let gone = &self.directory.startup_warnings().missing;
            let needs_no_more =
                |name: &FilterName, id| !with_log.contains(&id) && !gone.contains(name);
            // The requests that were read stay in their segments until the log is shortened.
            let requests_from = match self.directory.requests_from() {
                _ if !self.data.requests.is_on() => 0,
                0 => log.sequence(),
                first => first,
            };
            let begun = self
                .directory
                .begin_log(log.sequence(), needs_no_more, requests_from);
            match begun {
                // As when the log has no room for a segment: queries can be answered.
                Err(error)
                    if error.is_full() && self.directory.is_logged(self.data.requests.is_on()) => {}
                begun => begun?,
            }
            let journal = Journal::start(
                log,
                self.data.durability,
                self.segment_bytes,
                self.data.is_read_only.clone(),
            )?;
            filters
                .values_mut()
                .for_each(|filter| filter.set_log(&journal));
            // No other recovery sets it.
            let _ = self.data.journal.set(journal);
        } else {
            // From now on requests are remembered only in memory.
            self.directory.begin_log(0, |_, _| false, 0)?;
        }
        let recovered = Recovered {
            filters: filters.values().map(Filter::name).collect(),
            replayed_keys,
            torn: found.torn,
        };
        for filter in filters.into_values() {
            filter.sample(Instant::now());
            self.data.registry.insert(Arc::new(filter));
        }
        self.go_on_with_rebuilds()?;
        Ok(recovered)
    }
}

/// The result of a replay.
struct Replayed {
    found: FoundLog,
    /// The number of keys that were added.
    keys: u64,
    /// The filters that the keys were added to.
    filters: BTreeSet<FilterId>,
}

/// Adds to the filters the keys in the log that their snapshots do not contain.
fn replay(
    log: &LogReader<'_>,
    filters: &BTreeMap<FilterId, Filter>,
    requests: &Requests,
    mut advance: impl FnMut(u64) -> Result<(), EngineError>,
) -> Result<Replayed, EngineError> {
    // Small records of one epoch, or one layer, are added together. The version noted is the
    // greatest, which is safe: it must only not be less.
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
        // Other filters have been deleted.
        let Some(filter) = filters.get(&head.filter) else {
            return Ok(());
        };
        if filter.is_stored(head.version) {
            remember(requests, &record);
            return Ok(());
        }
        keys += record.hashes.len() as u64;
        if let RecordKind::Counted(counted) = head.kind {
            // Records salvaged from a log are not counted, and are older, so they are added first:
            // a counted record after them can remove their keys.
            if let Some(before) = waiting.get_mut(&(head.filter, None)) {
                before.add_to(filter)?;
            }
            // Also for a record that is left out: each version is given out only once.
            filter.pass_version(head.version);
            let behind = || Order::behind(filter.stored_version());
            let order = orders.entry(head.filter).or_insert_with(behind);
            let mut counted_all = Ok(());
            order.take(counted, record, &mut |record| {
                if counted_all.is_ok() {
                    counted_all = count(filter, requests, &record);
                }
            });
            return counted_all;
        }
        remember(requests, &record);
        // Records can alternate between layers.
        let layer = match head.kind {
            RecordKind::AddedTo { layer } => Some(layer),
            _ => None,
        };
        let waiting = waiting.entry((head.filter, layer));
        let waiting = waiting.or_insert_with(|| Waiting::new(head));
        if head.kind != waiting.head.kind {
            waiting.add_to(filter)?;
            waiting.head.kind = head.kind;
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

/// A batch of keys from the log, which is added when it is large enough.
struct Waiting {
    /// The head of the last record, with the greatest version of all.
    head: RecordHead,
    hashes: Vec<KeyHash>,
}

impl Waiting {
    fn new(head: RecordHead) -> Self {
        let hashes = Vec::new();
        Self { head, hashes }
    }

    fn add_to(&mut self, filter: &Filter) -> Result<(), EngineError> {
        filter.replay(&self.head, &self.hashes)?;
        self.hashes.clear();
        Ok(())
    }
}

/// Applies a counted record in its turn.
fn count(filter: &Filter, requests: &Requests, record: &Record) -> Result<(), EngineError> {
    remember(requests, record);
    filter.replay(&record.head, &record.hashes)
}

/// Remembers the keys that the request of a record added first, if the record has a request id.
fn remember(requests: &Requests, record: &Record) {
    if let Some(request) = record.head.request {
        let remembered = Remembered {
            filter: record.head.filter,
            request,
            hashes: record.hashes.clone(),
        };
        // The keys can be in any segment.
        requests.remember(remembered, 0);
    }
}
