//! Filters that are rebuilt.
//!
//! A new filter is made beside the one that is to be rebuilt: its heir. From then on what comes to
//! the one comes to the other as well, while somebody fills the heir with keys. In the end that
//! takes the name of the first, in one step.
//!
//! An answer waits until both have what it rests on. Which filter is whose heir is kept on the disk
//! with the heir, so a start goes on with it.

use std::{
    mem,
    sync::Arc,
    time::{Instant, SystemTime},
};

use tokio::{runtime::Handle, sync::Mutex};

use super::{
    Answer, Call, Change, Engine, EngineError, FilterStatus, Inner, Unsettled,
    admission::{Admission, Share},
    background,
    filters::given_name,
    guarded::{GuardedFilter, StoreTurn},
    journal::{Durability, FilterLog, Journal},
    requests::Remembered,
    unsettled,
};
use crate::{
    filter::spec::SpecRequest,
    store::{FilterId, FilterName},
};

/// A filter that is to take the place of another.
#[derive(Debug)]
pub struct Heir {
    filter: Arc<GuardedFilter>,
    /// Where keys are removed it is of account in which order calls come, and must be the same in
    /// both filters: so they come one by one.
    order: Option<Arc<Mutex<()>>>,
}

impl Heir {
    fn new(filter: Arc<GuardedFilter>, of: &GuardedFilter) -> Arc<Self> {
        let order = of.counts().then(Arc::default);
        Arc::new(Self { filter, order })
    }

    /// The filter.
    pub fn filter(&self) -> &Arc<GuardedFilter> {
        &self.filter
    }

    /// To be locked by each write, if they come one by one.
    pub fn order(&self) -> Option<Arc<Mutex<()>>> {
        self.order.clone()
    }
}

impl Engine {
    /// Makes a filter that is to take the place of another, of the same spec or of one that is asked
    /// for, and tells how it is. Until it is [finished](Self::finish_rebuild), or the new filter
    /// deleted, what is added to the other is added to it as well. Empty names are not `default`
    /// here.
    ///
    /// Whoever repeats a call whose answer was lost is told that it is done.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotRebuildable`], [`EngineError::NameTaken`] or another [`EngineError`]; no
    /// filter has then been made. [`EngineError::NotDurable`]: there may be one after a crash.
    pub async fn start_rebuild(
        &self,
        name: &str,
        new_name: &str,
        request: Option<SpecRequest>,
    ) -> Result<FilterStatus, EngineError> {
        self.inner.check_recovered()?;
        let name = given_name("name", name)?;
        let new_name = given_name("new_name", new_name)?;
        let spec = match request.clone() {
            None => None,
            Some(request) => Some(self.queued(move |_| Ok(request.resolve())).await?),
        };
        // Nobody resets it, or merges others into it, before it has its heir.
        let (filter, turn) = self.filter_in_turn(&name).await?;
        let heir = self.inner.heir_of(&name);
        if let Some(heir) = heir.filter(|heir| heir.filter.name() == new_name) {
            let asked = |request: &SpecRequest| heir.filter.spec().answers(request);
            if request.as_ref().is_none_or(asked) {
                return self
                    .blocking(move |inner| Ok(inner.status(&heir.filter)))
                    .await;
            }
        }
        let spec = spec.unwrap_or_else(|| Ok(filter.spec().clone()))?;
        self.inner.check_not_rebuilding(&filter)?;
        filter.check_rebuild(&spec).map_err(|reason| {
            let name = name.clone();
            EngineError::NotRebuildable { name, reason }
        })?;
        let promise = {
            let naming = self.naming().await;
            self.promise(&naming, new_name.clone())?
        };
        let of = filter.clone();
        let make = move |inner: &Inner| {
            let id = FilterId(inner.directory.new_number());
            let (budget, now) = (&inner.budget, SystemTime::now());
            let mut new = of.heir(id, new_name, spec, now, budget)?;
            if let Some(journal) = inner.journal.get() {
                new.set_log(journal);
            }
            Ok(Arc::new(new))
        };
        let new = self.blocking(make).await?;
        let its_turn = new.turn().await;
        self.blocking(move |inner| {
            new.store(&inner.directory, &inner.barrier, its_turn)?;
            new.sample(Instant::now());
            let heir = Heir::new(new.clone(), &filter);
            inner.registry.set_heir(&name, &heir);
            // What was begun before is in the one alone.
            inner.barrier.wait_for_writes();
            drop((promise, turn));
            Ok(inner.status(&new))
        })
        .await
    }

