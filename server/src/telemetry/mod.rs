//! Logs, to standard error, as text or as JSON; and [`metrics`], for whoever [fetches](scrape) them.

#[cfg(test)]
pub(crate) mod logged;
pub mod metrics;
mod repeated;
pub mod scrape;

pub use self::repeated::Repeated;

use std::io::{self, IsTerminal};

use tracing_subscriber::{EnvFilter, filter::LevelFilter, fmt, prelude::*};

use crate::config::{Config, LogFormat};

/// Checks a filter such as `info` or `info,seenset_server::grpc=debug`.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_filter(filter: &str) -> Result<(), String> {
    EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
    // A misspelt level would be taken for the name of a part, and all others be silent.
    for directive in filter.split(',') {
        let is_level = directive.trim().parse::<LevelFilter>().is_ok();
        if !is_level && !directive.contains('=') {
            return Err(format!(
                "{directive:?} is no level; use off, error, warn, info, debug or trace, or \
                 PART=LEVEL"
            ));
        }
    }
    Ok(())
}

/// Starts logging for the whole process. Called once, by the program; tests go without.
pub fn start(config: &Config) {
    let filter = EnvFilter::new(&config.log_filter);
    let lines = fmt::layer()
        .with_writer(io::stderr)
        // Or a line that cannot be written would be reported on the same standard error, by a
        // macro that panics.
        .log_internal_errors(false);
    let lines = match config.log_format {
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .init();
}
