//! The program `seenset-server`: parse, start, wait, drain.

use std::{env, process::ExitCode};

use seenset_server::{
    config::{Command, Config},
    exit::{self, FAILURE, USAGE},
    server::{self, ServerError},
    signals::StopSignals,
    telemetry::Log,
    verify,
};
use tokio::runtime::Builder;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let config = match Config::load(env::args_os(), env::vars_os().map(|(name, _)| name)) {
        Ok(Command::Run(config)) => *config,
        Ok(Command::Print(text)) => return exit::print(&text, true),
        Ok(Command::Verify(command)) => match verify::run(&command) {
            Ok(verdict) => return exit::print(&verdict.text, verdict.is_whole),
            Err(error) => return exit::failed(&error, FAILURE),
        },
        Err(error) => return exit::failed(&error, USAGE),
    };
    match start(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::failed(&error, FAILURE),
    }
}

fn start(config: Config) -> Result<(), ServerError> {
    server::check_open_files()?;
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(ServerError::Runtime)?.block_on(async {
        // Dropped at the end, so that its last lines come before the error.
        let log = Log::start(&config);
        tokio::select! {
            done = run(config) => done,
            () = log.tell_of_left_out() => Ok(()),
        }
    })
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