    /// Has the heir of a filter take its place and its name, in one step, and tells how it is then.
    /// Calls fall before that or after; for as long as it takes to write to the disk which requests
    /// have won keys, those that change either filter wait. The other filter is gone. Empty names are
    /// not `default` here.
    ///
    /// Whoever repeats a call whose answer was lost is told that it is done.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotRebuilding`] or another [`EngineError`]; both filters are then what they
    /// were. [`EngineError::NotDurable`]: the heir may have the place after a crash, and until that
    /// is certain the other filter takes no keys.
    pub async fn finish_rebuild(
        &self,
        name: &str,
        new_name: &str,
    ) -> Result<FilterStatus, EngineError> {
        self.inner.check_recovered()?;
        let name = given_name("name", name)?;
        let new_name = given_name("new_name", new_name)?;
        let (filter, turn) = self.filter_in_turn(&name).await?;
        let heir = self.inner.heir_of(&name);
        let Some(heir) = heir.filter(|heir| heir.filter.name() == new_name) else {
            if self.inner.has_been_rebuilt(&filter, &new_name) {
                return self.blocking(move |inner| Ok(inner.status(&filter))).await;
            }
            return Err(EngineError::NotRebuilding { name, new_name });
        };
        let its_turn = heir.filter.turn().await;
        let naming = self.naming().await;
        // While its turn was waited for it may have got another name, or gone.
        let now = self.inner.registry.get(&new_name);
        if now.is_none_or(|now| !Arc::ptr_eq(&now, &heir.filter)) {
            return Err(EngineError::NotRebuilding { name, new_name });
        }
        let (inner, runtime) = (self.inner.clone(), Handle::current());
        let finish = move || {
            let turns = [turn, its_turn];
            let taken = inner.have_take_place(&filter, &heir.filter, turns, &runtime);
            drop(naming);
            match taken? {
                true => Ok(inner.status(&heir.filter)),
                false => Err(EngineError::NotRebuilding { name, new_name }),
            }
        };
        background::run("rebuild", finish).await
    }
}

impl Inner {
    /// How a filter is now, and which it rebuilds or is rebuilt as.
    pub(super) fn status(&self, filter: &GuardedFilter) -> FilterStatus {
        self.with_rebuild(filter, filter.status())
    }

    /// Adds to what is known of a filter which it rebuilds or is rebuilt as.
    pub(super) fn with_rebuild(
        &self,
        filter: &GuardedFilter,
        status: FilterStatus,
    ) -> FilterStatus {
        let view = self.registry.now();
        let heir = view
            .get(status.name.as_str())
            .and_then(|entry| entry.heir.as_ref());
        FilterStatus {
            rebuilt_as: heir.map(|heir| heir.filter.name()),
            rebuilds: view.rebuilt_as(filter).map(|rebuilt| rebuilt.name()),
            ..status
        }
    }

    /// Has a filter take the place of the one that it rebuilds; `false` if either has been deleted.
    /// Blocks.
    fn have_take_place(
        &self,
        filter: &GuardedFilter,
        new: &Arc<GuardedFilter>,
        [mut turn, mut its_turn]: [StoreTurn; 2],
        runtime: &Handle,
    ) -> Result<bool, EngineError> {
        if !new.prepare_to_take_place(&self.directory, &self.barrier, &mut its_turn)? {
            return Ok(false);
        }
        let new_name = new.name();
        loop {
            // Most of it while calls go on, and what may have to wait for room in the log: some of
            // those that wait until the filters take writes may have it.
            self.hand_over_requests(filter, new, |journal, won| {
                runtime.block_on(journal.repeat(won)).map(|()| true)
            })?;
            let mut step = || {
                if !self.hand_over_requests(filter, new, Journal::try_repeat)? {
                    return Ok(None);
                }
                let turns = (&mut turn, &mut its_turn);
                let taken = new.take_place_of(filter, turns.0, &self.directory, turns.1)?;
                if taken.is_some() {
                    self.registry.rename(&new_name, new);
                }
                Ok::<_, EngineError>(Some(taken))
            };
            let taken = {
                let _held = [filter.hold(), new.hold()];
                self.barrier.wait_for_writes();
                step()?
            };
            match taken {
                Some(Some(renamed)) => {
                    self.directory.clear_up_renamed(renamed);
                    return Ok(true);
                }
                Some(None) => return Ok(false),
                None => {}
            }
        }
    }

