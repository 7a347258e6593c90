//! Remembers the keys that each request added first, so that a repeated request gets the same
//! answer.
//!
//! A caller whose answer was lost repeats its call with the same id (idempotency key). The keys
//! that were new the first time are in the filter by then. The answer "seen" would lose them:
//! nobody would crawl them. So the server remembers a request with an id, with the hashes of the
//! keys that it added first (its first-added keys). If the request is repeated, in any batches,
//! these keys are new again. A key that another request added first is still answered as seen.
//!
//! Requests of one id take turns. Otherwise the second could find the bits of the first before the
//! keys of the first are remembered. A request waits for its session asynchronously, first come,
//! first served.
//!
//! # What it costs
//!
//! A request without an id costs nothing. A request with an id that adds no key first is not
//! remembered. Any other takes 16 bytes a key and some 100 bytes.
//!
//! There are two generations. A new one begins when the younger one has half the
//! [`RequestLimits::keys`] or is half the [`RequestLimits::age`] old; then the older one is
//! forgotten. Keys that a request adds later belong to the generation of that time, and its earlier
//! keys still age. Otherwise an id that is used for ever would keep all its keys, and push out
//! those of all other requests. `docs/adr/0007-requests.md` says why.

// The path is given for the models, which compile this file from another place.
#[path = "requests/first_added.rs"]
mod first_added;

use std::{
    collections::{HashMap, HashSet, VecDeque, hash_map::Entry},
    mem,
    time::{Duration, Instant},
};

use crossbeam_utils::CachePadded;

use self::first_added::FirstAdded;
use crate::{
    engine::{commit::Remembered, error::EngineError},
    filter::hash::KeyHash,
    store::{FilterId, RequestId},
    sync::{
        Mutex, REQUEST_LANES as LANES,
        atomic::{AtomicU64, Ordering},
        oneshot,
    },
};

/// The cost of a request, in keys: it takes as much memory as this many keys, beside its own.
const KEYS_A_REQUEST: u64 = 4;

/// The limits on the requests that are remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// The most keys of all requests together, where each request counts as four more; 0 to
    /// remember none.
    pub keys: u64,
    /// The time for which a request is remembered.
    pub age: Duration,
}

impl RequestLimits {
    /// Returns the most bytes of the log that the requests take: the hash of each key, and the
    /// records.
    pub fn log_bytes(self) -> u64 {
        self.keys.saturating_mul(24)
    }
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            keys: 4 << 20,
            age: Duration::from_secs(600),
        }
    }
}

/// The requests of all filters.
#[derive(Debug)]
pub struct Requests {
    limits: RequestLimits,
    /// The most keys of one call, and so the most that one request can add first.
    max_call_keys: usize,
    begun: Instant,
    /// The number of the younger generation.
    generation: AtomicU64,
    /// The start of the younger generation, in milliseconds after `begun`.
    generation_ms: AtomicU64,
    /// The keys in the younger generation, without those that the lanes have not reported yet.
    keys: AtomicU64,
    lanes: [CachePadded<RequestLane>; LANES],
}

#[derive(Debug, Default)]
struct RequestLane {
    memory: Mutex<Memory>,
}

/// A request of one filter.
type Name = (FilterId, RequestId);

#[derive(Debug, Default)]
struct Memory {
    generation: u64,
    young: HashMap<Name, Request>,
    old: HashMap<Name, Request>,
    /// The requests that have a session, each with its queue of waiters.
    running: HashMap<Name, VecDeque<oneshot::Sender<()>>>,
    /// The keys in the younger generation that this lane has not reported yet.
    untold_keys: u64,
}

/// The keys that a request added first in one generation.
#[derive(Debug)]
struct Request {
    first_added: FirstAdded,
    /// The newest record of the request is in this segment or a later one.
    segment: u64,
}

/// A request that has the session of its id. Dropping it passes the session on.
#[derive(Debug)]
struct Running<'a> {
    requests: &'a Requests,
    name: Name,
}

