//! The checker finds each kind of violation that is planted in a correct history, under its name.

use fastrand::Rng;

use super::{
    check,
    simulation::{KEYS, START, history},
};
use crate::{Call, Operation, Outcome, Violation};

/// A key that no simulation requests.
const FRESH: u64 = KEYS;

/// Plants a violation if the history has a place for it, and returns its key.
type Plant = fn(&mut Vec<Call<u64>>, &mut Rng) -> Option<u64>;

/// Returns any call that satisfies the condition.
fn any(
    history: &[Call<u64>],
    chance: &mut Rng,
    like: impl Fn(&Call<u64>) -> bool,
) -> Option<Call<u64>> {
    let found: Vec<_> = history.iter().filter(|call| like(call)).cloned().collect();
    chance.choice(&found).cloned()
}

/// Asserts that for all seeds with a place for it, the checker finds the planted violation and
/// reports nothing for other keys.
fn found(plant: Plant, named: fn(&Violation<u64>) -> bool) {
    let mut planted = 0;
    for seed in 0..1000 {
        let mut history = history(seed);
        let mut chance = Rng::with_seed(!seed);
        let Some(key) = plant(&mut history, &mut chance) else {
            continue;
        };
        chance.shuffle(&mut history);
        let violations = check(&history).expect_err("nothing was found").0;
        assert!(violations.iter().any(named), "seed {seed}: {violations:?}");
        assert!(violations.iter().all(|violation| *violation.key() == key));
        planted += 1;
    }
    assert!(planted > 200, "planted in {planted} histories alone");
}

#[test]
fn a_second_winner_at_any_time() {
    fn plant(history: &mut Vec<Call<u64>>, chance: &mut Rng) -> Option<u64> {
        let key = any(history, chance, |call| call.course.wins())?.key;
        let begin = chance.u64(..9000);
        let call = Call::query_and_add(key, begin, begin + chance.u64(..9000), false);
        history.push(match chance.bool() {
            true => call.with_request_id("another"),
            false => call,
        });
        Some(key)
    }
    found(plant, |found| matches!(found, Violation::TwoWinners { .. }));
}

#[test]
fn a_key_seen_before_anybody_began_to_mark_it() {
    fn plant(history: &mut Vec<Call<u64>>, chance: &mut Rng) -> Option<u64> {
        let key = any(history, chance, |call| call.course.can_mark())?.key;
        // Whatever the answers of a call with a request id, none of its tries began before.
        let calls = history.iter().filter(|call| call.key == key);
        let first = calls.map(|call| call.course.begin).min()?;
        let begin = chance.u64(..first - 1);
        let end = begin + chance.u64(..first - begin);
        history.push(match chance.bool() {
            true => Call::query(key, begin, end, true),
            false => Call::query_and_add(key, begin, end, true),
        });
        Some(key)
    }
    found(plant, |found| {
        matches!(found, Violation::SeenBeforeMarked { .. })
    });
}

#[test]
fn a_key_seen_that_nobody_has_marked() {
    fn plant(history: &mut Vec<Call<u64>>, chance: &mut Rng) -> Option<u64> {
        let begin = START + chance.u64(..3000);
        // Queries mark nothing, with or without an answer.
        history.push(Call::query(FRESH, begin, begin + 10, false));
        history.push(Call::unknown(Operation::Query, FRESH, begin));
        history.push(match chance.bool() {
            true => Call::query(FRESH, begin, begin + chance.u64(..500), true),
            false => Call::query_and_add(FRESH, begin, begin + chance.u64(..500), true),
        });
        Some(FRESH)
    }
    found(plant, |found| {
        matches!(found, Violation::NeverMarked { .. })
    });
}

#[test]
fn a_key_forgotten_by_a_query() {
    fn plant(history: &mut Vec<Call<u64>>, chance: &mut Rng) -> Option<u64> {
        let told = any(history, chance, |call| call.course.shows_marked())?;
        let begin = told.course.end + 1 + chance.u64(..500);
        let end = begin + chance.u64(..500);
        history.push(Call::query(told.key, begin, end, false));
        Some(told.key)
    }
    found(plant, |found| matches!(found, Violation::Forgotten { .. }));
}

