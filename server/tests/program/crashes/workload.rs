//! The keys that the callers request: new keys that all callers want at the same time, and old keys
//! that the server must not have forgotten.

use fastrand::Rng;

/// The number of keys that become new in each millisecond.
const KEYS_EACH_MILLISECOND: u64 = 8;
/// The number of the newest keys that the callers race for.
const RACED_FOR: u64 = 1500;

/// Returns the number of keys that can have been requested, from the first one on, if the test
/// began at `began` and the time is `now`.
pub fn keys_until(began: u64, now: u64) -> u64 {
    (now - began) / 1_000_000 * KEYS_EACH_MILLISECOND + RACED_FOR
}

/// Returns a key as it is sent: a URL, or bytes that are not UTF-8 if its number is odd.
fn bytes(key: u64) -> Vec<u8> {
    match key % 2 {
        0 => format!("https://example.com/{key}").into_bytes(),
        _ => [&[0xff][..], &key.to_be_bytes()].concat(),
    }
}

/// Returns keys in the fields of a request, `keys` and `binary_keys`: in the first if all of them
/// are text. So the same URL comes in either field, depending on the other keys of the request.
pub fn fields(keys: &[u64]) -> (Vec<String>, Vec<Vec<u8>>) {
    let keys: Vec<Vec<u8>> = keys.iter().copied().map(bytes).collect();
    let texts: Result<_, _> = keys.iter().cloned().map(String::from_utf8).collect();
    match texts {
        Ok(texts) => (texts, Vec::new()),
        Err(_) => (Vec::new(), keys),
    }
}

/// Returns a key of the present race or, in one case of four, any key so far.
pub fn key(chance: &mut Rng, began: u64, now: u64) -> u64 {
    let keys = keys_until(began, now);
    match chance.u64(..4) {
        0 => chance.u64(..keys),
        _ => keys - 1 - chance.u64(..RACED_FOR),
    }
}

/// Returns up to 40 such keys, some of them twice.
pub fn keys(chance: &mut Rng, began: u64, now: u64) -> Vec<u64> {
    let mut keys: Vec<u64> = (0..chance.usize(1..=40))
        .map(|_| key(chance, began, now))
        .collect();
    if chance.u64(..4) == 0 {
        keys.push(keys[0]);
    }
    keys
}
