//! Which waiters are woken, and by which thread.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Wake,
};

use crate::engine::commit::watermark::Watermark;

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn each_is_woken_for_its_own_version_by_one_of_its_thread() {
    let watermark = Watermark::new(1);
    let woken: [Arc<Woken>; 6] = Default::default();
    let counts = || {
        woken
            .each_ref()
            .map(|woken| woken.0.load(Ordering::Relaxed))
    };
    let waiter = |version, woken: &Arc<Woken>| {
        let mut waiter = watermark.waiter(version);
        waiter.wait(&woken.clone().into());
        waiter
    };
    let first = waiter(3, &woken[0]);
    let mut second = waiter(5, &woken[1]);
    let third = waiter(5, &woken[2]);
    let later = waiter(9, &woken[3]);
    let given_up = waiter(4, &woken[4]);
    // A waiter of another thread.
    let other = std::thread::scope(|scope| {
        let other = scope.spawn(|| waiter(5, &woken[5]));
        other.join().unwrap()
    });
    watermark.move_to(2);
    assert_eq!(counts(), [0, 0, 0, 0, 0, 0]);
    drop(given_up);
    assert_eq!(counts(), [0, 0, 0, 0, 0, 0]);
    watermark.move_to(5);
    assert_eq!(counts(), [1, 0, 0, 0, 0, 1]);
    drop(first);
    assert_eq!(counts(), [1, 1, 1, 0, 0, 1]);
    // A waiter that checked again in vain.
    second.wait(&woken[1].clone().into());
    watermark.wake_all();
    assert_eq!(counts(), [1, 2, 1, 1, 0, 1]);
    drop((second, third, later, other));
    assert!(
        watermark
            .queues
            .iter()
            .all(|queue| queue.lock().wakers.is_empty())
    );
}

/// A waiter that should wake the others can be cancelled instead.
#[test]
fn one_that_gives_up_tells_the_others() {
    let watermark = Watermark::new(0);
    let woken: [Arc<Woken>; 2] = Default::default();
    let mut waiters = woken.each_ref().map(|_| watermark.waiter(1));
    for (waiter, woken) in waiters.iter_mut().zip(&woken) {
        waiter.wait(&woken.clone().into());
    }
    watermark.move_to(1);
    let [first, _second] = waiters;
    drop(first);
    assert_eq!(woken[1].0.load(Ordering::Relaxed), 1);
}
