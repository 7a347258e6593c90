//! A caller for keys. No two callers share a key, so every answer is known in advance.

use std::sync::Arc;

use fastrand::Rng;
use seenset_proto::v1::{
    AddBatchRequest, QueryAndAddBatchRequest, QueryBatchRequest, RemoveBatchRequest,
};

use crate::{
    ADDERS, KEYS, NAMES, Shared, filter_name, key_text,
    model::{Action, Call, Key, Outcome},
    operation::Kind,
    server::{Clients, outcome, request},
};

/// The maximum number of keys in a call.
const MAX_KEYS: usize = 150;

/// A caller. It outlives the server.
pub struct Adder {
    number: u32,
    rng: Rng,
    calls: u64,
    /// The last call, if it was not answered.
    unanswered: Option<Call>,
}

impl Adder {
    pub fn new(number: u32, rng: Rng) -> Self {
        Self {
            number,
            rng,
            calls: 0,
            unanswered: None,
        }
    }

    /// Makes calls until the server ends.
    pub async fn run(mut self, shared: Arc<Shared>, mut clients: Clients) -> Self {
        while !shared.is_over() {
            let call = match self.unanswered.take() {
                Some(call) => shared.model.lock().begin_again(call),
                None => self.begin(&shared),
            };
            let answer = self.call(&call, &mut clients).await;
            let outcome = outcome(answer);
            let is_unknown = matches!(outcome, Outcome::Unknown);
            shared.note(format!("{:?}", call.action), &outcome);
            shared.summary.lock().keys += call.keys.len() as u64;
            let checked = shared.model.lock().end_call(&call, outcome);
            shared.check(checked);
            if is_unknown && matches!(call.action, Action::Add | Action::QueryAndAdd) {
                self.unanswered = Some(call.first_try());
            }
        }
        self
    }

    fn begin(&mut self, shared: &Shared) -> Call {
        self.calls += 1;
        let id = format!("adder-{} {}", self.number, self.calls);
        let keys: Vec<Key> = (0..1 + self.rng.usize(..MAX_KEYS))
            .map(|_| self.number + ADDERS * self.rng.u32(..KEYS / ADDERS))
            .collect();
        let mut model = shared.model.lock();
        let name = self.rng.usize(..NAMES);
        let counts = model
            .filter(name)
            .is_some_and(|filter| filter.kind == Kind::Counting);
        let action = match (self.rng.u8(..20), counts) {
            (0..=3, _) => Action::Query,
            (4..=7, true) => Action::Remove,
            (4..=6, false) => Action::Add,
            // Rare, because a filter in which a key can be counted twice reveals fewer faults of
            // `Remove`.
            (8, true) if name.is_multiple_of(4) => Action::Add,
            _ => Action::QueryAndAdd,
        };
        model.begin_call(name, action, keys, id)
    }

    async fn call(
        &mut self,
        call: &Call,
        clients: &mut Clients,
    ) -> Result<Vec<bool>, tonic::Status> {
        let filter = filter_name(call.name);
        let keys = call.keys.iter().copied().map(key_text).collect();
        let request_id = call.request_id.clone();
        let dedup = &mut clients.dedup;
        match call.action {
            Action::Query => {
                let message = QueryBatchRequest {
                    filter,
                    keys,
                    ..QueryBatchRequest::default()
                };
                let answer = dedup.query_batch(request(message, &mut self.rng)).await?;
                Ok(answer.into_inner().seen)
            }
            Action::Add => {
                let message = AddBatchRequest {
                    filter,
                    keys,
                    request_id,
                    ..AddBatchRequest::default()
                };
                dedup.add_batch(request(message, &mut self.rng)).await?;
                Ok(Vec::new())
            }
            Action::QueryAndAdd => {
                let message = QueryAndAddBatchRequest {
                    filter,
                    keys,
                    request_id,
                    ..QueryAndAddBatchRequest::default()
                };
                let answer = dedup.query_and_add_batch(request(message, &mut self.rng));
                Ok(answer.await?.into_inner().seen)
            }
            Action::Remove => {
                let message = RemoveBatchRequest {
                    filter,
                    keys,
                    request_id,
                    ..RemoveBatchRequest::default()
                };
                let answer = dedup.remove_batch(request(message, &mut self.rng));
                Ok(answer.await?.into_inner().removed)
            }
        }
    }
}
