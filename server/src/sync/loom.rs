//! Loom's locks and atomics, behind the names and methods of the server's.
#![allow(missing_docs, clippy::unwrap_used, reason = "for tests only")]

use std::{
    cell::Cell,
    ops::{Deref, DerefMut},
    pin::Pin,
    sync::{LockResult, TryLockResult},
    task::{Context, Poll},
    time::Duration,
};

pub use loom::sync::atomic;

/// Two stripes: enough for threads that share a stripe and for threads that do not.
pub fn stripes() -> usize {
    2
}

loom::thread_local! {
    static STRIPE: Cell<usize> = Cell::new(0);
}

/// Chooses which of two stripes this thread uses.
pub fn set_stripe(stripe: usize) {
    STRIPE.with(|own| own.set(stripe));
}

pub fn number_of_this_thread() -> usize {
    STRIPE.with(Cell::get)
}

pub const REQUEST_LANES: usize = 2;

/// The length of a lease. Threads that take one version twice already meet the others.
pub const LEASE: u64 = 2;

/// The time of a clock that stands still.
#[derive(Debug, Clone, Copy)]
pub struct Instant;

impl Instant {
    pub fn now() -> Self {
        Self
    }

    pub fn duration_since(self, _: Self) -> Duration {
        Duration::ZERO
    }
}

/// Returns the same number on every machine.
pub fn cores() -> usize {
    1
}

pub mod thread {
    use std::{sync::Arc, time::Duration};

    use super::{Condvar, Mutex};

    loom::thread_local! {
        static CURRENT: Thread = Thread::default();
    }

    /// A replacement for loom's thread: loom's `unpark` wakes a thread even if it waits for a lock.
    #[derive(Debug, Clone, Default)]
    pub struct Thread(Arc<(Mutex<bool>, Condvar)>);

    impl Thread {
        pub fn unpark(&self) {
            let (token, told) = &*self.0;
            *token.lock() = true;
            told.notify_all();
        }

        fn park(&self) {
            let (token, told) = &*self.0;
            let mut token = token.lock();
            while !*token {
                told.wait(&mut token);
            }
            *token = false;
        }
    }

    pub fn current() -> Thread {
        CURRENT.with(Thread::clone)
    }

    pub fn park() {
        current().park();
    }

    /// Waits without a timeout. Time does not pass in a model: a thread is woken, or it waits for
    /// ever.
    pub fn park_timeout(_: Duration) {
        park();
    }
}

/// A mutex without poison.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap()))
    }
}

/// A mutex guard, `None` while a [`Condvar`] has it.
#[derive(Debug)]
pub struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().unwrap()
    }
}

#[derive(Debug, Default)]
pub struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let own = guard.0.take().unwrap();
        guard.0 = Some(self.0.wait(own).unwrap());
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A lock of which parts can be handed out. Loom's lock decides which thread has it. The server's
/// own lock is nested in it and hands out the parts; no thread ever waits for that one. The two are
/// in a box to keep the type small: the server's lock takes only a few words.
#[derive(Debug)]
pub struct RwLock<T>(Box<(loom::sync::RwLock<()>, parking_lot::RwLock<T>)>);

/// The guard of the server's lock, and the guard of loom's lock, which is dropped last.
#[derive(Debug)]
pub struct Guard<V, O> {
    value: V,
    _order: O,
}

type Reading<'a> = loom::sync::RwLockReadGuard<'a, ()>;
type Writing<'a> = loom::sync::RwLockWriteGuard<'a, ()>;

pub type RwLockReadGuard<'a, T> = Guard<parking_lot::RwLockReadGuard<'a, T>, Reading<'a>>;
pub type RwLockWriteGuard<'a, T> = Guard<parking_lot::RwLockWriteGuard<'a, T>, Writing<'a>>;
pub type MappedRwLockReadGuard<'a, T> =
    Guard<parking_lot::MappedRwLockReadGuard<'a, T>, Reading<'a>>;
pub type MappedRwLockWriteGuard<'a, T> =
    Guard<parking_lot::MappedRwLockWriteGuard<'a, T>, Writing<'a>>;

impl<T> RwLock<T> {
    pub fn new(value: T) -> Self {
        let order = loom::sync::RwLock::new(());
        Self(Box::new((order, parking_lot::RwLock::new(value))))
    }

    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let (order, value) = &*self.0;
        let _order = order.read().unwrap();
        let value = value.try_read().unwrap();
        Guard { value, _order }
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let (order, value) = &*self.0;
        let _order = order.write().unwrap();
        let value = value.try_write().unwrap();
        Guard { value, _order }
    }

    pub fn get_mut(&mut self) -> &mut T {
        let (_, value) = &mut *self.0;
        value.get_mut()
    }
}

impl<'a, T> RwLockReadGuard<'a, T> {
    pub fn map<U>(guard: Self, part: impl FnOnce(&T) -> &U) -> MappedRwLockReadGuard<'a, U> {
        let Self { value, _order } = guard;
        let value = parking_lot::RwLockReadGuard::map(value, part);
        Guard { value, _order }
    }
}

