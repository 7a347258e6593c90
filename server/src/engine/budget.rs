//! The memory budget of all filters together.
//!
//! The kernel gives a filter its memory when keys come in, long after the filter was created.
//! Therefore all memory of a filter is counted against the budget when the filter is created.

use std::sync::Arc;

use parking_lot::Mutex;

/// A number of bytes that reservations share.
#[derive(Debug)]
pub struct MemoryBudget {
    limit_bytes: u64,
    used_bytes: Mutex<u64>,
}

/// A share of a budget. Dropping it gives the bytes back.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

/// The error of a reservation that needs more than the budget has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverBudget {
    /// The bytes asked for.
    pub needed_bytes: u64,
    /// The bytes left.
    pub left_bytes: u64,
    /// The size of the budget.
    pub limit_bytes: u64,
}

impl MemoryBudget {
    /// Returns a budget of `limit_bytes` bytes, all of them free.
    pub fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            limit_bytes,
            used_bytes: Mutex::new(0),
        })
    }

    /// Returns the number of reserved bytes.
    pub fn used_bytes(&self) -> u64 {
        *self.used_bytes.lock()
    }

    /// Returns the number of free bytes.
    pub fn left_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes())
    }

    /// Reserves `bytes` bytes, or none.
    ///
    /// # Errors
    ///
    /// [`OverBudget`], with the number of bytes left.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Reservation, OverBudget> {
        let mut used = self.used_bytes.lock();
        let left_bytes = self.limit_bytes.saturating_sub(*used);
        if bytes > left_bytes {
            return Err(OverBudget {
                needed_bytes: bytes,
                left_bytes,
                limit_bytes: self.limit_bytes,
            });
        }
        *used += bytes;
        Ok(Reservation {
            budget: self.clone(),
            bytes,
        })
    }
}

impl Reservation {
    /// Returns the budget that the bytes belong to.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Returns the number of reserved bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        *self.budget.used_bytes.lock() -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_limit_is_out_at_once() {
        let budget = MemoryBudget::new(100);
        let first = budget.reserve(60).unwrap();
        let refused = budget.reserve(41).unwrap_err();
        assert_eq!(
            refused,
            OverBudget {
                needed_bytes: 41,
                left_bytes: 40,
                limit_bytes: 100
            }
        );
        let second = budget.reserve(40).unwrap();
        assert!(budget.reserve(u64::MAX).is_err());
        drop(first);
        assert!(budget.reserve(61).is_err());
        budget.reserve(60).unwrap();
        drop(second);
        budget.reserve(100).unwrap();
    }
}
