//! The checker accepts what can have been, and finds each thing that cannot.

mod chance;
mod exhaustive;
mod planted;
mod simulation;

use crate::{Call, Checked, Checker, Violations};

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

#[test]
fn the_clock_goes_on() {
    let times: Vec<u64> = (0..1000).map(|_| crate::now()).collect();
    assert!(times.is_sorted() && times.first() < times.last());
}
