//! The callers whose keys go to the server in one batch, and the answer that each waits for.
//!
//! A channel and a string for each caller would be most of the cost of a call. So the callers of a
//! batch share one list of [seats](Seat), and their keys are stored one after the other.

use std::{
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use crate::{batch::KeyBatch, error::Error};

/// The callers whose keys go in one batch. When it is dropped, callers without an answer get the
/// error that the stream has ended.
#[derive(Default)]
pub(super) struct Callers {
    keys: KeyBatch,
    /// The index of the seat of each key's caller.
    places: Vec<usize>,
    seats: Arc<Seats>,
}

/// The state of one caller.
enum Seat {
    /// Waits for an answer, and has to be woken by it.
    Waiting(Waker),
    Answered(Result<bool, Box<Error>>),
    /// The call was cancelled, so no answer is needed.
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
    /// Adds a caller, which is woken when it has an answer.
    pub fn join(&mut self, key: &[u8], waker: &Waker) -> PendingAnswer {
        let mut seats = self.seats.lock();
        let place = seats.len();
        seats.push(Seat::Waiting(waker.clone()));
        drop(seats);
        self.keys.push(key);
        self.places.push(place);
        PendingAnswer {
            seats: Arc::clone(&self.seats),
            place,
            is_taken: false,
        }
    }

    /// Returns the keys of the callers, in the order of the answers.
    pub fn keys(&self) -> &KeyBatch {
        &self.keys
    }

    /// Drops the keys of cancelled calls.
    pub fn leave_out_who_left(&mut self) {
        let seats = self.seats.lock();
        let waits = |place: &usize| matches!(seats.get(*place), Some(Seat::Waiting(_)));
        if !self.places.iter().all(waits) {
            let places = self.places.iter().copied();
            let waiting = self.keys.iter().zip(places).filter(|(_, at)| waits(at));
            (self.keys, self.places) = waiting.unzip();
        }
    }

    /// Splits off the callers after the first `count` and returns them.
    pub fn split_off(&mut self, count: usize) -> Self {
        let behind = Self {
            keys: self.keys.iter().skip(count).collect(),
            places: self.places.split_off(count.min(self.places.len())),
            seats: Arc::clone(&self.seats),
        };
        self.keys = self.keys.iter().take(count).collect();
        behind
    }

    /// Gives each caller its own answer.
    pub fn answer(mut self, seen: Vec<bool>) {
        self.answer_all(seen.into_iter().map(Ok));
    }

    /// Gives all callers the same error.
    pub fn fail(mut self, error: &Error) {
        self.fail_all(error);
    }

    fn fail_all(&mut self, error: &Error) {
        self.answer_all(std::iter::repeat_with(|| Err(Box::new(error.clone()))));
    }

    fn answer_all(&mut self, answers: impl Iterator<Item = Result<bool, Box<Error>>>) {
        let mut wakers = Vec::with_capacity(self.places.len());
        let mut seats = self.seats.lock();
        for (place, answer) in self.places.drain(..).zip(answers) {
            if let Some(seat) = seats.get_mut(place)
                && let Seat::Waiting(_) = seat
                && let Seat::Waiting(waker) = mem::replace(seat, Seat::Answered(answer))
            {
                wakers.push(waker);
            }
        }
        // A caller that wakes on another thread locks the seats at once.
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

/// The pending answer of a caller. Dropping it cancels the call.
pub(super) struct PendingAnswer {
    seats: Arc<Seats>,
    place: usize,
    /// `poll` has returned the answer, so dropping this cancels nothing.
    is_taken: bool,
}

impl Future for PendingAnswer {
    type Output = Result<bool, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waker = context.waker();
        let answer = self.get_mut();
        let mut seats = answer.seats.lock();
        let result = match seats.get_mut(answer.place) {
            Some(Seat::Waiting(same)) if same.will_wake(waker) => return Poll::Pending,
            Some(Seat::Waiting(waiting)) => {
                let before = mem::replace(waiting, waker.clone());
                // It can be the last reference to a task, so it is dropped without the lock.
                drop(seats);
                drop(before);
                return Poll::Pending;
            }
            Some(Seat::Answered(Ok(seen))) => Ok(*seen),
            Some(Seat::Answered(Err(error))) => Err(Error::clone(error)),
            Some(Seat::Left) | None => Err(Error::StreamClosed),
        };
        answer.is_taken = true;
        Poll::Ready(result)
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        let mut seats = self.seats.lock();
        if let Some(seat @ Seat::Waiting(_)) = seats.get_mut(self.place) {
            let waker = mem::replace(seat, Seat::Left);
            // The same as above.
            drop(seats);
            drop(waker);
        }
    }
}