    /// Couples the filters again that were coupled when the server ended. Without a log the one may
    /// have what the other has not: then there is no rebuild any more.
    ///
    /// # Errors
    ///
    /// [`EngineError`].
    pub(super) fn go_on_with_rebuilds(&self) -> Result<(), EngineError> {
        if self.durability == Durability::Snapshot {
            return Ok(self.directory.end_rebuilds()?);
        }
        let filters = self.registry.list(None, usize::MAX);
        for heir in &filters {
            let rebuilds = self.directory.rebuilds(&heir.name());
            let rebuilt = filters.iter().find(|filter| Some(filter.id()) == rebuilds);
            if let Some(rebuilt) = rebuilt {
                let heir = Heir::new(heir.clone(), rebuilt);
                self.registry.set_heir(&rebuilt.name(), &heir);
            }
        }
        Ok(())
    }

    /// Has the filter that is rebuilt as another one, if there is one, take no keys until it is
    /// stored: the other one may be back after a crash, and would not have them.
    pub(super) fn doubt_rebuild(&self, as_filter: &GuardedFilter) {
        if let Some(rebuilt) = self.registry.now().rebuilt_as(as_filter) {
            rebuilt.doubt_place();
        }
    }

    /// Lets a filter through that has no heir and is none.
    pub(super) fn check_not_rebuilding(&self, filter: &GuardedFilter) -> Result<(), EngineError> {
        match self.registry.now().rebuilt_as(filter) {
            Some(rebuilt) => Err(EngineError::Rebuilding {
                name: filter.name(),
                other: rebuilt.name(),
            }),
            None => self.check_not_rebuilt(filter),
        }
    }

    /// Lets a filter through that has no heir.
    pub(super) fn check_not_rebuilt(&self, filter: &GuardedFilter) -> Result<(), EngineError> {
        let name = filter.name();
        match self.heir_of(&name) {
            Some(heir) => Err(EngineError::Rebuilding {
                name,
                other: heir.filter.name(),
            }),
            None => Ok(()),
        }
    }

    /// Whether a filter has taken the place of another, and had a name before that no filter has; a
    /// start may have forgotten which.
    fn has_been_rebuilt(&self, filter: &GuardedFilter, as_name: &FilterName) -> bool {
        let name = filter.name();
        let is_done = self.directory.rebuilds(&name).is_some() && self.heir_of(&name).is_none();
        let had_name = filter.had_name(as_name) || filter.had_no_name();
        is_done && had_name && self.registry.get(as_name).is_none()
    }

    fn heir_of(&self, name: &FilterName) -> Option<Arc<Heir>> {
        self.registry.now().get(name.as_str())?.heir.clone()
    }

    /// Has what requests of a filter have won be won by those of the same ids of its heir, when that
    /// is on stable storage, with all else that has come to the log; `false` if `write` could not
    /// write all of it. Blocks.
    fn hand_over_requests(
        &self,
        from: &GuardedFilter,
        to: &GuardedFilter,
        write: impl Fn(&Journal, &Remembered) -> Result<bool, EngineError>,
    ) -> Result<bool, EngineError> {
        let _shortening = self.shortening.lock();
        let missing = self.requests.missing(from.id(), to.id());
        let segment = self.journal.get().map_or(0, Journal::segment);
        if let Some(journal) = self.journal.get() {
            for won in &missing {
                if !write(journal, won)? {
                    return Ok(false);
                }
            }
            let flushed = journal.flush();
            flushed.map_err(|error| EngineError::StorageFailed(error.into()))?;
        }
        for won in missing {
            self.requests.remember(won, segment);
        }
        Ok(true)
    }
}

/// Changes a filter that has an heir, and the heir.
#[cold]
pub(super) fn change_both<T>(
    filter: &GuardedFilter,
    heir: &Heir,
    call: Call<'_>,
    mut admission: Admission<'_>,
    change: impl FnOnce(&GuardedFilter, Change<'_>) -> Result<Answer<T>, EngineError>,
    follow: impl FnOnce(&GuardedFilter, Change<'_>) -> u64,
) -> Result<Unsettled<T>, EngineError> {
    let new = &*heir.filter;
    new.check_takes_keys()?;
    // What the one has, the other gets, also if that has to be waited for.
    if admission.must_not_wait() && new.may_be_full() {
        return Err(EngineError::FilterBusy);
    }
    let _order = admission.order.take();
    let Share { room, turn } = mem::take(&mut admission.heirs);
    let answer = change(filter, admission.change(call))?;
    let rests_on = follow(
        new,
        Change {
            room,
            turn,
            ..Change::default()
        },
    );
    let waits_for: Option<(FilterLog, u64)> = new.waits_for(rests_on);
    Ok(Unsettled {
        heir: waits_for.map(Box::new),
        ..unsettled(filter, answer)
    })
}
