//! Contenders that take the same keys in turns.

use std::{hint::black_box, time::Instant};

use crate::{BATCH, BATCHES, Keys, read};

/// A function that takes keys and returns how many of them were there, with its name.
pub type Contender<'a> = (&'a str, Box<dyn FnMut(Keys) -> usize + 'a>);

/// Returns the nanoseconds for each key of each contender, one value per round, sorted.
pub fn turns<'a>(keys: Keys, contenders: &mut [Contender<'a>]) -> Vec<(&'a str, Vec<f64>)> {
    turns_apart(|_| keys, contenders)
}

/// Measures like [`turns`], but with separate keys for each contender, chosen by its number. All
/// get the same number of keys. Contenders that share a filter need this: otherwise one would find
/// lines in the cache that the one before has fetched.
pub fn turns_apart<'a, 'k>(
    keys: impl Fn(usize) -> Keys<'k>,
    contenders: &mut [Contender<'a>],
) -> Vec<(&'a str, Vec<f64>)> {
    let mut rows: Vec<(&str, Vec<f64>)> = contenders.iter().map(|c| (c.0, Vec::new())).collect();
    let mut chunks: Vec<_> = (0..contenders.len())
        .map(|number| keys(number).chunks(BATCH * BATCHES))
        .collect();
    for _ in 0..chunks[0].len() {
        let turn = contenders.iter_mut().zip(&mut rows).zip(&mut chunks);
        for (((_, take), (_, times)), chunks) in turn {
            let keys = chunks.next().unwrap();
            read(keys);
            let begun = Instant::now();
            black_box(take(black_box(keys)));
            times.push(begun.elapsed().as_nanos() as f64 / keys.len() as f64);
        }
    }
    rows.iter_mut()
        .for_each(|(_, times)| times.sort_by(f64::total_cmp));
    rows
}

pub fn print(what: &str, rows: &[(&str, Vec<f64>)]) {
    let median = |times: &[f64]| times[times.len() / 2];
    let first = median(&rows[0].1);
    println!(
        "  {what:16} {:>8} {:>8} {:>8} {:>7}",
        "10 %", "median", "90 %", "ratio"
    );
    for (name, times) in rows {
        let at = |share: usize| times[times.len() * share / 100];
        println!(
            "    {name:16} {:6.1} {:8.1} {:8.1} {:7.2}",
            at(10),
            median(times),
            at(90),
            median(times) / first
        );
    }
}
