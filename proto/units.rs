//! Durations and sizes as text. The flags, variables and files of both programs use the same rule.

use std::time::Duration;

use bytesize::ByteSize;

/// The longest duration, a hundred years. Clocks overflow only much later.
const LONGEST: Duration = Duration::from_secs(36_500 * 24 * 60 * 60);

/// Parses a duration: a whole number of seconds, `90`, or numbers with units, `500ms`, `5min`,
/// `1h 30m` or `30days`.
///
/// # Errors
///
/// A sentence that says which text is expected.
pub fn duration(text: &str) -> Result<Duration, String> {
    let duration = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => humantime::parse_duration(text).map_err(|error| {
            format!("{error}; write a duration as 90 (seconds), 500ms, 5min or 12h")
        })?,
    };
    match duration > LONGEST {
        true => Err("it must be at most 36500days".to_owned()),
        false => Ok(duration),
    }
}

/// Parses a duration above 0.
///
/// # Errors
///
/// The errors of [`duration`].
pub fn nonzero_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be above 0".to_owned()),
        duration => Ok(duration),
    }
}

/// Parses a size: a number of bytes, `1048576`, or a number with a unit, `64MiB`, `12GB` or
/// `1.5TiB`.
///
/// # Errors
///
/// A sentence that says which text is expected.
pub fn size(text: &str) -> Result<u64, String> {
    let size = text.parse::<ByteSize>();
    size.map(|size| size.as_u64())
        .map_err(|_| "write a size as 64MiB, 12GiB or a number of bytes".to_owned())
}

/// Parses a size above 0.
///
/// # Errors
///
/// The errors of [`size`].
pub fn nonzero_size(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => {
            Err("it must be above 0: write a size as 64MiB, 12GiB or a number of bytes".to_owned())
        }
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_alone_is_in_seconds() {
        for (text, milliseconds) in [
            ("0", 0),
            ("90", 90_000),
            ("90s", 90_000),
            ("500ms", 500),
            ("5min", 300_000),
            ("1h 30m", 5_400_000),
            ("30days", 2_592_000_000),
            ("36500days", 3_153_600_000_000),
        ] {
            let expected = Duration::from_millis(milliseconds);
            assert_eq!(duration(text), Ok(expected), "{text}");
            assert_eq!(nonzero_duration(text).is_ok(), milliseconds > 0, "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_says_what_is() {
        for text in ["", "soon", "5 parsecs", "-1", "1.5", "99999999999999999999"] {
            let error = duration(text).expect_err(text);
            assert!(
                error.ends_with("write a duration as 90 (seconds), 500ms, 5min or 12h"),
                "{error}"
            );
        }
        for text in ["18446744073709551615", "36501days", "200years"] {
            assert_eq!(
                duration(text),
                Err("it must be at most 36500days".to_owned())
            );
        }
    }

    #[test]
    fn a_size_is_a_number_of_bytes_or_has_a_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("1048576", 1 << 20),
            ("64MiB", 64 << 20),
            ("64 MiB", 64 << 20),
            ("12GB", 12_000_000_000),
            ("1.5GiB", 3 << 29),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
            assert_eq!(nonzero_size(text).is_ok(), bytes > 0, "{text}");
        }
        for text in ["", "much", "-1", "80%", "1.5.5GiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
