//! The rules are exact: a search through all orders gives the same result.

use fastrand::Rng;

use super::check;
use crate::{Call, Operation, Outcome, call::Course};

/// Returns any calls of one key with any answers, right or wrong.
fn calls(chance: &mut Rng) -> Vec<Call<u64>> {
    let count = 1 + chance.u64(..5);
    let mut times: Vec<u64> = (0..2 * count).collect();
    chance.shuffle(&mut times);
    let calls = times.chunks(2).map(|times| {
        let (begin, end) = (times[0].min(times[1]), times[0].max(times[1]));
        let seen = chance.bool();
        let operations = [Operation::Query, Operation::QueryAndAdd, Operation::Add];
        match operations[chance.usize(..3)] {
            operation if chance.u64(..5) == 0 => Call::unknown(operation, 0, begin),
            Operation::Query => Call::query(0, begin, end, seen),
            Operation::QueryAndAdd => Call::query_and_add(0, begin, end, seen),
            Operation::Add => Call::add(0, begin, end),
        }
    });
    calls.collect()
}

/// Returns whether some order of these calls explains all answers. A call cannot come before a call
/// that had ended when it began. A call without an answer may be left out.
fn has_an_order(calls: &[Course], marked: bool) -> bool {
    if calls.iter().all(|call| call.outcome == Outcome::Unknown) {
        return true;
    }
    (0..calls.len()).any(|next| {
        let call = calls[next];
        let too_early = calls.iter().any(|other| other.end < call.begin);
        let true_answer = match call.outcome {
            Outcome::New => !marked,
            Outcome::Seen => marked,
            Outcome::Added | Outcome::Unknown => true,
        };
        let mut rest = calls.to_vec();
        rest.remove(next);
        let marks = call.operation != Operation::Query;
        !too_early && true_answer && has_an_order(&rest, marked || marks)
    })
}

#[test]
fn the_rules_are_exact() {
    let (mut right, mut wrong) = (0, 0);
    for seed in 0..200_000 {
        let calls = calls(&mut Rng::with_seed(seed));
        let courses: Vec<Course> = calls.iter().map(|call| call.course).collect();
        let expected = has_an_order(&courses, false);
        let found = check(&calls);
        assert_eq!(found.is_ok(), expected, "seed {seed}: {calls:?}: {found:?}");
        *if expected { &mut right } else { &mut wrong } += 1;
    }
    assert!(
        right > 20_000 && wrong > 20_000,
        "{right} right, {wrong} wrong"
    );
}