/// A request that waits for the session of its id.
#[derive(Debug)]
struct Waiting<'a> {
    requests: &'a Requests,
    name: Name,
    session: oneshot::Receiver<()>,
    has_got_it: bool,
}

/// The session of a request: of all requests with one id, one at a time has it. Boxed, because every
/// call passes the place for it on, and few calls have one.
#[derive(Debug)]
pub struct RetrySession<'a> {
    running: Running<'a>,
    /// The keys that it had added first before, in each generation.
    first_added: [FirstAdded; 2],
    /// The first-added keys that it has been answered as new again: the halves of their hashes.
    reported: HashSet<(u64, u64)>,
}

impl Requests {
    /// Returns an empty memory, for calls of up to `max_call_keys` keys.
    pub fn new(limits: RequestLimits, max_call_keys: usize) -> Self {
        Self {
            limits,
            max_call_keys,
            begun: Instant::now(),
            generation: AtomicU64::new(0),
            generation_ms: AtomicU64::new(0),
            keys: AtomicU64::new(0),
            lanes: std::array::from_fn(|_| CachePadded::default()),
        }
    }

    /// Returns the limits on the requests that are remembered.
    pub fn limits(&self) -> RequestLimits {
        self.limits
    }

    /// Returns whether any requests are remembered.
    pub fn is_on(&self) -> bool {
        self.limits.keys > 0 && !self.limits.age.is_zero()
    }

