//! Administration of filters: create, get, list, explain and delete.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use super::{Catalog, names::given_name};
use crate::{
    engine::{
        Engine,
        call::{filter_name, limits::Limits},
        error::EngineError,
        filter::{Explanation, Filter, FilterStatus},
    },
    filter::{hash::Secret, spec::SpecRequest},
    store::{FilterId, FilterName, StoreError},
};

/// The result of `CreateFilter`.
#[derive(Debug)]
pub struct Creation {
    /// The filter.
    pub filter: FilterStatus,
    /// Whether the call created it. False if it existed already.
    pub is_new: bool,
}

/// One page of filters.
#[derive(Debug)]
pub struct Page {
    /// The filters, in the order of their names.
    pub filters: Vec<FilterStatus>,
    /// The token of the next page; `None` if this is the last.
    pub next: Option<String>,
}

impl Engine {
    /// Creates an empty filter and stores it, or returns the filter that has this name and spec
    /// already.
    ///
    /// # Errors
    ///
    /// [`EngineError`]: no filter was created or changed.
    pub async fn create_filter(
        &self,
        name: &str,
        request: SpecRequest,
    ) -> Result<Creation, EngineError> {
        self.data.check_recovered()?;
        self.create(filter_name("name", name)?, request).await
    }

    /// Returns the status of a filter, with its false-positive rate as measured at most a second
    /// ago. The measurement takes up to some tenths of a second.
    ///
    /// # Errors
    ///
    /// [`EngineError::Recovering`], [`EngineError::Name`] or [`EngineError::UnknownFilter`].
    pub async fn get_filter(&self, name: &str) -> Result<FilterStatus, EngineError> {
        let filter = self.filter_named(filter_name("name", name)?)?;
        let measuring = filter.measuring_turn().await;
        self.queued(move |catalog| {
            let status = filter.measured_status(measuring);
            Ok(catalog.with_rebuild(&filter, status))
        })
        .await
    }

    /// Returns a page of filters in the order of their names. It begins after the filter that
    /// `token` names, or with the first filter if `token` is empty. The rates are not measured.
    ///
    /// # Errors
    ///
    /// [`EngineError::Recovering`], [`EngineError::PageSize`], or [`EngineError::Name`] if the
    /// token is not the name of a filter.
    pub async fn list_filters(&self, page_size: i32, token: &str) -> Result<Page, EngineError> {
        self.data.check_recovered()?;
        let size = match usize::try_from(page_size) {
            Ok(0) => Limits::DEFAULT_PAGE_SIZE,
            Ok(size) => size.min(Limits::MAX_PAGE_SIZE),
            Err(_) => return Err(EngineError::PageSize { value: page_size }),
        };
        let after = match token {
            "" => None,
            token => Some(filter_name("page_token", token)?),
        };
        self.queued(move |catalog| {
            // One more than asked for shows whether there is a next page.
            let mut filters = catalog.data.registry.list(after.as_ref(), size + 1);
            let more = filters.len() > size;
            filters.truncate(size);
            let next = filters
                .last()
                .filter(|_| more)
                .map(|last| last.name().to_string());
            Ok(Page {
                filters: filters
                    .iter()
                    .map(|filter| catalog.status(filter))
                    .collect(),
                next,
            })
        })
        .await
    }

    /// Returns all filters in the order of their names. Their rates are not measured.
    ///
    /// # Errors
    ///
    /// [`EngineError::Recovering`].
    pub async fn all_filters(&self) -> Result<Vec<FilterStatus>, EngineError> {
        self.data.check_recovered()?;
        self.blocking(move |catalog| {
            let filters = catalog.data.registry.list(None, usize::MAX);
            Ok(filters
                .iter()
                .map(|filter| catalog.status(filter))
                .collect())
        })
        .await
    }

