//! What a key costs in filters of other kinds.

use seenset_server::filter::spec::Kind;

use crate::{
    Keys,
    ours::Ours,
    turns::{print, turns},
};

/// Holds each kind against a plain filter of so many MiB.
pub fn compare(mib: usize, new: Keys, absent: Keys) {
    println!("\nplain of {mib} MiB and kinds with as many bits, half of them set; ns a key");
    let filters = Kind::ALL.map(|kind| (kind.name(), Ours::of(kind, mib)));
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
