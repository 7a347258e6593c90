//! The answers of one server to a caller, and the calls that the caller repeats on the next server.

use seenset_history::{Call, Operation, now};
use tonic::Status;

use super::request::Request;

/// The answer to a call: for each key whether it was seen, or the confirmation of an add.
pub enum Answer {
    Seen(Vec<bool>),
    Added,
}

/// The answers of one server to a caller.
#[derive(Default)]
pub struct Record {
    history: Vec<Call<u64>>,
    /// The calls that will be repeated.
    again: Vec<Request>,
    /// The call that was answered last. A crash threatens it most, like the calls without an
    /// answer. Its id matters only once it will be repeated. Keeping the ids of all calls would
    /// take a lot of memory.
    latest: Option<(Request, Vec<Call<u64>>)>,
}

impl Record {
    /// Records the answer to a call that began at `begin` and ends now. Returns whether it was
    /// answered.
    pub fn take(&mut self, request: Request, begin: u64, answer: Result<Answer, Status>) -> bool {
        let calls = written(&request, begin, &answer);
        match answer {
            Err(_) => {
                self.history.extend(request.tries(calls));
                self.leave(request);
                return false;
            }
            Ok(_) if request.is_repeated => self.history.extend(request.tries(calls)),
            Ok(_) => {
                if let Some((_, calls)) = self.latest.replace((request, calls)) {
                    self.history.extend(calls);
                }
            }
        }
        true
    }

    /// Keeps a call for the next server.
    pub fn leave(&mut self, request: Request) {
        if request.id.is_some() {
            self.again.push(Request {
                is_repeated: true,
                ..request
            });
        }
    }

    /// Returns the history, and the calls to repeat.
    pub fn finish(mut self) -> (Vec<Call<u64>>, Vec<Request>) {
        if let Some((request, calls)) = self.latest.take() {
            self.history.extend(request.tries(calls));
            self.leave(request);
        }
        (self.history, self.again)
    }
}

/// Returns one call for each key.
fn written(request: &Request, begin: u64, answer: &Result<Answer, Status>) -> Vec<Call<u64>> {
    let (operation, end) = (request.operation, now());
    let keys = request.keys.iter().enumerate();
    let calls = keys.map(|(place, &key)| match answer {
        Ok(Answer::Added) => Call::add(key, begin, end),
        Ok(Answer::Seen(seen)) if operation == Operation::Query => {
            Call::query(key, begin, end, seen[place])
        }
        Ok(Answer::Seen(seen)) => Call::query_and_add(key, begin, end, seen[place]),
        Err(_) => Call::unknown(operation, key, begin),
    });
    calls.collect()
}
