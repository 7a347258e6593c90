//! Rate limit of log lines: each event gets a few lines a second; further lines are dropped and
//! counted.

use std::{
    collections::HashMap,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tracing::{
    Event, Metadata, Subscriber,
    callsite::Identifier,
    field::{Field, Visit},
};
use tracing_subscriber::{
    filter::LevelFilter,
    layer::{Context, Filter},
};

/// The lines that an event gets in a second.
const MAX_LINES: u64 = 20;

const SECOND: Duration = Duration::from_secs(1);

/// A filter that drops lines beyond the limit. Clones share their counts.
#[derive(Debug, Clone, Default)]
pub struct LineLimit {
    events: Arc<Mutex<HashMap<Identifier, Lines>>>,
}

/// The counts of one event. An event is a place in the code.
#[derive(Debug)]
struct Lines {
    /// The start of the current second.
    since: Instant,
    count: u64,
    /// The message, if lines were dropped.
    left_out: Option<String>,
}

/// The dropped lines of one event.
#[derive(Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The message of the event.
    pub message: String,
    /// Their number.
    pub lines: u64,
}

impl LineLimit {
    /// Counts a line, and returns whether it is written. Calls `message` if it is dropped.
    fn count(&self, event: Identifier, now: Instant, message: impl FnOnce() -> String) -> bool {
        let mut events = self.events.lock();
        let lines = events.entry(event).or_insert_with(|| Lines {
            since: now,
            count: 0,
            left_out: None,
        });
        // Dropped lines are reported before the next second begins.
        if lines.left_out.is_none() && now >= lines.since + SECOND {
            (lines.since, lines.count) = (now, 0);
        }
        lines.count += 1;
        let is_few = lines.count <= MAX_LINES;
        if !is_few && lines.left_out.is_none() {
            lines.left_out = Some(message());
        }
        is_few
    }

    /// Takes the dropped lines of past seconds.
    pub fn left_out(&self) -> Vec<LeftOut> {
        self.left_out_at(Instant::now())
    }

    /// Takes all dropped lines.
    pub fn all_left_out(&self) -> Vec<LeftOut> {
        self.left_out_at(Instant::now() + SECOND)
    }

    fn left_out_at(&self, now: Instant) -> Vec<LeftOut> {
        let mut events = self.events.lock();
        let over = events.values_mut().filter(|of| now >= of.since + SECOND);
        over.filter_map(|of| {
            let message = of.left_out.take()?;
            let lines = of.count - MAX_LINES;
            (of.since, of.count) = (now, 0);
            Some(LeftOut { message, lines })
        })
        .collect()
    }
}

impl<S: Subscriber> Filter<S> for LineLimit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let message = || {
            let mut message = Message::default();
            event.record(&mut message);
            message.0
        };
        self.count(event.metadata().callsite(), Instant::now(), message)
    }
}

/// The message of an event.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tracing_subscriber::{fmt::layer, prelude::*};

    use super::*;

    #[test]
    fn an_event_has_a_few_lines_a_second_and_the_rest_is_counted() {
        let limit = LineLimit::default();
        let lines = layer().with_writer(io::sink).with_filter(limit.clone());
        let log = |times| {
            for number in 0..times {
                tracing::warn!(number, "it comes {}", "often");
            }
            tracing::warn!("it comes now and then");
        };
        let mut seconds = 0;
        let mut left_out = || {
            seconds += 2;
            limit.left_out_at(Instant::now() + SECOND * seconds)
        };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            log(MAX_LINES);
            assert_eq!(left_out(), []);
            log(1000);
            // The second is not over.
            assert_eq!(limit.left_out(), []);
            let often = |lines| LeftOut {
                message: "it comes often".to_owned(),
                lines,
            };
            assert_eq!(left_out(), [often(1000)]);
            assert_eq!(left_out(), []);
            log(MAX_LINES + 1);
            assert_eq!(left_out(), [often(1)]);
        });
    }

    #[test]
    fn lines_are_counted_for_each_second() {
        let (limit, begin) = (LineLimit::default(), Instant::now());
        let message = || "a message".to_owned();
        // Any event.
        let event = tracing::callsite::Identifier(&SITE);
        let at = |seconds| begin + SECOND * seconds;
        let is_logged = |seconds| limit.count(event.clone(), at(seconds), message);
        for seconds in 0..3 {
            assert!((0..MAX_LINES).all(|_| is_logged(seconds)));
        }
        assert!(!is_logged(2) && !is_logged(3));
        let left_out = limit.left_out_at(at(4));
        assert_eq!(left_out.len(), 1);
        assert_eq!(left_out[0].lines, 2);
        let is_logged = |seconds| limit.count(event.clone(), at(seconds), message);
        assert!(is_logged(4));
    }

    struct Site;
    static SITE: Site = Site;

    impl tracing::Callsite for Site {
        fn set_interest(&self, _: tracing::subscriber::Interest) {}

        fn metadata(&self) -> &Metadata<'_> {
            unreachable!("nobody asks")
        }
    }
}
