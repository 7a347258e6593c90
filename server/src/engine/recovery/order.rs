//! The order in which keys are counted again.
//!
//! Records come to the log in about the order of their versions: each thread hands over its own.
//! A key may be removed that another call has added just before, so they are put in order here.
//!
//! A crash may leave out some of the last ones and not others. Of those behind a gap none has been
//! acknowledged, or the crash may take them as well, and they are left out too: what is found is
//! what there was at one version.

use std::collections::BTreeMap;

use crate::{
    planted::Bug,
    store::{Counted, Record},
};

/// Puts the records of one filter in order. Takes memory for those that wait: of a server that
/// was killed, what others had done while one call was under way.
#[derive(Debug)]
pub struct Order {
    /// That of the records that come now.
    since: u64,
    /// The version that is next.
    next: u64,
    waiting: BTreeMap<u64, Record>,
}

impl Order {
    /// That of a filter whose snapshots hold all changes up to a version.
    pub fn behind(version: u64) -> Self {
        Self {
            since: version,
            next: version + 1,
            waiting: BTreeMap::new(),
        }
    }

    /// Takes the next record of the log, and calls `apply` for those whose turn it is.
    pub fn take(&mut self, counted: Counted, record: Record, apply: &mut impl FnMut(Record)) {
        if counted.since != self.since {
            // Of an earlier server no more will come.
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
            FilterId, RecordHead,
        },
    };

    /// The versions that are applied of these records, of direction, `since` and version.
    fn applied(behind: u64, records: &[(Direction, u64, u64)]) -> Vec<u64> {
        let mut order = Order::behind(behind);
        let mut applied = Vec::new();
        let mut apply = |record: Record| applied.push(record.head.version);
        for &(direction, since, version) in records {
            let counted = Counted { direction, since };
            let head = RecordHead {
                counted: Some(counted),
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
            // It has found version 4, and goes on from there.
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
