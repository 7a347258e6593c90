//! A filter that is rebuilt, and its mirror: the new filter, which is to take the place of the other
//! and gets every write as well until then.
//!
//! The rebuilt filter answers the calls. Keys that calls add to it are added to the mirror too. If
//! the filters count, keys that calls remove from it are also removed from the mirror. So every
//! change that is acknowledged while both exist is in the mirror when it takes the place of the
//! other. The mirror never refuses keys. Where keys age, their age counts from now, as it does for
//! the keys that the mirror is filled with.
//!
//! Both filters have the same secret and hash alike. So the keys that requests have added first to
//! the rebuilt filter can be handed over unchanged.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::{
    engine::{
        call::Action,
        commit::FilterLog,
        filter::{Filter, WriteContext},
    },
    filter::hash::KeyHash,
    store::RequestId,
};

/// A filter that is rebuilt, and the filter that will take its place.
#[derive(Debug)]
pub struct Mirror {
    of: Arc<Filter>,
    filter: Arc<Filter>,
    /// The order lock of a counting filter. The result of removals depends on the order of the
    /// calls, which must be the same in both filters. So the calls run one at a time.
    order: Option<Arc<Mutex<()>>>,
}

impl Mirror {
    /// Makes a filter the mirror of another one.
    pub fn new(filter: Arc<Filter>, of: Arc<Filter>) -> Arc<Self> {
        let order = of.counts().then(Arc::default);
        Arc::new(Self { of, filter, order })
    }

    /// Returns the filter that is rebuilt. It answers the calls.
    pub fn of(&self) -> &Arc<Filter> {
        &self.of
    }

    /// Returns the filter that will take its place.
    pub fn filter(&self) -> &Arc<Filter> {
        &self.filter
    }

    /// Returns the lock that each write must acquire, if writes run one at a time.
    pub fn order(&self) -> Option<Arc<Mutex<()>>> {
        self.order.clone()
    }

    /// Returns the [`Filter::session_id`] in the mirror for a call of the rebuilt filter, so that no
    /// key is counted twice. `None` if keys are not counted, or if `id` is empty.
    ///
    /// The keys that such a call adds first to the mirror must not be reported to a call of the
    /// mirror. So the id is one that no call of the mirror has. [`Action::Add`] is an exception: it
    /// returns nothing about the keys, and a caller can retry it after the mirror has taken the
    /// place of the other.
    pub fn session_id(&self, id: &str, action: Action) -> Option<RequestId> {
        if id.is_empty() || !self.filter.counts() {
            return None;
        }
        let own = self.filter.request_id(id, action);
        let id = match action {
            Action::Add => own,
            Action::QueryAndAdd | Action::Remove => own.rotate_left(64),
        };
        Some(RequestId(id.to_le_bytes()))
    }

    /// Applies to keys of the mirror what a call has done with them in the rebuilt filter. Returns
    /// the log and the version that the answer has to wait for; `None` if it need not wait.
    pub fn write<'a>(
        &self,
        keys: impl Iterator<Item = &'a [u8]>,
        action: Action,
        context: WriteContext<'_>,
    ) -> Option<(FilterLog, u64)> {
        let hashes: Vec<KeyHash> = keys.map(|key| self.filter.hash(key)).collect();
        // Keys that the rebuilt filter has seen are added, too: they may be missing in the mirror,
        // and their age counts from now.
        let action = match self.filter.counts() {
            true => action,
            false => Action::Add,
        };
        let depends_on = self.filter.write_again(&hashes, action, context);
        let log = self.filter.pending(depends_on)?;
        Some((log, depends_on))
    }
}
