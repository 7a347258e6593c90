//! Admission: a write acquires everything that it may have to wait for before it changes a filter.
//! The wait is asynchronous, so a waiting write blocks no thread. After that the write takes only
//! short locks. Most writes have nothing to wait for; they are admitted and carried out in one
//! step.
//!
//! Every write acquires in the same order: the session of its request id, the order lock of a
//! filter under rebuild, the reservation in the log. So writes cannot deadlock.

use super::{
    DataPath,
    mirrored::{MirrorResources, NeedsOfBoth},
    resources::{Need, Resources},
};
use crate::{
    engine::{
        call::{Action, Call, workers::Threads},
        error::EngineError,
        filter::{Filter, WriteContext},
        registry::Entry,
    },
    store::FilterId,
};

/// Everything that one write has acquired.
#[derive(Debug)]
pub(in crate::engine) struct Admission<'a> {
    filter: FilterId,
    /// The resources for the filter.
    own: Resources<'a>,
    threads: Threads,
    /// The resources for the mirror, if the filter is rebuilt.
    mirror: Option<MirrorResources<'a>>,
}

/// The requirements of a write.
enum Needs {
    One(Need),
    Both(NeedsOfBoth),
}

impl Needs {
    fn of(entry: &Entry, request_id: &str, action: Action, keys: usize) -> Self {
        let filter = entry.filter();
        let own = Need {
            filter: filter.id(),
            session: filter.session_id(request_id, action),
            records: filter.records_of_a_call(keys),
        };
        match entry {
            Entry::Filter(_) => Self::One(own),
            Entry::Mirrored(mirror) => {
                Self::Both(NeedsOfBoth::of(own, mirror, request_id, action, keys))
            }
        }
    }
}

impl<'a> Admission<'a> {
    fn to_one(filter: FilterId, own: Resources<'a>, threads: Threads) -> Self {
        Self {
            filter,
            own,
            threads,
            mirror: None,
        }
    }

    /// Returns whether the admission was acquired for the filters that the name means now, and none
    /// of them is on hold.
    pub fn fits(&self, found: &Entry) -> bool {
        let acquired = self.mirror.as_ref().map(|resources| resources.filter);
        let mirror = found.mirror().map(|mirror| mirror.filter().id());
        self.filter == found.filter().id() && acquired == mirror && found.held().is_none()
    }

    /// Returns the resources for the mirror, if the filter is rebuilt.
    pub(super) fn take_mirror(&mut self) -> Option<MirrorResources<'a>> {
        self.mirror.take()
    }

    /// Returns the per-call context for the filter.
    pub fn change(self, call: Call<'a>) -> WriteContext<'a> {
        // A thread that serves connections must not block.
        let must_not_wait = self.threads == Threads::Core;
        let Resources {
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
    /// Acquires everything for a write of `keys` keys to a filter that is not rebuilt. Returns `None`
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
        let own = Resources {
            reservation,
            session,
        };
        Ok(Some(Admission::to_one(filter.id(), own, threads)))
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
            let needs = self.find_entry(call.filter, |entry| match entry.held() {
                None => Ok(Needs::of(entry, call.request_id, action, keys)),
                Some(held) => Err(held.clone()),
            })?;
            match needs {
                Ok(needs) => break needs,
                Err(held) => held.released().await,
            }
        };
        Ok(match needs {
            Needs::One(need) => {
                let session = self.session(need).await?;
                let reservation = match self.journal.get() {
                    Some(journal) => Some(journal.reserve(keys, need.records).await?),
                    None => None,
                };
                let own = Resources {
                    reservation,
                    session,
                };
                Admission::to_one(need.filter, own, threads)
            }
            Needs::Both(needs) => {
                let filter = needs.own.filter;
                let (own, mirror) = self.acquire_for_both(needs, keys).await?;
                Admission {
                    mirror: Some(mirror),
                    ..Admission::to_one(filter, own, threads)
                }
            }
        })
    }
}
