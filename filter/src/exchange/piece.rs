//! Words of a file, one piece at a time: an array of gigabytes is never in memory as a whole.

use super::ExchangeError;

/// The most words that are handed over at once: 64 KiB.
pub const MAX_PIECE_WORDS: usize = 8192;

/// Reads `count` words with `fill`, which fills all of the bytes that it gets. Passes each piece of
/// them to `report`, with the index of its first word.
pub fn read<E: From<ExchangeError>>(
    count: u64,
    decode: impl Fn([u8; 8]) -> u64,
    mut fill: impl FnMut(&mut [u8]) -> Result<(), ExchangeError>,
    mut report: impl FnMut(u64, &[u64]) -> Result<(), E>,
) -> Result<(), E> {
    let length = |first: u64| (count - first).min(MAX_PIECE_WORDS as u64) as usize;
    let mut words = vec![0; length(0)];
    let mut bytes = vec![[0; 8]; length(0)];
    let mut first = 0;
    while first < count {
        // Shortens only the last piece.
        words.truncate(length(first));
        bytes.truncate(length(first));
        fill(bytes.as_flattened_mut())?;
        for (word, bytes) in words.iter_mut().zip(&bytes) {
            *word = decode(*bytes);
        }
        report(first, &words)?;
        first += words.len() as u64;
    }
    Ok(())
}
