//! Repeats a call within its deadline, as far as repeating it is safe.
//!
//! A `QueryAndAdd` that reached the server has marked its keys, and a second one would
//! say "seen": nobody would crawl them. So it carries an id by which the server knows it
//! again, and answers as it did the first time. What carries none is repeated only where
//! it is certain that the first was never sent.

use std::{sync::Arc, time::Duration};

use backon::ExponentialBackoff;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::{Code, Response, Status};

use crate::{
    budget::Budget,
    error::{Cause, Error},
    options::Options,
};

/// What may be done twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Twice is the same as once, by itself or because the server knows the call again.
    Safe,
    /// The second time has another answer or effect than the first.
    UnlessSent,
}

impl Repeat {
    /// Whether an attempt that ended with `status` is worth another, and safe.
    fn allows(self, status: &Status) -> bool {
        match Cause::of(status) {
            Cause::NeverConnected => true,
            Cause::Broke => self == Self::Safe,
            Cause::Answered => self == Self::Safe && status.code() == Code::Unavailable,
            Cause::Expired => false,
        }
    }
}

/// One rpc to one server, for errors and for the decision to repeat.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) repeat: Repeat,
    pub(crate) endpoint: Arc<str>,
    pub(crate) budget: Arc<Budget>,
}

/// The pauses between the attempts of one call, which end with the last attempt.
#[derive(Debug)]
pub(crate) struct Pauses {
    pauses: ExponentialBackoff,
    /// Whether an attempt reached the server, perhaps, and was not answered.
    may_be_applied: bool,
}

impl Pauses {
    /// The pauses after an answer on a stream, on which others are yet to be answered.
    pub(crate) fn begin_again(&mut self, options: &Options, may_be_applied: bool) {
        *self = Self {
            pauses: options.pauses(),
            may_be_applied,
        };
    }

    /// How long to wait before the call is repeated after an attempt that ended with `status`;
    /// `None` if it is not to be, as of the deadline among others: past that, what failed says
    /// more than that time ran out.
    pub(crate) fn next(
        &mut self,
        call: &Call,
        status: &Status,
        deadline: Instant,
    ) -> Option<Duration> {
        let pause = call.repeat.allows(status).then(|| self.pauses.next())??;
        let left = deadline.saturating_duration_since(Instant::now() + pause);
        let turn = (!left.is_zero()).then(|| call.budget.take(left))??;
        self.may_be_applied |= Cause::of(status) != Cause::NeverConnected;
        Some(pause + turn)
    }

    /// The error of a call whose last attempt ended with `status`.
    pub(crate) fn error(&self, call: &Call, options: &Options, status: Status) -> Error {
        let error = call.failed(options, status);
        match self.may_be_applied {
            true => error.after_a_break(&call.endpoint, call.name),
            false => error,
        }
    }
}

