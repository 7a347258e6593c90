//! Dumps of RedisBloom. Only a dump makes a filter of this layout.

/// The number of bits that each key sets, and the bits per key that lead to it.
const HASHES: u32 = 20;
const BITS_PER_KEY: f64 = 28.8;

/// Returns a dump of a filter without keys, with one layer of `words` words. As long as it has no
/// more keys than words, no false positive is expected.
pub fn empty(words: u64) -> Vec<u8> {
    let (bytes, capacity) = (words * 8, words);
    let mut header = Vec::new();
    // No keys in one layer. The number of its bits is not a power of two, the hash has 64 bits, and
    // the filter grows twofold.
    header.extend(0_u64.to_le_bytes());
    header.extend([1_u32, 1 | 4, 2].map(u32::to_le_bytes).concat());
    header.extend([bytes, bytes * 8, 0].map(u64::to_le_bytes).concat());
    header.extend([1e-6, BITS_PER_KEY].map(f64::to_le_bytes).concat());
    header.extend(HASHES.to_le_bytes());
    header.extend(capacity.to_le_bytes());
    header.push(0);
    let chunk = |iterator: u64, data: &[u8]| {
        let prefix = [iterator, data.len() as u64].map(u64::to_le_bytes);
        [&prefix.concat(), data].concat()
    };
    [
        chunk(1, &header),
        chunk(bytes + 1, &vec![0; bytes as usize]),
    ]
    .concat()
}
