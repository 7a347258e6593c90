//! What has to be remembered of the calls of one key: the rules ask for the first and the last of
//! some sorts, so nothing has to be sorted and nothing else kept.

use std::fmt::Display;

use crate::{
    call::{Call, Course, Outcome},
    violation::Violation,
};

/// The calls of one key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Summary {
    /// The first two to begin of those that were told that the key is new.
    winners: [Option<Course>; 2],
    /// The first to begin of those that can have marked the key.
    mark: Option<Course>,
    /// The first to end of those that were told "seen".
    seen: Option<Course>,
    /// The first to end of those after which the key is marked.
    told: Option<Course>,
    /// The last to begin of those that were told "not seen".
    not_seen: Option<Course>,
    /// When the last try began that was told that the key is new, if there were several.
    last_win: u64,
}

impl Summary {
    /// Takes one more call in.
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

    /// Takes in a call of which there were tries, the last answered one since a time.
    pub fn record_tries(&mut self, course: Course, last_begin: u64) {
        self.record(course);
        if course.wins() {
            self.last_win = self.last_win.max(last_begin);
        }
    }

    /// Whether the winner was told so by a try that began when others had seen the key.
    pub fn is_won_again(&self) -> bool {
        self.seen.is_some_and(|seen| seen.end < self.last_win)
    }

    /// Whether somebody was told that the key is new.
    pub fn has_winner(&self) -> bool {
        self.winners.iter().any(Option::is_some)
    }

    /// All rules that the calls of this key break.
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
