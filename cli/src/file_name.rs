//! Names of files on the command line: `-` is standard input.

use std::path::Path;

/// Returns true if the path stands for standard input.
pub(super) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-" || path.as_os_str() == "/dev/stdin"
}
