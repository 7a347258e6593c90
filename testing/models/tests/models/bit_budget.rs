//! Room that calls claim, while another thread counts the rest.

use std::sync::Arc;

use loom::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};
use seenset_models::engine::modelled::{BitBudget, set_stripe};

use super::{model, reduced_preemptions};

/// The total room.
const ALL: u64 = 9;

/// A filter of one partition.
struct Filter {
    budget: BitBudget,
    bits_set: AtomicU64,
}

impl Filter {
    fn new() -> Self {
        let budget = BitBudget::default();
        budget.alone().note(ALL);
        let bits_set = AtomicU64::new(0);
        Self { budget, bits_set }
    }

    /// Claims two bits and sets `bits` of them. Returns false if the claim is refused.
    fn call(&self, bits: u64) -> bool {
        let Some(claim) = self.budget.claim(2) else {
            return false;
        };
        self.bits_set.fetch_add(bits, Ordering::Relaxed);
        claim.end(bits);
        true
    }

    fn count(&self) -> u64 {
        let alone = self.budget.alone();
        let left = ALL.checked_sub(self.bits_set.load(Ordering::Relaxed));
        alone.note(left.expect("more is set than there was budget for"));
        left.unwrap()
    }
}

/// Calls never claim more than is left, from any thread, even if another thread counts meanwhile.
#[test]
fn no_room_is_given_twice() {
    for stripes in [[0, 0], [0, 1]] {
        model(reduced_preemptions(), move || {
            let filter = Arc::new(Filter::new());
            let callers = stripes.map(|stripe| {
                let filter = filter.clone();
                thread::spawn(move || {
                    set_stripe(stripe);
                    while filter.call(1) {}
                })
            });
            filter.count();
            for caller in callers {
                caller.join().unwrap();
            }
            assert!(filter.count() < ALL);
        });
    }
}

/// A count includes the room that threads keep for themselves, and unused room is not lost.
#[test]
fn what_is_not_used_is_found() {
    for stripes in [[0, 0], [0, 1]] {
        model(3, move || {
            let filter = Arc::new(Filter::new());
            let callers = stripes.map(|stripe| {
                let filter = filter.clone();
                thread::spawn(move || {
                    set_stripe(stripe);
                    (0..3).for_each(|_| assert!(filter.call(0)));
                })
            });
            for caller in callers {
                caller.join().unwrap();
            }
            assert_eq!(filter.count(), ALL);
            assert!(filter.budget.claim(ALL).is_some());
        });
    }
}
