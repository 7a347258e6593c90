//! All orders in which a few threads meet. A model fails if an assertion fails in any order, or if
//! all threads wait.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test that fails says so"
)]

mod barrier;
mod bit_budget;
mod calls;
mod filter;
mod turns;
mod versions;

use std::{
    future::Future,
    iter,
    pin::pin,
    task::{Context, Poll},
};

use loom::{
    future::block_on,
    model::Builder,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use seenset_models::{
    engine::modelled::{Parker, WalQueues, Watermark, set_stripe},
    filter::hash::KeyHash,
    store::{FilterId, RecordHead},
};

/// Tries all orders with up to `preemptions` interruptions of a thread that could continue. More
/// interruptions find almost nothing new, and the number of orders grows without end.
fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(run);
}

/// Returns the number of interruptions for a model that has very many orders: 2, or 3 if the
/// variable `SEENSET_MODELS` is `long`.
fn reduced_preemptions() -> usize {
    match std::env::var("SEENSET_MODELS").as_deref() {
        Ok("long") => 3,
        _ => 2,
    }
}

async fn reached(watermark: &Watermark, version: u64) {
    let never = || Ok::<_, std::convert::Infallible>(());
    let Ok(()) = watermark.reached(version, never).await;
}

/// No caller waits for ever for a version that is reached. Each caller waits on a thread of its
/// own, or on one that others wait on too.
#[test]
fn each_who_waits_is_woken() {
    for stripes in [[0, 0], [0, 1]] {
        model(reduced_preemptions(), move || {
            let watermark = Arc::new(Watermark::new(0));
            let waiting = stripes.into_iter().zip([1, 2]).map(|(stripe, version)| {
                let watermark = watermark.clone();
                thread::spawn(move || {
                    set_stripe(stripe);
                    block_on(reached(&watermark, version));
                    assert!(watermark.has_reached(version));
                })
            });
            let waiting: Vec<_> = waiting.collect();
            watermark.move_to(1);
            watermark.move_to(2);
            waiting
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
        });
    }
}

/// A waiter is woken to wake the others, and gives up instead of looking.
#[test]
fn one_that_gives_up_leaves_nobody_waiting() {
    model(3, || {
        let watermark = Arc::new(Watermark::new(0));
        let staying = thread::spawn({
            let watermark = watermark.clone();
            move || block_on(reached(&watermark, 1))
        });
        let leaving = thread::spawn({
            let watermark = watermark.clone();
            move || {
                let mut waiting = Box::pin(reached(&watermark, 1));
                block_on(std::future::poll_fn(|context: &mut Context<'_>| {
                    let _ = pin!(&mut waiting).poll(context);
                    Poll::Ready(())
                }));
            }
        });
        watermark.move_to(1);
        staying.join().unwrap();
        leaving.join().unwrap();
    });
}

/// A caller that leaves work and then wakes the parker gets the work done.
#[test]
fn no_work_is_slept_through() {
    model(4, || {
        let parker = Arc::new(Parker::default());
        let work = Arc::new(AtomicBool::new(false));
        let sleeping = thread::spawn({
            let (parker, work) = (parker.clone(), work.clone());
            move || {
                while !work.load(Ordering::Relaxed) {
                    parker.sleep(|| !work.load(Ordering::Relaxed), None);
                }
            }
        });
        work.store(true, Ordering::Relaxed);
        parker.wake();
        sleeping.join().unwrap();
    });
}

/// The log thread receives each item that calls hand over exactly once, and does not sleep through
/// any.
#[test]
fn what_is_handed_over_is_taken() {
    for stripes in [[0, 0], [0, 1]] {
        model(2, move || {
            let queues = Arc::new(WalQueues::new(64 << 10));
            queues.add_space(32 << 10);
            let parker = Arc::new(Parker::default());
            let writer = thread::spawn({
                let (queues, parker) = (queues.clone(), parker.clone());
                move || {
                    let (mut filled, mut ends) = (Vec::new(), Vec::new());
                    while ends.len() < 2 {
                        queues.take(&mut filled, &mut ends);
                        if ends.len() < 2 {
                            parker.sleep(|| queues.is_empty(), None);
                        }
                    }
                    let mut versions: Vec<u64> = ends.iter().map(|end| end.version).collect();
                    versions.sort_unstable();
                    assert_eq!(versions, [1, 2]);
                    let batches = filled.iter().map(|filled| filled.batch.records().count());
                    assert_eq!(batches.sum::<usize>(), 2);
                }
            });
            let call = move |queues: &WalQueues, parker: &Parker, version: u64, stripe: usize| {
                set_stripe(stripe);
                let mut reservation = queues.reserve(1, 1).unwrap();
                let hash = KeyHash {
                    low: version,
                    high: version,
                };
                let head = RecordHead::added(FilterId(1), version);
                queues.append(&mut reservation, &head, 1, iter::once(hash));
                parker.wake();
            };
            let other = thread::spawn({
                let (queues, parker) = (queues.clone(), parker.clone());
                move || call(&queues, &parker, 1, stripes[0])
            });
            call(&queues, &parker, 2, stripes[1]);
            other.join().unwrap();
            writer.join().unwrap();
        });
    }
}

/// A caller that finds no room is notified when others give room back, to any queue.
#[test]
fn room_that_is_given_back_is_told_of() {
    for stripes in [[0, 0], [0, 1]] {
        model(3, move || {
            let queues = Arc::new(WalQueues::new(64 << 10));
            // The room is enough for one key, not for two.
            queues.add_space(100);
            let other = thread::spawn({
                let queues = queues.clone();
                move || {
                    set_stripe(stripes[0]);
                    drop(queues.reserve(1, 1));
                }
            });
            set_stripe(stripes[1]);
            let waiting = queues.wait();
            let found = queues.reserve(1, 1).is_some();
            other.join().unwrap();
            assert!(found || queues.more_space.was_told());
            drop(waiting);
            assert!(queues.reserve(1, 1).is_some());
        });
    }
}

/// The queues never give out more room than they have.
#[test]
fn room_is_given_once() {
    model(3, || {
        let queues = Arc::new(WalQueues::new(64 << 10));
        // The room is enough for one key, not for two.
        queues.add_space(100);
        let reserve = |stripe| {
            let queues = queues.clone();
            thread::spawn(move || {
                set_stripe(stripe);
                let reservation = queues.reserve(1, 1);
                let is_there = reservation.is_some();
                // The reservation is kept for ever: room without an append would be given back.
                std::mem::forget(reservation);
                is_there
            })
        };
        let callers = [reserve(0), reserve(1)];
        let given = callers.map(|caller| caller.join().unwrap());
        assert!(given.into_iter().filter(|&given| given).count() <= 1);
    });
}
