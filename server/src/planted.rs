//! Bugs that a test can plant, to check that another test finds them.
//!
//! Each one is a mistake that a programmer could well make. None can be switched on in the program:
//! there [`is_planted`](Bug::is_planted) is `false`, and the compiler removes the code. The tests
//! read the environment. `found_by`, in the tests of this module, lists which test finds which bug.

/// Makes [`Bug`], and the list of all of them.
macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident,)*) => {
        /// A bug that is absent unless a test plants it. Those of calls to the disk are planted in
        /// the simulated disk.
        #[cfg_attr(
            not(any(test, fuzzing)),
            expect(dead_code, reason = "only tests and fuzzing have the simulated disk")
        )]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Bug {
            $($(#[$doc])* $bug,)*
        }

        #[cfg(test)]
        impl Bug {
            const ALL: &[Self] = &[$(Self::$bug),*];
        }
    };
}

bugs! {
    /// The directory is not synced when the manifest has been replaced.
    ManifestNameNotSynced,
    /// The directory is not synced when a segment of the log has been given its name.
    SegmentNameNotSynced,
    /// The directory is not synced when a file of snapshots has been made.
    SnapshotNameNotSynced,
    /// The manifest is written in its place, and not beside it and renamed.
    ManifestInPlace,
    /// A file of snapshots is not synced before the manifest names it.
    SnapshotNotSynced,
    /// Files that the new manifest does not name are removed before it stands.
    RemovedTooEarly,
    /// The contents of a snapshot count as stored before the snapshot is.
    DirtyMarkClearedTooEarly,
    /// A snapshot does not wait until the log holds the records of its contents.
    SnapshotAheadOfTheLog,
    /// A snapshot is begun while calls are under way.
    SnapshotAmidCalls,
    /// Pages are not checked against their checksums.
    PageNotVerified,
    /// The checksums of pages are not salted with their place.
    PageNotSalted,
    /// Pieces of the log are written, and not synced.
    LogNotSynced,
    /// Calls are answered before their records are synced.
    AnswerBeforeSync,
    /// Calls are answered no matter how long ago the last sync was.
    NotHeldBack,
    /// A failed sync is treated as a successful one.
    FailedSyncBelieved,
    /// Records that were not synced when the log failed are not written again.
    UnsyncedForgotten,
    /// A segment that failed gives back its room before another segment holds its batches.
    RoomGivenBackTooEarly,
    /// The batches that were lost with a segment are written to the next segment first to last.
    RecoveredInPart,
    /// A segment that is made anew gets a salt that differs from that of the tail.
    SaltNotKept,
    /// The rest of a short write is not written.
    ShortWriteTaken,
    /// A call that finds a key does not wait until the key is in the log.
    SeenWithoutWaiting,
    /// Calls add keys that the log may have no room for.
    NoReservation,
    /// A start takes the last whole batch for a torn write.
    TailCutTooFar,
    /// A start reads batches without checking which batch they follow.
    BatchesNotChained,
    /// A start does not read the tail.
    TailNotRead,
    /// A start does not make durable the records that it has read.
    FoundNotSynced,
    /// A start leaves out a version that the snapshots do not hold.
    ReplayLeavesOut,
    /// The bits of a key are tested and set one by one, and the lock is released in between.
    BitByBit,
    /// The ids of requests are not written to the log.
    RequestNotLogged,
    /// The keys that a request added first are not written again when the log is cut.
    RequestCutOff,
    /// A start counts keys that the snapshots already hold.
    CountedAgain,
    /// A start counts records that follow a gap of the log.
    GapPassedOver,
    /// A start adds keys to any layer that has room for them.
    LayersNotReplayed,
}

impl Bug {
    /// Returns whether the bug is planted: never, in the program.
    #[cfg(not(test))]
    #[inline(always)]
    pub(crate) const fn is_planted(self) -> bool {
        false
    }

    /// Returns whether a test has planted the bug in this process.
    #[cfg(test)]
    pub(crate) fn is_planted(self) -> bool {
        *tests::PLANTED == Some(self)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        process::{Command, Output},
        sync::LazyLock,
    };

    use super::Bug::{self, *};

    const VARIABLE: &str = "SEENSET_PLANTED";

