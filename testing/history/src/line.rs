//! A call as a line of text, so that the processes of a test can hand their histories on.
//!
//! `BEGIN END OPERATION OUTCOME REQUEST_ID KEY`, with `-` for an end that never came and for no
//! request id. The key is last, so it may hold spaces; it may not hold the end of a line.

use std::{fmt::Display, str::FromStr};

use crate::call::{Call, NEVER, Operation, Outcome};

/// A line that says nothing of a call.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a call")]
pub struct NotACall(pub String);

impl<K: Display> Call<K> {
    /// The call as a line, without the end of the line.
    pub fn to_line(&self) -> String {
        let course = self.course;
        let end = match course.end {
            NEVER => "-".to_owned(),
            end => end.to_string(),
        };
        format!(
            "{} {end} {} {} {} {}",
            course.begin,
            course.operation,
            course.outcome,
            self.request_id.as_deref().unwrap_or("-"),
            self.key,
        )
    }
}

impl<K: FromStr> FromStr for Call<K> {
    type Err = NotACall;

    fn from_str(line: &str) -> Result<Self, NotACall> {
        parsed(line).ok_or_else(|| NotACall(line.to_owned()))
    }
}

fn parsed<K: FromStr>(line: &str) -> Option<Call<K>> {
    let mut words = line.splitn(6, ' ');
    let begin = words.next()?.parse().ok()?;
    let end = match words.next()? {
        "-" => NEVER,
        end => end.parse().ok()?,
    };
    let operation = match words.next()? {
        "query" => Operation::Query,
        "query_and_add" => Operation::QueryAndAdd,
        "add" => Operation::Add,
        _ => return None,
    };
    let outcome = match (words.next()?, operation) {
        ("new", Operation::Query | Operation::QueryAndAdd) => Outcome::New,
        ("seen", Operation::Query | Operation::QueryAndAdd) => Outcome::Seen,
        ("added", Operation::Add) => Outcome::Added,
        ("unknown", _) => Outcome::Unknown,
        _ => return None,
    };
    let request_id = words.next()?;
    let key = words.next()?.parse().ok()?;
    // What has no end has no answer, and the other way round.
    if (end == NEVER) != (outcome == Outcome::Unknown) {
        return None;
    }
    let call = Call::new(operation, key, begin, end, outcome);
    Some(match request_id {
        "-" => call,
        id => call.with_request_id(id),
    })
}
