//! The program `seenset-server`: parse, start, wait, drain.

use std::{
    env,
    fmt::Display,
    io::{self, Write},
    process::ExitCode,
};

use seenset_server::{
    config::{Command, Config},
    server::{self, ServerError},
    signals::StopSignals,
    telemetry, verify,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit code for bad arguments, a bad environment or a bad configuration file.
const USAGE: u8 = 2;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let config = match Config::load(env::args_os(), env::vars_os().map(|(name, _)| name)) {
        Ok(Command::Run(config)) => *config,
        Ok(Command::Print(text)) => return print(&text, true),
        Ok(Command::Verify(command)) => match verify::run(&command) {
            Ok(verdict) => return print(&verdict.text, verdict.is_whole),
            Err(error) => return failed(&error, ExitCode::FAILURE),
        },
        Err(error) => return failed(&error, ExitCode::from(USAGE)),
    };
    telemetry::start(&config);
    match run(config).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error, ExitCode::FAILURE),
    }
}

async fn run(config: Config) -> Result<(), ServerError> {
    let mut signals = StopSignals::new().map_err(ServerError::Signals)?;
    let mut server = server::bind(config).await?;
    tokio::select! {
        recovered = server.recover() => recovered?,
        () = signals.next() => return server.shutdown(signals.next()).await,
    }
    let failed = tokio::select! {
        () = signals.next() => Ok(()),
        error = server.failed() => Err(error),
    };
    server.shutdown(signals.next()).await.and(failed)
}

fn print(text: &str, is_good: bool) -> ExitCode {
    // A closed pipe is the reader's choice.
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::from(u8::from(!is_good))
}

fn failed(error: &dyn Display, code: ExitCode) -> ExitCode {
    // Where nobody reads it the code says it; the macro for this panics there.
    let _ = writeln!(io::stderr(), "seenset-server: {error}");
    code
}
