//! A call as a line of text, so that the processes of a test can exchange their histories.
//!
//! The format is `BEGIN END OPERATION OUTCOME REQUEST_ID KEY`. A `-` stands for an end that never
//! came and for a missing request id. The key is last, so it may contain spaces, but no line break.

use std::{fmt::Display, str::FromStr};

use crate::call::{Call, NEVER, Operation, Outcome};

/// The error for a line that describes no call.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a call")]
pub struct NotACall(pub String);

impl<K: Display> Call<K> {
    /// Returns the call as a line, without the line break.
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
    // A call without an end has no answer, and a call without an answer has no end.
    if (end == NEVER) != (outcome == Outcome::Unknown) {
        return None;
    }
    let call = Call::new(operation, key, begin, end, outcome);
    Some(match request_id {
        "-" => call,
        id => call.with_request_id(id),
    })
}
