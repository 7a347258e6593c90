//! The checker accepts possible histories, and finds each kind of impossible one.

mod exhaustive;
mod planted;
mod simulation;

use crate::{Call, Checked, Checker, Operation, Violations};

fn check(history: &[Call<u64>]) -> Result<Checked, Violations<u64>> {
    let mut checker = Checker::default();
    checker.extend(history.iter().cloned());
    checker.finish()
}

#[test]
fn a_line_and_back() {
    for line in [
        "1 2 query new - 7",
        "1 2 query_and_add seen some-id 7",
        "1 2 add added - 7",
        "1 - add unknown - 7",
    ] {
        assert_eq!(line.parse::<Call<u64>>().unwrap().to_line(), line);
    }
    let spaces: Call<String> = "1 2 add added - a key with spaces".parse().unwrap();
    assert_eq!(spaces.key(), "a key with spaces");
    for line in [
        "",
        "1 2 query new -",
        "1 2 query new - x",
        "1 2 query added - 7",
        "1 2 add seen - 7",
        "1 - query new - 7",
        "1 2 query unknown - 7",
    ] {
        line.parse::<Call<u64>>().unwrap_err();
    }
}

#[test]
fn messages_name_the_key_and_both_calls() {
    let history = [
        Call::query_and_add(7, 1, 2, false),
        Call::query(7, 3, 4, false),
    ];
    assert_eq!(
        check(&history).unwrap_err().to_string(),
        "violations: 1\n  forgotten: query_and_add(7) from 1 to 2, told new; and after that \
         query(7) from 3 to 4, told new"
    );
}

/// A test that repeats calls uses this count to assert that the service recognised some of them.
#[test]
fn a_key_that_a_repeated_call_wins_after_others_have_seen_it_is_counted() {
    let lost = |begin| Call::unknown(Operation::QueryAndAdd, 7, begin).with_request_id("a");
    let first = || Call::query_and_add(7, 1, 2, false).with_request_id("a");
    let again = |begin| Call::query_and_add(7, begin, 9, false).with_request_id("a");
    let seen = || Call::query(7, 3, 4, true);
    for (history, won_again) in [
        (vec![lost(1), seen(), again(5)], 1),
        (vec![again(5), seen(), lost(1)], 1),
        (vec![first(), seen(), again(5)], 1),
        // The call may have added the key only now, or no answered try came after the other caller.
        (vec![lost(1), seen(), again(4)], 0),
        (vec![lost(1), again(5)], 0),
        (vec![first(), seen()], 0),
        (vec![first(), seen(), lost(5)], 0),
    ] {
        let checked = check(&history).unwrap();
        assert_eq!(
            (checked.won, checked.won_again),
            (1, won_again),
            "{history:?}"
        );
    }
}

#[test]
fn the_clock_goes_on() {
    let times: Vec<u64> = (0..1000).map(|_| crate::now()).collect();
    assert!(times.is_sorted() && times.first() < times.last());
}