    /// Returns the tests that fail with a bug.
    fn found_by(bug: Bug) -> &'static [&'static str] {
        match bug {
            ManifestNameNotSynced => &[POWER_CUT],
            SegmentNameNotSynced => &[POWER_CUT],
            SnapshotNameNotSynced => &[BEFORE_OR_AFTER],
            ManifestInPlace => &[POWER_CUT],
            SnapshotNotSynced => &[POWER_CUT],
            RemovedTooEarly => &[BEFORE_OR_AFTER],
            DirtyMarkClearedTooEarly => {
                &["engine::filter::tests::a_store_that_fails_is_made_again_in_full"]
            }
            SnapshotAheadOfTheLog => &["engine::tests::requests::no_snapshot_is_ahead_of_the_log"],
            SnapshotAmidCalls => &[
                "engine::filter::tests::a_store_waits_for_the_calls_that_are_under_way_and_they_do_not_for_it",
            ],
            PageNotVerified => &["store::snapshot::tests::damage_anywhere_is_noticed"],
            PageNotSalted => &["store::snapshot::tests::what_is_in_the_place_of_another_is_found"],
            LogNotSynced => &[POWER_CUT],
            AnswerBeforeSync => &[POWER_CUT],
            NotHeldBack => {
                &["engine::tests::interval::a_power_cut_takes_no_more_than_the_interval_has"]
            }
            FailedSyncBelieved => &[ERRORS],
            UnsyncedForgotten => {
                &["engine::tests::disk_errors::a_full_disk_refuses_keys_until_there_is_room"]
            }
            RoomGivenBackTooEarly => {
                &["store::log::tests::failing::a_segment_that_is_closed_keeps_no_room"]
            }
            RecoveredInPart => {
                &["store::log::tests::failing::what_is_recovered_is_there_as_a_whole"]
            }
            SaltNotKept => &["store::log::tests::failing::what_is_recovered_is_there_as_a_whole"],
            ShortWriteTaken => &[ERRORS],
            SeenWithoutWaiting => &[POWER_CUT],
            NoReservation => {
                &["engine::tests::disk_errors::keys_that_the_log_has_no_room_for_are_refused_whole"]
            }
            TailCutTooFar => &["store::log::tests::every_truncation_is_found_or_a_torn_end"],
            BatchesNotChained => &["store::log::tests::batches_that_are_swapped_are_found"],
            TailNotRead => &[KILL],
            FoundNotSynced => &[
                "engine::tests::failed_starts::what_a_failed_start_has_not_kept_the_next_one_keeps",
            ],
            ReplayLeavesOut => &[POWER_CUT, POWER_CUT_AFTER_KILL],
            BitByBit => &[
                "engine::filter::tests::one_winner_of_two_in_step",
                "engine::filter::tests::one_winner_of_two_batches_in_step",
            ],
            RequestNotLogged => &[
                "engine::tests::requests::a_request_whose_answer_a_power_cut_took_is_answered_after_it",
            ],
            RequestCutOff => &[
                "engine::tests::requests::a_repeated_request_gets_its_first_answer_also_after_crashes_and_stores",
            ],
            CountedAgain => &[COUNTS],
            GapPassedOver => {
                &["engine::persist::recovery::order::tests::the_next_server_goes_on_behind_the_gap"]
            }
            LayersNotReplayed => {
                &["engine::tests::scaling::log::what_was_seen_by_chance_is_seen_after_a_crash"]
            }
        }
    }

    const POWER_CUT: &str =
        "engine::tests::durability::a_power_cut_anywhere_loses_nothing_that_was_acknowledged";
    const POWER_CUT_AFTER_KILL: &str =
        "engine::tests::durability::a_power_cut_after_a_kill_loses_nothing_that_was_acknowledged";
    const KILL: &str =
        "engine::tests::durability::a_kill_anywhere_loses_nothing_that_was_acknowledged";
    const ERRORS: &str =
        "engine::tests::disk_errors::no_error_of_the_disk_makes_a_false_acknowledgement";
    const BEFORE_OR_AFTER: &str = "store::snapshot::tests::a_filter_is_as_before_or_as_after";
    const COUNTS: &str =
        "engine::tests::counting::keys_are_there_as_often_as_they_were_added_after_power_cuts";

    pub(super) static PLANTED: LazyLock<Option<Bug>> = LazyLock::new(|| {
        let name = env::var(VARIABLE).ok()?;
        let planted = Bug::ALL.iter().find(|bug| format!("{bug:?}") == name);
        Some(*planted.expect("the name of a bug"))
    });

    fn run(test: &str, bug: Bug) -> Output {
        Command::new(env::current_exe().unwrap())
            .args([test, "--exact"])
            .env(VARIABLE, format!("{bug:?}"))
            .env("RUST_BACKTRACE", "0")
            .output()
            .unwrap()
    }

    /// The tests also run by themselves, without any bug: that they pass is seen there.
    #[test]
    fn each_is_found() {
        let tests = |&bug: &Bug| found_by(bug).iter().map(move |&test| (bug, test));
        let missed = Bug::ALL.iter().flat_map(tests).filter(|&(bug, test)| {
            let Output { stdout, .. } = run(test, bug);
            // The test must fail, not be missing because it was renamed: then none would have
            // failed.
            !String::from_utf8_lossy(&stdout).contains("0 passed; 1 failed")
        });
        let missed: Vec<(Bug, &str)> = missed.collect();
        assert!(missed.is_empty(), "not found: {missed:#?}");
    }
}
