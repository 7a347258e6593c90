use futures_util::FutureExt;

use super::*;

fn requests(keys: u64, max_call_keys: usize) -> Requests {
    let age = RequestLimits::default().age;
    Requests::new(RequestLimits { keys, age }, max_call_keys)
}

fn hash(number: u64) -> KeyHash {
    KeyHash {
        low: number,
        high: number,
    }
}

fn note_first_added(requests: &Requests, id: u64, numbers: impl IntoIterator<Item = u64>) {
    let remembered = Remembered {
        filter: FilterId(1),
        request: request(id),
        hashes: numbers.into_iter().map(hash).collect(),
    };
    requests.remember(remembered, 0);
}

fn begin(requests: &Requests, id: u64) -> Result<Box<RetrySession<'_>>, EngineError> {
    let session = requests.begin(FilterId(1), request(id));
    session.now_or_never().unwrap()
}

fn request(id: u64) -> RequestId {
    RequestId(u128::from(id).to_le_bytes())
}

fn first_added(requests: &Requests, id: u64) -> usize {
    let session = begin(requests, id).unwrap();
    session.first_added.iter().map(FirstAdded::len).sum()
}

/// A request is counted once, however many records it came in and however often.
#[test]
fn a_request_that_comes_in_parts_pushes_no_other_out() {
    let requests = requests(1000, 500);
    note_first_added(&requests, 1, [0]);
    for _ in 0..3 {
        (0..300).for_each(|number| note_first_added(&requests, 2, [number]));
    }
    assert_eq!(first_added(&requests, 1), 1);
    assert_eq!(first_added(&requests, 2), 300);
}

/// Otherwise a caller that uses one id for all its calls would make the server remember all of
/// them, search all of them with each call, and forget the requests of everybody else.
#[test]
fn an_id_that_is_used_for_ever_takes_no_more_than_its_share() {
    let requests = requests(1000, 1000);
    let mut most_won = 0;
    for number in 0..2000 {
        note_first_added(&requests, 1, [number]);
        note_first_added(&requests, 2 + number, [number]);
        most_won = first_added(&requests, 1).max(most_won);
        // The last requests are remembered.
        for back in 0..50.min(number) {
            assert_eq!(
                first_added(&requests, 2 + number - back),
                1,
                "{back} before {number}"
            );
        }
        let remembered = requests.before(u64::MAX);
        let keys: usize = remembered.iter().map(|one| one.hashes.len()).sum();
        assert!(keys <= 500, "{keys} keys after {number}");
    }
    assert!(most_won < 300, "{most_won} keys");
}

#[test]
fn an_id_that_has_won_more_than_a_call_can_have_is_refused() {
    let requests = requests(1000, 10);
    note_first_added(&requests, 1, 0..10);
    // The request has as many keys as a call can have. It can be repeated, in any parts.
    let mut session = begin(&requests, 1).unwrap();
    assert!(
        session.is_repeated()
            && session.has_first_added(hash(9))
            && !session.has_first_added(hash(9))
    );
    drop(session);
    note_first_added(&requests, 1, 10..11);
    for _ in 0..2 {
        let error = begin(&requests, 1).unwrap_err();
        assert!(
            matches!(
                error,
                EngineError::RequestReused {
                    keys: 11,
                    limit: 10
                }
            ),
            "{error}"
        );
    }
    assert_eq!(first_added(&requests, 2), 0);
}

/// A call that stops waiting gets no turn, and does not delay those after it.
#[test]
fn turns_come_in_the_order_of_those_who_wait_for_them() {
    let requests = requests(1000, 10);
    let first = begin(&requests, 1).unwrap();
    let mut waiting: Vec<_> = (0..5)
        .map(|_| Box::pin(requests.begin(FilterId(1), request(1))))
        .collect();
    for waiting in &mut waiting {
        assert!(waiting.as_mut().now_or_never().is_none());
    }
    // Other ids do not wait.
    assert_eq!(first_added(&requests, 2), 0);
    drop(waiting.remove(1));
    drop(first);
    // The call whose turn has come is dropped before it is polled.
    drop(waiting.remove(0));
    for mut waiting in waiting {
        let session = waiting.as_mut().now_or_never().unwrap().unwrap();
        drop(session);
    }
    assert_eq!(first_added(&requests, 1), 0);
    let lane = requests.lane(&request(1)).memory.lock();
    assert!(lane.running.is_empty());
    drop(lane);

    // A call that does not wait returns at once, and takes no place in the queue.
    let try_begin = || requests.try_begin(FilterId(1), request(1)).unwrap();
    let first = try_begin().unwrap();
    assert!(try_begin().is_none());
    drop(first);
    drop(try_begin().unwrap());

    // Dropped calls take no memory either, however often they come while another call has the turn.
    let _first = begin(&requests, 1).unwrap();
    for _ in 0..1000 {
        let mut gone = Box::pin(requests.begin(FilterId(1), request(1)));
        assert!(gone.as_mut().now_or_never().is_none());
    }
    let lane = requests.lane(&request(1)).memory.lock();
    let waiting: usize = lane.running.values().map(VecDeque::len).sum();
    assert!(waiting < 4, "{waiting}");
}
