//! Calls that meet at the locks of a filter, in parallel with the log and a snapshot.

use std::sync::Arc;

use loom::thread::{self, JoinHandle};
use seenset_models::{engine::modelled::set_stripe, filter::hash::KeyHash};

use super::{
    filter::{Fault, Filter, Key},
    model, reduced_preemptions,
};

const fn key(number: u64, shard: usize) -> Key {
    Key {
        shard,
        hash: KeyHash {
            low: number,
            high: number,
        },
    }
}

/// The keys that each of two callers adds: a key that both add, and one of its own.
const SHARED: Key = key(11, 0);
const CALLS: [[Key; 2]; 2] = [[SHARED, key(22, 1)], [key(33, 0), SHARED]];

/// Returns a filter, and its log thread, which ends after the given number of calls.
fn filter(fault: Option<Fault>, calls: usize) -> (Arc<Filter>, JoinHandle<()>) {
    let filter = Arc::new(Filter::new(fault));
    let writer = thread::spawn({
        let filter = filter.clone();
        move || filter.write(calls)
    });
    (filter, writer)
}

/// Makes a call, asserts that its keys are durable when it returns, and returns the new keys.
fn call(filter: &Filter, caller: usize) -> Vec<Key> {
    set_stripe(caller);
    let new = filter.query_and_add(&CALLS[caller]);
    for key in CALLS[caller] {
        let is_written = filter.is_written(key, u64::MAX);
        assert!(is_written, "answered before it is written");
    }
    new
}

/// Runs both calls, and checks which caller adds which key first.
fn two_calls(preemptions: usize, fault: Option<Fault>) {
    model(preemptions, move || {
        let (filter, writer) = filter(fault, 2);
        let other = thread::spawn({
            let filter = filter.clone();
            move || call(&filter, 0)
        });
        let new = [call(&filter, 1), other.join().unwrap()].concat();
        writer.join().unwrap();
        for key in CALLS.into_iter().flatten() {
            let winners = new.iter().filter(|new| **new == key);
            assert_eq!(winners.count(), 1, "winners of a key");
        }
    });
}

/// Runs the first `calls` calls in parallel with a snapshot.
fn snapshot(preemptions: usize, calls: usize, fault: Option<Fault>) {
    model(preemptions, move || {
        let (filter, writer) = filter(fault, calls);
        let callers = (0..calls).map(|caller| {
            let filter = filter.clone();
            thread::spawn(move || call(&filter, caller))
        });
        let callers: Vec<_> = callers.collect();
        let snapshot = filter.snapshot();
        let keys = || CALLS.into_iter().take(calls).flatten();
        for key in keys() {
            let is_written = !filter.is_in(&snapshot, key) || filter.is_written(key, u64::MAX);
            assert!(is_written, "stored before it is written");
        }
        for caller in callers {
            caller.join().unwrap();
        }
        writer.join().unwrap();
        for key in keys() {
            let version = snapshot.version();
            // A snapshot does not claim a key that it lacks, and the next snapshot has the key.
            let is_left = !filter.is_written(key, version) && filter.changed(key.shard) > version;
            let is_kept = filter.is_in(&snapshot, key) || is_left;
            assert!(is_kept, "lost with version {version}");
        }
    });
}

#[test]
fn each_key_has_one_winner_and_no_answer_comes_before_the_log() {
    two_calls(2, None);
}

#[test]
fn a_snapshot_holds_what_it_claims_and_nothing_that_the_log_lacks() {
    for (preemptions, calls) in [(reduced_preemptions(), 1), (1, 2)] {
        snapshot(preemptions, calls, None);
    }
}

/// The model finds the error that the lock prevents.
#[test]
#[should_panic(expected = "winners of a key")]
fn with_the_lock_let_go_two_callers_win_a_key() {
    two_calls(1, Some(Fault::LockLetGo));
}

#[test]
#[should_panic(expected = "answered before it is written")]
fn with_a_version_from_outside_of_the_lock_a_key_is_seen_that_may_be_lost() {
    two_calls(2, Some(Fault::VersionOutsideOfTheLock));
}

#[test]
#[should_panic(expected = "answered before it is written")]
fn with_an_answer_that_does_not_wait_it_would_be_too() {
    two_calls(2, Some(Fault::SeenDoesNotWait));
}

#[test]
#[should_panic(expected = "deadlock")]
fn with_versions_that_nobody_uses_or_tells_of_answers_do_not_come() {
    two_calls(1, Some(Fault::UnusedNotTold));
}

#[test]
#[should_panic(expected = "lost with version")]
fn without_the_barrier_a_snapshot_loses_a_key() {
    snapshot(2, 1, Some(Fault::NoBarrier));
}

#[test]
#[should_panic(expected = "stored before it is written")]
fn without_the_log_a_snapshot_has_a_key_that_nobody_may_own() {
    snapshot(2, 1, Some(Fault::AheadOfTheLog));
}
