//! Callers whose keys go to the server in one batch, and what each of them waits for.
//!
//! A channel and a string for each would be most of what a call costs. So the callers of a batch
//! share one list of [seats](Seat), and their keys lie one behind the other.

use std::{
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use crate::{batch::KeyBatch, error::Error};

/// Those whose keys go in one batch. Whom nobody tells anything is told that the stream has
/// ended.
#[derive(Default)]
pub(super) struct Callers {
    keys: KeyBatch,
    /// The seat of the caller of each key.
    places: Vec<usize>,
    seats: Arc<Seats>,
}

/// What one caller waits for.
enum Seat {
    /// An answer, and to be woken by it.
    Waiting(Waker),
    Told(Result<bool, Box<Error>>),
    /// Nothing any more: the call was cancelled.
    Left,
}

#[derive(Default)]
struct Seats(Mutex<Vec<Seat>>);

impl Seats {
    fn lock(&self) -> MutexGuard<'_, Vec<Seat>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Callers {
    /// Takes one more, who is woken when there is an answer.
    pub fn join(&mut self, key: &[u8], waker: &Waker) -> Answer {
        let mut seats = self.seats.lock();
        let place = seats.len();
        seats.push(Seat::Waiting(waker.clone()));
        drop(seats);
        self.keys.push(key);
        self.places.push(place);
        Answer {
            seats: Arc::clone(&self.seats),
            place,
            is_told: false,
        }
    }

    /// Their keys, in the order of the answers.
    pub fn keys(&self) -> &KeyBatch {
        &self.keys
    }

    /// Leaves out those that have left.
    pub fn leave_out_who_left(&mut self) {
        let seats = self.seats.lock();
        let waits = |place: &usize| matches!(seats.get(*place), Some(Seat::Waiting(_)));
        if !self.places.iter().all(waits) {
            let places = self.places.iter().copied();
            let waiting = self.keys.iter().zip(places).filter(|(_, at)| waits(at));
            (self.keys, self.places) = waiting.unzip();
        }
    }

    /// Those behind the first `count`, for themselves.
    pub fn split_off(&mut self, count: usize) -> Self {
        let behind = Self {
            keys: self.keys.iter().skip(count).collect(),
            places: self.places.split_off(count.min(self.places.len())),
            seats: Arc::clone(&self.seats),
        };
        self.keys = self.keys.iter().take(count).collect();
        behind
    }

    /// Tells each its own answer.
    pub fn tell(mut self, seen: Vec<bool>) {
        self.tell_all(seen.into_iter().map(Ok));
    }

    /// Tells all the same.
    pub fn fail(mut self, error: &Error) {
        self.fail_all(error);
    }

    fn fail_all(&mut self, error: &Error) {
        self.tell_all(std::iter::repeat_with(|| Err(Box::new(error.clone()))));
    }

    fn tell_all(&mut self, answers: impl Iterator<Item = Result<bool, Box<Error>>>) {
        let mut wakers = Vec::with_capacity(self.places.len());
        let mut seats = self.seats.lock();
        for (place, answer) in self.places.drain(..).zip(answers) {
            if let Some(seat) = seats.get_mut(place)
                && let Seat::Waiting(_) = seat
                && let Seat::Waiting(waker) = mem::replace(seat, Seat::Told(answer))
            {
                wakers.push(waker);
            }
        }
        // Who wakes on another thread looks at the seats at once.
        drop(seats);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Callers {
    fn drop(&mut self) {
        if !self.places.is_empty() {
            self.fail_all(&Error::StreamClosed);
        }
    }
}

/// What a caller is told, sooner or later. Dropping it gives the call up.
pub(super) struct Answer {
    seats: Arc<Seats>,
    place: usize,
    /// Whether it has been told, and has no call left to give up.
    is_told: bool,
}

impl Future for Answer {
    type Output = Result<bool, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waker = context.waker();
        let answer = self.get_mut();
        let mut seats = answer.seats.lock();
        let told = match seats.get_mut(answer.place) {
            Some(Seat::Waiting(same)) if same.will_wake(waker) => return Poll::Pending,
            Some(Seat::Waiting(waiting)) => {
                let before = mem::replace(waiting, waker.clone());
                // It may be the last that knows of a task.
                drop(seats);
                drop(before);
                return Poll::Pending;
            }
            Some(Seat::Told(Ok(seen))) => Ok(*seen),
            Some(Seat::Told(Err(error))) => Err(Error::clone(error)),
            Some(Seat::Left) | None => Err(Error::StreamClosed),
        };
        answer.is_told = true;
        Poll::Ready(told)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.is_told {
            return;
        }
        let mut seats = self.seats.lock();
        if let Some(seat @ Seat::Waiting(_)) = seats.get_mut(self.place) {
            let waker = mem::replace(seat, Seat::Left);
            // As above.
            drop(seats);
            drop(waker);
        }
    }
}
