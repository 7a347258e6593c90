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

/// Prints what was asked for. Where standard output is closed, the exit code alone tells whether all
/// is well: Rust's runtime has opened /dev/null in its place.
pub fn print(text: &str, is_good: bool) -> ExitCode {
    let mut stdout = io::stdout();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        // A closed pipe is the reader's choice.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            failed(&format!("cannot write the output: {error}"), FAILURE)
        }
        _ => ExitCode::from(u8::from(!is_good)),
    }
}

/// Tells what has failed.
pub fn failed(error: &dyn Display, code: u8) -> ExitCode {
    // Where nobody reads it the code says it; the macro for this panics there.
    let _ = writeln!(io::stderr(), "seenset-server: {error}");
    ExitCode::from(code)
}
