//! The name of a filter, and its previous name.

use super::Filter;
use crate::store::FilterName;

/// The name of a filter, and its previous name.
#[derive(Debug)]
pub struct Names {
    pub now: FilterName,
    pub before: Option<FilterName>,
}

impl Names {
    pub fn new(now: FilterName) -> Self {
        Self { now, before: None }
    }
}

impl Filter {
    /// Returns the filter's name.
    pub fn name(&self) -> FilterName {
        self.names.lock().now.clone()
    }

    /// Returns whether `name` is the filter's previous name.
    pub fn had_name(&self, name: &FilterName) -> bool {
        self.names.lock().before.as_ref() == Some(name)
    }

    /// Returns whether no previous name is known.
    pub fn had_no_name(&self) -> bool {
        self.names.lock().before.is_none()
    }

    /// Sets the previous name of a restored filter.
    pub fn set_name_before(&mut self, before: Option<FilterName>) {
        self.names.get_mut().before = before;
    }
}
