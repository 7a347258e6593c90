//! Filters as their operators handle them: made, shown, listed and removed by name.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use tokio::sync::OwnedMutexGuard;

use super::{
    Engine, EngineError, Explanation, FilterName, FilterStatus, Inner, SpecRequest, filter_name,
    guarded::{GuardedFilter, StoreTurn},
};
use crate::{
    filter::hash::Secret,
    store::{FilterId, StoreError},
};

/// The filters of a page where none is asked for.
pub const DEFAULT_PAGE_SIZE: usize = 100;
/// The most filters of a page.
pub const MAX_PAGE_SIZE: usize = 1000;

/// The right to make or delete filters, so that a name is free or taken for as long as that
/// takes. Calls with keys never wait for it, and nobody waits for it with a thread.
pub(super) type Naming = OwnedMutexGuard<()>;

/// What came of asking for a filter.
#[derive(Debug)]
pub struct Creation {
    /// The filter.
    pub filter: FilterStatus,
    /// Whether it was made, as opposed to being there already.
    pub is_new: bool,
}

/// One page of filters.
#[derive(Debug)]
pub struct Page {
    /// The filters, in the order of their names.
    pub filters: Vec<FilterStatus>,
    /// What to ask for the next page with; `None` if this is the last.
    pub next: Option<String>,
}

impl Engine {
    /// Makes an empty filter and stores it, or returns the one that has the name and is of
    /// the same spec.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; no filter has then been made, and none changed.
    pub async fn create_filter(
        &self,
        name: &str,
        request: SpecRequest,
    ) -> Result<Creation, EngineError> {
        self.inner.check_recovered()?;
        self.create(filter_name("name", name)?, request).await
    }

    /// How a filter is now, with its rate as measured at most a second ago. To measure it takes up
    /// to some tenths of a second.
    ///
    /// # Errors
    ///
    /// [`EngineError::Recovering`], [`EngineError::Name`] or [`EngineError::UnknownFilter`].
    pub async fn get_filter(&self, name: &str) -> Result<FilterStatus, EngineError> {
        let filter = self.filter_named(filter_name("name", name)?)?;
        let turn = filter.measuring_turn().await;
        self.queued(move |inner| {
            let status = filter.measured_status(turn);
            Ok(inner.with_rebuild(&filter, status))
        })
        .await
    }

    /// A page of filters in the order of their names, from behind the one that `token`
    /// names, or from the first. Their rates are not measured.
    ///
    /// # Errors
    ///
    /// [`EngineError::Recovering`], [`EngineError::PageSize`], or [`EngineError::Name`] for a
    /// token that no page has ended with.
    pub async fn list_filters(&self, page_size: i32, token: &str) -> Result<Page, EngineError> {
        self.inner.check_recovered()?;
        let size = match usize::try_from(page_size) {
            Ok(0) => DEFAULT_PAGE_SIZE,
            Ok(size) => size.min(MAX_PAGE_SIZE),
            Err(_) => return Err(EngineError::PageSize { value: page_size }),
        };
        let after = match token {
            "" => None,
            token => Some(filter_name("page_token", token)?),
        };
        self.queued(move |inner| {
            // One more than asked for tells whether there is a next page.
            let mut filters = inner.registry.list(after.as_ref(), size + 1);
            let more = filters.len() > size;
            filters.truncate(size);
            let next = filters
                .last()
                .filter(|_| more)
                .map(|last| last.name().to_string());
            Ok(Page {
                filters: filters.iter().map(|filter| inner.status(filter)).collect(),
                next,
            })
        })
        .await
    }

    /// All filters in the order of their names. Their rates are not measured.
    ///
    /// # Errors
    ///
    /// [`EngineError::Recovering`].
    pub async fn all_filters(&self) -> Result<Vec<FilterStatus>, EngineError> {
        self.inner.check_recovered()?;
        self.blocking(move |inner| {
            let filters = inner.registry.list(None, usize::MAX);
            Ok(filters.iter().map(|filter| inner.status(filter)).collect())
        })
        .await
    }

    /// What a filter makes of a key, as its memory is now: it waits for no log.
    ///
    /// # Errors
    ///
    /// As [`Self::query`].
    pub async fn explain(
        &self,
        filter: &str,
        key: impl AsRef<[u8]>,
    ) -> Result<Explanation, EngineError> {
        let key = key.as_ref();
        self.inner.limits.check_key(key)?;
        let explain = |filter: &GuardedFilter| filter.explain(key);
        self.inner.find(filter, explain)
    }

