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
use tokio::runtime::{Builder, Runtime};

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
    match runtime() {
        Ok(runtime) => runtime.block_on(serve(config)),
        Err(error) => exit::failed(&error, FAILURE),
    }
}

fn runtime() -> Result<Runtime, ServerError> {
    server::check_open_files()?;
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(ServerError::Runtime)
}

async fn serve(config: Config) -> ExitCode {
    let log = Log::start(&config);
    let done = tokio::select! {
        done = run(config) => done,
        () = log.log_left_out() => Ok(()),
    };
    // Its last lines come before the error.
    drop(log);
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::failed(&error, FAILURE),
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