impl Call {
    /// Runs `attempt` until it succeeds, must not be repeated, or `options` end it. It is
    /// told how much time is left, so that it can tell the server.
    pub(crate) async fn run<T, F>(
        &self,
        options: &Options,
        mut attempt: impl FnMut(Duration) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let deadline = options.deadline_from_now();
        let mut pauses = self.pauses(options);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // tonic's own timer starts when the connection is there and stops at the
            // response headers: neither connecting nor a slow body would be covered.
            let status = match timeout_at(deadline, attempt(left)).await {
                Ok(Ok(response)) => {
                    self.budget.note_answer();
                    return Ok(response.into_inner());
                }
                Ok(Err(status)) => status,
                Err(_) => return Err(self.expired(options)),
            };
            match pauses.next(self, &status, deadline) {
                Some(pause) => sleep(pause).await,
                None => return Err(pauses.error(self, options, status)),
            }
        }
    }

    pub(crate) fn pauses(&self, options: &Options) -> Pauses {
        Pauses {
            pauses: options.pauses(),
            may_be_applied: false,
        }
    }

    pub(crate) fn failed(&self, options: &Options, status: Status) -> Error {
        Error::from_status(self.name, &self.endpoint, options.deadline, status)
    }

    #[cfg(feature = "cli")]
    pub(crate) fn broken(&self, reason: &str) -> Error {
        Error::Broken {
            call: self.name,
            endpoint: Arc::clone(&self.endpoint),
            reason: reason.to_owned(),
            status: Box::new(Status::unavailable(reason)),
        }
    }

    pub(crate) fn expired(&self, options: &Options) -> Error {
        Error::Deadline {
            call: self.name,
            endpoint: Arc::clone(&self.endpoint),
            deadline: options.deadline,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, io};

    use tonic::{ConnectError, TimeoutExpired};

    use super::*;

    fn never_connected() -> Status {
        Status::from_error(Box::new(ConnectError("refused".into())))
    }

    fn broke() -> Status {
        Status::from_error(Box::new(io::Error::from(io::ErrorKind::ConnectionReset)))
    }

    #[test]
    fn only_what_is_safe_is_repeated() {
        let expired = Status::from_error(Box::new(TimeoutExpired(())));
        for (status, safe, unless_sent) in [
            (never_connected(), true, true),
            (broke(), true, false),
            (Status::unavailable("recovering"), true, false),
            (Status::invalid_argument("key is empty"), false, false),
            // A filter that is full stays so.
            (Status::resource_exhausted("is full"), false, false),
            (Status::internal("sorry"), false, false),
            (Status::deadline_exceeded("late"), false, false),
            (Status::cancelled("Timeout expired"), false, false),
            (expired, false, false),
        ] {
            assert_eq!(Repeat::Safe.allows(&status), safe, "{status:?}");
            assert_eq!(
                Repeat::UnlessSent.allows(&status),
                unless_sent,
                "{status:?}"
            );
        }
    }

    async fn attempts(repeat: Repeat, options: Options, status: fn() -> Status) -> (u32, Error) {
        let made = Cell::new(0);
        let call = Call {
            name: "Test",
            repeat,
            endpoint: "http://test".into(),
            budget: Arc::new(Budget::new(options.retries_per_second)),
        };
        let result: Result<(), _> = call
            .run(&options, |_| {
                made.set(made.get() + 1);
                async move { Err(status()) }
            })
            .await;
        (made.get(), result.unwrap_err())
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_end_with_their_number() {
        let options = Options {
            attempts: 4,
            ..Options::default()
        };
        let (made, error) = attempts(Repeat::Safe, options, || Status::unavailable("no")).await;
        assert_eq!(made, 4);
        assert_eq!(error.code(), Some(Code::Unavailable));

        let (made, error) = attempts(Repeat::UnlessSent, options, broke).await;
        assert_eq!(made, 1);
        assert!(matches!(error, Error::Broken { .. }), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_end_with_the_deadline_and_say_what_failed() {
        let options = Options {
            attempts: 1000,
            deadline: Duration::from_secs(3),
            ..Options::default()
        };
        let before = Instant::now();
        let (made, error) = attempts(Repeat::UnlessSent, options, never_connected).await;
        assert!((3..20).contains(&made), "{made} attempts");
        assert!(before.elapsed() <= options.deadline);
        assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    }

    /// The server may have applied the first one: that the second was not sent, or was refused,
    /// is no comfort.
    #[tokio::test(start_paused = true)]
    async fn what_follows_a_break_does_not_hide_it() {
        for last in [never_connected, || Status::resource_exhausted("full")] {
            let made = Cell::new(0);
            let options = Options {
                attempts: 3,
                ..Options::default()
            };
            let call = Call {
                name: "Test",
                repeat: Repeat::Safe,
                endpoint: "http://test".into(),
                budget: Arc::new(Budget::new(1000)),
            };
            let attempt = |_| {
                made.set(made.get() + 1);
                let status = if made.get() == 1 { broke() } else { last() };
                async move { Err(status) }
            };
            let error = call.run::<(), _>(&options, attempt).await.unwrap_err();
            assert!(made.get() > 1);
            assert!(matches!(error, Error::Broken { .. }), "{error:?}");
            assert!(!error.changed_nothing());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_hangs_ends_with_the_deadline() {
        let call = Call {
            name: "Test",
            repeat: Repeat::Safe,
            endpoint: "http://test".into(),
            budget: Arc::new(Budget::new(1)),
        };
        let before = Instant::now();
        let result: Result<(), _> = call
            .run(&Options::default(), |_| std::future::pending())
            .await;
        assert!(matches!(result, Err(Error::Deadline { .. })), "{result:?}");
        assert_eq!(before.elapsed(), Options::default().deadline);
    }
}
