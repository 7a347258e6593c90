//! How long a caller waits for a call: the header `grpc-timeout`.
//!
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>

use std::{future::Future, time::Duration};

use tokio::time::timeout;
use tonic::{
    Status,
    codegen::http::{HeaderMap, HeaderName},
};

const HEADER: HeaderName = HeaderName::from_static("grpc-timeout");

/// The most digits that a timeout may have.
const MAX_DIGITS: usize = 8;

/// How long the caller waits. Nothing if it does not say, or not in a way that is known: it
/// ends the call itself then.
pub fn of(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(HEADER)?.as_bytes();
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

/// Carries out a call for no longer than its caller waits.
///
/// # Errors
///
/// DEADLINE_EXCEEDED.
pub async fn within<T>(
    deadline: Option<Duration>,
    call: impl Future<Output = T>,
) -> Result<T, Status> {
    let Some(deadline) = deadline else {
        return Ok(call.await);
    };
    timeout(deadline, call).await.map_err(|_| {
        Status::deadline_exceeded(
            "the time that the caller gave is over, and whether the call was carried out is not \
             known; repeat it, with the same request_id if it has one",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::future;

    use tonic::{Code, codegen::http::HeaderValue};

    use super::*;

    #[test]
    fn timeouts_are_read_in_all_their_units() {
        let read = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(HEADER, HeaderValue::from_static(value));
            of(&headers)
        };
        assert_eq!(of(&HeaderMap::new()), None);
        for (value, seconds) in [("2H", 7200.0), ("3M", 180.0), ("99999999S", 99_999_999.0)] {
            assert_eq!(
                read(value),
                Some(Duration::from_secs_f64(seconds)),
                "{value}"
            );
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
        let second = Some(Duration::from_secs(1));
        assert_eq!(within(second, future::ready(7)).await.unwrap(), 7);
        assert_eq!(within(None, future::ready(7)).await.unwrap(), 7);
        let error = within(second, future::pending::<()>()).await.unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded);
    }
}
