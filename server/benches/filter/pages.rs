//! The gain of huge pages.

use std::fs;

use rustix::thread::disable_transparent_huge_pages;
use seenset_server::filter::hash::HashFunction;

use crate::{
    CONTENDERS, Keys, first_keys, memory,
    ours::Ours,
    turns::{Contender, print, turns},
};

/// Compares two filters of `mib` MiB. One has the pages that the kernel provides, huge ones if it
/// has any. The other was filled while huge pages were forbidden.
pub fn compare(mib: usize, new: Keys, absent: Keys) {
    println!("\n{mib} MiB, half full, on small pages and on huge ones; ns a key");
    memory::mix(mib * CONTENDERS);
    disable_transparent_huge_pages(true).unwrap();
    let small = Ours::new(mib);
    let before = huge_mib();
    disable_transparent_huge_pages(false).unwrap();
    let huge = Ours::new(mib);
    println!(
        "  of the {mib} MiB on huge pages: of the first {before}, of the second {}",
        huge_mib() - before
    );
    let first = first_keys(mib);
    for filter in [&small, &huge] {
        filter.add_batch(&first);
    }

    let limit = |filter: &Ours, keys: Keys| filter.limit.touch(HashFunction::default(), keys);
    let contend = |what, keys, take: &dyn Fn(&Ours, Keys) -> usize| {
        let mut contenders: [Contender<'_>; 2] = [
            ("huge pages", Box::new(|keys| take(&huge, keys))),
            ("small pages", Box::new(|keys| take(&small, keys))),
        ];
        print(what, &turns(keys, &mut contenders));
    };
    contend("limit", new, &limit);
    contend("insert", new, &Ours::add_batch);
    contend("hit", new, &Ours::query_batch);
    contend("miss", absent, &Ours::query_batch);
    contend("insert, single", absent, &Ours::add);
    println!("  on huge pages at the end, MiB: {}", huge_mib());
}

/// Returns the memory of this process that is on huge pages.
fn huge_mib() -> usize {
    let sums = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = sums.lines().find(|line| line.starts_with("AnonHugePages:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<usize>().unwrap() >> 10
}
