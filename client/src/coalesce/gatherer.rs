//! The task that sends the keys of the callers, batch by batch.

use std::{future::pending, sync::Arc};

use tokio::{
    task::yield_now,
    time::{Instant, sleep_until},
};
use tonic::Code;

use super::{
    callers::Callers,
    flight::{Flight, WINDOW},
    queue::Queue,
};
use crate::{
    client::{Client, request_id},
    error::Error,
    stream::{Answered, BatchReceiver, BatchSender, Broken},
};

/// The task that gathers and sends batches.
pub(super) struct Gatherer {
    client: Client,
    queue: Arc<Queue>,
    sender: BatchSender<Callers>,
    receiver: BatchReceiver<Callers>,
    flight: Flight,
}

impl Drop for Gatherer {
    /// Drops the waiting callers, because nobody would answer them any more. The task ends with the
    /// runtime at the latest.
    fn drop(&mut self) {
        self.queue.close();
        while self.queue.take().is_some() {}
    }
}

impl Gatherer {
    pub fn new(client: Client, queue: Arc<Queue>) -> Self {
        let (sender, receiver) = client.stream(WINDOW);
        Self {
            client,
            queue,
            sender,
            receiver,
            flight: Flight::default(),
        }
    }

    pub async fn run(mut self) {
        while !(self.flight.is_empty() && self.queue.has_ended()) {
            let mut has_ended = false;
            while !has_ended && !self.queue.is_empty() && self.flight.has_room() {
                self.gather().await;
                has_ended = !self.send().await;
            }
            let is_waiting = !self.queue.is_empty();
            let due = (is_waiting && !has_ended)
                .then(|| self.flight.due())
                .flatten();
            tokio::select! {
                // Answers first, so that more keys gather.
                biased;
                answer = self.receiver.recv(), if has_ended || !self.flight.is_empty() => {
                    match answer {
                        Some(Ok(Answered { tag, seen })) => {
                            self.flight.arrive();
                            tag.answer(seen);
                        }
                        Some(Err(broken)) => self.begin_again(broken),
                        None => return,
                    }
                }
                () = self.queue.news(), if !is_waiting => {}
                () = wait_until(due) => {}
            }
        }
    }

    /// Lets more keys gather in a small batch, as long as any come. Callers that were answered
    /// together wake one after the other. A caller that does not come at once is not waited for.
    async fn gather(&mut self) {
        let mut before = 0;
        let mut enough = None;
        while let Some(waiting) = self.queue.next_keys() {
            let enough = *enough.get_or_insert_with(|| self.flight.enough(waiting));
            if waiting >= enough || waiting == before {
                return;
            }
            before = waiting;
            yield_now().await;
        }
    }

    /// Sends the next batch. Returns false if the stream has ended: the batch then waits until the
    /// reason is known.
    async fn send(&mut self) -> bool {
        let Some(mut callers) = self.queue.take() else {
            return true;
        };
        callers.leave_out_who_left();
        if callers.keys().is_empty() {
            return true;
        }
        let keys = callers.keys().clone();
        let count = keys.len();
        match self
            .sender
            .send_or_return(&request_id(), keys, callers)
            .await
        {
            Ok(()) => {
                self.flight.depart(count);
                true
            }
            Err((Error::StreamClosed, callers)) => {
                self.queue.put_back(std::iter::once(callers));
                false
            }
            Err((error, callers)) => {
                callers.fail(&error);
                true
            }
        }
    }

    /// Opens another stream, and handles the unanswered batches of the old one.
    fn begin_again(&mut self, broken: Broken<Callers>) {
        let Broken {
            error,
            unanswered,
            doubtful,
        } = broken;
        (self.sender, self.receiver) = self.client.stream(WINDOW);
        self.flight = Flight::default();
        let mut unanswered = unanswered.into_iter();
        if is_refusal(&error) {
            // The first batch was refused. The server did not look at the later ones.
            if let Some(first) = unanswered.next() {
                tokio::spawn(ask_apart(self.client.clone(), error, first));
            }
            self.queue.put_back(unanswered);
        } else {
            let unsent = error.of_an_unsent_call();
            for (index, callers) in unanswered.enumerate() {
                callers.fail(if index < doubtful { &error } else { &unsent });
            }
        }
    }
}

async fn wait_until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

/// Returns whether the server refused a batch as a whole.
fn is_refusal(error: &Error) -> bool {
    error.code().is_some() && error.changed_nothing()
}

/// Handles a refused batch: asks for its keys again, in halves, until each error belongs to one
/// key.
async fn ask_apart(client: Client, error: Error, callers: Callers) {
    let mut parts = Vec::new();
    split_or_fail(callers, &error, &mut parts);
    while let Some(callers) = parts.pop() {
        match client.query_and_add_batch(callers.keys().clone()).await {
            Ok(seen) => callers.answer(seen),
            Err(error) => split_or_fail(callers, &error, &mut parts),
        }
    }
}

/// Splits callers that were perhaps refused because of one key into two parts. In all other cases,
/// fails the callers with `error`.
fn split_or_fail(mut callers: Callers, error: &Error, parts: &mut Vec<Callers>) {
    let count = callers.keys().len();
    if count > 1 && error.code() == Some(Code::InvalidArgument) {
        let second = callers.split_off(count / 2);
        parts.extend([second, callers]);
    } else {
        callers.fail(error);
    }
}
