//! Everything that a write waits for before it changes a filter. It waits without a thread, so that
//! a write that has to wait delays no other call; from then on it waits for short locks alone.
//!
//! A write takes what it needs in one order: the session of its request id, its turn in a filter
//! where order counts, room in the log. So no two writes wait for each other.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{
    Action, Call, Change, EngineError, GuardedFilter, Inner,
    journal::{Journal, Room},
    registry::Entry,
    requests::Turn,
    workers::Threads,
};
use crate::store::{FilterId, RequestId};

/// What a write has got before it begins.
#[derive(Debug)]
pub(super) struct Admission<'a> {
    /// The filter that it is for, and the one that is to take its place.
    filters: (FilterId, Option<FilterId>),
    /// For the filter.
    pub own: Share<'a>,
    /// For the one that is to take its place.
    pub heirs: Share<'a>,
    threads: Threads,
    /// Its turn in a filter where order counts.
    pub order: Option<OwnedMutexGuard<()>>,
}

/// What a write has got for one of the filters that it changes.
#[derive(Debug, Default)]
pub(super) struct Share<'a> {
    /// Room in the log, if there is one.
    pub room: Option<Room<'a>>,
    /// The session of the request id, if there is one.
    pub turn: Option<Turn<'a>>,
}

/// What a write needs for one of the filters that it changes.
#[derive(Debug, Clone, Copy)]
struct Need {
    filter: FilterId,
    session: Option<RequestId>,
    records: usize,
}

/// What a write needs.
struct Needs {
    own: Need,
    heirs: Option<Need>,
    order: Option<Arc<Mutex<()>>>,
    /// A filter that takes no writes at present.
    held: Option<Arc<GuardedFilter>>,
}

impl Needs {
    fn of(entry: &Entry, request_id: &str, action: Action, keys: usize) -> Self {
        let Entry { filter, heir } = entry;
        let own = Need {
            filter: filter.id(),
            session: filter.session_id(request_id, action),
            records: filter.records_of_a_call(keys),
        };
        let heirs = heir.as_ref().map(|heir| {
            let filter = heir.filter();
            Need {
                filter: filter.id(),
                session: filter.following_session_id(request_id, action),
                records: filter.records_of_a_call(keys),
            }
        });
        Self {
            own,
            heirs,
            order: heir.as_ref().and_then(|heir| heir.order()),
            held: entry.held().cloned(),
        }
    }
}

impl<'a> Admission<'a> {
    /// Whether it is for what is found under a name now, and that takes writes.
    pub fn fits(&self, found: &Entry) -> bool {
        let heir = found.heir.as_ref().map(|heir| heir.filter().id());
        self.filters == (found.filter.id(), heir) && found.held().is_none()
    }

    /// Whether the write has a thread that serves connections, which must not wait for heavy batches.
    pub fn must_not_wait(&self) -> bool {
        self.threads == Threads::Core
    }

    /// What the filter is told of the call.
    pub fn change(self, call: Call<'a>) -> Change<'a> {
        let must_not_wait = self.must_not_wait();
        let Share { room, turn } = self.own;
        Change {
            room,
            turn,
            max_age: call.max_age,
            deadline: call.deadline,
            must_not_wait,
        }
    }
}

impl Inner {
    /// Makes a write of so many keys when all is there that it needs.
    pub(super) async fn admitted<T>(
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
                // While it was waited for.
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
            // Before there is a log nothing may be changed that belongs there.
            self.check_recovered()?;
            let needs = self.find_entry(call.filter, |entry| {
                Needs::of(entry, call.request_id, action, keys)
            })?;
            match &needs.held {
                None => break needs,
                Some(filter) => filter.released().await,
            }
        };
        let Needs { own, heirs, .. } = needs;
        let own_turn = self.session(own).await?;
        let heirs_turn = match heirs {
            Some(heirs) => self.session(heirs).await?,
            None => None,
        };
        let order = match needs.order {
            Some(order) => Some(order.lock_owned().await),
            None => None,
        };
        let [own_room, heirs_room] = match self.journal.get() {
            Some(journal) => reserve(journal, keys, own, heirs).await?,
            None => [None, None],
        };
        Ok(Admission {
            filters: (own.filter, heirs.map(|heirs| heirs.filter)),
            own: Share {
                room: own_room,
                turn: own_turn,
            },
            heirs: Share {
                room: heirs_room,
                turn: heirs_turn,
            },
            threads,
            order,
        })
    }

    async fn session(&self, need: Need) -> Result<Option<Turn<'_>>, EngineError> {
        match need.session {
            Some(id) => self.requests.begin(need.filter, id).await,
            None => Ok(None),
        }
    }
}

async fn reserve(
    journal: &Journal,
    keys: usize,
    own: Need,
    heirs: Option<Need>,
) -> Result<[Option<Room<'_>>; 2], EngineError> {
    Ok(match heirs {
        None => [Some(journal.reserve(keys, own.records).await?), None],
        Some(heirs) => {
            let records = [own.records, heirs.records];
            journal.reserve_for_both(keys, records).await?.map(Some)
        }
    })
}
