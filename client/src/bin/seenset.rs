//! The program `seenset`: the commands are in [`seenset_client::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    seenset_client::cli::main()
}
