//! A summary of the calls of one key. The rules need only the first and the last calls of some
//! sorts, so the summary sorts nothing and keeps nothing else.

use std::fmt::Display;

use crate::{
    call::{Call, Course, Outcome},
    violation::Violation,
};

/// The calls of one key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Summary {
    /// The first two to begin of the calls that were answered "new".
    winners: [Option<Course>; 2],
    /// The first to begin of the calls that can have marked the key.
    mark: Option<Course>,
    /// The first to end of the calls that were answered "seen".
    seen: Option<Course>,
    /// The first to end of the calls after which the key is marked.
    told: Option<Course>,
    /// The last to begin of the calls that were answered "not seen".
    not_seen: Option<Course>,
    /// The begin of the last try that was answered "new", for a call with several tries.
    last_win: u64,
}

impl Summary {
    /// Records one more call.
    pub fn record(&mut self, course: Course) {
        if course.wins() {
            let [first, second] = self.winners;
            let mut winners = [first, second, Some(course)];
            winners.sort_by_key(|winner| winner.map_or(u64::MAX, |winner| winner.begin));
            let [first, second, _] = winners;
            self.winners = [first, second];
        }
        if course.can_mark() {
            keep(&mut self.mark, course, |kept| course.begin < kept.begin);
        }
        if course.outcome == Outcome::Seen {
            keep(&mut self.seen, course, |kept| course.end < kept.end);
        }
        if course.shows_marked() {
            keep(&mut self.told, course, |kept| course.end < kept.end);
        }
        if course.outcome == Outcome::New {
            keep(&mut self.not_seen, course, |kept| course.begin > kept.begin);
        }
    }

    /// Records a call with several tries. The last answered try began at `last_begin`.
    pub fn record_tries(&mut self, course: Course, last_begin: u64) {
        self.record(course);
        if course.wins() {
            self.last_win = self.last_win.max(last_begin);
        }
    }

    /// Returns whether a try was answered "new" that began after another call had seen the key.
    pub fn is_won_again(&self) -> bool {
        self.seen.is_some_and(|seen| seen.end < self.last_win)
    }

    /// Returns whether any call was answered "new".
    pub fn has_winner(&self) -> bool {
        self.winners.iter().any(Option::is_some)
    }

    /// Returns all violations in the calls of this key.
    pub fn violations<K: Display + Clone>(&self, key: &K) -> Vec<Violation<K>> {
        let call = |course| Call::of(key.clone(), course);
        let mut found = Vec::new();
        if let [Some(first), Some(second)] = self.winners {
            let (first, second) = (call(first), call(second));
            found.push(Violation::TwoWinners { first, second });
        }
        match (self.seen, self.mark) {
            (Some(seen), Some(mark)) if seen.end < mark.begin => {
                let (seen, mark) = (call(seen), call(mark));
                found.push(Violation::SeenBeforeMarked { seen, mark });
            }
            (Some(seen), None) => found.push(Violation::NeverMarked { seen: call(seen) }),
            _ => (),
        }
        if let (Some(told), Some(not_seen)) = (self.told, self.not_seen)
            && told.end < not_seen.begin
        {
            let (told, not_seen) = (call(told), call(not_seen));
            found.push(Violation::Forgotten { told, not_seen });
        }
        found
    }
}

fn keep(kept: &mut Option<Course>, course: Course, better: impl Fn(&Course) -> bool) {
    if kept.as_ref().is_none_or(better) {
        *kept = Some(course);
    }
}
