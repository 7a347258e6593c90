//! Random numbers from a seed: SplitMix64, so that a failure can be reproduced.

pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    pub fn one_in(&mut self, cases: u64) -> bool {
        self.below(cases) == 0
    }

    pub fn of<'a, T>(&mut self, things: &'a [T]) -> Option<&'a T> {
        let count = things.len() as u64;
        (count > 0).then(|| &things[self.below(count) as usize])
    }

    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for index in (1..things.len()).rev() {
            things.swap(index, self.below(index as u64 + 1) as usize);
        }
    }
}
