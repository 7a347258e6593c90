//! Bugs that a test can plant, to see that another test finds them.
//!
//! Each stands where somebody might well make it. In the program none can be switched on: there
//! [`is_planted`](Bug::is_planted) is `false`, and the compiler takes it out. The tests ask the
//! environment; which of them finds which bug stands in `found_by`, in this module's own.

/// Makes [`Bug`], and the list of all of them.
macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident,)*) => {
        /// A bug that is not there unless a test has it planted.
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
    /// What a snapshot is to hold counts as stored before it is.
    DirtyMarkClearedTooEarly,
    /// A snapshot does not wait for the log of what it holds.
    SnapshotAheadOfTheLog,
    /// A snapshot is begun while calls are under way.
    SnapshotAmidCalls,
    /// Pages are not held against their checksums.
    PageNotVerified,
    /// The checksums of pages are not salted with their place.
    PageNotSalted,
    /// Pieces of the log are written, and not synced.
    LogNotSynced,
    /// Calls are answered before their records are synced.
    AnswerBeforeSync,
    /// Calls are answered however long the disk has not synced.
    NotHeldBack,
    /// A sync that failed is taken for one that did not.
    FailedSyncBelieved,
    /// What was not synced when the log failed is not written again.
    UnsyncedForgotten,
    /// A segment that failed gives back its room before the batches that belong there are in
    /// another.
    RoomGivenBackTooEarly,
    /// What was lost with a segment is written to the next from its first batch on.
    RecoveredInPart,
    /// A segment that is made anew gets another salt than the tail has.
    SaltNotKept,
    /// The rest of a write that did a part is left out.
    ShortWriteTaken,
    /// Whoever finds a key does not wait until that is in the log.
    SeenWithoutWaiting,
    /// The same where it finds the key in a batch.
    BatchSeenWithoutWaiting,
    /// Calls add keys that the log may have no room for.
    NoReservation,
    /// A start takes the last whole batch for a torn one.
    TailCutTooFar,
    /// Batches are read whatever they follow.
    BatchesNotChained,
    /// A start does not look into the tail.
    TailNotRead,
    /// What a start has read is not put on stable storage.
    FoundNotSettled,
    /// A start leaves out a version that the snapshots do not hold.
    ReplayLeavesOut,
    /// The bits of a key are tested and set one by one, and the lock is let go in between.
    BitByBit,
    /// The ids of requests do not come to the log.
    RequestNotLogged,
    /// What a request has won is not written again where the log is cut.
    RequestCutOff,
    /// A start counts keys that the snapshots hold already.
    CountedAgain,
    /// A start counts what is behind a gap of the log.
    GapPassedOver,
    /// A start adds keys to whichever layer has room for them.
    LayersNotReplayed,
}

impl Bug {
    /// Whether the bug is there.
    #[cfg(not(test))]
    #[inline(always)]
    pub(crate) const fn is_planted(self) -> bool {
        false
    }

    /// Whether a test has planted the bug in this process.
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

    /// The tests that fail with a bug.
    fn found_by(bug: Bug) -> &'static [&'static str] {
        match bug {
            ManifestNameNotSynced => &[POWER_CUT],
            SegmentNameNotSynced => &[POWER_CUT],
            SnapshotNameNotSynced => &[POWER_CUT],
            ManifestInPlace => &[POWER_CUT],
            SnapshotNotSynced => &[POWER_CUT],
            RemovedTooEarly => &["store::snapshot::tests::a_filter_is_as_before_or_as_after"],
            DirtyMarkClearedTooEarly => {
                &["engine::guarded::tests::a_store_that_fails_is_made_again_in_full"]
            }
            SnapshotAheadOfTheLog => &["engine::tests::requests::no_snapshot_is_ahead_of_the_log"],
            SnapshotAmidCalls => &[
                "engine::guarded::tests::a_store_waits_for_the_calls_that_are_under_way_and_they_do_not_for_it",
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
            BatchSeenWithoutWaiting => &[POWER_CUT],
            NoReservation => {
                &["engine::tests::disk_errors::keys_that_the_log_has_no_room_for_are_refused_whole"]
            }
            TailCutTooFar => &[POWER_CUT_AFTER_KILL],
            BatchesNotChained => &["store::log::tests::batches_that_are_swapped_are_found"],
            TailNotRead => &[KILL],
            FoundNotSettled => &[
                "engine::tests::failed_starts::what_a_failed_start_has_not_kept_the_next_one_keeps",
            ],
            ReplayLeavesOut => &[POWER_CUT],
            BitByBit => &[
                "engine::guarded::tests::one_winner_of_two_in_step",
                "engine::guarded::tests::one_winner_of_two_batches_in_step",
            ],
            RequestNotLogged => &[
                "engine::tests::requests::a_request_whose_answer_a_power_cut_took_is_answered_after_it",
            ],
            RequestCutOff => &[
                "engine::tests::requests::a_repeated_request_gets_its_first_answer_also_after_crashes_and_stores",
            ],
            CountedAgain => &[COUNTS],
            GapPassedOver => {
                &["engine::recovery::order::tests::the_next_server_goes_on_behind_the_gap"]
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

    /// That the tests pass without any bug is seen where they run by themselves.
    #[test]
    fn each_is_found() {
        let tests = |&bug: &Bug| found_by(bug).iter().map(move |&test| (bug, test));
        let missed = Bug::ALL.iter().flat_map(tests).filter(|&(bug, test)| {
            let Output { stdout, .. } = run(test, bug);
            // Not zero, as it would be of a test that has been given another name.
            !String::from_utf8_lossy(&stdout).contains("0 passed; 1 failed")
        });
        let missed: Vec<(Bug, &str)> = missed.collect();
        assert!(missed.is_empty(), "not found: {missed:#?}");
    }
}
