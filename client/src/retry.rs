//! Repeats a call within its deadline, if that is safe.
//!
//! A `QueryAndAdd` that reached the server has marked its keys. A second one would return "seen",
//! and nobody would crawl them. So it carries an idempotency key: the server recognises it and
//! returns the first answer again. A call without an idempotency key is repeated only if it is
//! certain that the first attempt was never sent.

use std::{sync::Arc, time::Duration};

use backon::ExponentialBackoff;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::{Code, Response, Status};

use crate::{
    budget::Budget,
    error::{Cause, Error, is_unapplied},
    options::Options,
    sent::Sent,
};

/// Whether a call can be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Twice has the same effect and answer as once, by itself or because the server recognises the
    /// call.
    Safe,
    /// The second time has another answer or effect than the first.
    UnlessSent,
}

impl Repeat {
    /// Returns whether another attempt after one that ended with `status` is useful and safe.
    fn allows(self, status: &Status, sent: bool) -> bool {
        let is_temporary = match Cause::of(status) {
            Cause::NeverConnected | Cause::Broke => true,
            Cause::Answered => status.code() == Code::Unavailable || pushback(status).is_some(),
            Cause::Expired => false,
        };
        is_temporary && (self == Self::Safe || !may_be_applied(status, sent))
    }
}

/// Returns the pause that the server asks for before the next attempt. The server asks for one if
/// it has no memory for the call at present.
/// <https://github.com/grpc/proposal/blob/master/A6-client-retries.md>
fn pushback(status: &Status) -> Option<Duration> {
    let milliseconds = status.metadata().get("grpc-retry-pushback-ms")?;
    let milliseconds = milliseconds.to_str().ok()?.parse().ok()?;
    Some(Duration::from_millis(milliseconds))
}

/// Returns whether an attempt that ended with `status` may have changed something.
pub(crate) fn may_be_applied(status: &Status, sent: bool) -> bool {
    match Cause::of(status) {
        Cause::NeverConnected => false,
        Cause::Broke => sent,
        Cause::Expired | Cause::Answered => sent && !is_unapplied(status),
    }
}

/// One attempt of a call.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// The time left until the deadline, sent to the server.
    pub(crate) left: Duration,
    /// Records that the request of the attempt is sent.
    pub(crate) sent: Sent,
}

/// One rpc to one server. Errors and the decision to repeat use it.
#[derive(Debug, Clone)]
pub(crate) struct Rpc {
    pub(crate) name: &'static str,
    pub(crate) repeat: Repeat,
    pub(crate) endpoint: Arc<str>,
    pub(crate) budget: Arc<Budget>,
}

/// The pauses between the attempts of one call, and the outcome of those attempts.
#[derive(Debug)]
pub(crate) struct Pauses {
    pauses: ExponentialBackoff,
    /// Whether an attempt was sent, was perhaps applied, and got no answer.
    may_be_applied: bool,
    /// The status that ended the last attempt.
    failure: Option<Status>,
}

impl Pauses {
    /// Starts again with the shortest pause, for the next batch on a stream.
    pub(crate) fn begin_again(&mut self, options: &Options, may_be_applied: bool) {
        *self = Self {
            pauses: options.pauses(),
            may_be_applied,
            failure: None,
        };
    }

    /// Returns the time to wait before the next attempt, after one that ended with `status`. Fails
    /// with the error of the call if no attempt can follow.
    ///
    /// The last attempt is made shortly before the deadline, however long the pauses have become.
    pub(crate) fn next(
        &mut self,
        call: &Rpc,
        options: &Options,
        status: Status,
        sent: bool,
        deadline: Instant,
    ) -> Result<Duration, Error> {
        let wait = self.wait(call, options, &status, sent, deadline);
        let Some(wait) = wait else {
            return Err(self.error(call, options, status, sent));
        };
        self.may_be_applied |= may_be_applied(&status, sent);
        self.failure = Some(status);
        Ok(wait)
    }

    fn wait(
        &mut self,
        call: &Rpc,
        options: &Options,
        status: &Status,
        sent: bool,
        deadline: Instant,
    ) -> Option<Duration> {
        let pause = call
            .repeat
            .allows(status, sent)
            .then(|| self.pauses.next())??;
        let pause = pause.max(pushback(status).unwrap_or_default());
        let left = deadline.saturating_duration_since(Instant::now());
        let most = left.checked_sub(options.first_pause)?;
        if most.is_zero() {
            return None;
        }
        let pause = pause.min(most);
        Some(pause + call.budget.take(left - pause)?)
    }