impl<'a, T> RwLockWriteGuard<'a, T> {
    pub fn map<U>(
        guard: Self,
        part: impl FnOnce(&mut T) -> &mut U,
    ) -> MappedRwLockWriteGuard<'a, U> {
        let Self { value, _order } = guard;
        let value = parking_lot::RwLockWriteGuard::map(value, part);
        Guard { value, _order }
    }
}

impl<'a, T> MappedRwLockReadGuard<'a, T> {
    pub fn try_map<U>(
        guard: Self,
        part: impl FnOnce(&T) -> Option<&U>,
    ) -> Result<MappedRwLockReadGuard<'a, U>, Self> {
        let Self { value, _order } = guard;
        match parking_lot::MappedRwLockReadGuard::try_map(value, part) {
            Ok(value) => Ok(Guard { value, _order }),
            Err(value) => Err(Guard { value, _order }),
        }
    }
}

impl<'a, T> MappedRwLockWriteGuard<'a, T> {
    pub fn try_map<U>(
        guard: Self,
        part: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedRwLockWriteGuard<'a, U>, Self> {
        let Self { value, _order } = guard;
        match parking_lot::MappedRwLockWriteGuard::try_map(value, part) {
            Ok(value) => Ok(Guard { value, _order }),
            Err(value) => Err(Guard { value, _order }),
        }
    }
}

impl<V: Deref, O> Deref for Guard<V, O> {
    type Target = V::Target;

    fn deref(&self) -> &V::Target {
        &self.value
    }
}

impl<V: DerefMut, O> DerefMut for Guard<V, O> {
    fn deref_mut(&mut self) -> &mut V::Target {
        &mut self.value
    }
}

/// A notification. In a model no thread sleeps on it; the tests check whether it was sent.
#[derive(Debug, Default)]
pub struct Notify(atomic::AtomicBool);

impl Notify {
    pub fn notify_waiters(&self) {
        self.0.store(true, atomic::Ordering::Relaxed);
    }

    pub fn was_told(&self) -> bool {
        self.0.load(atomic::Ordering::Relaxed)
    }

    pub fn notified(&self) -> Notified<'_> {
        Notified(self)
    }
}

/// A wait for a notification.
#[derive(Debug)]
pub struct Notified<'a>(&'a Notify);

impl Notified<'_> {
    pub fn enable(self: Pin<&mut Self>) -> bool {
        self.0.was_told()
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        match self.0.was_told() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

#[derive(Debug, Default)]
pub struct ShardedLock<T>(loom::sync::RwLock<T>);

pub type ShardedLockReadGuard<'a, T> = loom::sync::RwLockReadGuard<'a, T>;
pub type ShardedLockWriteGuard<'a, T> = loom::sync::RwLockWriteGuard<'a, T>;

impl<T> ShardedLock<T> {
    pub fn read(&self) -> LockResult<ShardedLockReadGuard<'_, T>> {
        self.0.read()
    }

    pub fn write(&self) -> LockResult<ShardedLockWriteGuard<'_, T>> {
        self.0.write()
    }

    pub fn try_read(&self) -> TryLockResult<ShardedLockReadGuard<'_, T>> {
        self.0.try_read()
    }

    pub fn try_write(&self) -> TryLockResult<ShardedLockWriteGuard<'_, T>> {
        self.0.try_write()
    }
}

pub mod oneshot {
    use std::{
        pin::Pin,
        sync::Arc,
        task::{Context, Poll},
    };

    use loom::future::AtomicWaker;

    use super::Mutex;

    /// The error if nothing was sent, or nothing will be received.
    #[derive(Debug)]
    pub struct Nothing;

    #[derive(Debug)]
    enum State<T> {
        Empty,
        Sent(T),
        Closed,
    }

    #[derive(Debug)]
    struct Shared<T> {
        state: Mutex<State<T>>,
        waker: AtomicWaker,
    }

    #[derive(Debug)]
    pub struct Sender<T>(Arc<Shared<T>>);

    #[derive(Debug)]
    pub struct Receiver<T>(Arc<Shared<T>>);

    pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::Empty),
            waker: AtomicWaker::new(),
        });
        (Sender(shared.clone()), Receiver(shared))
    }

    impl<T> Sender<T> {
        pub fn is_closed(&self) -> bool {
            matches!(*self.0.state.lock(), State::Closed)
        }

        pub fn send(self, value: T) -> Result<(), T> {
            let Self(shared) = self;
            {
                let mut state = shared.state.lock();
                if matches!(*state, State::Closed) {
                    return Err(value);
                }
                *state = State::Sent(value);
            }
            shared.waker.wake();
            Ok(())
        }
    }

    impl<T> Receiver<T> {
        pub fn close(&mut self) {
            let mut state = self.0.state.lock();
            if matches!(*state, State::Empty) {
                *state = State::Closed;
            }
        }

        pub fn try_recv(&mut self) -> Result<T, Nothing> {
            let mut state = self.0.state.lock();
            match std::mem::replace(&mut *state, State::Closed) {
                State::Sent(value) => Ok(value),
                other => {
                    *state = other;
                    Err(Nothing)
                }
            }
        }
    }

    impl<T> Future for Receiver<T> {
        type Output = Result<T, Nothing>;

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
            self.0.waker.register_by_ref(cx.waker());
            match self.try_recv() {
                Ok(value) => Poll::Ready(Ok(value)),
                Err(Nothing) => Poll::Pending,
            }
        }
    }
}
