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

fn win(requests: &Requests, id: u64, numbers: impl IntoIterator<Item = u64>) {
    let remembered = Remembered {
        filter: FilterId(1),
        request: request(id),
        hashes: numbers.into_iter().map(hash).collect(),
    };
    requests.remember(remembered, 0);
}

fn begin(requests: &Requests, id: u64) -> Result<Turn<'_>, EngineError> {
    let turn = requests.begin(FilterId(1), request(id));
    turn.now_or_never().unwrap()
}

fn request(id: u64) -> RequestId {
    RequestId(u128::from(id).to_le_bytes())
}

fn won(requests: &Requests, id: u64) -> usize {
    let turn = begin(requests, id).unwrap();
    turn.won.iter().map(Won::len).sum()
}

/// Whatever the number of records that it came in, and however often, a request is counted once.
#[test]
fn a_request_that_comes_in_parts_pushes_no_other_out() {
    let requests = requests(1000, 500);
    win(&requests, 1, [0]);
    for _ in 0..3 {
        (0..300).for_each(|number| win(&requests, 2, [number]));
    }
    assert_eq!(won(&requests, 1), 1);
    assert_eq!(won(&requests, 2), 300);
}

/// Else whoever uses one id for all calls would have the server remember them all, look through
/// them all with each, and forget those of everybody else.
#[test]
fn an_id_that_is_used_for_ever_takes_no_more_than_its_share() {
    let requests = requests(1000, 1000);
    let mut most_won = 0;
    for number in 0..2000 {
        win(&requests, 1, [number]);
        win(&requests, 2 + number, [number]);
        most_won = won(&requests, 1).max(most_won);
        // The last ones are remembered.
        for back in 0..50.min(number) {
            assert_eq!(
                won(&requests, 2 + number - back),
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
    win(&requests, 1, 0..10);
    // As many as there may be: it may come again, in any parts.
    let mut turn = begin(&requests, 1).unwrap();
    assert!(turn.is_repeated() && turn.has_won(hash(9)) && !turn.has_won(hash(9)));
    drop(turn);
    win(&requests, 1, 10..11);
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
    assert_eq!(won(&requests, 2), 0);
}

/// Whoever waits no more neither gets a turn nor keeps it from those behind.
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
    assert_eq!(won(&requests, 2), 0);
    drop(waiting.remove(1));
    drop(first);
    // The one whose turn has come goes away before it knows.
    drop(waiting.remove(0));
    for mut waiting in waiting {
        let turn = waiting.as_mut().now_or_never().unwrap().unwrap();
        drop(turn);
    }
    assert_eq!(won(&requests, 1), 0);
    let lane = requests.lane(&request(1)).memory.lock();
    assert!(lane.running.is_empty());
    drop(lane);

    // Whoever does not wait is told so, and takes no place in the queue.
    let try_begin = || requests.try_begin(FilterId(1), request(1)).unwrap();
    let first = try_begin().unwrap();
    assert!(try_begin().is_none());
    drop(first);
    drop(try_begin().unwrap());

    // Nor does it take memory, however often it comes while another has the turn.
    let _first = begin(&requests, 1).unwrap();
    for _ in 0..1000 {
        let mut gone = Box::pin(requests.begin(FilterId(1), request(1)));
        assert!(gone.as_mut().now_or_never().is_none());
    }
    let lane = requests.lane(&request(1)).memory.lock();
    let waiting: usize = lane.running.values().map(VecDeque::len).sum();
    assert!(waiting < 4, "{waiting}");
}
