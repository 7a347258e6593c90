//! Admission: a write acquires everything that it may have to wait for before it changes a filter.
//! The wait is asynchronous, so a waiting write blocks no thread. After that the write takes only
//! short locks. Most writes have nothing to wait for; they are admitted and carried out in one
//! step.
//!
//! Every write acquires in the same order: the session of its request id, the order lock of a
//! filter under rebuild, the reservation in the log. So writes cannot deadlock.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use super::DataPath;
use crate::{
    engine::{
        call::{Action, Call, requests::RetrySession, workers::Threads},
        commit::{Journal, WalReservation},
        error::EngineError,
        filter::{Filter, WriteContext},
        registry::Entry,
    },
    store::{FilterId, RequestId},
};

/// Everything that one write has acquired.
#[derive(Debug)]
pub(in crate::engine) struct Admission<'a> {
    /// The filter, and the mirror that will take its place.
    filters: (FilterId, Option<FilterId>),
    /// The resources for the filter.
    pub own: Share<'a>,
    /// The resources for the mirror.
    pub mirrors: Share<'a>,
    threads: Threads,
    /// The order lock of a counting filter under rebuild.
    pub order: Option<OwnedMutexGuard<()>>,
}

/// The session and the log reservation of a write for one filter.
#[derive(Debug, Default)]
pub(in crate::engine) struct Share<'a> {
    /// The reservation, if there is a log.
    pub reservation: Option<WalReservation<'a>>,
    /// The session, if the call has a request id.
    pub session: Option<Box<RetrySession<'a>>>,
}

/// The requirements of a write for one filter.
#[derive(Debug, Clone, Copy)]
struct Need {
    filter: FilterId,
    session: Option<RequestId>,
    records: usize,
}

/// The requirements of a write.
struct Needs {
    own: Need,
    mirrors: Option<Need>,
    order: Option<Arc<Mutex<()>>>,
    /// A filter that is on hold.
    held: Option<Arc<Filter>>,
}

impl Needs {
    fn of(entry: &Entry, request_id: &str, action: Action, keys: usize) -> Self {
        let Entry { filter, mirror } = entry;
        let own = Need {
            filter: filter.id(),
            session: filter.session_id(request_id, action),
            records: filter.records_of_a_call(keys),
        };
        let mirrors = mirror.as_ref().map(|mirror| Need {
            filter: mirror.filter().id(),
            session: mirror.session_id(request_id, action),
            records: mirror.filter().records_of_a_call(keys),
        });
        Self {
            own,
            mirrors,
            order: mirror.as_ref().and_then(|mirror| mirror.order()),
            held: entry.held().cloned(),
        }
    }
}

impl<'a> Admission<'a> {
    /// Returns whether the admission was acquired for the filters that the name means now, and none
    /// of them is on hold.
    pub fn fits(&self, found: &Entry) -> bool {
        let mirror = found.mirror.as_ref().map(|mirror| mirror.filter().id());
        self.filters == (found.filter.id(), mirror) && found.held().is_none()
    }

    /// Returns whether the write runs on a thread that serves connections, which must not block.
    pub fn must_not_wait(&self) -> bool {
        self.threads == Threads::Core
    }

    /// Returns the per-call context for the filter.
    pub fn change(self, call: Call<'a>) -> WriteContext<'a> {
        let must_not_wait = self.must_not_wait();
        let Share {
            reservation,
            session,
        } = self.own;
        WriteContext {
            reservation,
            session,
            max_age: call.max_age,
            deadline: call.deadline,
            must_not_wait,
        }
    }
}

impl DataPath {
    /// Acquires everything for a write of `keys` keys to a filter without a mirror. Returns `None`
    /// if the write has to wait for something.
    pub(in crate::engine) fn try_admit(
        &self,
        filter: &Filter,
        call: Call<'_>,
        action: Action,
        keys: usize,
        threads: Threads,
    ) -> Result<Option<Admission<'_>>, EngineError> {
        if filter.is_held() {
            return Ok(None);
        }
        let session = match filter.session_id(call.request_id, action) {
            Some(id) if self.requests.is_on() => match self.requests.try_begin(filter.id(), id)? {
                None => return Ok(None),
                session => session,
            },
            _ => None,
        };
        let reservation = match self.journal.get() {
            Some(journal) => match journal.try_reserve(keys, filter.records_of_a_call(keys))? {
                None => return Ok(None),
                reservation => reservation,
            },
            None => None,
        };
        Ok(Some(Admission {
            filters: (filter.id(), None),
            own: Share {
                reservation,
                session,
            },
            mirrors: Share::default(),
            threads,
            order: None,
        }))
    }

    /// Acquires everything for a write of `keys` keys, then calls `write`.
    pub(in crate::engine) async fn admitted<T>(
        &self,
        call: Call<'_>,
        action: Action,
        keys: usize,
        threads: Threads,
        mut write: impl FnMut(Admission<'_>) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        loop {
            let admission = self.admit(call, action, keys, threads).await?;
            match write(admission) {
                // The filter changed during the wait: acquire again.
                Err(EngineError::FilterReplaced) => {}
                done => return done,
            }
        }
    }

    async fn admit(
        &self,
        call: Call<'_>,
        action: Action,
        keys: usize,
        threads: Threads,
    ) -> Result<Admission<'_>, EngineError> {
        let needs = loop {
            // Before recovery has opened the log, a write would not be logged.
            self.check_recovered()?;
            let needs = self.find_entry(call.filter, |entry| {
                Needs::of(entry, call.request_id, action, keys)
            })?;
            match &needs.held {
                None => break needs,
                Some(filter) => filter.released().await,
            }
        };
        let Needs { own, mirrors, .. } = needs;
        let own_session = self.session(own).await?;
        let mirrors_session = match mirrors {
            Some(mirrors) => self.session(mirrors).await?,
            None => None,
        };
        let order = match needs.order {
            Some(order) => Some(order.lock_owned().await),
            None => None,
        };
        let [own_reservation, mirrors_reservation] = match self.journal.get() {
            Some(journal) => reserve(journal, keys, own, mirrors).await?,
            None => [None, None],
        };
        Ok(Admission {
            filters: (own.filter, mirrors.map(|mirrors| mirrors.filter)),
            own: Share {
                reservation: own_reservation,
                session: own_session,
            },
            mirrors: Share {
                reservation: mirrors_reservation,
                session: mirrors_session,
            },
            threads,
            order,
        })
    }

    async fn session(&self, need: Need) -> Result<Option<Box<RetrySession<'_>>>, EngineError> {
        match need.session {
            Some(id) if self.requests.is_on() => {
                self.requests.begin(need.filter, id).await.map(Some)
            }
            _ => Ok(None),
        }
    }
}

async fn reserve(
    journal: &Journal,
    keys: usize,
    own: Need,
    mirrors: Option<Need>,
) -> Result<[Option<WalReservation<'_>>; 2], EngineError> {
    Ok(match mirrors {
        None => [Some(journal.reserve(keys, own.records).await?), None],
        Some(mirrors) => {
            let records = [own.records, mirrors.records];
            journal.reserve_for_both(keys, records).await?.map(Some)
        }
    })
}