    /// Returns the error of a call whose last attempt ended with `status`.
    fn error(&self, call: &Rpc, options: &Options, status: Status, sent: bool) -> Error {
        let error = call.failed(options, status, sent);
        match self.may_be_applied {
            true => error.after_a_break(&call.endpoint, call.name),
            false => error,
        }
    }

    /// Returns the error of a call whose last attempt was not answered in time. If that attempt was
    /// not sent, the failure of the attempt before it says more.
    pub(crate) fn expired(&mut self, call: &Rpc, options: &Options, sent: bool) -> Error {
        match self.failure.take() {
            Some(status) if !sent => self.error(call, options, status, false),
            _ => call.expired(options, sent || self.may_be_applied),
        }
    }
}

impl Rpc {
    /// Runs `attempt` until it succeeds, until it must not be repeated, or until the deadline of
    /// `options` is over.
    pub(crate) async fn run<T, F>(
        &self,
        options: &Options,
        mut attempt: impl FnMut(Attempt) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let deadline = options.deadline_from_now();
        let mut pauses = self.pauses(options);
        loop {
            let sent = Sent::default();
            let attempt = attempt(Attempt {
                left: deadline.saturating_duration_since(Instant::now()),
                sent: sent.clone(),
            });
            // tonic's own timer starts when the connection exists and stops at the response
            // headers. It would cover neither connecting nor a slow body.
            let status = match timeout_at(deadline, attempt).await {
                Ok(Ok(response)) => {
                    self.budget.note_answer();
                    return Ok(response.into_inner());
                }
                Ok(Err(status)) => status,
                Err(_) => return Err(pauses.expired(self, options, sent.close())),
            };
            sleep(pauses.next(self, options, status, sent.close(), deadline)?).await;
        }
    }

    pub(crate) fn pauses(&self, options: &Options) -> Pauses {
        Pauses {
            pauses: options.pauses(),
            may_be_applied: false,
            failure: None,
        }
    }

    pub(crate) fn failed(&self, options: &Options, status: Status, sent: bool) -> Error {
        Error::from_status(self.name, &self.endpoint, options.deadline, status, sent)
    }

