//! Tests of the limits, and of the choice of the connection that is closed.

use std::{
    future::poll_fn,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Wake},
};

use futures_util::FutureExt;

use super::*;

const MIB: usize = 1 << 20;

/// Returns a budget of which one connection may have half.
fn memory() -> ClientMemory {
    ClientMemory::new(2 * LEAST_CONNECTION_BYTES)
}

#[test]
fn what_is_given_back_is_free() {
    let memory = memory();
    let connection = memory.connection();
    assert_eq!(connection.held_bytes(), CONNECTION_BYTES);
    let mut first = connection.charge(MIB).unwrap();
    let second = connection.charge_always(3 * MIB);
    assert_eq!(connection.held_bytes(), CONNECTION_BYTES + 4 * MIB);
    assert!(memory.held_bytes() >= 4 * MIB);
    first.try_set(2 * MIB).unwrap();
    first.set(5);
    drop(second);
    assert_eq!(connection.held_bytes(), CONNECTION_BYTES + 5);
    memory.tick();
    assert_eq!(memory.held_bytes(), 2 * STEP_BYTES);
    drop((first, connection));
    assert_eq!(memory.held_bytes(), 0);
}

#[test]
fn a_connection_has_a_limit() {
    let memory = memory();
    let connection = memory.connection();
    let mut most = connection.charge(LEAST_CONNECTION_BYTES - MIB).unwrap();
    let held_bytes = connection.held_bytes();
    let expected = MemoryError::Connection {
        wanted_bytes: held_bytes + MIB,
        limit_bytes: LEAST_CONNECTION_BYTES,
    };
    assert_eq!(connection.charge(MIB).unwrap_err(), expected);
    assert_eq!(most.try_set(LEAST_CONNECTION_BYTES).unwrap_err(), expected);
    assert_eq!(connection.held_bytes(), held_bytes);
    // A charge that must be made is made above the limit.
    let past = connection.charge_always(MIB);
    assert_eq!(connection.held_bytes(), held_bytes + MIB);
    drop((most, past));
    connection.charge(LEAST_CONNECTION_BYTES - MIB).unwrap();
    assert!(!connection.is_closing());
}

#[test]
fn the_connection_is_closed_that_holds_most_for_the_longest_time() {
    let memory = memory();
    let [old, busy, small, idle] = [(); 4].map(|()| memory.connection());
    for _ in 0..1000 {
        memory.tick();
    }
    let _old = old.charge(20 * MIB).unwrap();
    memory.tick();
    memory.tick();
    let mut used = busy.charge(30 * MIB).unwrap();
    // It gives something back in each tick, and takes it again.
    for _ in 0..10 {
        used.set(20 * MIB);
        used.set(30 * MIB);
        memory.tick();
    }
    let _little = small.charge(MIB / 2).unwrap();
    assert!(!old.is_closing());
    // With one more connection there is not enough memory for all.
    let fourth = memory.connection();
    let refused = fourth.charge(20 * MIB);
    assert!(old.is_closing() && !busy.is_closing() && !small.is_closing());
    assert!(!idle.is_closing());
    // Its memory counts as free, because it soon is.
    let _more = match refused {
        Ok(charge) => charge,
        Err(_) => fourth.charge(20 * MIB).unwrap(),
    };
    assert!(!busy.is_closing() && !small.is_closing() && !fourth.is_closing());
}

#[test]
fn a_connection_that_holds_little_is_never_refused() {
    let memory = memory();
    let holders: Vec<_> = (0..4)
        .map(|_| {
            let connection = memory.connection();
            connection.charge_always(20 * MIB)
        })
        .collect();
    let small = memory.connection();
    let charge = small.charge(ALWAYS_BYTES / 2).unwrap();
    let refused = small.charge(ALWAYS_BYTES);
    // The connection that holds most makes room for it.
    assert!(holders.iter().any(|charge| charge.connection.is_closing()));
    assert!(!small.is_closing());
    drop((charge, refused));
}

