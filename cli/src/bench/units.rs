//! Quantities in a form that people can read.

use indicatif::HumanCount;

/// Formats a count with commas.
pub(super) fn count(count: u64) -> String {
    HumanCount(count).to_string()
}

/// Formats a rate with commas, without a fraction that could not be measured.
pub(super) fn rate(rate: f64) -> String {
    count(rate.round() as u64)
}

/// Formats nanoseconds in the unit that leaves about three digits.
pub(super) fn time(nanoseconds: u64) -> String {
    let nanoseconds = nanoseconds as f64;
    let (unit, value) = match nanoseconds {
        n if n < 999_500.0 => ("us", n / 1e3),
        n if n < 999_500_000.0 => ("ms", n / 1e6),
        n => ("s", n / 1e9),
    };
    let digits = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        for (nanoseconds, expected) in [
            (0, "0.00 us"),
            (999, "1.00 us"),
            (9_994, "9.99 us"),
            (9_996, "10.0 us"),
            (99_960, "100 us"),
            (999_499, "999 us"),
            (999_500, "1.00 ms"),
            (12_345_678, "12.3 ms"),
            (999_500_000, "1.00 s"),
            (3_600_000_000_000, "3600 s"),
        ] {
            assert_eq!(time(nanoseconds), expected);
        }
    }
}
