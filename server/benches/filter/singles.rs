//! Filters of all kinds with one call for each key: the cost, and the gain of a second thread.

use seenset_server::filter::spec::Kind;

use crate::{
    Keys,
    kinds::AGING,
    ours::Ours,
    scaling::Filter,
    turns::{Contender, print, turns},
    two_threads::{self, Shared},
};

/// Compares kinds with as many bits, and four layers, with a plain filter of `mib` MiB.
pub fn compare(mib: usize, new: Keys, of_two: Keys) {
    println!("\nplain of {mib} MiB, half full, and other kinds; a call for each key, ns");
    let [plain, counting, aging] =
        [Kind::Plain, Kind::Counting, Kind::Aging(AGING)].map(|kind| Ours::of(kind, mib));
    let layered = Filter::four_layers(mib);
    let calls: [(&str, Shared); 4] = [
        ("plain", &|keys| plain.add(keys)),
        ("counting", &|keys| counting.add(keys)),
        ("aging", &|keys| aging.add(keys)),
        ("four layers", &|keys| layered.add_each(keys)),
    ];
    let mut contenders = calls.map(|(name, call)| -> Contender<'_> { (name, Box::new(call)) });
    print("insert", &turns(new, &mut contenders));
    let limit = |keys: Keys| plain.limit.touch_at_once(keys);
    let of_limit: [(&str, Shared); 1] = [("limit", &limit)];
    two_threads::compare(of_two, &[&of_limit[..], &calls].concat());
}