#[test]
fn a_connection_that_is_closed_makes_room_when_it_is_gone() {
    let memory = memory();
    let first = memory.connection();
    let held = first.charge_always(3 * LEAST_CONNECTION_BYTES);
    assert!(first.is_closing());
    assert!(!memory.0.is_over());
    drop((held, first));
    assert_eq!(memory.held_bytes(), 0);
    assert_eq!(memory.0.closing_bytes.load(Ordering::Relaxed), 0);
}

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_task_of_a_connection_is_woken_to_close_it() {
    let memory = memory();
    let connection = memory.connection();
    let wakes = Arc::new(Count(AtomicUsize::new(0)));
    connection.wake_to_close(&wakes.clone().into());
    let _held = connection.charge_always(3 * LEAST_CONNECTION_BYTES);
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
}

#[test]
fn the_window_is_small_while_memory_is_scarce() {
    let memory = memory();
    let [first, second] = [(); 2].map(|()| memory.connection());
    assert_eq!(second.window_bytes(), WINDOW_BYTES);
    let held = first.charge(LEAST_CONNECTION_BYTES * 3 / 4).unwrap();
    assert_eq!(first.window_bytes(), SCARCE_WINDOW_BYTES);
    assert_eq!(second.window_bytes(), WINDOW_BYTES);
    let more = second.charge(LEAST_CONNECTION_BYTES / 2 - MIB).unwrap();
    assert_eq!(second.window_bytes(), SCARCE_WINDOW_BYTES);
    drop((held, more));
    assert_eq!(first.window_bytes(), WINDOW_BYTES);
    // The data that streams keep takes no window from other calls.
    first.keep(5 * MIB);
    assert_eq!(first.window_bytes(), WINDOW_BYTES + 5 * MIB as u32);
    first.end_keep(5 * MIB);
    assert_eq!(first.window_bytes(), WINDOW_BYTES);
}

#[test]
fn responses_wait_for_a_socket_that_takes_nothing() {
    let connection = memory().connection();
    let free = connection.held_bytes();
    let mut place = QueuePlace::default();
    let poll = |place: &mut QueuePlace| {
        poll_fn(|cx: &mut Context<'_>| connection.poll_queue(place, cx)).now_or_never()
    };
    connection.queue(QUEUE_BYTES - 1);
    assert!(poll(&mut place).is_some());
    connection.queue(1);
    assert_eq!(connection.held_bytes(), free + QUEUE_BYTES);
    // A call that goes away leaves the queue.
    assert!(poll(&mut place).is_none() && poll(&mut place).is_none());
    assert_eq!(connection.waiting.lock().len(), 1);
    connection.leave_queue(&mut place);
    assert!(connection.waiting.lock().is_empty());
    let wakes = Arc::new(Count(AtomicUsize::new(0)));
    let waker = wakes.clone().into();
    assert!(
        connection
            .poll_queue(&mut place, &mut Context::from_waker(&waker))
            .is_pending()
    );
    connection.queue_is_empty();
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    assert!(poll(&mut place).is_some());
    assert_eq!(connection.held_bytes(), free);
}

/// Charges of many threads at once are not lost.
#[test]
fn charges_of_many_threads_add_up() {
    let memory = memory();
    let connections = [(); 2].map(|()| memory.connection());
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let connection = &connections[thread % 2];
            scope.spawn(move || {
                for round in 0..10_000 {
                    let mut charge = connection.charge_always(round * 7 % 200_000);
                    charge.set(round * 13 % 300_000);
                }
            });
        }
    });
    for connection in &connections {
        assert_eq!(connection.held_bytes(), CONNECTION_BYTES);
    }
    drop(connections);
    assert_eq!(memory.held_bytes(), 0);
}

#[test]
fn idle_connections_are_not_closed_for_busy_ones() {
    let memory = memory();
    let idle = memory.connection();
    for _ in 0..1000 {
        memory.tick();
    }
    let busy = [(); 3].map(|()| memory.connection());
    let held = busy
        .each_ref()
        .map(|connection| connection.charge(25 * MIB));
    assert!(busy.iter().any(|connection| connection.is_closing()));
    assert!(!idle.is_closing());
    drop(held);
}

#[test]
fn a_connection_that_holds_little_is_charged_when_all_hold_too_much() {
    let memory = memory();
    let small = memory.connection();
    memory
        .0
        .taken_bytes
        .fetch_add(8 * LEAST_CONNECTION_BYTES, Relaxed);
    small.charge(ALWAYS_BYTES / 2).unwrap();
    let refused = small.charge(2 * ALWAYS_BYTES).unwrap_err();
    assert!(matches!(refused, MemoryError::Server { .. }), "{refused}");
}
