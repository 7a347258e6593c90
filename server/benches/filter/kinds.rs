//! The cost of a key in filters of other kinds.

use std::time::Duration;

use seenset_server::filter::spec::{Aging, Kind};

use crate::{
    Keys,
    ours::Ours,
    turns::{print, turns},
};

/// The aging filter. No new slice begins during the measurement.
pub const AGING: Aging = Aging {
    max_age: Duration::from_secs(10_000 * 24 * 3600),
    slices: 8,
    refresh: false,
};

/// Compares each kind with a plain filter of `mib` MiB.
pub fn compare(mib: usize, new: Keys, absent: Keys) {
    println!("\nplain of {mib} MiB and kinds with as many bits, half of them set; ns a key");
    let filters = [Kind::Plain, Kind::Counting, Kind::Aging(AGING)]
        .map(|kind| (kind.name().as_str(), Ours::of(kind, mib)));
    let contend = |what, keys, ask: fn(&Ours, Keys) -> usize| {
        let mut contenders = filters.each_ref().map(|(name, filter)| {
            let ask: Box<dyn FnMut(Keys) -> usize + '_> = Box::new(move |keys| ask(filter, keys));
            (*name, ask)
        });
        print(what, &turns(keys, &mut contenders));
    };
    contend("insert", new, Ours::add_batch);
    contend("hit", new, Ours::query_batch);
    contend("miss", absent, Ours::query_batch);
}
