//! Which keys a request has won, so that it is told so again should it be repeated.
//!
//! A caller whose answer was lost repeats its call with the same id. The keys that were new the
//! first time are in the filter by then, and to say "seen" would lose them: nobody would crawl
//! them. So a request with an id is remembered with the hashes of the keys that it has won, and
//! wins them again when it comes again, in whatever batches. What it has not won somebody else
//! has, and is still told to be seen.
//!
//! Requests of one id take turns: or the second might find the bits of the first, and not yet
//! what that has won. A request waits for its turn asynchronously, first come, first served.
//!
//! # What it costs
//!
//! Nothing without an id. With one, a request that wins no key is not remembered; one that does
//! takes 16 bytes a key and some 100 bytes. There are two generations: a new one is begun when
//! the younger has half the [`RequestLimits::keys`] or is half the [`RequestLimits::age`] old,
//! and then the older one is forgotten. What a request wins later belongs to the generation of
//! that time, and the rest of what it has won grows old nevertheless: or one id that is used for
//! ever would keep all its keys, and push out those of all others.
//! `docs/adr/0007-requests.md` says why.

// Said for the models, which compile this file from another place.
#[path = "requests/won.rs"]
mod won;

use std::{
    collections::{HashMap, HashSet, VecDeque, hash_map::Entry},
    mem,
    time::{Duration, Instant},
};

use crossbeam_utils::CachePadded;

use self::won::Won;
use super::EngineError;
use crate::{
    filter::hash::KeyHash,
    store::{FilterId, RequestId},
    sync::{
        Mutex, REQUEST_LANES as LANES,
        atomic::{AtomicU64, Ordering},
        oneshot,
    },
};

/// What a request is counted as, beside its keys: it takes as much memory as this many.
const KEYS_A_REQUEST: u64 = 4;

/// How much is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// The keys of all requests together, each of which counts as four more; 0 to remember none.
    pub keys: u64,
    /// How long.
    pub age: Duration,
}

impl RequestLimits {
    /// What they take of the log at most: the hash of each key, and the records.
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
    /// The most keys that one call may have, and so that one request can win.
    max_call_keys: usize,
    begun: Instant,
    /// The number of the younger generation.
    generation: AtomicU64,
    /// When that was begun, in milliseconds.
    generation_ms: AtomicU64,
    /// The keys in it, but for those that the lanes have yet to tell of.
    keys: AtomicU64,
    lanes: [CachePadded<Lane>; LANES],
}

#[derive(Debug, Default)]
struct Lane {
    memory: Mutex<Memory>,
}

/// A request of one filter.
type Name = (FilterId, RequestId);

#[derive(Debug, Default)]
struct Memory {
    generation: u64,
    young: HashMap<Name, Request>,
    old: HashMap<Name, Request>,
    /// The requests that have their turn, each with the queue of those that wait for the next one.
    running: HashMap<Name, VecDeque<oneshot::Sender<()>>>,
    /// Keys in the younger generation that the others have not been told of.
    untold_keys: u64,
}

/// What a request has won in one generation.
#[derive(Debug)]
struct Request {
    won: Won,
    /// No segment before this one has the newest record of it.
    segment: u64,
}

/// A request that is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    pub filter: FilterId,
    pub request: RequestId,
    pub hashes: Vec<KeyHash>,
}

/// A request that has its turn. Dropping it passes the turn on.
#[derive(Debug)]
struct Running<'a> {
    requests: &'a Requests,
    name: Name,
}

/// A request that waits for its turn.
#[derive(Debug)]
struct Waiting<'a> {
    requests: &'a Requests,
    name: Name,
    turn: oneshot::Receiver<()>,
    has_got_it: bool,
}

/// The turn of a request.
#[derive(Debug)]
pub struct Turn<'a> {
    running: Running<'a>,
    /// What it had won before, in either generation.
    won: [Won; 2],
    /// What of that it has been told again: the halves of the hashes.
    told: HashSet<(u64, u64)>,
}

impl Requests {
    /// Nothing remembered yet, of calls that may have so many keys.
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

    /// How much is remembered.
    pub fn limits(&self) -> RequestLimits {
        self.limits
    }

    /// Whether anything is.
    pub fn is_on(&self) -> bool {
        self.limits.keys > 0 && !self.limits.age.is_zero()
    }

