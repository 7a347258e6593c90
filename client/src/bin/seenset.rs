//! The program `seenset`: the commands are in [`seenset_client::cli`].

use std::process::ExitCode;

/// Runs before Rust's runtime, which hides closed standard streams.
///
/// The argument for `unsafe`: nothing of the standard library is called but an atomic store, and
/// nothing here can panic or allocates.
#[cfg(unix)]
#[ctor::ctor(unsafe)]
fn before_main() {
    seenset_client::cli::before_main();
}

fn main() -> ExitCode {
    seenset_client::cli::main()
}
