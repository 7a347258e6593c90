//! Measures the false-positive rate of every kind and layout, and compares it with the prediction,
//! at fills from 1 % to twice the capacity (to 64 times for filters that grow). Draws the result:
//! the figures and the plot of `docs/rates.md`.
//!
//! ```text
//! rates [--out FILE.svg]
//! ```
//!
//! Keys and secrets are fixed, so the outcome is fixed too. It fails if a rate is above the one
//! asked for where that rate is promised, or if predictions are off by more than chance: see
//! `verdict.rs`. It takes a thread for each processor, and more than twelve minutes of their time
//! together.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that prints tables"
)]

mod aging;
mod array;
mod chain;
mod filter;
#[path = "../../tests/growing/mod.rs"]
mod growing;
#[path = "../../tests/interval/mod.rs"]
mod interval;
#[path = "../../tests/keys/mod.rs"]
mod keys;
mod plain;
mod plot;
mod scaling;
mod series;
mod subject;
mod table;
#[cfg(test)]
mod tests;
mod verdict;

use std::{
    env,
    error::Error,
    fs,
    path::PathBuf,
    process::ExitCode,
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

use self::{
    series::{Effort, Series},
    subject::Subject,
    table::{Points, Summary},
    verdict::Verdict,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const RATES: [f64; 4] = [0.1, 0.01, 0.001, 0.0001];
/// In such a large filter the particular bits that the keys have hit hardly matter:
/// `docs/rates.md`.
const EFFORT: Effort = Effort {
    capacity: 10_000_000,
    probes: 10_000_000,
};

fn main() -> ExitCode {
    match run() {
        Ok(verdict) if verdict.is_good() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("rates: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Outcome<Verdict> {
    let out = arguments()?;
    let start = Instant::now();
    let all = measure_all()?;
    println!("{}\n{}", Points(&all), Summary(&all));
    let verdict = Verdict::of(&all);
    println!(
        "{verdict}\n{:.0?} on {} threads.",
        start.elapsed(),
        threads()
    );
    if let Some(path) = out {
        fs::write(&path, plot::draw(&all)?)
            .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    }
    Ok(verdict)
}

/// Returns the path for the plot.
fn arguments() -> Outcome<Option<PathBuf>> {
    let mut arguments = env::args_os().skip(1);
    match (arguments.next(), arguments.next(), arguments.next()) {
        (None, ..) => Ok(None),
        (Some(flag), Some(path), None) if flag == "--out" => Ok(Some(path.into())),
        _ => Err("it is called as: rates [--out FILE.svg]".into()),
    }
}

fn threads() -> usize {
    thread::available_parallelism().map_or(1, Into::into)
}

/// Measures all series. Each thread takes one series after the other, the slowest first. Returns
/// them in the order of kinds and rates.
fn measure_all() -> Outcome<Vec<Series>> {
    let jobs = Subject::ALL
        .into_iter()
        .flat_map(|subject| RATES.map(|rate| (subject, rate)));
    let jobs: Vec<_> = jobs.enumerate().collect();
    let (waiting, done) = (Mutex::new(jobs), Mutex::new(Vec::new()));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let work = || -> Result<(), String> {
        while let Some((number, (subject, rate))) = next() {
            let start = Instant::now();
            let series = measure(subject, rate).map_err(|error| error.to_string())?;
            eprintln!("{} at {rate}: {:.0?}", subject.name(), start.elapsed());
            done.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((number, series));
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads()).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .map_err(|_| "a thread has panicked".to_owned())?
        })
    })?;
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, series)| series).collect())
}

fn measure(subject: Subject, rate: f64) -> Outcome<Series> {
    let effort = Effort {
        capacity: subject.capacity(EFFORT.capacity),
        ..EFFORT
    };
    let mut filter = subject.filter(effort.capacity, rate)?;
    Ok(Series::measure(subject, rate, effort, filter.as_mut()))
}
