//! The cost of a key in batches of other sizes.

use crate::{
    BATCH, BATCHES, CONTENDERS, Keys, ROUNDS, first_keys, keys, memory,
    ours::Ours,
    turns::{Contender, print, turns_apart},
    two_threads::{self, Shared},
};

/// ForeignBits of [`BATCH`]. A filter has 128 locks for each core, but no more than it has shards
/// of 4 MiB. Batches with fewer than two keys for each lock take one lock for each key.
const SIZES: [(usize, &str); 5] = [
    (BATCH, "1,000 at once"),
    (BATCH / 2, "500"),
    (BATCH / 4, "250"),
    (BATCH / 10, "100"),
    (BATCH / 20, "50"),
];

/// Compares the sizes in one filter of `mib` MiB, with one thread and with two.
pub fn compare(mib: usize, of_two: Keys) {
    println!("\n{mib} MiB, half full, batches; ns a key");
    memory::mix(mib * CONTENDERS);
    let filter = &Ours::new(mib);
    filter.add_batch(&first_keys(mib));
    let mut contenders: Vec<Contender<'_>> = Vec::new();
    for (size, name) in SIZES {
        contenders.push((
            name,
            Box::new(move |keys| filter.add_in_batches_of(size, keys)),
        ));
    }
    let own = SIZES.map(|(size, _)| keys(&format!("size-{size}"), BATCH * BATCHES * ROUNDS));
    print(
        "insert",
        &turns_apart(|number| &own[number], &mut contenders),
    );
    let limit = |keys: Keys| filter.limit.touch(Default::default(), keys);
    let many = |keys: Keys| filter.add_in_batches_of(BATCH, keys);
    let few = |keys: Keys| filter.add_in_batches_of(BATCH / 2, keys);
    let shared: [(&str, Shared<'_>); 3] =
        [("limit", &limit), (SIZES[0].1, &many), (SIZES[1].1, &few)];
    two_threads::compare(of_two, &shared);
}
