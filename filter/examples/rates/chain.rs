//! Filters as RedisBloom creates them, which cannot be requested from seenset: with the sizes of
//! `bloom_init`, and the rates of `SB_NewChain` and `SBChain_Add` (RedisBloom 2.8).

use std::f64::consts::LN_2;

use seenset_filter::exchange::redisbloom::{Chain, ChainLayer};

/// Returns the filter of `BF.RESERVE filter rate capacity NONSCALING`; `None` if it cannot exist.
pub fn single(capacity: u64, rate: f64) -> Option<Chain> {
    Chain::new(vec![layer(capacity, rate)?])
}

/// Returns the filter of `BF.RESERVE filter rate capacity EXPANSION 2` after it has grown to
/// `layers` layers. Each layer has half of the remaining rate. Returns `None` if the filter cannot
/// exist.
pub fn doubling(capacity: u64, rate: f64, layers: u32) -> Option<Chain> {
    let layers = (0..layers).map(|number| {
        let times = 1 << number;
        layer(capacity * times, rate / (2 * times) as f64)
    });
    Chain::new(layers.collect::<Option<_>>()?)
}

fn layer(capacity: u64, rate: f64) -> Option<ChainLayer> {
    let bits_per_key = -rate.ln() / (LN_2 * LN_2);
    let words = ((capacity as f64 * bits_per_key) as u64).div_ceil(64);
    let hash_count = (LN_2 * bits_per_key).ceil() as u32;
    ChainLayer::new(words, words * 64, hash_count, capacity, rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The filter of `BF.RESERVE chain 0.01 10 EXPANSION 2` in RedisBloom 2.8.2, with 40 keys, as
    /// in `tests/exchange/redisbloom-chain.dump`.
    #[test]
    fn layers_are_sized_as_by_redisbloom() {
        let chain = doubling(10, 0.01, 3).unwrap();
        let sizes = |layer: &ChainLayer| (layer.word_count(), layer.hash_count(), layer.capacity());
        let sizes: Vec<_> = chain.layers().iter().map(sizes).collect();
        assert_eq!(sizes, [(2, 8, 10), (4, 9, 20), (9, 10, 40)]);
        let rates = chain.layers().iter().map(ChainLayer::false_positive_rate);
        assert_eq!(rates.collect::<Vec<_>>(), [0.005, 0.0025, 0.00125]);
        // It rounds 3.32 hashes to four, and loads no dump with fewer (`bloom_validate_integrity`).
        let layers = single(10, 0.1).unwrap().layers().to_vec();
        assert_eq!((layers.len(), layers[0].hash_count()), (1, 4));
    }
}
