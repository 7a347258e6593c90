//! The keys that the callers request: new keys that all callers want at the same time, and old keys
//! that the server must not have forgotten.

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

/// Random numbers from a seed.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns any number: SplitMix64.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for index in (1..things.len()).rev() {
            things.swap(index, self.below(index as u64 + 1) as usize);
        }
    }

    /// Returns a key of the present race or, in one case of four, any key so far.
    pub fn key(&mut self, began: u64, now: u64) -> u64 {
        let keys = keys_until(began, now);
        match self.below(4) {
            0 => self.below(keys),
            _ => keys - 1 - self.below(RACED_FOR),
        }
    }

    /// Returns up to 40 such keys, some of them twice.
    pub fn keys(&mut self, began: u64, now: u64) -> Vec<u64> {
        let count = 1 + self.below(40);
        let mut keys: Vec<u64> = (0..count).map(|_| self.key(began, now)).collect();
        if self.below(4) == 0 {
            keys.push(keys[0]);
        }
        keys
    }
}
