//! The output of the program for its caller: a text, and an exit code.

use std::{
    fmt::Display,
    io::{self, Write},
    process::ExitCode,
};

/// The exit code of a failure.
pub const FAILURE: u8 = 1;
/// The exit code for bad arguments, a bad environment or a bad configuration file.
pub const USAGE: u8 = 2;

/// Prints the text that was asked for. If standard output is closed, only the exit code reports
/// whether all is well: Rust's runtime has opened /dev/null in its place.
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

/// Prints an error, and returns the exit code.
pub fn failed(error: &dyn Display, code: u8) -> ExitCode {
    // If nobody reads standard error, the exit code reports the failure; `eprintln!` would panic
    // then.
    let _ = writeln!(io::stderr(), "seenset-server: {error}");
    ExitCode::from(code)
}