    pub(crate) fn expired(&self, options: &Options, may_be_applied: bool) -> Error {
        Error::Deadline {
            call: self.name,
            endpoint: Arc::clone(&self.endpoint),
            deadline: options.deadline,
            may_be_applied,
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

    fn recovering() -> Status {
        let mut status = Status::unavailable("recovering");
        status
            .metadata_mut()
            .insert("seenset-applied", "no".parse().unwrap());
        status
    }

    /// The server has no memory for the call at present.
    fn crowded() -> Status {
        let mut status = Status::resource_exhausted("the calls of all clients hold too much");
        let metadata = status.metadata_mut();
        metadata.insert("grpc-retry-pushback-ms", "700".parse().unwrap());
        status
    }

    #[test]
    fn only_what_is_safe_is_repeated() {
        let expired = Status::from_error(Box::new(TimeoutExpired(())));
        for (status, safe, unless_sent) in [
            (never_connected(), true, true),
            (broke(), true, false),
            (Status::unavailable("the disk fails"), true, false),
            (recovering(), true, true),
            (Status::invalid_argument("key is empty"), false, false),
            (crowded(), true, true),
            // A filter that is full stays so.
            (Status::resource_exhausted("is full"), false, false),
            (Status::internal("sorry"), false, false),
            (Status::deadline_exceeded("late"), false, false),
            (Status::cancelled("Timeout expired"), false, false),
            (expired, false, false),
        ] {
            assert_eq!(Repeat::Safe.allows(&status, true), safe, "{status:?}");
            let repeated = Repeat::UnlessSent.allows(&status, true);
            assert_eq!(repeated, unless_sent, "{status:?}");
            // A call that was not sent can be repeated whatever it does.
            let repeated = Repeat::UnlessSent.allows(&status, false);
            assert_eq!(repeated, safe, "{status:?}");
        }
    }

    fn call(repeat: Repeat) -> Rpc {
        Rpc {
            name: "Test",
            repeat,
            endpoint: "http://test".into(),
            budget: Arc::new(Budget::new(1000)),
        }
    }

    /// Returns the number of attempts that were made, and the error. All attempts are sent. They
    /// end with one status after the other, and the last status repeats.
    async fn attempts(
        repeat: Repeat,
        options: Options,
        statuses: &[fn() -> Status],
    ) -> (usize, Error) {
        let made = Cell::new(0);
        let attempt = |attempt: Attempt| {
            let status = statuses[made.get().min(statuses.len() - 1)]();
            made.set(made.get() + 1);
            attempt.sent.note();
            async move { Err(status) }
        };
        let result = call(repeat).run::<(), _>(&options, attempt).await;
        (made.get(), result.unwrap_err())
    }

    fn of_seconds(seconds: u64) -> Options {
        Options {
            deadline: Duration::from_secs(seconds),
            ..Options::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_attempt_is_not_made_before_the_server_wants_it() {
        let begun = Instant::now();
        let statuses: &[fn() -> Status] = &[crowded, crowded, || Status::internal("sorry")];
        let (made, error) = attempts(Repeat::UnlessSent, of_seconds(10), statuses).await;
        assert_eq!((made, error.code()), (3, Some(Code::Internal)));
        assert!(begun.elapsed() >= Duration::from_millis(1400));
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_be_applied_is_not_repeated() {
        let (made, error) = attempts(Repeat::UnlessSent, of_seconds(10), &[broke]).await;
        assert_eq!(made, 1);
        assert!(matches!(error, Error::Broken { .. }), "{error:?}");
        assert!(error.to_string().ends_with("it may have been applied"));
    }

    #[tokio::test(start_paused = true)]
    async fn time_decides_and_the_last_attempt_is_made_just_before_it_is_over() {
        for seconds in [1, 7, 60, 3600] {
            for status in [never_connected, broke, recovering] {
                let options = of_seconds(seconds);
                let before = Instant::now();
                let (made, error) = attempts(Repeat::Safe, options, &[status]).await;
                let took = before.elapsed();
                assert!(took <= options.deadline, "{took:?}");
                let least = options.deadline - options.first_pause - Duration::from_millis(10);
                assert!(took >= least, "{took:?} of {seconds} s");
                // Pauses of 2 s, and up to as long again.
                assert!(made as u64 >= seconds / 4, "{made} in {seconds} s");
                assert!(made as u64 <= 8 + seconds / 2, "{made} in {seconds} s");
                // Only one of these was sent and perhaps applied.
                let changed_nothing = Cause::of(&status()) != Cause::Broke;
                assert_eq!(error.changed_nothing(), changed_nothing, "{error:?}");
                let says_so = error.to_string().contains("may have been applied");
                assert_eq!(says_so, !changed_nothing, "{error}");
            }
        }
    }

    /// The server may have applied the first attempt. It does not help that the second attempt was
    /// not sent, or was refused.
    #[tokio::test(start_paused = true)]
    async fn what_follows_a_break_does_not_hide_it() {
        let full: fn() -> Status = || Status::resource_exhausted("full");
        for last in [never_connected, recovering, full] {
            let (made, error) = attempts(Repeat::Safe, of_seconds(3), &[broke, last]).await;
            assert!(made > 1);
            assert!(matches!(error, Error::Broken { .. }), "{error:?}");
            assert!(!error.changed_nothing());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_hangs_ends_with_the_deadline() {
        for sent in [true, false] {
            let before = Instant::now();
            let hanging = |attempt: Attempt| {
                if sent {
                    attempt.sent.note();
                }
                std::future::pending()
            };
            let call = call(Repeat::Safe);
            let result = call.run::<(), _>(&Options::default(), hanging).await;
            let error = result.unwrap_err();
            assert!(matches!(error, Error::Deadline { .. }), "{error:?}");
            assert_eq!(error.changed_nothing(), !sent);
            assert_eq!(before.elapsed(), Options::default().deadline);
        }
    }

    /// The deadline ends an attempt that waits for a connection. The error reports the outcome of
    /// the earlier attempts.
    #[tokio::test(start_paused = true)]
    async fn a_connection_that_was_refused_and_then_hangs_was_refused() {
        let made = Cell::new(0);
        let attempt = |_| {
            made.set(made.get() + 1);
            let is_first = made.get() == 1;
            async move {
                match is_first {
                    true => Err(never_connected()),
                    false => std::future::pending().await,
                }
            }
        };
        let call = call(Repeat::UnlessSent);
        let result = call.run::<(), _>(&Options::default(), attempt).await;
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Connect { .. }), "{error:?}");
        assert!(error.changed_nothing());
    }
}
