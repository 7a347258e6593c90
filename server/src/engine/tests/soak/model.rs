//! The knowledge of a caller about its keys.

use std::time::Duration;

use super::super::*;

/// The length of a slice, for keys that age.
pub const SLICE: Duration = Duration::from_secs(3600);

/// The epochs at the begin and the end of a call.
#[derive(Debug, Clone, Copy)]
pub struct Epochs {
    pub begin: u64,
    pub end: u64,
}

/// The state of a key. If keys are counted: how often it was added and not removed. If they age:
/// the epoch at which it was added last, plus one. Otherwise: 1 if it was added. It is unknown
/// whether a call that was in progress at a crash has changed anything, so there is a least and a
/// most.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    pub least: u64,
    pub most: u64,
}

/// An exact model of the keys of one caller.
#[derive(Debug)]
pub struct Model {
    kind: Kind,
    keys: Vec<Known>,
    /// The number of answers for absent keys. In `false_positives`: those of them that said seen.
    pub absent: u64,
    pub false_positives: u64,
}

impl Model {
    pub fn new(kind: Kind, keys: u64) -> Self {
        Self {
            kind,
            keys: vec![Known::default(); keys as usize],
            absent: 0,
            false_positives: 0,
        }
    }

    pub fn known(&self, key: u64) -> Known {
        self.keys[key as usize]
    }

    /// Notes that all keys were forgotten.
    pub fn reset(&mut self) {
        self.keys.fill(Known::default());
    }

    fn is_there(&self, known: u64, epoch: u64) -> bool {
        match self.kind {
            Kind::Plain | Kind::Counting | Kind::Scaling(_) => known > 0,
            Kind::Aging(aging) => known > 0 && known - 1 + u64::from(aging.slices) >= epoch,
        }
    }

    /// Checks the answer for a key.
    pub fn check(&mut self, key: u64, seen: bool, when: Epochs) {
        let known = self.known(key);
        if self.is_there(known.least, when.end) {
            assert!(seen, "{key} is forgotten: {known:?}, {when:?}");
        } else if !self.is_there(known.most, when.begin) {
            self.note_absent(seen);
        }
    }

    /// Notes the answer for a key that was not there.
    pub fn note_absent(&mut self, seen: bool) {
        self.absent += 1;
        self.false_positives += u64::from(seen);
    }

    /// Returns whether a key that is seen once stays seen, even if it was seen by chance.
    fn keeps_all(&self) -> bool {
        matches!(self.kind, Kind::Plain | Kind::Scaling(_))
    }

    /// Notes an answer that has not been lost.
    pub fn told(&mut self, key: u64, seen: bool) {
        if seen && self.keeps_all() {
            self.keys[key as usize] = Known { least: 1, most: 1 };
        }
    }

    /// Adds a key. `told` is its answer, if there is one. `is_certain` means that no crash has lost
    /// the call.
    pub fn add(&mut self, key: u64, told: Option<bool>, when: Epochs, is_certain: bool) {
        let known = &mut self.keys[key as usize];
        match (self.kind, told) {
            // A key that is seen by chance is not added, unless the add renews it.
            (Kind::Plain | Kind::Counting | Kind::Scaling(_), Some(true)) => {}
            (Kind::Aging(aging), Some(true)) if !aging.refresh => {}
            (Kind::Plain | Kind::Scaling(_), _) => {
                known.most = 1;
                known.least = known.least.max(is_certain.into());
            }
            (Kind::Counting, _) => {
                known.most += 1;
                known.least += u64::from(is_certain);
            }
            (Kind::Aging(_), _) => {
                known.most = when.end + 1;
                if is_certain {
                    known.least = when.begin + 1;
                }
            }
        }
    }

    /// Notes the removal of a key that is there at least once.
    pub fn remove(&mut self, key: u64, is_certain: bool) {
        let known = &mut self.keys[key as usize];
        known.least -= 1;
        known.most -= u64::from(is_certain);
    }
}
