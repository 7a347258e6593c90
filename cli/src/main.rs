//! The program `seenset`: reads the arguments, runs one command, and turns its outcome into an exit
//! code. The exit code is 0, 1 for a failure, 2 for wrong usage, 130 for a signal, or 141 if
//! `dedup` has marked lines and the reader of its output has closed the pipe.

mod args;
mod bench;
mod checkpoint;
mod dedup;
mod explain;
mod failure;
mod file_name;
mod filter;
mod input;
mod interrupt;
mod key;
mod keys;
mod lines;
mod load;
mod matching;
mod notes;
mod output;
mod plan;
mod report;
mod service;
mod source;
mod streams;
mod words;
mod writer;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use self::{
    args::{Args, Command},
    failure::Failure,
};

/// Runs before Rust's runtime, which hides closed standard streams.
///
/// The argument for `unsafe`: nothing of the standard library is called but an atomic store, and
/// nothing here can panic or allocates.
#[cfg(unix)]
#[ctor::ctor(unsafe)]
fn before_main() {
    streams::inspect();
}

fn main() -> ExitCode {
    let outcome = match Args::read() {
        Ok(args) => start(args),
        Err(error) if error.use_stderr() => error.exit(),
        Err(help) => print(&help),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Prints the help or the version.
fn print(help: &clap::Error) -> Result<(), Failure> {
    streams::check_stdout()?;
    help.print()?;
    Ok(io::stdout().flush()?)
}

fn start(args: Args) -> Result<(), Failure> {
    streams::check_stdout()?;
    #[cfg(unix)]
    check_open_files()?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start the runtime: {error}")))
        .and_then(|runtime| runtime.block_on(run(args)))
}

/// Fails if the process may open too few files for a command. Must be called before the runtime
/// starts: with too few files, tokio panics instead of returning an error.
#[cfg(unix)]
fn check_open_files() -> Result<(), Failure> {
    use rustix::process::{Resource, getrlimit};

    /// Nine for the runtime; the rest for connections and the files of the command.
    const NEEDED: u64 = 32;
    match getrlimit(Resource::Nofile).current {
        Some(limit @ ..NEEDED) => Err(Failure::Failed(format!(
            "the limit of open files is {limit}; a command needs at least {NEEDED}: raise it \
             (ulimit -n)"
        ))),
        _ => Ok(()),
    }
}

async fn run(Args { global, command }: Args) -> Result<(), Failure> {
    match command {
        Command::Query(args) => keys::query(&global, &args).await,
        Command::Add(keys) => keys::add(&global, &keys).await,
        Command::QueryAndAdd(args) => keys::query_and_add(&global, &args).await,
        Command::Remove(keys) => keys::remove(&global, &keys).await,
        Command::Load(args) => load::run(&global, args).await,
        Command::Dedup(args) => dedup::run(&global, args).await,
        Command::Match(args) => matching::run(&global, args).await,
        Command::Store => service::store(&global).await,
        Command::Filter(command) => filter::run(&global, command).await,
        Command::Explain(args) => explain::run(&global, &args).await,
        Command::Plan(spec) => plan::run(&global, &spec),
        Command::Bench(args) => bench::run(&global, args).await,
        Command::Health(args) => service::health(&global, &args.service).await,
    }
}
