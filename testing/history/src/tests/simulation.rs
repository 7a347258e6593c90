//! Correct histories, made by a real set. Each call takes effect at one moment between its begin
//! and its end, and its answer is the state of the set at that moment.

use std::collections::HashSet;

use fastrand::Rng;

use super::check;
use crate::{Call, Operation, call::NEVER};

/// One planned call: tries with their begins and ends, and when it takes effect, if ever.
struct Plan {
    key: u64,
    operation: Operation,
    effect: Option<u64>,
    /// The tries. A try whose end is `NEVER` is not answered.
    tries: Vec<(u64, u64)>,
}

/// The first time of a simulation. Planted calls have room before it.
pub const START: u64 = 1000;
/// The number of keys. All keys of a simulation are below it.
pub const KEYS: u64 = 12;

fn plan(chance: &mut Rng) -> Plan {
    let begin = START + chance.u64(..5000);
    let effect = begin + chance.u64(..300);
    let end = effect + chance.u64(..300);
    let operations = [Operation::Query, Operation::QueryAndAdd, Operation::Add];
    let mut plan = Plan {
        // The first keys are requested often, the last ones almost never.
        key: chance.u64(..KEYS).min(chance.u64(..KEYS)),
        operation: operations[chance.usize(..3)],
        effect: Some(effect),
        tries: vec![(begin, end)],
    };
    if chance.u64(..5) == 0 {
        plan.tries[0].1 = NEVER;
        // The effect comes long after all callers have given up, soon, or never.
        plan.effect = match chance.u64(..3) {
            0 => None,
            1 => Some(effect + chance.u64(..3000)),
            _ => Some(effect),
        };
    }
    plan
}

/// Adds more tries of the same call, some of them answered. All begin later than the first, and no
/// answer comes before the effect.
fn try_again(chance: &mut Rng, plan: &mut Plan) {
    for _ in 0..chance.u64(..3) {
        let begin = plan.tries[0].0 + chance.u64(..900);
        let answer = plan
            .effect
            .map(|effect| effect.max(begin) + chance.u64(..300));
        let end = answer.filter(|_| chance.u64(..3) > 0).unwrap_or(NEVER);
        plan.tries.push((begin, end));
    }
}

/// Returns a history that a set can have.
pub fn history(seed: u64) -> Vec<Call<u64>> {
    let mut chance = Rng::with_seed(seed);
    let mut plans: Vec<_> = (0..10 + chance.u64(..300))
        .map(|_| plan(&mut chance))
        .collect();
    plans.sort_by_key(|plan| plan.effect.unwrap_or(NEVER));
    let mut marked = HashSet::new();
    let mut history = Vec::new();
    for (number, mut plan) in plans.into_iter().enumerate() {
        let seen = marked.contains(&plan.key);
        if plan.effect.is_some() && plan.operation != Operation::Query {
            marked.insert(plan.key);
        }
        let named = chance.u64(..3) == 0;
        if named {
            try_again(&mut chance, &mut plan);
        }
        for (begin, end) in plan.tries {
            let key = plan.key;
            let call = match plan.operation {
                operation if end == NEVER => Call::unknown(operation, key, begin),
                Operation::Query => Call::query(key, begin, end, seen),
                Operation::QueryAndAdd => Call::query_and_add(key, begin, end, seen),
                Operation::Add => Call::add(key, begin, end),
            };
            history.push(match named {
                true => call.with_request_id(&format!("call-{number}")),
                false => call,
            });
        }
    }
    chance.shuffle(&mut history);
    history
}

#[test]
fn what_a_set_says_is_accepted() {
    let (mut calls, mut unknown, mut won) = (0, 0, 0);
    for seed in 0..5000 {
        let checked = check(&history(seed)).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        calls += checked.calls;
        unknown += checked.unknown;
        won += checked.won;
    }
    assert!(
        calls > 500_000 && unknown > 50_000 && won > 10_000,
        "{calls} {unknown} {won}"
    );
}
