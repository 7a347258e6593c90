//! Filters as RedisBloom makes them, which nobody can ask of seenset: the sizes of `bloom_init`,
//! and the rates of `SB_NewChain` and `SBChain_Add` (RedisBloom 2.8).

use std::f64::consts::LN_2;

use seenset_filter::exchange::redisbloom::{Chain, Layer};

/// `BF.RESERVE filter rate capacity NONSCALING`. `None` if there is no such filter.
pub fn single(capacity: u64, rate: f64) -> Option<Chain> {
    Chain::new(vec![layer(capacity, rate)?])
}

/// `BF.RESERVE filter rate capacity EXPANSION 2`, when it has come to so many layers: each has
/// half of the rate that is left. `None` if there is no such filter.
pub fn doubling(capacity: u64, rate: f64, layers: u32) -> Option<Chain> {
    let layers = (0..layers).map(|number| {
        let times = 1 << number;
        layer(capacity * times, rate / (2 * times) as f64)
    });
    Chain::new(layers.collect::<Option<_>>()?)
}

fn layer(capacity: u64, rate: f64) -> Option<Layer> {
    let bits_per_key = -rate.ln() / (LN_2 * LN_2);
    let words = ((capacity as f64 * bits_per_key) as u64).div_ceil(64);
    let hash_count = (LN_2 * bits_per_key).ceil() as u32;
    Layer::new(words, words * 64, hash_count, capacity, rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `BF.RESERVE chain 0.01 10 EXPANSION 2` in RedisBloom 2.8.2, with 40 keys: what is in
    /// `tests/exchange/redisbloom-chain.dump`.
    #[test]
    fn layers_are_sized_as_by_redisbloom() {
        let chain = doubling(10, 0.01, 3).unwrap();
        let sizes = |layer: &Layer| (layer.word_count(), layer.hash_count(), layer.capacity());
        let sizes: Vec<_> = chain.layers().iter().map(sizes).collect();
        assert_eq!(sizes, [(2, 8, 10), (4, 9, 20), (9, 10, 40)]);
        let rates = chain.layers().iter().map(Layer::false_positive_rate);
        assert_eq!(rates.collect::<Vec<_>>(), [0.005, 0.0025, 0.00125]);
        // Of 3.32 hashes it makes four, and loads no dump that has less (`bloom_validate_integrity`).
        let layers = single(10, 0.1).unwrap().layers().to_vec();
        assert_eq!((layers.len(), layers[0].hash_count()), (1, 4));
    }
}
