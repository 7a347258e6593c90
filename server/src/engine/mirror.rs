//! The mirror of a filter: the new filter of a rebuild, which gets every write as well.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::filter::Filter;

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
}
