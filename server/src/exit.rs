//! What the program leaves to those who have called it: a text, and an exit code.

use std::{
    fmt::Display,
    io::{self, Write},
    process::ExitCode,
};

/// The exit code for what has failed.
pub const FAILURE: u8 = 1;
/// The exit code for bad arguments, a bad environment or a bad configuration file.
pub const USAGE: u8 = 2;

/// Prints what was asked for.
pub fn print(text: &str, is_good: bool) -> ExitCode {
    // A closed pipe is the reader's choice.
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::from(u8::from(!is_good))
}

/// Tells what has failed.
pub fn failed(error: &dyn Display, code: u8) -> ExitCode {
    // Where nobody reads it the code says it; the macro for this panics there.
    let _ = writeln!(io::stderr(), "seenset-server: {error}");
    ExitCode::from(code)
}
