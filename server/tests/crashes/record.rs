//! What a caller was told by one server, and what it asks the next one for because of that.

use seenset_history::{Call, Operation, now};
use tonic::Status;

use super::request::Request;

/// What a call was told of its keys: whether each was seen, or that they are added.
pub enum Answer {
    Seen(Vec<bool>),
    Added,
}

/// What a caller was told by one server.
#[derive(Default)]
pub struct Record {
    history: Vec<Call<u64>>,
    /// Calls that are to be repeated.
    again: Vec<Request>,
    /// The call that was answered last. Like those that were not, it is the one that a crash
    /// threatens most. Until it is known that it is to be repeated, its id is of no importance:
    /// to remember all of them would take a lot of memory.
    latest: Option<(Request, Vec<Call<u64>>)>,
}

impl Record {
    /// Takes in what a call that began at a time is told now. Returns whether it was answered.
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

    /// Leaves a call to the next server.
    pub fn leave(&mut self, request: Request) {
        if request.id.is_some() {
            self.again.push(Request {
                is_repeated: true,
                ..request
            });
        }
    }

    /// What there is to write down, and the calls to repeat.
    pub fn finish(mut self) -> (Vec<Call<u64>>, Vec<Request>) {
        if let Some((request, calls)) = self.latest.take() {
            self.history.extend(request.tries(calls));
            self.leave(request);
        }
        (self.history, self.again)
    }
}

/// The call of each key.
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
