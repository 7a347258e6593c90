//! The memory that all filters together may take.
//!
//! Filters take memory from the system as keys come in, long after they were made. Whether
//! it will be there is therefore decided when a filter is made, by counting all of it.

use std::sync::Arc;

use parking_lot::Mutex;

/// A number of bytes to share out.
#[derive(Debug)]
pub struct MemoryBudget {
    limit_bytes: u64,
    used_bytes: Mutex<u64>,
}

/// A share of a budget; dropping it gives it back.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

/// There is not as much left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverBudget {
    /// What was asked for.
    pub needed_bytes: u64,
    /// What is left.
    pub left_bytes: u64,
    /// What there is in all.
    pub limit_bytes: u64,
}

impl MemoryBudget {
    /// A budget of `limit_bytes`, all of it left.
    pub fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            limit_bytes,
            used_bytes: Mutex::new(0),
        })
    }

    /// What has been taken out of it.
    pub fn used_bytes(&self) -> u64 {
        *self.used_bytes.lock()
    }

    /// What has not been taken out of it.
    pub fn left_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes())
    }

    /// Takes `bytes` out of the budget, or nothing.
    ///
    /// # Errors
    ///
    /// [`OverBudget`], with what is left.
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
    /// What they were taken out of.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// The bytes reserved.
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