    /// Waits until earlier requests of the same id have ended, and begins the session of a request.
    /// The request must set its bits during its session.
    ///
    /// # Errors
    ///
    /// [`EngineError::RequestReused`] if the id is used for many calls: it has added first more
    /// keys than one call can have.
    pub async fn begin(
        &self,
        filter: FilterId,
        request: RequestId,
    ) -> Result<Box<RetrySession<'_>>, EngineError> {
        let running = match self.enter((filter, request)) {
            Ok(running) => running,
            Err(waiting) => waiting.session().await,
        };
        self.session_of(running)
    }

    /// Begins the session of a request if no other of its id has it; `None` otherwise.
    ///
    /// # Errors
    ///
    /// As [`Self::begin`].
    pub fn try_begin(
        &self,
        filter: FilterId,
        request: RequestId,
    ) -> Result<Option<Box<RetrySession<'_>>>, EngineError> {
        let name = (filter, request);
        match self.lane(&request).memory.lock().running.entry(name) {
            Entry::Vacant(place) => place.insert(VecDeque::new()),
            Entry::Occupied(_) => return Ok(None),
        };
        let requests = self;
        self.session_of(Running { requests, name }).map(Some)
    }

    /// Takes the session of a request if it is free, and joins the queue otherwise.
    fn enter(&self, name: Name) -> Result<Running<'_>, Waiting<'_>> {
        let (_, request) = &name;
        let requests = self;
        match self.lane(request).memory.lock().running.entry(name) {
            Entry::Vacant(place) => {
                place.insert(VecDeque::new());
                Ok(Running { requests, name })
            }
            Entry::Occupied(mut running) => {
                let (sender, session) = oneshot::channel();
                let waiting = running.get_mut();
                // Removes waiters that have gone away, seldom enough that a call pays little for
                // it.
                if waiting.len().is_power_of_two() {
                    waiting.retain(|sender| !sender.is_closed());
                }
                waiting.push_back(sender);
                Err(Waiting {
                    requests,
                    name,
                    session,
                    has_got_it: false,
                })
            }
        }
    }

    /// Passes the session to the first waiter that is still there.
    fn leave(&self, name: &Name) {
        let (_, request) = name;
        let mut memory = self.lane(request).memory.lock();
        let Entry::Occupied(mut running) = memory.running.entry(*name) else {
            return;
        };
        while let Some(next) = running.get_mut().pop_front() {
            // An error means that the waiter has gone away.
            if next.send(()).is_ok() {
                return;
            }
        }
        running.remove();
    }

    fn session_of<'a>(
        &'a self,
        running: Running<'a>,
    ) -> Result<Box<RetrySession<'a>>, EngineError> {
        let name = running.name;
        let (_, request) = &name;
        let mut memory = self.lane(request).memory.lock();
        memory.turn_to(self.generation());
        let Memory { young, old, .. } = &*memory;
        let first_added = [young, old].map(|generation| {
            let request = generation.get(&name);
            request.map_or_else(FirstAdded::default, |request| request.first_added.clone())
        });
        // Unlocked first: if the session ends below, `leave` locks it.
        drop(memory);
        let (keys, limit) = (
            first_added.iter().map(FirstAdded::len).sum(),
            self.max_call_keys,
        );
        if keys > limit {
            return Err(EngineError::RequestReused { keys, limit });
        }
        Ok(Box::new(RetrySession {
            running,
            first_added,
            reported: HashSet::new(),
        }))
    }

    /// Remembers keys that a request added first, in addition to its earlier ones.
    pub fn remember(&self, remembered: Remembered, segment: u64) {
        let Remembered {
            filter,
            request,
            hashes,
        } = remembered;
        if !self.is_on() || hashes.is_empty() {
            return;
        }
        let generation = self.generation();
        let mut memory = self.lane(&request).memory.lock();
        memory.turn_to(generation);
        memory.remember((filter, request), hashes, segment);
        self.count(&mut memory);
    }

    /// Returns the keys that requests added first to one filter, and that requests of the same ids
    /// did not add first to another filter. They are returned as requests of the other filter.
    pub fn missing(&self, from: FilterId, to: FilterId) -> Vec<Remembered> {
        let mut missing = Vec::new();
        for lane in &self.lanes {
            let mut memory = lane.memory.lock();
            memory.turn_to(self.generation());
            let Memory { young, old, .. } = &*memory;
            let of = |&((filter, _), _): &(&Name, &Request)| *filter == from;
            for (&(_, request), Request { first_added, .. }) in young.iter().chain(old).filter(of) {
                let name = (to, request);
                let is_there = |hash| {
                    let mut there = [young, old].into_iter().filter_map(|of| of.get(&name));
                    there.any(|request| request.first_added.contains(hash))
                };
                let hashes: Vec<KeyHash> =
                    first_added.iter().filter(|&hash| !is_there(hash)).collect();
                if !hashes.is_empty() {
                    missing.push(Remembered {
                        filter: to,
                        request,
                        hashes,
                    });
                }
            }
        }
        missing
    }

    /// Returns all requests whose newest record can be in a segment before `segment`.
    pub fn before(&self, segment: u64) -> Vec<Remembered> {
        let mut before = Vec::new();
        self.each_before(
            segment,
            |&(filter, request), Request { first_added, .. }| {
                before.push(Remembered {
                    filter,
                    request,
                    hashes: first_added.iter().collect(),
                });
            },
        );
        before
    }

    /// Notes that the requests of [`Self::before`] have been appended again, in `segment` or a
    /// later one.
    pub fn written_again(&self, segment: u64) {
        self.each_before(segment, |_, request| request.segment = segment);
    }

    fn each_before(&self, segment: u64, mut visit: impl FnMut(&Name, &mut Request)) {
        for lane in &self.lanes {
            let mut memory = lane.memory.lock();
            memory.turn_to(self.generation());
            let Memory { young, old, .. } = &mut *memory;
            for (name, request) in young.iter_mut().chain(old) {
                if request.segment < segment {
                    visit(name, request);
                }
            }
        }
    }

    /// Returns the number of the present generation, and begins a new one if it is due.
    fn generation(&self) -> u64 {
        let now_ms = self.begun.elapsed().as_millis() as u64;
        let begun_ms = self.generation_ms.load(Ordering::Relaxed);
        let is_old = now_ms.saturating_sub(begun_ms) >= (self.limits.age / 2).as_millis() as u64;
        let is_full = self.keys.load(Ordering::Relaxed) >= self.limits.keys / 2;
        if is_old || is_full {
            let relaxed = Ordering::Relaxed;
            // The first thread to exchange it begins the next generation.
            if self
                .generation_ms
                .compare_exchange(begun_ms, now_ms.max(begun_ms + 1), relaxed, relaxed)
                .is_ok()
            {
                self.keys.store(0, relaxed);
                return self.generation.fetch_add(1, Ordering::AcqRel) + 1;
            }
        }
        self.generation.load(Ordering::Acquire)
    }

    /// Adds the unreported keys of a lane to the sum, if there are many.
    fn count(&self, memory: &mut Memory) {
        if memory.untold_keys > self.limits.keys / 2 / (8 * LANES as u64) {
            let keys = mem::take(&mut memory.untold_keys);
            self.keys.fetch_add(keys, Ordering::Relaxed);
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a remainder of the number of lanes"
    )]
    fn lane(&self, request: &RequestId) -> &RequestLane {
        let [first, ..] = request.0;
        &self.lanes[usize::from(first) % LANES]
    }
}

