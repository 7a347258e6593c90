//! The task that sends what callers leave, batch by batch.

use std::sync::Arc;

use tokio::task::yield_now;

use super::{
    callers::Callers,
    queue::{Queue, Waiting},
};
use crate::{
    batch::KeyBatch,
    client::Client,
    error::Error,
    stream::{Answered, BatchReceiver, BatchSender, Broken},
};

/// The batches in flight: one that the server answers, one on the way there, and one on the way
/// back.
const WINDOW: usize = 3;

/// The task.
pub(super) struct Gatherer {
    client: Client,
    queue: Arc<Queue>,
    sender: BatchSender<Callers>,
    receiver: BatchReceiver<Callers>,
    /// The batches in flight.
    in_flight: usize,
}

impl Drop for Gatherer {
    /// Ends with the runtime, at the latest; then nobody would be answered any more.
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
            in_flight: 0,
        }
    }

    pub async fn run(mut self) {
        while !(self.in_flight == 0 && self.queue.has_ended()) {
            let mut has_ended = false;
            while !has_ended && self.has_room() && self.queue.waiting() != Waiting::Nobody {
                self.gather().await;
                has_ended = !self.send().await;
            }
            tokio::select! {
                // First, so that more come together.
                biased;
                answer = self.receiver.recv(), if self.in_flight > 0 || has_ended => match answer {
                    Some(Ok(Answered { tag, seen })) => {
                        self.in_flight -= 1;
                        tag.tell(seen);
                    }
                    Some(Err(broken)) => self.begin_again(broken),
                    None => return,
                },
                () = self.queue.news(), if self.has_room() => {}
            }
        }
    }

    fn has_room(&self) -> bool {
        self.in_flight < WINDOW
    }

    /// Lets more come to a small batch, as long as any do: those that were answered together wake
    /// one after the other. Nobody who does not come at once is waited for.
    async fn gather(&mut self) {
        let mut before = Waiting::Nobody;
        loop {
            let waiting = self.queue.waiting();
            if waiting == Waiting::Enough || waiting == before {
                return;
            }
            before = waiting;
            yield_now().await;
        }
    }

    /// Sends the next batch. False if the stream has ended: then it waits until it is known why.
    async fn send(&mut self) -> bool {
        let Some(mut callers) = self.queue.take() else {
            return true;
        };
        callers.leave_out_who_left();
        if callers.keys().is_empty() {
            return true;
        }
        let keys = callers.keys().clone();
        match self.sender.send_or_return(keys, callers).await {
            Ok(()) => {
                self.in_flight += 1;
                true
            }
            Err((_, callers)) => {
                self.queue.put_back(std::iter::once(callers));
                false
            }
        }
    }

    /// Opens another stream, and deals with what the one before has left.
    fn begin_again(&mut self, Broken { error, unanswered }: Broken<Callers>) {
        (self.sender, self.receiver) = self.client.stream(WINDOW);
        self.in_flight = 0;
        let mut unanswered = unanswered.into_iter();
        if refused(&error) {
            // That was the first; those after it were not looked at.
            if let Some(first) = unanswered.next() {
                tokio::spawn(ask_apart(self.client.clone(), error, first));
            }
            self.queue.put_back(unanswered);
        } else {
            unanswered.for_each(|callers| callers.fail(&error));
        }
    }
}

/// Whether a server refused a batch as a whole, for the sake of one key perhaps.
fn refused(error: &Error) -> bool {
    error.code().is_some() && error.changed_nothing()
}

/// Asks for the keys of a refused batch again, in halves until each error is one key's own.
async fn ask_apart(client: Client, error: Error, callers: Callers) {
    let mut parts = vec![(Err(error), callers)];
    while let Some((answer, mut callers)) = parts.pop() {
        let count = callers.keys().len();
        match answer {
            Ok(seen) => callers.tell(seen),
            Err(error) if refused(&error) && count > 1 => {
                let second = callers.split_off(count / 2);
                for half in [second, callers] {
                    let keys: KeyBatch = half.keys().clone();
                    parts.push((client.query_and_add_batch(keys).await, half));
                }
            }
            Err(error) => callers.fail(&error),
        }
    }
}
