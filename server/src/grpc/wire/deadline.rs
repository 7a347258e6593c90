//! The deadline of a call: the header `grpc-timeout`.
//!
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};
use tonic::{
    Status,
    codegen::http::{HeaderMap, HeaderName},
};

use crate::engine::EngineError;
use crate::grpc::status::status;

const HEADER: HeaderName = HeaderName::from_static("grpc-timeout");

/// The maximum number of digits of a timeout.
const MAX_DIGITS: usize = 8;

/// The deadline of a call. It costs nothing until the call has to wait.
#[derive(Debug)]
pub struct Deadline {
    at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    /// Returns the deadline of a call that has just arrived. There is none if the header is missing
    /// or malformed; the caller then ends the call itself.
    pub fn of(headers: &HeaderMap) -> Self {
        let timeout = headers
            .get(HEADER)
            .and_then(|value| parse(value.as_bytes()));
        Self {
            at: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            timer: None,
        }
    }

    /// Returns the time at which the caller stops waiting.
    pub fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Waits until the deadline of a call that may have changed something.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        ready!(self.poll_over(cx));
        Poll::Ready(in_doubt())
    }

    /// Waits until the deadline of a call that has not begun.
    pub fn poll_before(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        ready!(self.poll_over(cx));
        Poll::Ready(status(EngineError::DeadlineOver))
    }

    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.at else {
            return Poll::Pending;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        timer.as_mut().poll(cx)
    }

    /// Waits for `waiting`, which a call needs before it begins, until the deadline.
    ///
    /// # Errors
    ///
    /// DEADLINE_EXCEEDED; the call has changed nothing.
    pub async fn limit_before<T>(&mut self, waiting: impl Future<Output = T>) -> Result<T, Status> {
        let mut waiting = pin!(waiting);
        poll_fn(|cx| match waiting.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Ok(value)),
            Poll::Pending => self.poll_before(cx).map(Err),
        })
        .await
    }

    /// Runs a call until the deadline. After the deadline the call is not polled again: it does not
    /// continue even if the event it waited for has happened.
    ///
    /// # Errors
    ///
    /// DEADLINE_EXCEEDED.
    pub async fn limit<T>(mut self, call: impl Future<Output = T>) -> Result<T, Status> {
        let mut call = pin!(call);
        let mut has_begun = false;
        poll_fn(|cx| {
            if self.at.is_some_and(|at| Instant::now() >= at) {
                return Poll::Ready(Err(match has_begun {
                    true => in_doubt(),
                    false => status(EngineError::DeadlineOver),
                }));
            }
            has_begun = true;
            match call.as_mut().poll(cx) {
                Poll::Ready(value) => Poll::Ready(Ok(value)),
                Poll::Pending => self.poll(cx).map(Err),
            }
        })
        .await
    }
}

/// The status of a call whose deadline passed after it had begun.
fn in_doubt() -> Status {
    Status::deadline_exceeded(
        "the time that the caller gave is over, and whether the call was carried out is not \
         known; repeat it, with the same request_id if it has one",
    )
}

fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.len() > MAX_DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(number * 60 * 60),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::future;

    use tonic::{Code, codegen::http::HeaderValue};

    use super::*;

    #[test]
    fn timeouts_are_read_in_all_their_units() {
        let read = |value: &str| parse(value.as_bytes());
        for (value, seconds) in [("2H", 7200), ("3M", 180), ("99999999S", 99_999_999)] {
            assert_eq!(read(value), Some(Duration::from_secs(seconds)), "{value}");
        }
        assert_eq!(read("15m"), Some(Duration::from_millis(15)));
        assert_eq!(read("15u"), Some(Duration::from_micros(15)));
        assert_eq!(read("0n"), Some(Duration::ZERO));
        for value in [
            "",
            "1",
            "S",
            "123456789S",
            "+1S",
            "-1S",
            "1.5S",
            "1h",
            "1 S",
        ] {
            assert_eq!(read(value), None, "{value:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_when_its_caller_waits_no_more() {
        let within = |value: Option<&'static str>| {
            let value = value.map(|value| (HEADER, HeaderValue::from_static(value)));
            Deadline::of(&value.into_iter().collect())
        };
        for value in [None, Some("1S"), Some("99999999H"), Some("soon")] {
            let answer = within(value).limit(future::ready(7)).await;
            assert_eq!(answer.unwrap(), 7, "{value:?}");
        }
        let second = within(Some("1S"));
        let begun = Instant::now();
        // The timeout counts from the arrival of the call, whatever the call has waited for.
        tokio::time::sleep(Duration::from_millis(900)).await;
        let error = second.limit(future::pending::<()>()).await.unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded);
        assert_eq!(begun.elapsed(), Duration::from_secs(1));
    }
    /// The call is not polled, neither for the first time nor when the event that it waits for has
    /// happened.
    #[tokio::test(start_paused = true)]
    async fn a_call_does_nothing_after_its_deadline() {
        let within = |value| {
            Deadline::of(
                &[(HEADER, HeaderValue::from_static(value))]
                    .into_iter()
                    .collect(),
            )
        };
        let error = within("0S").limit(async { panic!("it is polled") }).await;
        let error: Status = error.map(|(): ()| ()).unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded);
        assert!(error.message().contains("changed nothing"), "{error}");

        let second = within("1S");
        let (turn, waiting) = tokio::sync::oneshot::channel();
        let call = second.limit(async {
            waiting.await.unwrap();
            panic!("it goes on")
        });
        let mut call = pin!(call);
        assert!(futures_util::poll!(call.as_mut()).is_pending());
        tokio::time::advance(Duration::from_secs(2)).await;
        turn.send(()).unwrap();
        let error: Status = call.await.map(|(): ()| ()).unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded);
        assert!(error.message().contains("not known"), "{error}");
    }
}
