//! Filters that are rebuilt.
//!
//! A new filter is made beside the one that is to be rebuilt: its heir. From then on what comes to
//! the one comes to the other as well, while somebody fills the heir with keys. In the end that
//! takes the name of the first, in one step.
//!
//! An answer waits until both have what it rests on. Which filter is whose heir is kept on the disk
//! with the heir, so a start goes on with it.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;

use super::{
    Action, Answer, Call, Change, Engine, EngineError, FilterStatus, Inner, Unsettled, background,
    filters::given_name,
    guarded::GuardedFilter,
    journal::{FilterLog, Room},
    registry::Entry,
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
    order: Option<Mutex<()>>,
}

impl Heir {
    fn new(filter: Arc<GuardedFilter>, of: &GuardedFilter) -> Arc<Self> {
        let order = of.counts().then(Mutex::default);
        Arc::new(Self { filter, order })
    }

    /// The filter.
    pub fn filter(&self) -> &GuardedFilter {
        &self.filter
    }

    fn in_order(&self) -> Option<MutexGuard<'_, ()>> {
        self.order.as_ref().map(Mutex::lock)
    }
}

/// Room in the log for what a call changes, if there is a log: of the filter, and of its heir if it
/// has one.
#[derive(Debug, Default)]
pub(super) struct Rooms<'a> {
    pub own: Option<Room<'a>>,
    pub heirs: Option<Room<'a>>,
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
            Some(request) => Some(self.blocking(move |_| Ok(request.resolve()?)).await?),
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
        let spec = spec.unwrap_or_else(|| filter.spec().clone());
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
            new.store(&inner.directory, &inner.gate, its_turn)?;
            new.sample(Instant::now());
            let heir = Heir::new(new.clone(), &filter);
            // What was begun before is in the one alone.
            inner.gate.between_calls(|| {
                inner.registry.insert(new.clone());
                inner.registry.set_heir(&name, &heir);
            });
            drop((promise, turn));
            Ok(inner.status(&new))
        })
        .await
    }

    /// Has the heir of a filter take its place and its name, in one step, and tells how it is then.
    /// Calls fall before that or after; for as long as it takes to write to the disk which requests
    /// have won keys, those that change any filter wait. The other filter is gone. Empty names are
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
            if self.inner.has_been_rebuilt(&name, &new_name) {
                return self.blocking(move |inner| Ok(inner.status(&filter))).await;
            }
            return Err(EngineError::NotRebuilding { name, new_name });
        };
        let mut its_turn = heir.filter.turn().await;
        let naming = self.naming().await;
        let (inner, runtime) = (self.inner.clone(), Handle::current());
        let finish = move || {
            let new = &heir.filter;
            if !new.prepare_rename(&inner.directory, &inner.gate, &mut its_turn)? {
                return Err(EngineError::NotRebuilding { name, new_name });
            }
            // Most of it while calls go on.
            inner.hand_over_requests(&filter, new, &runtime)?;
            let put = || inner.registry.rename(&new_name, new);
            let taken = inner.gate.between_calls(|| {
                inner.hand_over_requests(&filter, new, &runtime)?;
                let taken = new.take_place_of(&filter, turn, &inner.directory, its_turn, put);
                Ok::<_, EngineError>(taken?)
            });
            drop(naming);
            match taken? {
                true => Ok(inner.status(new)),
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

    /// Couples the filters again that were coupled when the server ended.
    pub(super) fn go_on_with_rebuilds(&self) {
        let filters = self.registry.list(None, usize::MAX);
        for heir in &filters {
            let rebuilds = self.directory.rebuilds(&heir.name());
            let rebuilt = filters.iter().find(|filter| Some(filter.id()) == rebuilds);
            if let Some(rebuilt) = rebuilt {
                let heir = Heir::new(heir.clone(), rebuilt);
                self.registry.set_heir(&rebuilt.name(), &heir);
            }
        }
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

    /// Whether a filter has taken the place of another, and there is none that could be the one which
    /// a caller means that is to do so.
    fn has_been_rebuilt(&self, name: &FilterName, as_name: &FilterName) -> bool {
        let is_done = self.directory.rebuilds(name).is_some() && self.heir_of(name).is_none();
        is_done && self.registry.get(as_name).is_none()
    }

    fn heir_of(&self, name: &FilterName) -> Option<Arc<Heir>> {
        self.registry.now().get(name.as_str())?.heir.clone()
    }

    /// Has what requests of a filter have won be won by those of the same ids of its heir, and puts
    /// that on stable storage. Blocks.
    fn hand_over_requests(
        &self,
        from: &GuardedFilter,
        to: &GuardedFilter,
        runtime: &Handle,
    ) -> Result<(), EngineError> {
        let handed_over = self.requests.hand_over(from.id(), to.id());
        self.write_requests(&handed_over, runtime)
    }

    /// Writes to the log what requests have won, and puts it on stable storage. Blocks.
    pub(super) fn write_requests(
        &self,
        requests: &[Remembered],
        runtime: &Handle,
    ) -> Result<(), EngineError> {
        let Some(journal) = self.journal.get().filter(|_| !requests.is_empty()) else {
            return Ok(());
        };
        for remembered in requests {
            runtime.block_on(journal.repeat(remembered))?;
        }
        let flushed = journal.flush();
        flushed.map_err(|error| EngineError::StorageFailed(error.into()))
    }

    /// Changes a filter that has an heir, and the heir.
    #[cold]
    pub(super) fn change_both<T>(
        &self,
        entry: &Entry,
        heir: &Heir,
        (call, action): (Call<'_>, Action),
        Rooms { own, heirs }: Rooms<'_>,
        change: impl FnOnce(&GuardedFilter, Change<'_>) -> Result<Answer<T>, EngineError>,
        follow: impl FnOnce(&GuardedFilter, Change<'_>) -> u64,
    ) -> Result<Unsettled<T>, EngineError> {
        if own.is_some() && heirs.is_none() {
            return Err(EngineError::RebuildBegun);
        }
        let (filter, new) = (&*entry.filter, &*heir.filter);
        let _order = heir.in_order();
        let turn = filter.begin(&self.requests, call.request_id, action)?;
        let heirs_turn = new.begin_following(&self.requests, call.request_id, action)?;
        let max_age = call.max_age;
        let room = own;
        let answer = change(
            filter,
            Change {
                room,
                turn,
                max_age,
            },
        )?;
        let (room, turn) = (heirs, heirs_turn);
        let max_age = None;
        let rests_on = follow(
            new,
            Change {
                room,
                turn,
                max_age,
            },
        );
        let waits_for: Option<(FilterLog, u64)> = new.waits_for(rests_on);
        Ok(Unsettled {
            heir: waits_for.map(Box::new),
            ..unsettled(filter, answer)
        })
    }
}
