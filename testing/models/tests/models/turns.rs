//! The turns of requests: callers that share an id get the same answer.

use std::{mem, sync::Arc};

use loom::{future::block_on, thread};
use seenset_models::{
    engine::{
        RequestLimits,
        modelled::{Mutex, Requests, RetrySession},
    },
    filter::hash::KeyHash,
    store::{FilterId, RequestId},
};

use super::model;

/// Two ids of one lane.
const ONE: RequestId = RequestId([1; 16]);
const OTHER: RequestId = RequestId([3; 16]);
const KEY: KeyHash = KeyHash { low: 7, high: 7 };

/// The state that all callers share. The bit stands for the key, and its mutex for the lock of the
/// key's shard.
struct Service {
    requests: Requests,
    bit: Mutex<bool>,
}

impl Service {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            requests: Requests::new(RequestLimits::default(), 1),
            bit: Mutex::default(),
        })
    }

    /// Begins the turn of a request like `engine/call/admission.rs`: at once if it can.
    fn turn(&self, request: RequestId) -> Box<RetrySession<'_>> {
        let at_once = self.requests.try_begin(FilterId(1), request);
        match at_once.unwrap() {
            Some(turn) => turn,
            None => block_on(self.requests.begin(FilterId(1), request)).unwrap(),
        }
    }

    /// Returns whether the key is new to a request, in the way of the engine.
    fn is_new(&self, request: RequestId) -> bool {
        let mut turn = self.turn(request);
        let was_set = mem::replace(&mut *self.bit.lock(), true);
        if was_set {
            return turn.has_first_added(KEY);
        }
        turn.note_first_added(vec![KEY], 0);
        true
    }

    /// Returns whether the key is new, but begins the turn only after it has looked at the bit.
    fn is_new_before_its_turn(&self, request: RequestId) -> bool {
        let was_set = mem::replace(&mut *self.bit.lock(), true);
        let mut turn = self.turn(request);
        if was_set {
            return turn.has_first_added(KEY);
        }
        turn.note_first_added(vec![KEY], 0);
        true
    }
}

/// Returns the answers to callers that come with these ids at the same time.
fn told<const CALLERS: usize>(
    ids: [RequestId; CALLERS],
    is_new: fn(&Service, RequestId) -> bool,
) -> [bool; CALLERS] {
    let service = Service::new();
    let callers = ids.map(|id| {
        let service = service.clone();
        thread::spawn(move || is_new(&service, id))
    });
    callers.map(|caller| caller.join().unwrap())
}

#[test]
fn a_request_that_comes_twice_at_once_is_told_twice_that_its_key_is_new() {
    model(3, || assert_eq!(told([ONE; 2], Service::is_new), [true; 2]));
}

/// The model finds the error that turns prevent.
#[test]
#[should_panic(expected = "told that its own key is seen")]
fn without_turns_it_would_be_told_that_it_is_seen() {
    model(3, || {
        let told = told([ONE; 2], Service::is_new_before_its_turn);
        assert_eq!(told, [true; 2], "told that its own key is seen");
    });
}

#[test]
fn of_two_requests_one_wins_however_often_it_comes() {
    model(3, || {
        let [first, other, again] = told([ONE, OTHER, ONE], Service::is_new);
        assert_eq!(first, again);
        assert_ne!(first, other);
    });
}
