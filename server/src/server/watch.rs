//! Periodic tasks of the server. They run until they are aborted.

use std::time::Duration;

use tokio::{task::JoinHandle, time::interval};

use crate::{
    engine::Engine,
    grpc::{ClientMemory, Health},
};

/// The interval of the memory and disk tasks.
const TICK: Duration = Duration::from_millis(250);

/// The interval of the check of files.
const FILES_TICK: Duration = Duration::from_secs(1);

/// A disk call of the log that takes longer than this counts as a hang.
const SILENCE: Duration = Duration::from_secs(1);

/// Marks the clients that hold memory and give none back.
pub(super) fn watch_memory(memory: &ClientMemory) -> JoinHandle<()> {
    let memory = memory.clone();
    tokio::spawn(async move {
        let mut ticks = interval(TICK);
        loop {
            ticks.tick().await;
            memory.tick();
        }
    })
}

/// Sets health to NOT_SERVING while keys are refused, or wait for a disk that hangs.
pub(super) fn watch_disk(health: &Health, engine: &Engine) -> JoinHandle<()> {
    let (health, engine) = (health.clone(), engine.clone());
    tokio::spawn(async move {
        let mut is_read_only = engine.is_read_only();
        let (mut ticks, mut was_silent, mut reported) = (interval(TICK), false, false);
        loop {
            tokio::select! {
                changed = is_read_only.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                _ = ticks.tick() => {}
            }
            let silence = engine.disk_silence();
            let is_silent = silence >= SILENCE;
            match (was_silent, is_silent) {
                (false, true) => tracing::error!(
                    ?silence,
                    "the disk does not answer: calls that add keys wait for it"
                ),
                (true, false) => tracing::info!("the disk answers again"),
                _ => {}
            }
            was_silent = is_silent;
            let is_read_only = *is_read_only.borrow_and_update();
            let refuses = is_read_only || is_silent;
            if refuses != reported {
                health.read_only(refuses).await;
                reported = refuses;
            }
        }
    })
}

/// Logs when another program removes or replaces files of the data directory.
pub(super) fn watch_files(engine: &Engine) -> JoinHandle<()> {
    let engine = engine.clone();
    tokio::spawn(async move {
        let (mut ticks, mut reported) = (interval(FILES_TICK), None);
        loop {
            ticks.tick().await;
            let engine = engine.clone();
            // If the disk hangs, the call does not return, and nothing is checked meanwhile.
            let checked = tokio::task::spawn_blocking(move || engine.check_directory()).await;
            let Ok(checked) = checked else { return };
            let error = checked.err().map(|error| error.to_string());
            if let Some(error) = error.as_ref().filter(|_| reported != error) {
                tracing::error!(%error, "the data directory is not the server's alone");
            }
            reported = error;
        }
    })
}
