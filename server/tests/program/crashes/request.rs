//! The calls that callers make, and may repeat.

use std::collections::HashMap;

use fastrand::Rng;
use seenset_history::{Call, Operation};

/// A call as it is sent, and sent again.
#[derive(Clone)]
pub struct Request {
    pub operation: Operation,
    pub keys: Vec<u64>,
    /// The id of the call. Calls without an id are not repeated.
    pub id: Option<String>,
    /// True if there was a try before.
    pub is_repeated: bool,
}

impl Request {
    /// Returns a call for keys. Nearly all calls that change anything have ids.
    pub fn new(operation: Operation, keys: Vec<u64>, chance: &mut Rng) -> Self {
        let is_named = operation != Operation::Query && chance.u64(..8) > 0;
        let mut half = || format!("{:016x}", chance.u64(..));
        Self {
            operation,
            keys,
            id: is_named.then(|| half() + &half()),
            is_repeated: false,
        }
    }

    pub fn query(keys: Vec<u64>) -> Self {
        Self {
            operation: Operation::Query,
            keys,
            id: None,
            is_repeated: false,
        }
    }

    /// Returns the same call for other keys.
    pub fn with_keys(&self, keys: Vec<u64>) -> Self {
        Self {
            keys,
            ..self.clone()
        }
    }

    /// Returns the id in the form of the contract.
    pub fn id(&self) -> String {
        self.id.clone().unwrap_or_default()
    }

    /// Returns the calls of the keys, in their order, as tries of this one. If a key occurs several
    /// times, each further occurrence is a call of its own.
    pub fn tries(&self, calls: Vec<Call<u64>>) -> Vec<Call<u64>> {
        let Some(id) = &self.id else {
            return calls;
        };
        let mut times = HashMap::new();
        let named = calls.into_iter().map(|call| {
            let times = times.entry(*call.key()).or_insert(0);
            *times += 1;
            match *times {
                1 => call.with_request_id(id),
                times => call.with_request_id(&format!("{id}#{times}")),
            }
        });
        named.collect()
    }
}