impl Memory {
    /// Forgets the requests of generations before the last two.
    fn turn_to(&mut self, generation: u64) {
        if generation <= self.generation {
            return;
        }
        let young = mem::take(&mut self.young);
        self.old = if generation == self.generation + 1 {
            young
        } else {
            HashMap::new()
        };
        self.generation = generation;
        self.untold_keys = 0;
    }

    fn remember(&mut self, name: Name, hashes: Vec<KeyHash>, segment: u64) {
        let request = match self.young.entry(name) {
            // Keeps the segment of its first record: some of its keys can be there.
            Entry::Occupied(request) => request.into_mut(),
            Entry::Vacant(place) => {
                self.untold_keys += KEYS_A_REQUEST;
                let first_added = FirstAdded::default();
                place.insert(Request {
                    first_added,
                    segment,
                })
            }
        };
        self.untold_keys += request.first_added.extend(hashes) as u64;
    }
}

impl RetrySession<'_> {
    /// Returns the id of the request.
    pub fn id(&self) -> RequestId {
        let (_, id) = self.running.name;
        id
    }

    /// Returns whether the request had added a key first before. True only once for each key: if a
    /// key is twice in a batch, the second is answered as seen.
    pub fn has_first_added(&mut self, hash: KeyHash) -> bool {
        self.has_added_first(hash) && self.reported.insert((hash.low, hash.high))
    }

    /// Returns whether the request had added a key first before, however often this is called.
    pub fn has_added_first(&self, hash: KeyHash) -> bool {
        self.first_added
            .iter()
            .any(|first_added| first_added.contains(hash))
    }

    /// Returns whether the request had added any key first before.
    pub fn is_repeated(&self) -> bool {
        !self.first_added.iter().all(FirstAdded::is_empty)
    }

    /// Remembers the keys that the request has added first now. Their record is in `segment` or a
    /// later one.
    pub fn note_first_added(&self, hashes: Vec<KeyHash>, segment: u64) {
        let Running {
            requests,
            name: (filter, request),
        } = self.running;
        requests.remember(
            Remembered {
                filter,
                request,
                hashes,
            },
            segment,
        );
    }
}

impl<'a> Waiting<'a> {
    async fn session(mut self) -> Running<'a> {
        // No sender is dropped before it has sent, unless all requests are dropped.
        let _ = (&mut self.session).await;
        self.has_got_it = true;
        Running {
            requests: self.requests,
            name: self.name,
        }
    }
}

impl Drop for Waiting<'_> {
    /// Passes the session on if it came after the caller had gone away.
    fn drop(&mut self) {
        self.session.close();
        if !self.has_got_it && self.session.try_recv().is_ok() {
            self.requests.leave(&self.name);
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.requests.leave(&self.name);
    }
}

#[cfg(test)]
mod tests;