    /// Removes a filter and its snapshot. An empty name is not `default` here.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; the filter is then still there. [`EngineError::NotDurable`]; it is gone,
    /// and may be back after a crash. A call that is repeated then says that there is none, as
    /// soon as that is certain.
    pub async fn delete_filter(&self, name: &str) -> Result<(), EngineError> {
        self.inner.check_recovered()?;
        let name = given_name("name", name)?;
        // Its turn before the right to names: a snapshot that is being written may take minutes.
        let (filter, turn) = match self.filter_in_turn(&name).await {
            Err(unknown @ EngineError::UnknownFilter { .. }) => {
                let settle = |inner: &Inner| Ok(inner.directory.settle_removals()?);
                self.blocking(settle).await?;
                return Err(unknown);
            }
            found => found?,
        };
        let naming = self.naming().await;
        self.blocking(move |inner| {
            let deleted = filter.delete(&inner.directory, turn);
            if let Err(StoreError::InDoubt(_)) = &deleted {
                inner.doubt_rebuild(&filter);
            }
            if let Ok(true) | Err(StoreError::InDoubt(_)) = deleted {
                inner.registry.remove(&name);
            }
            drop(naming);
            match deleted? {
                true => Ok(()),
                // Somebody was faster, and another filter may have the name by now.
                false => {
                    inner.directory.settle_removals()?;
                    Err(EngineError::UnknownFilter { name })
                }
            }
        })
        .await
    }

    pub(super) async fn create(
        &self,
        name: FilterName,
        request: SpecRequest,
    ) -> Result<Creation, EngineError> {
        if let Some(filter) = self.inner.registry.get(&name)
            && filter.spec().answers(&request)
        {
            return self.made(filter).await;
        }
        let asked = request.clone();
        let spec = self.queued(move |_| Ok(asked.resolve())).await?;
        // Whoever makes the same filter meanwhile is told of that one.
        let of_this_name = self.inner.creating.lock(&name).await;
        let naming = self.naming().await;
        if let Some(filter) = self.inner.registry.get(&name) {
            drop(naming);
            if filter.spec().answers(&request) {
                return self.made(filter).await;
            }
            spec?;
            let existing = Box::new(filter.spec().clone());
            return Err(EngineError::FilterExists { name, existing });
        }
        // Not before: what is there may have been made when fewer bits kept a rate.
        let spec = spec?;
        // The right to names is not kept while the disk is waited for, so that several filters are
        // made in one write.
        let promise = self.promise(&naming, name.clone())?;
        drop(naming);
        let missed_rate = spec.missed_rate();
        let asked_rate = spec.false_positive_rate;
        let filter = self
            .blocking(move |inner| {
                let (secret, now) = (random_secret()?, SystemTime::now());
                let id = FilterId(inner.directory.new_number());
                let made =
                    GuardedFilter::new(id, name, spec, secret, now, &inner.budget, &inner.clock);
                let mut filter = made?;
                if let Some(journal) = inner.journal.get() {
                    filter.set_log(journal);
                }
                Ok(Arc::new(filter))
            })
            .await?;
        let turn = filter.turn().await;
        self.blocking(move |inner| {
            // What is acknowledged must outlive a crash, and this includes that there is such
            // a filter. An empty snapshot is short.
            filter.store(&inner.directory, &inner.barrier, turn)?;
            filter.sample(Instant::now());
            let status = filter.status();
            inner.registry.insert(filter);
            drop((promise, of_this_name));
            if let Some(rate) = missed_rate {
                tracing::warn!(
                    filter = %status.name,
                    false_positive_rate = asked_rate,
                    predicted_false_positive_rate = rate,
                    "at its capacity the filter will miss the false-positive rate asked for: \
                     Guava's own size is too small for it; create it with a lower rate or a \
                     greater capacity, or use the layout blocked"
                );
            }
            Ok(Creation {
                filter: status,
                is_new: true,
            })
        })
        .await
    }

    /// A filter that is what a request asks for.
    async fn made(&self, filter: Arc<GuardedFilter>) -> Result<Creation, EngineError> {
        let status = self.queued(move |inner| Ok(inner.status(&filter)));
        Ok(Creation {
            filter: status.await?,
            is_new: false,
        })
    }

    pub(super) async fn naming(&self) -> Naming {
        self.inner.naming.clone().lock_owned().await
    }

    /// The filter of a name, as soon as nobody else writes its snapshots: for as long as the turn
    /// lasts nobody removes or renames it.
    pub(super) async fn filter_in_turn(
        &self,
        name: &FilterName,
    ) -> Result<(Arc<GuardedFilter>, StoreTurn), EngineError> {
        loop {
            let filter = self.filter_named(name.clone())?;
            let turn = filter.turn().await;
            // Another may have the name by now.
            let now = self.inner.registry.get(name);
            if now.is_some_and(|now| Arc::ptr_eq(&now, &filter)) {
                return Ok((filter, turn));
            }
        }
    }
}

/// The name in a request where nothing does not stand for the default filter.
pub(super) fn given_name(field: &'static str, name: &str) -> Result<FilterName, EngineError> {
    let name = name.parse();
    name.map_err(|source| EngineError::Name { field, source })
}

pub(super) fn random_secret() -> Result<Secret, EngineError> {
    let mut bytes = [0; Secret::BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| EngineError::internal("the system gave no random bytes", error))?;
    Ok(Secret::new(bytes))
}
