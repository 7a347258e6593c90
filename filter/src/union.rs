//! The union of two filters with the same spec and secret: a bit is set if it is set in either.
//!
//! It is the filter that the keys of both would have made (Broder and Mitzenmacher, "Network
//! Applications of Bloom Filters: A Survey", Internet Mathematics 2004). The number of different
//! keys is estimated from its bits.

/// Sets the bits of `others`, which must have the same length, and returns the number of bits that
/// were not set before.
pub fn unite(words: &mut [u64], others: &[u64]) -> u64 {
    let added = new_bits(words, others);
    for (word, other) in words.iter_mut().zip(others) {
        *word |= other;
    }
    added
}

/// Returns the number of bits that are set in `others`, which must have the same length, and not in
/// `words`.
pub fn new_bits(words: &[u64], others: &[u64]) -> u64 {
    let pairs = words.iter().zip(others);
    let new = pairs.map(|(word, other)| u64::from((other & !word).count_ones()));
    new.sum()
}

/// Some of the bits of a filter, and the keys that have set them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// The bits that are set.
    pub bits_set: u64,
    /// The keys, each counted when it was new.
    pub keys: u64,
}

/// Returns the number of different keys in the union of two filters of `bit_count` bits, of which
/// the union has `bits_set` set.
///
/// If x of m bits are set, the number of keys is proportional to n(x) = -ln(1 - x/m) (Swamidass and
/// Baldi, "Mathematical Correction for Fingerprint Similarity Measures", J. Chem. Inf. Model.
/// 2007). So the second filter adds the part of its keys by which n has grown. The result is at
/// most the sum of both counts, and at least the larger one. If all bits are set, it is the larger
/// one.
pub fn keys_of_union(bit_count: u64, first: Fill, second: Fill, bits_set: u64) -> u64 {
    let n = |bits: u64| -(-(bits as f64 / bit_count as f64)).ln_1p();
    let share = (n(bits_set) - n(first.bits_set)) / n(second.bits_set);
    let added = match share.is_finite() {
        true => (second.keys as f64 * share.clamp(0.0, 1.0)).round() as u64,
        false => 0,
    };
    let keys = first.keys.saturating_add(added).max(second.keys);
    // A new key has set at least one bit.
    keys.min(bits_set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_either_are_set_and_those_that_were_not_counted() {
        let mut words = [0b1100, 0, u64::MAX];
        assert_eq!(new_bits(&words, &[0b1010, 7, u64::MAX]), 4);
        assert_eq!(unite(&mut words, &[0b1010, 7, u64::MAX]), 4);
        assert_eq!(words, [0b1110, 7, u64::MAX]);
        assert_eq!(unite(&mut words, &[0b1010, 7, 0]), 0);
    }

    /// Keys with 8 bits each, at random places.
    #[test]
    fn keys_of_both_are_counted_once() {
        let bit_count = 1 << 20;
        let bits = |keys: u64| {
            let empty = (-8.0 * keys as f64 / bit_count as f64).exp();
            ((1.0 - empty) * bit_count as f64) as u64
        };
        let fill = |keys| Fill {
            bits_set: bits(keys),
            keys,
        };
        for (first, second, both) in [
            (1000, 1000, 0),
            (1000, 1000, 1000),
            (100_000, 50_000, 25_000),
            (60_000, 60_000, 10_000),
            (10, 100_000, 5),
        ] {
            let expected = first + second - both;
            let found = keys_of_union(bit_count, fill(first), fill(second), bits(expected));
            let error = found.abs_diff(expected);
            assert!(error * 200 <= expected, "{found} for {expected}");
        }
    }

    #[test]
    fn whatever_the_bits_the_number_is_possible() {
        let fill = |bits_set, keys| Fill { bits_set, keys };
        for (first, second, bits_set, expected) in [
            (fill(0, 0), fill(0, 0), 0, 0),
            (fill(0, 0), fill(50, 7), 50, 7),
            (fill(50, 7), fill(0, 0), 50, 7),
            (fill(100, 30), fill(100, 40), 100, 40),
            (fill(99, 30), fill(100, 40), 100, 40),
            (fill(100, 30), fill(10, 9), 100, 30),
            (fill(2, 2), fill(2, 2), 3, 3),
        ] {
            assert_eq!(keys_of_union(100, first, second, bits_set), expected);
        }
    }
}
