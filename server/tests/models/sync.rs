//! The server's `sync`, as loom has it.

use std::sync::LockResult;

pub use loom::sync::atomic;

/// Enough for threads that share one and threads that do not.
pub const STRIPES: usize = 2;

pub mod thread {
    use std::time::Duration;

    pub use loom::thread::{Thread, park};

    /// Time does not pass in a model: whoever waits is woken, or waits for ever.
    pub fn park_timeout(_: Duration) {
        park();
    }
}

/// Without poison.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

/// Nobody sleeps on it in a model; whether it was told of is what counts.
#[derive(Debug, Default)]
pub struct Notify(atomic::AtomicBool);

impl Notify {
    pub fn notify_waiters(&self) {
        self.0.store(true, atomic::Ordering::Relaxed);
    }

    pub fn was_told(&self) -> bool {
        self.0.load(atomic::Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub struct ShardedLock<T>(loom::sync::RwLock<T>);

pub type ShardedLockReadGuard<'a, T> = loom::sync::RwLockReadGuard<'a, T>;

impl<T> ShardedLock<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::RwLock::new(value))
    }

    pub fn read(&self) -> LockResult<ShardedLockReadGuard<'_, T>> {
        self.0.read()
    }

    pub fn write(&self) -> LockResult<loom::sync::RwLockWriteGuard<'_, T>> {
        self.0.write()
    }
}
