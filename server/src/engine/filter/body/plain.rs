//! Filters that only add keys.

use std::{collections::BTreeMap, thread, time::Duration};

use super::{
    Body,
    content::Content,
    group::Group,
    sharded::{Sharded, asks_whether_bits_are_set, in_one_shard, whole_in_shards},
    tally::Tally,
    whole::{KeyBits, Whole},
};
use crate::{
    engine::{
        call::Action,
        error::Full,
        filter::{mapping::Cache, shard::Shard, stripes::Stripe},
    },
    filter::{cells::Values, hash::KeyHash, key_set::Bits, spec::FilterSpec},
    planted::Bug,
    store::{RecordHead, RecordKind},
};

/// The bits of a filter that only adds keys.
#[derive(Debug)]
pub struct Plain<F> {
    pub sharded: Sharded<F>,
}

impl<F: Bits> Body for Plain<F> {
    type Tag = ();
    type Replay = ();

    in_one_shard!();
    asks_whether_bits_are_set!();

    #[inline]
    fn apply(
        &self,
        stripe: &Stripe<Shard>,
        first: usize,
        keys: Group<'_, '_, Self>,
        (): &mut (),
        tally: &mut Tally<'_, '_, Self>,
    ) {
        if Bug::BitByBit.is_planted() {
            return self.add_bit_by_bit(keys, tally);
        }
        self.sharded.format.insert_each(
            &mut stripe.write(),
            first,
            keys,
            #[inline(always)]
            |key, shard: &mut Shard, bits_added| tally_key(tally, key, shard, bits_added),
        );
    }

    fn record_kind(&self, _: Action, (): ()) -> RecordKind {
        RecordKind::Added
    }

    fn begin_replay(&self, _: &RecordHead) -> Result<Option<()>, Full> {
        Ok(Some(()))
    }

    fn replay(
        &self,
        stripe: &Stripe<Shard>,
        first: usize,
        keys: Group<'_, '_, Self>,
        version: u64,
        (): &(),
    ) {
        let note = |_, shard: &mut Shard, bits_added| {
            if bits_added > 0 {
                shard.note(bits_added, version);
            }
        };
        self.sharded
            .format
            .insert_each(&mut stripe.write(), first, keys, note);
    }
}

impl<F: Bits> Whole for Plain<F> {
    whole_in_shards!();

    fn content(&self, spec: &FilterSpec) -> Content<'_> {
        self.sharded.content(spec)
    }

    fn explain(&self, hash: KeyHash) -> KeyBits {
        self.sharded.explain(hash, |_| Values::SET)
    }
}

/// Tallies a key that has set `bits_added` bits of a shard.
#[inline(always)]
fn tally_key<F: Bits>(
    tally: &mut Tally<'_, '_, Plain<F>>,
    key: (usize, KeyHash),
    shard: &mut Shard,
    bits_added: u32,
) {
    if bits_added == 0 {
        return tally.depends_on(shard.state.version);
    }
    shard.note(bits_added, tally.version());
    tally.changed(key, ());
}

/// The planted bug [`Bug::BitByBit`].
impl<F: Bits> Plain<F> {
    /// Adds keys as atomic operations on single bits would: releases the lock between any two bits.
    fn add_bit_by_bit(&self, keys: Group<'_, '_, Self>, tally: &mut Tally<'_, '_, Self>) {
        for key @ (_, hash) in keys {
            let bits_added = self.set_bit_by_bit(hash);
            let shard = self.sharded.format.shape().shard(hash);
            let shard = &mut self.sharded.shards.write(shard);
            tally_key(tally, key, shard, bits_added);
        }
    }

    /// Returns the number of bits that it has set.
    fn set_bit_by_bit(&self, hash: KeyHash) -> u32 {
        let Sharded { format, shards, .. } = &self.sharded;
        let index = format.shape().shard(hash);
        let mut missing = Vec::new();
        {
            let mut shard = shards.write(index);
            let mut before = BTreeMap::new();
            format.visit_lines(hash, |line| {
                let words = shard.words.iter().copied().enumerate();
                before.extend(words.skip(line).take(8));
            });
            format.insert(&mut shard.words, hash);
            for (index, before) in before {
                let Some(word) = shard.words.get_mut(index) else {
                    continue;
                };
                let bits = (0..64).map(|bit| 1 << bit);
                missing.extend(
                    bits.filter(|bit| *word & !before & bit != 0)
                        .map(|bit| (index, bit)),
                );
                *word = before;
            }
        }
        let mut bits_added = 0;
        for (word, bit) in missing {
            if let Some(word) = shards.write(index).words.get_mut(word)
                && *word & bit == 0
            {
                *word |= bit;
                bits_added += 1;
            }
            if bits_added == 1 {
                // Lets other threads run in between, on busy cores too.
                thread::yield_now();
            }
        }
        bits_added
    }
}