    /// Explains the answer of a filter for a key, from the filter's memory. Does not wait for the
    /// log.
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
        self.data.limits.check_key(key)?;
        let explain = |filter: &Filter| filter.explain(key);
        self.data.find(filter, explain)
    }

    /// Deletes a filter and its snapshot. An empty name is not `default` here.
    ///
    /// # Errors
    ///
    /// [`EngineError`]: the filter still exists. [`EngineError::NotDurable`]: the filter is
    /// deleted, and can be back after a crash. A repeated call then fails with
    /// [`EngineError::UnknownFilter`] as soon as the deletion is certain.
    pub async fn delete_filter(&self, name: &str) -> Result<(), EngineError> {
        self.data.check_recovered()?;
        let name = given_name("name", name)?;
        // Takes the snapshot lock of the filter before the lock `Naming`: a snapshot in progress
        // can take minutes.
        let (filter, lock) = match self.filter_with_lock(&name).await {
            Err(unknown @ EngineError::UnknownFilter { .. }) => {
                let sync = |catalog: &Catalog| Ok(catalog.directory.sync_removals()?);
                self.blocking(sync).await?;
                return Err(unknown);
            }
            found => found?,
        };
        let naming = self.naming().await;
        self.blocking(move |catalog| {
            let deleted = filter.delete(&catalog.directory, lock);
            if let Err(StoreError::InDoubt(_)) = &deleted {
                catalog.doubt_rebuild(&filter);
            }
            if let Ok(true) | Err(StoreError::InDoubt(_)) = deleted {
                catalog.data.registry.remove(&name);
            }
            drop(naming);
            match deleted? {
                true => Ok(()),
                // Another call deleted it first, and another filter can have the name by now.
                false => {
                    catalog.directory.sync_removals()?;
                    Err(EngineError::UnknownFilter { name })
                }
            }
        })
        .await
    }

    pub(in crate::engine) async fn create(
        &self,
        name: FilterName,
        request: SpecRequest,
    ) -> Result<Creation, EngineError> {
        if let Some(filter) = self.data.registry.get(&name)
            && filter.spec().answers(&request)
        {
            return self.made(filter).await;
        }
        let asked = request.clone();
        let spec = self.queued(move |_| Ok(asked.resolve())).await?;
        // A concurrent call for the same filter waits here, and then returns the filter of the
        // first call.
        let of_this_name = self.catalog.creating.lock(&name).await;
        let naming = self.naming().await;
        if let Some(filter) = self.data.registry.get(&name) {
            drop(naming);
            if filter.spec().answers(&request) {
                return self.made(filter).await;
            }
            spec?;
            let existing = Box::new(filter.spec().clone());
            return Err(EngineError::FilterExists { name, existing });
        }
        // The error is returned only now: an existing filter can have been created when fewer bits
        // were enough for the rate.
        let spec = spec?;
        // The lock `Naming` is not held during the disk write, so that one write can create several
        // filters.
        let promise = self.promise(&naming, name.clone())?;
        drop(naming);
        let missed_rate = spec.missed_rate();
        let asked_rate = spec.false_positive_rate;
        let filter = self
            .blocking(move |catalog| {
                let (secret, now) = (random_secret()?, SystemTime::now());
                let id = FilterId(catalog.directory.new_number());
                let made =
                    Filter::new(id, name, spec, secret, now, &catalog.budget, &catalog.clock);
                let mut filter = made?;
                if let Some(journal) = catalog.data.journal.get() {
                    filter.set_log(journal);
                }
                Ok(Arc::new(filter))
            })
            .await?;
        let lock = filter.snapshot_lock().await;
        self.blocking(move |catalog| {
            // An acknowledged key must survive a crash, and so must its filter. An empty snapshot
            // is short.
            filter.store(&catalog.directory, &catalog.data.barrier, lock)?;
            filter.sample(Instant::now());
            let status = filter.status();
            catalog.data.registry.insert(filter);
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

    /// Returns the status of a filter.
    pub(in crate::engine) async fn status_of(
        &self,
        filter: Arc<Filter>,
    ) -> Result<FilterStatus, EngineError> {
        self.queued(move |catalog| Ok(catalog.status(&filter)))
            .await
    }

    /// Returns a filter that already has the spec of a request.
    async fn made(&self, filter: Arc<Filter>) -> Result<Creation, EngineError> {
        Ok(Creation {
            filter: self.status_of(filter).await?,
            is_new: false,
        })
    }
}

pub fn random_secret() -> Result<Secret, EngineError> {
    let mut bytes = [0; Secret::BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| EngineError::internal("the system gave no random bytes", error))?;
    Ok(Secret::new(bytes))
}
