//! A server, and the client that loads it.

use std::{ops::ControlFlow, thread, time::Duration};

use seenset_client::{
    Options,
    load::{Generator, Load, Outcome},
};
use tokio::runtime::Runtime;

use crate::{Keys, process::Process};

/// No snapshot takes as long.
pub const STORE_TIMEOUT: Duration = Duration::from_secs(100);
/// The length of every key.
const KEY_BYTES: usize = 60;

/// A server, and the client that loads it.
pub struct Contender {
    pub name: &'static str,
    pub server: Process,
    runtime: Runtime,
    generator: Generator,
}

impl Contender {
    pub fn new(name: &'static str, server: Process) -> Self {
        let generator = Generator::new(&server.address, Options::default(), "", KEY_BYTES);
        Self {
            name,
            server,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap(),
            generator: generator.unwrap(),
        }
    }

    /// What came of a load, and the CPU time that the server took for it.
    pub fn turn(&mut self, load: Load, keys: Keys, time: Duration) -> (Outcome, Duration) {
        self.turn_until(load, keys, time, || false)
    }

    /// The same, until `end` says so, if that is sooner.
    pub fn turn_until(
        &mut self,
        load: Load,
        keys: Keys,
        time: Duration,
        end: impl Fn() -> bool,
    ) -> (Outcome, Duration) {
        let share = if keys == Keys::Seen { 1.0 } else { 0.0 };
        let before = self.server.cpu_time();
        let run = self.generator.run(load, share, time, |_| {
            if end() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        let outcome = self.runtime.block_on(run).unwrap();
        (outcome, self.server.cpu_time() - before)
    }

    /// Stores the filter, on a thread of its own.
    pub fn store(&self) -> thread::JoinHandle<()> {
        let address = self.server.address.clone();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let options = Options {
                    deadline: STORE_TIMEOUT,
                    ..Options::default()
                };
                let client = seenset_client::Client::connect_with(&address, options)
                    .await
                    .unwrap();
                client.store("default").await.unwrap();
            });
        })
    }
}
