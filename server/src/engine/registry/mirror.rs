//! The mirror of a filter: the new filter of a rebuild, which is to take the place of the other and
//! gets every write as well until then.
//!
//! The other filter answers the calls. Keys that calls add to it are added here too. In a filter
//! that counts, keys that calls remove from it are also removed here. So every change that is
//! acknowledged while both exist is in this filter when it takes the place of the other. This
//! filter never refuses keys. Where keys age, their age counts from now, as it does for the keys
//! that the filter is filled with.
//!
//! Both filters have the same secret and hash alike. So the keys that requests have added first to
//! the other filter can be handed over unchanged.

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

/// A filter that will take the place of another one.
#[derive(Debug)]
pub struct Mirror {
    filter: Arc<Filter>,
    /// The order lock of a counting filter. The result of removals depends on the order of the
    /// calls, which must be the same in both filters. So the calls run one at a time.
    order: Option<Arc<Mutex<()>>>,
}

impl Mirror {
    /// Creates the mirror of a filter.
    pub fn new(filter: Arc<Filter>, of: &Filter) -> Arc<Self> {
        let order = of.counts().then(Arc::default);
        Arc::new(Self { filter, order })
    }

    /// Returns the filter.
    pub fn filter(&self) -> &Arc<Filter> {
        &self.filter
    }

    /// Returns the lock that each write must acquire, if writes run one at a time.
    pub fn order(&self) -> Option<Arc<Mutex<()>>> {
        self.order.clone()
    }

    /// Returns the [`Filter::session_id`] in this filter for a call of the other filter, so that no
    /// key is counted twice. `None` if keys are not counted here, or if `id` is empty.
    ///
    /// The keys that such a call adds first here must not be reported to a call of this filter. So
    /// the id is one that no call of this filter has. [`Action::Add`] is an exception: it returns
    /// nothing about the keys, and a caller can retry it after this filter has taken the place of
    /// the other.
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

    /// Applies to keys what a call has done with them in the other filter. Returns the log and the
    /// version that the answer has to wait for; `None` if it need not wait.
    pub fn write<'a>(
        &self,
        keys: impl Iterator<Item = &'a [u8]>,
        action: Action,
        context: WriteContext<'_>,
    ) -> Option<(FilterLog, u64)> {
        let hashes: Vec<KeyHash> = keys.map(|key| self.filter.hash(key)).collect();
        // Keys that the other filter has seen are added, too: they may be missing here, and their
        // age counts from now.
        let action = match self.filter.counts() {
            true => action,
            false => Action::Add,
        };
        let depends_on = self.filter.write_again(&hashes, action, context);
        let log = self.filter.pending(depends_on)?;
        Some((log, depends_on))
    }
}
