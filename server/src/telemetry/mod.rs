//! Logs, to standard error, as text or as JSON; and [`metrics`], which are [fetched](scrape) over
//! HTTP.

mod limit;
#[cfg(test)]
pub(crate) mod logged;
pub mod metrics;
pub mod scrape;

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{EnvFilter, filter::FilterExt, fmt, prelude::*};

use self::limit::{LeftOut, LineLimit};
use crate::config::{Config, LogFormat};

/// The maximum number of lines that wait until standard error is read.
const MAX_WAITING_LINES: usize = 8192;

/// The interval at which the number of lines left out is logged.
const TELL_INTERVAL: Duration = Duration::from_secs(1);

/// The log of the process. Dropping it writes the lines that wait.
#[derive(Debug)]
pub struct Log {
    limit: LineLimit,
    unread: ErrorCounter,
    _writer: WorkerGuard,
}

impl Log {
    /// Starts logging for the whole process. The program calls it once; tests do not call it.
    ///
    /// A separate thread writes the lines. If nobody reads standard error, lines are left out, and
    /// no caller waits.
    pub fn start(config: &Config) -> Self {
        let limit = LineLimit::default();
        let (writer, _writer) = NonBlockingBuilder::default()
            .buffered_lines_limit(MAX_WAITING_LINES)
            .thread_name("log-lines")
            .finish(io::stderr());
        let unread = writer.error_counter();
        let lines = fmt::layer()
            .with_writer(writer)
            // Otherwise a line that cannot be written would be reported on the same standard error,
            // by a macro that panics.
            .log_internal_errors(false);
        let lines = match config.log_format {
            LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
        };
        let filter = EnvFilter::new(&config.log_filter).and(limit.clone());
        tracing_subscriber::registry()
            .with(lines.with_filter(filter))
            .init();
        Self {
            limit,
            unread,
            _writer,
        }
    }

    /// Logs once a second which lines were left out. Never returns.
    pub async fn log_left_out(&self) {
        let mut logged = 0;
        loop {
            tokio::time::sleep(TELL_INTERVAL).await;
            log_each(self.limit.left_out());
            let unread = self.unread.dropped_lines();
            if unread > logged {
                let lines = unread - logged;
                tracing::warn!(lines, "lines were left out: standard error was not read");
                logged = unread;
            }
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        log_each(self.limit.all_left_out());
    }
}

fn log_each(left_out: Vec<LeftOut>) {
    for LeftOut { message, lines } in left_out {
        tracing::warn!(
            event = message,
            lines,
            "lines were left out: they were too many"
        );
    }
}
