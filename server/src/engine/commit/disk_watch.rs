//! Detects a disk that hangs: a system call of the log that neither returns nor fails.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// The disk calls in progress, of both threads of the log.
#[derive(Debug)]
pub struct DiskWatch {
    begun: Instant,
    /// The start of the call of each thread, in milliseconds plus one; 0 if the thread is in no
    /// call.
    calls: [AtomicU64; 2],
}

/// A thread of the log.
#[derive(Debug, Clone, Copy)]
pub enum Caller {
    Writer,
    SegmentWorker,
}

/// A disk call in progress, or a sequence of them.
#[derive(Debug)]
pub struct Calling<'a> {
    watch: &'a DiskWatch,
    call: &'a AtomicU64,
}

impl Default for DiskWatch {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            calls: Default::default(),
        }
    }
}

impl DiskWatch {
    /// Marks a thread as in a disk call until the guard is dropped.
    pub fn call(&self, caller: Caller) -> Calling<'_> {
        let [writer, segment_worker] = &self.calls;
        let call = match caller {
            Caller::Writer => writer,
            Caller::SegmentWorker => segment_worker,
        };
        let calling = Calling { watch: self, call };
        calling.answered();
        calling
    }

    /// Returns the time for which the oldest call has been in progress.
    pub fn silence(&self) -> Duration {
        let now = self.now();
        let begun = self.calls.iter().map(|call| call.load(Ordering::Relaxed));
        let oldest = begun.filter(|&begun| begun > 0).min();
        Duration::from_millis(oldest.map_or(0, |begun| now.saturating_sub(begun)))
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64 + 1
    }
}

impl Calling<'_> {
    /// Restarts the time: one call has returned, and the next one begins.
    pub fn answered(&self) {
        self.call.store(self.watch.now(), Ordering::Relaxed);
    }
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.call.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    #[test]
    fn a_call_that_is_not_answered_is_silence() {
        let (watch, some) = (DiskWatch::default(), Duration::from_millis(20));
        sleep(some);
        assert_eq!(watch.silence(), Duration::ZERO);
        let segment_worker = watch.call(Caller::SegmentWorker);
        let writer = watch.call(Caller::Writer);
        sleep(some);
        writer.answered();
        assert!(watch.silence() >= some);
        drop(segment_worker);
        assert!(watch.silence() < some);
        sleep(some);
        assert!(watch.silence() >= some);
        drop(writer);
        assert_eq!(watch.silence(), Duration::ZERO);
    }
}
