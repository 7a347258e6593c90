//! Single calls of one process, gathered into batches on a stream.
//!
//! A worker that asks for one URL at a time is the simplest, and the slowest: each call costs
//! both sides many times what its key costs in a batch. So the callers of one process leave
//! their keys with a task, which sends what has come together as soon as there is room for one
//! more batch in flight. Nobody waits for a batch to fill: a caller alone is sent at once, and
//! the more there are, the more go together.

use std::{collections::VecDeque, fmt};

use tokio::sync::{mpsc, oneshot};

use crate::{
    batch::KeyBatch,
    client::Client,
    error::Error,
    stream::{Answered, BatchReceiver, BatchSender, Broken},
};

/// The batches in flight: one that the server answers, one on the way there, and one on the way
/// back.
const WINDOW: usize = 3;
/// The most keys of a batch.
const MAX_KEYS: usize = 1024;
/// A batch of as many keys is sent at once.
const ENOUGH_KEYS: usize = 256;
/// A batch takes no more keys once it has so many bytes of them, and none that is longer.
const ENOUGH_BYTES: usize = 256 << 10;

/// A client whose concurrent single calls go to the server together, see
/// [`Client::coalescing`]. Cheap to clone; clones gather into the same batches.
#[derive(Clone)]
pub struct Coalescing {
    client: Client,
    callers: mpsc::UnboundedSender<Caller>,
}

impl Client {
    /// The same connection and filter, for callers that ask for one key each: those that ask
    /// at the same time are answered together, for a fraction of the cost, and none waits for
    /// others to come. To be made once, and cloned for each worker.
    ///
    /// Must be called in a tokio runtime, for it starts a task there, which ends when the last
    /// clone is gone.
    ///
    /// ```no_run
    /// # async fn run(client: seenset_client::Client) {
    /// let client = client.coalescing();
    /// for worker in 0..512 {
    ///     let client = client.clone();
    ///     tokio::spawn(async move {
    ///         let url = format!("https://example.org/{worker}");
    ///         let seen = client.query_and_add(&url).await?;
    ///         println!("{url}: {seen}");
    ///         Ok::<_, seenset_client::Error>(())
    ///     });
    /// }
    /// # }
    /// ```
    pub fn coalescing(&self) -> Coalescing {
        let (callers, coming) = mpsc::unbounded_channel();
        let (sender, receiver) = self.stream(WINDOW);
        let gatherer = Gatherer {
            client: self.clone(),
            coming,
            waiting: VecDeque::new(),
            sender,
            receiver,
            in_flight: 0,
        };
        tokio::spawn(gatherer.run());
        Coalescing {
            client: self.clone(),
            callers,
        }
    }
}

impl Coalescing {
    /// [`Client::query_and_add`], together with those that ask at the same time.
    ///
    /// Cancelling this before the key is sent leaves it unmarked; afterwards, the key is marked
    /// though nobody is told. What was under way when the connection breaks is sent again, and
    /// is answered as it would have been the first time.
    ///
    /// # Errors
    ///
    /// As [`Client::query_and_add`]: its own, if its key is refused and others are not, and
    /// that of all that were under way, if the server does not come back. The deadline of the
    /// options counts from when the key is sent.
    pub async fn query_and_add(&self, key: &str) -> Result<bool, Error> {
        if key.len() > ENOUGH_BYTES {
            return self.client.query_and_add(key).await;
        }
        let (answer, answered) = oneshot::channel();
        let key = key.to_owned();
        // The task is gone where its runtime is.
        self.callers
            .send(Caller { key, answer })
            .map_err(|_| Error::StreamClosed)?;
        answered.await.unwrap_or(Err(Error::StreamClosed))
    }
}

impl fmt::Debug for Coalescing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coalescing").finish_non_exhaustive()
    }
}

/// Somebody who waits for an answer.
struct Caller {
    key: String,
    answer: oneshot::Sender<Result<bool, Error>>,
}

impl Caller {
    fn tell(self, answer: Result<bool, Error>) {
        // Nobody listens any more if the call was cancelled.
        let _ = self.answer.send(answer);
    }
}

/// The task that sends what callers leave.
struct Gatherer {
    client: Client,
    coming: mpsc::UnboundedReceiver<Caller>,
    /// Those that have come and are not sent.
    waiting: VecDeque<Caller>,
    sender: BatchSender<Vec<Caller>>,
    receiver: BatchReceiver<Vec<Caller>>,
    /// The batches in flight.
    in_flight: usize,
}

