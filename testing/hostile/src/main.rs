//! Attacks a server, and measures the effect on another client.
//!
//! Each attack has a server of its own, with little memory for clients. In parallel a polite client
//! requests one key after the other, before, during and after the attack. The result is its
//! latency, its errors, and the peak memory of the server.

#![allow(clippy::print_stdout, reason = "the report is what the program is for")]

mod attacks;
mod memory_limit;
mod polite;
mod raw;
mod report;
mod server;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail};
use clap::Parser;
use tokio::{runtime::Builder, time::Instant};

use self::{
    attacks::{ATTACKS, Attack, Target},
    polite::Polite,
    report::Report,
    server::Server,
};

/// Attack a seenset server, and measure the effect on another client.
#[derive(Debug, Parser)]
#[command(name = "seenset-hostile")]
struct Arguments {
    /// Path of the server program
    #[arg(long, default_value = "target/release/seenset-server")]
    server: PathBuf,

    /// Words in the names of the attacks to run [default: all attacks]
    words: Vec<String>,

    /// Duration of each attack, in seconds
    #[arg(long, default_value_t = 5)]
    seconds: u64,

    /// Number of cores of the server, 1 or 2
    #[arg(long, default_value_t = 1)]
    cores: usize,

    /// Start the server without --max-client-memory, for older servers that lack this flag
    #[arg(long)]
    unlimited: bool,

    /// Start the server in a cgroup with this memory limit, in MiB. Needs root
    #[arg(long)]
    memory_limit_mib: Option<u64>,

    /// Fail if an attack harmed the server more than is allowed
    #[arg(long)]
    check: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let chosen: Vec<&Attack> = ATTACKS
        .iter()
        .filter(|attack| {
            let words = &arguments.words;
            words.is_empty() || words.iter().any(|word| attack.name.contains(word.as_str()))
        })
        .collect();
    if chosen.is_empty() {
        bail!("no attack has one of the words {:?}", arguments.words);
    }
    server::pin_to_clients_core()?;
    println!("{}", report::HEAD);
    let mut harmed = Vec::new();
    for attack in chosen {
        let report = measure(attack, &arguments).with_context(|| attack.name)?;
        println!("{report}");
        harmed.extend(report.harm());
    }
    if arguments.check && !harmed.is_empty() {
        bail!("the server was harmed:\n{}", harmed.join("\n"));
    }
    Ok(())
}

/// Makes an attack on a new server.
fn measure(attack: &'static Attack, arguments: &Arguments) -> Result<Report> {
    let duration = Duration::from_secs(arguments.seconds);
    // Before and after the attack.
    let calm = (duration / 2).min(Duration::from_secs(3));
    let server = Server::start(arguments)?;
    let polite = Polite::start(&server.address)?;
    // The measured client must not wait for the attackers.
    let hostile = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .on_thread_start(|| {
            // An error makes the results worse, not better.
            let _ = rustix::process::nice(19);
        })
        .build()?;
    let target = Target {
        address: server.address.clone(),
        until: Instant::now(),
    };
    let prepared = hostile.block_on((attack.prepare)(target.clone()));
    prepared.context("the attack cannot be prepared")?;
    polite.measure(Duration::from_millis(500));
    let before = polite.measure(calm);
    let idle_bytes = server.memory_bytes();
    let target = Target {
        until: Instant::now() + duration,
        ..target
    };
    let attacking = hostile.spawn((attack.run)(target));
    let during = polite.measure(duration);
    let held_bytes = server.memory_bytes();
    let outcome = hostile.block_on(attacking)?;
    hostile.shutdown_background();
    std::thread::sleep(Duration::from_millis(500));
    let after = polite.measure(calm);
    let left_bytes = server.memory_bytes();
    Ok(Report {
        attack,
        before,
        during,
        after,
        idle_bytes,
        held_bytes,
        left_bytes,
        peak_bytes: server.peak_bytes(),
        is_alive: server.is_alive(),
        outcome: outcome.unwrap_or_else(|error| format!("{error:#}")),
    })
}
