//! Versions that are taken, leased and taken back.

use std::{ops::Range, sync::Arc};

use loom::{
    sync::atomic::{AtomicU64, Ordering},
    thread::{self, JoinHandle},
};
use seenset_models::engine::modelled::{Versions, set_stripe};

use super::model;

/// Makes two callers take versions that are greater than an earlier one. The first takes `count`
/// versions, the second takes one. If the first caller meets the other, it comes to a lease with
/// its fifth version.
fn callers(
    stripes: [usize; 2],
    count: u64,
    versions: &Arc<Versions>,
    before: impl Fn() -> u64 + Clone + Send + 'static,
) -> [JoinHandle<Vec<u64>>; 2] {
    let [first, second] = stripes;
    [(first, count), (second, 1)].map(|(stripe, count)| {
        let (versions, before) = (versions.clone(), before.clone());
        thread::spawn(move || {
            set_stripe(stripe);
            let next = |_| {
                let least = before();
                let version = versions.next();
                assert!(version > least, "{version} behind {least}");
                version
            };
            (0..count).map(next).collect()
        })
    })
}

/// Returns the taken and the unused versions together, in order.
fn all(taken: [Vec<u64>; 2], unused: Vec<Range<u64>>) -> Vec<u64> {
    let unused = unused.into_iter().flatten();
    let mut all: Vec<u64> = taken.into_iter().flatten().chain(unused).collect();
    all.sort_unstable();
    all
}

/// Each version is either taken once or reported as unused, and none is left out. This holds even
/// if another thread takes versions back meanwhile.
#[test]
fn each_is_taken_once_or_unused() {
    for stripes in [[0, 0], [0, 1]] {
        model(2, move || {
            let versions = Arc::new(Versions::default());
            versions.keep_unused();
            let callers = callers(stripes, 5, &versions, || 0);
            let other = thread::spawn({
                let versions = versions.clone();
                move || versions.seal()
            });
            let taken = callers.map(|caller| caller.join().unwrap());
            let all = all(taken, versions.take_unused());
            assert!(all.iter().copied().eq(1..=versions.latest()), "{all:?}");
            other.join().unwrap();
        });
    }
}

/// A version that is given out after a seal is greater than the sealed ones.
#[test]
fn a_sealed_version_is_not_given_out() {
    model(3, || {
        let versions = Arc::new(Versions::default());
        let sealed = Arc::new(AtomicU64::new(0));
        let before = {
            let sealed = sealed.clone();
            move || sealed.load(Ordering::Acquire)
        };
        let callers = callers([0, 1], 6, &versions, before.clone());
        sealed.store(versions.seal(), Ordering::Release);
        for caller in callers {
            caller.join().unwrap();
        }
        for stripe in [0, 1] {
            set_stripe(stripe);
            assert!(versions.next() > before());
        }
    });
}
