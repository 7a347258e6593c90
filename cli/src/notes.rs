//! Lines on standard error.

use std::io::{self, Write};

/// Writes a line to standard error. If that is closed, the line is lost.
pub(super) fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