/// The key was shown to be marked by an add, by a winner, or by a caller that saw it because of a
/// call without an answer.
#[test]
fn a_key_forgotten_by_query_and_add() {
    fn plant(history: &mut Vec<Call<u64>>, chance: &mut Rng) -> Option<u64> {
        let begin = START + chance.u64(..3000);
        let end = begin + chance.u64(..500);
        match chance.u64(..3) {
            0 => history.push(Call::add(FRESH, begin, end)),
            1 => history.push(Call::query_and_add(FRESH, begin, end, false)),
            _ => {
                let operations = [Operation::Add, Operation::QueryAndAdd];
                let operation = operations[chance.usize(..2)];
                history.push(Call::unknown(operation, FRESH, begin));
                history.push(Call::query(FRESH, begin, end, true));
            }
        }
        let again = end + 1 + chance.u64(..500);
        history.push(Call::query_and_add(FRESH, again, again + 1, false));
        Some(FRESH)
    }
    found(plant, |found| matches!(found, Violation::Forgotten { .. }));
}

#[test]
fn two_answers_to_one_call() {
    fn plant(history: &mut Vec<Call<u64>>, chance: &mut Rng) -> Option<u64> {
        let first = any(history, chance, |call| {
            let told = matches!(call.course.outcome, Outcome::New | Outcome::Seen);
            call.request_id.is_some() && told
        })?;
        let mut second = first.clone();
        second.course.end += chance.u64(..500);
        second.course.outcome = match first.course.outcome {
            Outcome::New => Outcome::Seen,
            _ => Outcome::New,
        };
        history.push(second);
        Some(first.key)
    }
    found(plant, |found| {
        matches!(found, Violation::AnswersDiffer { .. })
    });
}

/// The service does not recognise a retry. The first try has marked the key and its answer is lost.
/// The second is answered "seen" because of the first.
#[test]
fn a_retry_that_was_not_recognised() {
    let first = Call::unknown(Operation::QueryAndAdd, 1, 10);
    let second = Call::query_and_add(1, 20, 30, true);
    check(&[first.clone(), second.clone()]).unwrap();
    let named = [first.with_request_id("a"), second.with_request_id("a")];
    let found = check(&named).unwrap_err().0;
    assert!(
        matches!(*found, [Violation::NeverMarked { .. }]),
        "{found:?}"
    );
}

/// Histories that are only just correct are accepted.
#[test]
fn near_misses() {
    let unknown = |begin| Call::unknown(Operation::QueryAndAdd, 1, begin);
    for history in [
        // A call that ends when the other begins counts as simultaneous.
        vec![Call::add(1, 1, 5), Call::query(1, 5, 6, false)],
        vec![Call::query(1, 1, 5, true), Call::add(1, 5, 6)],
        // The answer of a winner may arrive late.
        vec![
            Call::query_and_add(1, 1, 100, false),
            Call::query(1, 2, 3, false),
            Call::query(1, 4, 5, true),
        ],
        // A call without an answer may take effect late, or never.
        vec![unknown(1), Call::query_and_add(1, 5, 6, false)],
        vec![
            unknown(1),
            Call::query(1, 50, 60, false),
            Call::query(1, 70, 80, true),
        ],
        // Two tries with the same answer are one winner, which began with the first try.
        vec![
            Call::query_and_add(1, 1, 5, false).with_request_id("a"),
            Call::query(1, 6, 7, true),
            Call::query_and_add(1, 8, 9, false).with_request_id("a"),
        ],
        // The same request id for another key is another call.
        vec![
            Call::query_and_add(1, 1, 5, false).with_request_id("a"),
            Call::query_and_add(2, 1, 5, false).with_request_id("a"),
        ],
    ] {
        check(&history).unwrap();
    }
}
