//! A server, and the client that loads it.

use std::{ops::ControlFlow, thread, time::Duration};

use seenset_client::{Client, Options};
use seenset_load::{Generator, Load, Outcome};
use tokio::runtime::{Builder, Runtime};

use crate::{Keys, SCENARIOS, TURN, process::Process};

/// The timeout of a store. No snapshot takes this long.
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
        Self {
            name,
            runtime: runtime(),
            generator: generator(&server),
            server,
        }
    }

    /// Runs a load. Returns its outcome and the CPU time that the server used for it.
    pub fn turn(&mut self, load: Load, keys: Keys, time: Duration) -> (Outcome, Duration) {
        self.turn_until(load, keys, time, || false)
    }

    /// Runs a load until the time is over or `end` returns true.
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

    /// Resets the filter if more than a fifth of its capacity is used. Otherwise the next scenario
    /// would see keys by chance that a fast machine has added in this one. After a reset, adds
    /// keys: then all memory is touched, as in a server at work, and there are keys to query again.
    /// Returns whether the filter was reset.
    pub fn make_room(&mut self) -> bool {
        let is_filled = self.runtime.block_on(async {
            let client = connect(&self.server.address).await;
            let filter = client.get_filter("default").await.unwrap();
            let is_filled = filter.keys_added > filter.spec.unwrap().capacity / 5;
            if is_filled {
                client.reset_filter("default").await.unwrap();
            }
            is_filled
        });
        if is_filled {
            self.generator = generator(&self.server);
            self.fill();
        }
        is_filled
    }

    /// Adds keys for three turns.
    pub fn fill(&mut self) {
        self.turn(SCENARIOS[0].1, Keys::New, 3 * TURN);
    }

    /// Stores the filter on a separate thread.
    pub fn store(&self) -> thread::JoinHandle<()> {
        let address = self.server.address.clone();
        thread::spawn(move || {
            runtime().block_on(async {
                let client = connect(&address).await;
                client.store("default").await.unwrap();
            });
        })
    }
}

fn generator(server: &Process) -> Generator {
    Generator::new(&server.address, Options::default(), "", KEY_BYTES).unwrap()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn connect(address: &str) -> Client {
    let options = Options {
        deadline: STORE_TIMEOUT,
        ..Options::default()
    };
    Client::connect_with(address, options).await.unwrap()
}
