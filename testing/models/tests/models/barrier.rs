//! Writes that pass the barrier, and a caller that waits for them.

use std::sync::Arc;

use loom::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};
use seenset_models::engine::modelled::{WriteBarrier, set_stripe};

use super::model;

/// A service that writes like a filter: a write takes a number, and finishes a little later.
#[derive(Default)]
struct Service {
    barrier: WriteBarrier,
    given: AtomicU64,
    /// A bit for each number whose write is finished.
    done: AtomicU64,
}

impl Service {
    fn write(&self) {
        let _permit = self.barrier.pass().unwrap();
        let number = self.given.fetch_add(1, Ordering::AcqRel);
        self.done.fetch_or(1 << number, Ordering::Relaxed);
    }

    fn wait(&self) {
        let numbers = self.given.load(Ordering::Acquire);
        self.barrier.wait_for_writes();
        let all = (1 << numbers) - 1;
        assert_eq!(self.done.load(Ordering::Relaxed) & all, all, "not done");
    }
}

/// Runs the writers on two stripes, so that some share their counters, and waits the given number
/// of times.
fn writes_and_waits(preemptions: usize, writers: usize, waits: usize) {
    model(preemptions, move || {
        let service = Arc::new(Service::default());
        let writers = (0..writers).map(|writer| {
            let service = service.clone();
            thread::spawn(move || {
                set_stripe(writer % 2);
                service.write();
            })
        });
        let writers: Vec<_> = writers.collect();
        (0..waits).for_each(|_| service.wait());
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        service.wait();
    });
}

#[test]
fn what_has_begun_is_done_when_it_has_been_waited_for() {
    writes_and_waits(3, 2, 1);
}

/// A write can use the counters of an epoch that is over.
#[test]
fn however_often_somebody_waits() {
    writes_and_waits(3, 1, 3);
}

#[test]
fn when_it_is_closed_all_is_done_that_will_be() {
    model(3, || {
        let service = Arc::new(Service::default());
        let writer = thread::spawn({
            let service = service.clone();
            move || {
                if let Ok(_permit) = service.barrier.pass() {
                    service.done.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        service.barrier.close();
        let done = service.done.load(Ordering::Relaxed);
        writer.join().unwrap();
        assert_eq!(service.done.load(Ordering::Relaxed), done);
    });
}
