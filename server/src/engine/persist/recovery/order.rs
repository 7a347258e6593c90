//! Replay order of counted records.
//!
//! Records are in the log in about the order of their versions, because each thread appends its
//! own. A removal must follow the addition of the same key by another call, so the records are put
//! in order here.
//!
//! A crash can lose some of the last records and keep later ones. Records after such a gap were not
//! acknowledged, because a crash could have lost them too. So they are left out, and the result is
//! the state at one version.

use std::collections::BTreeMap;

use crate::{
    planted::Bug,
    store::{Counted, Record},
};

/// Puts the records of one filter in order. Records that wait take memory. If the server was
/// killed, these are the records of other calls that ended while one call was still in progress.
#[derive(Debug)]
pub struct Order {
    /// The `since` of the records that are being read.
    since: u64,
    /// The next version to apply.
    next: u64,
    waiting: BTreeMap<u64, Record>,
}

impl Order {
    /// Returns the order for a filter whose snapshots contain all changes up to a version.
    pub fn behind(version: u64) -> Self {
        Self {
            since: version,
            next: version + 1,
            waiting: BTreeMap::new(),
        }
    }

    /// Takes the next record of the log, and calls `apply` for each record whose turn it is.
    pub fn take(&mut self, counted: Counted, record: Record, apply: &mut impl FnMut(Record)) {
        if counted.since != self.since {
            // No more records of the earlier server run follow.
            if Bug::GapPassedOver.is_planted() {
                std::mem::take(&mut self.waiting)
                    .into_values()
                    .for_each(&mut *apply);
            }
            self.waiting.clear();
            self.since = counted.since;
            self.next = self.next.max(counted.since + 1);
        }
        let version = record.head.version;
        if version < self.next {
            return;
        }
        self.waiting.insert(version, record);
        while let Some(first) = self.waiting.first_entry()
            && *first.key() == self.next
        {
            self.next += 1;
            apply(first.remove());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        filter::hash::KeyHash,
        store::{
            Direction::{self, Down, Up},
            FilterId, RecordHead, RecordKind,
        },
    };

    /// Returns the versions that are applied. Each record is a direction, `since` and version.
    fn applied(behind: u64, records: &[(Direction, u64, u64)]) -> Vec<u64> {
        let mut order = Order::behind(behind);
        let mut applied = Vec::new();
        let mut apply = |record: Record| applied.push(record.head.version);
        for &(direction, since, version) in records {
            let counted = Counted { direction, since };
            let head = RecordHead {
                kind: RecordKind::Counted(counted),
                ..RecordHead::added(FilterId(1), version)
            };
            let hashes = vec![KeyHash::default()];
            order.take(counted, Record { head, hashes }, &mut apply);
        }
        applied
    }

    #[test]
    fn records_are_put_in_order() {
        let records = [(Up, 0, 2), (Up, 0, 1), (Down, 0, 4), (Up, 0, 3)];
        assert_eq!(applied(0, &records), [1, 2, 3, 4]);
    }

    #[test]
    fn what_is_stored_is_left_out() {
        let records = [(Up, 0, 1), (Up, 0, 3), (Down, 0, 2), (Down, 0, 4)];
        assert_eq!(applied(2, &records), [3, 4]);
    }

    #[test]
    fn nothing_is_applied_behind_a_gap() {
        let records = [(Up, 0, 1), (Up, 0, 3), (Down, 0, 4), (Up, 0, 5)];
        assert_eq!(applied(0, &records), [1]);
    }

    #[test]
    fn the_next_server_goes_on_behind_the_gap() {
        let records = [
            (Up, 0, 1),
            (Down, 0, 4),
            (Up, 0, 3),
            // The next server has found version 4, and goes on from there.
            (Down, 4, 6),
            (Up, 4, 5),
            (Down, 4, 7),
        ];
        assert_eq!(applied(0, &records), [1, 5, 6, 7]);
    }

    #[test]
    fn a_snapshot_ahead_of_a_server_counts() {
        let records = [(Up, 4, 5), (Up, 4, 7), (Down, 4, 8), (Up, 9, 10)];
        assert_eq!(applied(6, &records), [7, 8, 10]);
    }
}
