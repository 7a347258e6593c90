//! `bench`: loads a server and measures its throughput and latency.
//!
//! The load runs on its own thread and runtime, so that only its calls wake the thread. The filter
//! that it creates is removed at the end of the run, also after an error.

mod histogram;
mod progress;
mod result;
mod target;
mod units;

use std::{ops::ControlFlow, panic, time::Duration};

use tokio::{runtime, sync::oneshot, task};

use self::{progress::ProgressLine, result::Measured, target::Target};
use super::{
    args::{Bench, Global},
    failure::Failure,
    interrupt::interrupted,
    output::Output,
};
use seenset_client::{CapacityWarning, Options};
use seenset_load::{Generator, Load, Outcome};

pub(super) async fn run(global: &Global, args: Bench) -> Result<(), Failure> {
    let load = args.load()?;
    let client = global.connect().await?;
    // Signals are handled before the filter exists, so that it is always removed.
    let signal = interrupted();
    let target = Target::prepare(&client, global.filter.as_deref(), &args).await?;
    let bench = Run {
        server: global.server.clone(),
        options: global.options(),
        filter: target.name().to_owned(),
        args: args.clone(),
        load,
        signal,
        ended_by_signal: false,
    };
    let loaded = task::spawn_blocking(|| bench.load()).await;
    // Without the filter's numbers, only the warning is missing.
    let filled = client.get_filter(target.name()).await.ok();
    let removed = target.remove(&client).await;
    let loaded = loaded.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panicked) => panic::resume_unwind(panicked),
        Err(error) => Err(Failure::Failed(format!("the load was lost: {error}"))),
    })?;
    if let Some(outcome) = &loaded.outcome {
        let measured = Measured {
            args: &args,
            load,
            target: &target,
            warmup_keys: loaded.warmup_keys,
            outcome,
            warning: filled.as_ref().and_then(CapacityWarning::of),
        };
        let mut output = Output::new(global.output);
        output.line(|| measured.text(), || measured.json())?;
        output.finish()?;
    }
    loaded.verdict(args.duration)?;
    removed
}

/// The data that the thread of the load needs.
struct Run {
    server: String,
    options: Options,
    filter: String,
    args: Bench,
    load: Load,
    signal: oneshot::Receiver<()>,
    ended_by_signal: bool,
}

/// The result of the load.
struct Loaded {
    /// The number of keys that the warm-up added.
    warmup_keys: u64,
    /// The outcome; `None` if only the warm-up ran.
    outcome: Option<Outcome>,
    /// True if a signal ended the load.
    interrupted: bool,
}

impl Run {
    fn load(mut self) -> Result<Loaded, Failure> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::Failed(format!("cannot start a runtime: {error}")))?;
        let key_bytes = self.args.key_bytes as usize;
        let mut generator = Generator::new(&self.server, self.options, &self.filter, key_bytes)?;
        let mut loaded = Loaded {
            warmup_keys: 0,
            outcome: None,
            interrupted: false,
        };
        if !self.args.warmup.is_zero() {
            let phase = self.phase(&mut generator, "warming up", 0.0, self.args.warmup);
            loaded.warmup_keys = runtime.block_on(phase)?.keys();
        }
        if !self.ended_by_signal {
            let phase = self.phase(
                &mut generator,
                "measuring",
                self.args.seen,
                self.args.duration,
            );
            loaded.outcome = Some(runtime.block_on(phase)?);
        }
        loaded.interrupted = self.ended_by_signal;
        Ok(loaded)
    }

    /// Loads the server for the given time, or until a signal comes.
    async fn phase(
        &mut self,
        generator: &mut Generator,
        name: &'static str,
        seen: f64,
        time: Duration,
    ) -> Result<Outcome, Failure> {
        let mut progress = ProgressLine::new(name, time);
        let watch = |outcome: &Outcome| {
            progress.show(outcome);
            if self.signal.try_recv().is_ok() {
                self.ended_by_signal = true;
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        Ok(generator.run(self.load, seen, time, watch).await?)
    }
}

impl Loaded {
    /// Returns an error if the result is not good.
    fn verdict(&self, duration: Duration) -> Result<(), Failure> {
        let forgotten = self.outcome.as_ref().map_or(0, |outcome| outcome.forgotten);
        if forgotten > 0 {
            return Err(Failure::Failed(format!(
                "the server did not know {forgotten} keys that it had acknowledged"
            )));
        }
        if !self.interrupted {
            return Ok(());
        }
        Err(Failure::Interrupted(match &self.outcome {
            Some(outcome) => format!(
                "interrupted after {:.1} of {:.1} s",
                outcome.elapsed.as_secs_f64(),
                duration.as_secs_f64()
            ),
            None => "interrupted before anything was measured".to_owned(),
        }))
    }
}
