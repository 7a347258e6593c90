//! The fill and the error rate of a filter, and the time when it will be full.

use std::time::Duration;

use serde_json::{Value, json};

use super::{span, time};
use seenset_client::v1;

/// Returns lines of text, without a line break at the end.
pub(super) fn text(filter: &v1::Filter) -> String {
    format!(
        "{} keys added{}, {} by the fill, {:.4} of the bits set\n  \
         false-positive rate: asked {}, predicted {}, {}\n  \
         new keys: {}",
        filter.keys_added,
        match filter.is_full() {
            true => " (full)",
            false => "",
        },
        match filter.estimated_keys {
            Some(keys) => format!("some {keys}"),
            None => "an unknown number".to_owned(),
        },
        filter.fill_ratio,
        filter
            .spec
            .as_ref()
            .map_or(0.0, |spec| spec.false_positive_rate),
        rate(filter.predicted_false_positive_rate, 3),
        measured_text(filter.measured_false_positive_rate.as_ref()),
        new_keys_text(filter),
    )
}

fn measured_text(measured: Option<&v1::MeasuredRate>) -> String {
    let Some(measured) = measured else {
        // The list of filters has no measured rate, for instance.
        return "not measured".to_owned();
    };
    format!(
        "measured {} ({} to {}: {} of {} canaries)",
        rate(measured.rate(), 3),
        rate(measured.lowest(), 1),
        rate(measured.highest(), 1),
        measured.canaries_seen(),
        measured.canaries(),
    )
}

/// Formats a rate with `digits` digits after the first digit.
fn rate(rate: f64, digits: usize) -> String {
    match rate {
        0.0 => "0".to_owned(),
        rate => format!("{rate:.digits$e}"),
    }
}

fn new_keys_text(filter: &v1::Filter) -> String {
    let outlooks = [&filter.last_hour, &filter.last_day];
    let mut texts: Vec<_> = outlooks
        .into_iter()
        .flatten()
        .map(|outlook| outlook_text(outlook, filter.is_full()))
        .collect();
    // The two are equal while the server has known the filter for an hour or less.
    texts.dedup();
    match texts.is_empty() {
        true => "the server has not known the filter for five minutes yet".to_owned(),
        false => texts.join(", "),
    }
}

fn outlook_text(outlook: &v1::Outlook, is_full: bool) -> String {
    let new_keys = outlook.new_keys();
    let span = outlook_span(outlook).unwrap_or_default();
    match time(outlook.full_time) {
        Some(time) => format!("{new_keys} in {span} (full by {time})"),
        None if is_full => format!("{new_keys} in {span}"),
        None => format!("{new_keys} in {span} (never full at that rate)"),
    }
}

/// Returns the time span in whole minutes. It is never less than five.
fn outlook_span(outlook: &v1::Outlook) -> Option<String> {
    let mut minutes = outlook.span?;
    minutes.seconds -= minutes.seconds % 60;
    minutes.nanos = 0;
    span(Some(minutes))
}

/// Returns the measured rate; `null` if there is none.
pub(super) fn measured_json(filter: &v1::Filter) -> Option<Value> {
    filter
        .measured_false_positive_rate
        .as_ref()
        .map(|measured| {
            json!({
                "rate": measured.rate,
                "lowest": measured.lowest,
                "highest": measured.highest,
                "canaries": measured.canaries,
                "canaries_seen": measured.canaries_seen,
            })
        })
}

/// Returns the growth of the filter in a time span; `null` if it is not known.
pub(super) fn outlook_json(outlook: Option<&v1::Outlook>) -> Option<Value> {
    outlook.map(|outlook| {
        let span = outlook.span.and_then(|span| Duration::try_from(span).ok());
        json!({
            "span_seconds": span.map(|span| span.as_secs()),
            "new_keys": outlook.new_keys,
            "full_time": time(outlook.full_time),
        })
    })
}

#[cfg(test)]
mod tests {
    use prost_types::{Duration as ProtoDuration, Timestamp};

    use super::*;

    fn filter() -> v1::Filter {
        let outlook = |seconds, new_keys, full_time| {
            Some(v1::Outlook {
                span: Some(ProtoDuration { seconds, nanos: 7 }),
                new_keys: Some(new_keys),
                full_time,
            })
        };
        let time = Timestamp {
            seconds: 1_800_000_000,
            nanos: 0,
        };
        v1::Filter {
            spec: Some(v1::FilterSpec {
                false_positive_rate: 0.01,
                ..Default::default()
            }),
            keys_added: 990,
            fill_ratio: 0.45678,
            predicted_false_positive_rate: 0.009_876_7,
            measured_false_positive_rate: Some(v1::MeasuredRate {
                rate: Some(0.0102),
                lowest: Some(0.0084),
                highest: Some(0.0124),
                canaries: Some(10_000),
                canaries_seen: Some(102),
            }),
            estimated_keys: Some(1001),
            is_full: Some(false),
            last_hour: outlook(3630, 0, None),
            last_day: outlook(86_400, 123, Some(time)),
            ..Default::default()
        }
    }

    #[test]
    fn the_rates_stand_side_by_side() {
        let expected = "990 keys added, some 1001 by the fill, 0.4568 of the bits set\n  \
                        false-positive rate: asked 0.01, predicted 9.877e-3, measured 1.020e-2 \
                        (8.4e-3 to 1.2e-2: 102 of 10000 canaries)\n  \
                        new keys: 0 in 1h (never full at that rate), 123 in 1day (full by \
                        2027-01-15T08:00:00.000Z)";
        assert_eq!(text(&filter()), expected);
    }

    #[test]
    fn what_is_not_known_is_said() {
        let full = v1::Filter {
            is_full: Some(true),
            estimated_keys: None,
            predicted_false_positive_rate: 0.0,
            measured_false_positive_rate: None,
            last_day: None,
            ..filter()
        };
        let text = super::text(&full);
        assert!(text.starts_with("990 keys added (full), an unknown number by the fill, 0.4568"));
        assert!(text.contains("predicted 0, not measured\n"));
        assert!(text.ends_with("new keys: 0 in 1h"), "{text}");
        assert_eq!(measured_json(&full), None);

        let young = v1::Filter {
            last_day: full.last_hour,
            ..full.clone()
        };
        assert!(super::text(&young).ends_with("new keys: 0 in 1h"));
        let new = v1::Filter {
            last_hour: None,
            ..full
        };
        assert!(super::text(&new).ends_with("has not known the filter for five minutes yet"));
        assert_eq!(outlook_json(new.last_hour.as_ref()), None);
    }

    #[test]
    fn json_has_all_of_it() {
        let filter = filter();
        let measured = measured_json(&filter).unwrap();
        assert_eq!(
            (&measured["rate"], &measured["highest"]),
            (&json!(0.0102), &json!(0.0124))
        );
        assert_eq!(measured["canaries_seen"], 102);
        let day = json!({
            "span_seconds": 86_400,
            "new_keys": 123,
            "full_time": "2027-01-15T08:00:00.000Z",
        });
        assert_eq!(outlook_json(filter.last_day.as_ref()), Some(day));
        let hour = outlook_json(filter.last_hour.as_ref()).unwrap();
        assert_eq!(hour["full_time"], Value::Null);
    }
}