impl Gatherer {
    async fn run(mut self) {
        let mut come = Vec::new();
        loop {
            while self.has_room() && !self.waiting.is_empty() {
                self.gather().await;
                if !self.send().await {
                    break;
                }
            }
            tokio::select! {
                // First, so that more come together.
                biased;
                answer = self.receiver.recv(), if self.in_flight > 0 => match answer {
                    Some(Ok(Answered { tag, seen })) => {
                        self.in_flight -= 1;
                        tell(tag, seen);
                    }
                    Some(Err(broken)) => self.begin_again(broken),
                    None => return,
                },
                count = self.coming.recv_many(&mut come, MAX_KEYS), if self.has_room() => {
                    // Who left keys holds the other end until they are answered.
                    if count == 0 {
                        return;
                    }
                    self.waiting.extend(come.drain(..));
                }
            }
        }
    }

    /// Lets more come before a batch is sent, as long as any do and it is a small one: those that
    /// were answered together wake one after the other. Nobody who does not come at once is
    /// waited for.
    async fn gather(&mut self) {
        let mut come = true;
        while come && self.waiting.len() < ENOUGH_KEYS {
            tokio::task::yield_now().await;
            come = false;
            while self.waiting.len() < MAX_KEYS
                && let Ok(caller) = self.coming.try_recv()
            {
                self.waiting.push_back(caller);
                come = true;
            }
        }
    }

    fn has_room(&self) -> bool {
        self.in_flight < WINDOW
    }

    /// Sends as many keys as a batch may have. False if the stream has ended: then they wait
    /// until it is known why.
    async fn send(&mut self) -> bool {
        let (mut keys, mut callers) = (KeyBatch::new(), Vec::new());
        while keys.len() < MAX_KEYS
            && keys.encoded_bytes() < ENOUGH_BYTES
            && let Some(caller) = self.waiting.pop_front()
        {
            if !caller.answer.is_closed() {
                keys.push(&caller.key);
                callers.push(caller);
            }
        }
        if callers.is_empty() {
            return true;
        }
        match self.sender.send_or_return(keys, callers).await {
            Ok(()) => {
                self.in_flight += 1;
                true
            }
            Err((_, callers)) => {
                self.wait_again(callers);
                false
            }
        }
    }

    /// Opens another stream, and deals with what the one before has left.
    fn begin_again(&mut self, Broken { error, unanswered }: Broken<Vec<Caller>>) {
        (self.sender, self.receiver) = self.client.stream(WINDOW);
        self.in_flight = 0;
        let mut unanswered = unanswered.into_iter();
        if refused(&error) {
            // That was the first; those after it were not looked at.
            let first = unanswered.next().unwrap_or_default();
            tokio::spawn(ask_apart(self.client.clone(), error, first));
            self.wait_again(unanswered.flatten());
        } else {
            unanswered.for_each(|callers| fail(callers, &error));
        }
    }

    /// Puts callers before those that wait.
    fn wait_again(&mut self, callers: impl IntoIterator<Item = Caller>) {
        let behind = std::mem::take(&mut self.waiting);
        self.waiting.extend(callers.into_iter().chain(behind));
    }
}

/// Whether a server refused a batch as a whole, for the sake of one key perhaps.
fn refused(error: &Error) -> bool {
    error.code().is_some() && error.changed_nothing()
}

/// Asks for the keys of a refused batch again, in halves until each error is one key's own.
async fn ask_apart(client: Client, error: Error, callers: Vec<Caller>) {
    let mut parts = vec![(Err(error), callers)];
    while let Some((answer, mut callers)) = parts.pop() {
        match answer {
            Ok(seen) => tell(callers, seen),
            Err(error) if refused(&error) && callers.len() > 1 => {
                let second = callers.split_off(callers.len() / 2);
                for half in [second, callers] {
                    let keys: KeyBatch = half.iter().map(|caller| &caller.key).collect();
                    parts.push((client.query_and_add_batch(keys).await, half));
                }
            }
            Err(error) => fail(callers, &error),
        }
    }
}

fn tell(callers: Vec<Caller>, seen: Vec<bool>) {
    for (caller, seen) in callers.into_iter().zip(seen) {
        caller.tell(Ok(seen));
    }
}

fn fail(callers: Vec<Caller>, error: &Error) {
    for caller in callers {
        caller.tell(Err(error.clone()));
    }
}