    /// Begins the turn of a request, when others of its id that came before have ended. It must set
    /// its bits while it has it.
    ///
    /// # Errors
    ///
    /// [`EngineError::RequestReused`] if the id is that of many calls: it has won more keys than
    /// one of them can have.
    pub async fn begin(
        &self,
        filter: FilterId,
        request: RequestId,
    ) -> Result<Turn<'_>, EngineError> {
        let running = match self.enter((filter, request)) {
            Ok(running) => running,
            Err(waiting) => waiting.turn().await,
        };
        self.turn_of(running)
    }

    /// Begins the turn of a request if no other of its id has it; `None` otherwise.
    ///
    /// # Errors
    ///
    /// As [`Self::begin`].
    pub fn try_begin(
        &self,
        filter: FilterId,
        request: RequestId,
    ) -> Result<Option<Turn<'_>>, EngineError> {
        let name = (filter, request);
        match self.lane(&request).memory.lock().running.entry(name) {
            Entry::Vacant(place) => place.insert(VecDeque::new()),
            Entry::Occupied(_) => return Ok(None),
        };
        let requests = self;
        self.turn_of(Running { requests, name }).map(Some)
    }

    /// Takes the turn of a request if it is free, and joins the queue otherwise.
    fn enter(&self, name: Name) -> Result<Running<'_>, Waiting<'_>> {
        let (_, request) = &name;
        let requests = self;
        match self.lane(request).memory.lock().running.entry(name) {
            Entry::Vacant(place) => {
                place.insert(VecDeque::new());
                Ok(Running { requests, name })
            }
            Entry::Occupied(mut running) => {
                let (sender, turn) = oneshot::channel();
                let waiting = running.get_mut();
                // Removes waiters that have gone away, seldom enough that a call pays little for it.
                if waiting.len().is_power_of_two() {
                    waiting.retain(|sender| !sender.is_closed());
                }
                waiting.push_back(sender);
                Err(Waiting {
                    requests,
                    name,
                    turn,
                    has_got_it: false,
                })
            }
        }
    }

    /// Passes the turn to the first waiter that is still there.
    fn leave(&self, name: &Name) {
        let (_, request) = name;
        let mut memory = self.lane(request).memory.lock();
        let Entry::Occupied(mut running) = memory.running.entry(*name) else {
            return;
        };
        while let Some(next) = running.get_mut().pop_front() {
            // An error means that it waits no more.
            if next.send(()).is_ok() {
                return;
            }
        }
        running.remove();
    }

    fn turn_of<'a>(&'a self, running: Running<'a>) -> Result<Turn<'a>, EngineError> {
        let name = running.name;
        let (_, request) = &name;
        let mut memory = self.lane(request).memory.lock();
        memory.turn_to(self.generation());
        let Memory { young, old, .. } = &*memory;
        let won = [young, old].map(|generation| {
            let request = generation.get(&name);
            request.map_or_else(Won::default, |request| request.won.clone())
        });
        // It is locked by those that leave.
        drop(memory);
        let (keys, limit) = (won.iter().map(Won::len).sum(), self.max_call_keys);
        if keys > limit {
            return Err(EngineError::RequestReused { keys, limit });
        }
        Ok(Turn {
            running,
            won,
            told: HashSet::new(),
        })
    }

    /// Remembers what a request has won, in addition to what it had.
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

    /// What requests of a filter have won, and those of the same ids of another have not, as theirs.
    pub fn missing(&self, from: FilterId, to: FilterId) -> Vec<Remembered> {
        let mut missing = Vec::new();
        for lane in &self.lanes {
            let mut memory = lane.memory.lock();
            memory.turn_to(self.generation());
            let Memory { young, old, .. } = &*memory;
            let of = |&((filter, _), _): &(&Name, &Request)| *filter == from;
            for (&(_, request), Request { won, .. }) in young.iter().chain(old).filter(of) {
                let name = (to, request);
                let is_there = |hash| {
                    let mut there = [young, old].into_iter().filter_map(|of| of.get(&name));
                    there.any(|request| request.won.contains(hash))
                };
                let hashes: Vec<KeyHash> = won.iter().filter(|&hash| !is_there(hash)).collect();
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

    /// All whose newest record may be in a segment before one.
    pub fn before(&self, segment: u64) -> Vec<Remembered> {
        let mut before = Vec::new();
        self.each_before(segment, |&(filter, request), Request { won, .. }| {
            before.push(Remembered {
                filter,
                request,
                hashes: won.iter().collect(),
            });
        });
        before
    }

    /// Notes that those have been written again, and none is in a segment before one.
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

    /// The generation now.
    fn generation(&self) -> u64 {
        let now_ms = self.begun.elapsed().as_millis() as u64;
        let begun_ms = self.generation_ms.load(Ordering::Relaxed);
        let is_old = now_ms.saturating_sub(begun_ms) >= (self.limits.age / 2).as_millis() as u64;
        let is_full = self.keys.load(Ordering::Relaxed) >= self.limits.keys / 2;
        if is_old || is_full {
            let relaxed = Ordering::Relaxed;
            // Whoever is first begins the next one.
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

    /// Tells the others of the keys in a lane, if they are many.
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
    fn lane(&self, request: &RequestId) -> &Lane {
        let [first, ..] = request.0;
        &self.lanes[usize::from(first) % LANES]
    }
}

impl Memory {
    /// Forgets what is older than two generations.
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
            // Some of it may be in the segment that its first record is in.
            Entry::Occupied(request) => request.into_mut(),
            Entry::Vacant(place) => {
                self.untold_keys += KEYS_A_REQUEST;
                let won = Won::default();
                place.insert(Request { won, segment })
            }
        };
        self.untold_keys += request.won.extend(hashes) as u64;
    }
}

impl Turn<'_> {
    /// The id of the request.
    pub fn id(&self) -> RequestId {
        let (_, id) = self.running.name;
        id
    }

    /// Whether it had won a key before. Of one key this is true once: where it stands twice in a
    /// batch, the second is seen.
    pub fn has_won(&mut self, hash: KeyHash) -> bool {
        self.has_ever_won(hash) && self.told.insert((hash.low, hash.high))
    }

    /// Whether it had won a key before, however often it is told so.
    pub fn has_ever_won(&self, hash: KeyHash) -> bool {
        self.won.iter().any(|won| won.contains(hash))
    }

    /// Whether it had won anything before.
    pub fn is_repeated(&self) -> bool {
        !self.won.iter().all(Won::is_empty)
    }

    /// Notes what it has won now, which is in no segment of the log before one.
    pub fn win(&self, hashes: Vec<KeyHash>, segment: u64) {
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
    async fn turn(mut self) -> Running<'a> {
        // No sender is dropped before it has sent, but with the requests.
        let _ = (&mut self.turn).await;
        self.has_got_it = true;
        Running {
            requests: self.requests,
            name: self.name,
        }
    }
}

impl Drop for Waiting<'_> {
    /// Passes the turn on if it came after the caller had gone away.
    fn drop(&mut self) {
        self.turn.close();
        if !self.has_got_it && self.turn.try_recv().is_ok() {
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
