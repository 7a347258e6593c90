//! Results on standard output. A reader that has closed the pipe is an outcome, not a panic.

use std::io::{self, BufWriter, Write};

use clap::ValueEnum;
use serde_json::Value;

use super::{failure::Failure, notes::note};

/// The format of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum OutputFormat {
    /// Text for people, and for cut and awk.
    #[default]
    Text,
    /// One JSON object on each line.
    Json,
}

/// Prints results, one per line.
pub(super) struct Output {
    format: OutputFormat,
    stdout: BufWriter<io::StdoutLock<'static>>,
}

impl Output {
    pub(super) fn new(format: OutputFormat) -> Self {
        Self {
            format,
            stdout: BufWriter::new(io::stdout().lock()),
        }
    }

    /// Prints one result in the chosen format. Only that form of it is computed.
    pub(super) fn line<T: AsRef<[u8]>>(
        &mut self,
        text: impl FnOnce() -> T,
        json: impl FnOnce() -> Value,
    ) -> Result<(), Failure> {
        match self.format {
            OutputFormat::Text => {
                self.stdout.write_all(text().as_ref())?;
                self.stdout.write_all(b"\n")?;
            }
            OutputFormat::Json => writeln!(self.stdout, "{}", json())?,
        }
        Ok(())
    }

    /// Writes one result to standard error, in the chosen format. It is for commands that write
    /// their data to standard output.
    pub(super) fn note(&self, text: impl FnOnce() -> String, json: impl FnOnce() -> Value) {
        match self.format {
            OutputFormat::Text => note(&text()),
            OutputFormat::Json => note(&json().to_string()),
        }
    }

    /// Flushes standard output, so that all results are written.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        Ok(self.stdout.flush()?)
    }
}
