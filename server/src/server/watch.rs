//! Tasks that look at something again and again while the server runs, until they are aborted.

use std::time::Duration;

use tokio::{task::JoinHandle, time::interval};

use crate::{
    engine::Engine,
    grpc::{ClientMemory, Health},
};

/// How often they look.
const TICK: Duration = Duration::from_millis(250);

/// How often it is looked whether the files are still there.
const FILES_TICK: Duration = Duration::from_secs(1);

/// A disk that has not answered for so long is said to hang.
const SILENCE: Duration = Duration::from_secs(1);

/// Notes which clients hold memory and give none back.
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

/// Has health tell whether keys are refused because they cannot be logged, or wait for a disk that
/// does not answer.
pub(super) fn watch_disk(health: &Health, engine: &Engine) -> JoinHandle<()> {
    let (health, engine) = (health.clone(), engine.clone());
    tokio::spawn(async move {
        let mut is_read_only = engine.is_read_only();
        let (mut ticks, mut was_silent, mut told) = (interval(TICK), false, false);
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
            if refuses != told {
                health.read_only(refuses).await;
                told = refuses;
            }
        }
    })
}

/// Tells in the log when another program removes or replaces files of the directory.
pub(super) fn watch_files(engine: &Engine) -> JoinHandle<()> {
    let engine = engine.clone();
    tokio::spawn(async move {
        let (mut ticks, mut told) = (interval(FILES_TICK), None);
        loop {
            ticks.tick().await;
            let engine = engine.clone();
            // On a disk that hangs it does not return, and nothing is looked at meanwhile.
            let checked = tokio::task::spawn_blocking(move || engine.check_directory()).await;
            let Ok(checked) = checked else { return };
            let error = checked.err().map(|error| error.to_string());
            if let Some(error) = error.as_ref().filter(|_| told != error) {
                tracing::error!(%error, "the data directory is not the server's alone");
            }
            told = error;
        }
    })
}
