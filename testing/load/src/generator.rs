//! The load generator: a client of one server that makes one run after the other.

use std::{
    cell::RefCell,
    collections::hash_map::RandomState,
    hash::BuildHasher,
    ops::ControlFlow,
    panic,
    rc::Rc,
    time::{Duration, Instant},
};

use seenset_client::{Address, Client, Coalescing, Error, Options};
use tokio::{
    task::{JoinSet, LocalSet},
    time::{MissedTickBehavior, interval},
};

use super::{
    Calls, Load, connection::Connection, numbers::Numbers, outcome::Outcome, rpc::Rpc, run::Run,
    template::Template,
};

/// The interval at which a run is checked.
const TICK: Duration = Duration::from_millis(100);

/// A load generator: a client of one server that loads it in one or more runs.
///
/// It keeps one thread busy: the thread of the runtime in which its runs are awaited. A
/// single-threaded runtime is best.
pub struct Generator {
    local: LocalSet,
    clients: Clients,
}

/// The connections, and the keys that go over them.
struct Clients {
    server: Address,
    options: Options,
    filter: String,
    key_bytes: usize,
    /// The number that makes the keys different from those of any other generator.
    run: u64,
    numbers: Rc<RefCell<Numbers>>,
    connections: Vec<Connection>,
    coalescing: Vec<Coalescing>,
}

impl Generator {
    /// Creates a generator for the filter named `filter`; an empty name means the filter named
    /// `default`. Each key has `key_bytes` bytes (at least
    /// [`MIN_KEY_BYTES`](super::MIN_KEY_BYTES)). The keys are different from those of any other
    /// generator. It connects with the first run.
    ///
    /// # Errors
    ///
    /// [`Error::Endpoint`] if `server` is not a valid address.
    pub fn new(
        server: &str,
        options: Options,
        filter: &str,
        key_bytes: usize,
    ) -> Result<Self, Error> {
        Ok(Self {
            local: LocalSet::new(),
            clients: Clients {
                server: server.parse()?,
                options,
                filter: filter.to_owned(),
                key_bytes,
                run: RandomState::new().hash_one(0),
                numbers: Rc::default(),
                connections: Vec::new(),
                coalescing: Vec::new(),
            },
        })
    }

    /// Loads the server for the given `time`. A `share` of the keys (0 to 1) are keys that were
    /// answered before, in this run or an earlier one. While there are none, the keys are new.
    ///
    /// `watch` gets the outcome so far several times a second. If it breaks, the run ends at once,
    /// and does not wait for calls in flight.
    ///
    /// # Errors
    ///
    /// The first error of any call. [`Error::Deadline`] if nothing is answered for as long as the
    /// deadline of the options, and [`Error::TooLarge`] if the batches are too large.
    pub async fn run(
        &mut self,
        load: Load,
        share: f64,
        time: Duration,
        watch: impl FnMut(&Outcome) -> ControlFlow<()>,
    ) -> Result<Outcome, Error> {
        self.local
            .run_until(self.clients.run(load, share, time, watch))
            .await
    }
}

impl Clients {
    async fn run(
        &mut self,
        load: Load,
        share: f64,
        time: Duration,
        watch: impl FnMut(&Outcome) -> ControlFlow<()>,
    ) -> Result<Outcome, Error> {
        let keys = load.calls.keys();
        let template = Template::new(&self.filter, self.key_bytes, self.run, keys)?;
        let rpc = Rpc::new(&self.server, self.options, load.calls)?;
        self.connect(load).await?;
        self.numbers.borrow_mut().begin(keys, share);
        let run = Rc::new(Run {
            rpc,
            template,
            numbers: Rc::clone(&self.numbers),
            begun: Instant::now(),
            time,
            outcome: RefCell::new(Outcome::new()),
        });
        let mut callers = self.callers(load, &run);
        let ended = wait(&run, &mut callers, self.options.deadline, watch).await;
        callers.shutdown().await;
        ended.map(|()| so_far(&run).clone())
    }

    /// Opens the connections that are missing.
    async fn connect(&mut self, load: Load) -> Result<(), Error> {
        if load.calls == Calls::Coalesced {
            while self.coalescing.len() < load.connections {
                let server = self.server.to_string();
                let client = Client::connect_with(&server, self.options).await?;
                self.coalescing
                    .push(client.filter(&self.filter).coalescing());
            }
        } else {
            while self.connections.len() < load.connections {
                let connection = Connection::open(&self.server, &self.options).await?;
                self.connections.push(connection);
            }
        }
        Ok(())
    }

    /// Starts the callers. They are assigned to the connections in turn.
    fn callers(&self, load: Load, run: &Rc<Run>) -> JoinSet<Result<(), Error>> {
        let mut callers = JoinSet::new();
        let connections = self.connections.iter().take(load.connections).cycle();
        let coalescing = self.coalescing.iter().take(load.connections).cycle();
        match load.calls {
            Calls::Single | Calls::Batch { .. } => {
                for connection in connections.take(load.callers) {
                    callers.spawn_local(Rc::clone(run).call(connection.clone()));
                }
            }
            Calls::Coalesced => {
                for client in coalescing.take(load.callers) {
                    callers.spawn_local(Rc::clone(run).coalesced(client.clone()));
                }
            }
            Calls::Stream { window, .. } => {
                for connection in connections.take(load.callers) {
                    callers.spawn_local(Rc::clone(run).stream(connection.clone(), window));
                }
            }
        }
        callers
    }
}

/// Waits until all callers have ended, or until an error, the deadline or `watch` ends the run.
async fn wait(
    run: &Run,
    callers: &mut JoinSet<Result<(), Error>>,
    deadline: Duration,
    mut watch: impl FnMut(&Outcome) -> ControlFlow<()>,
) -> Result<(), Error> {
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut answered, mut since) = (0, Instant::now());
    loop {
        tokio::select! {
            ended = callers.join_next() => match ended {
                None => return Ok(()),
                Some(Ok(result)) => result?,
                Some(Err(error)) => if let Ok(panicked) = error.try_into_panic() {
                    panic::resume_unwind(panicked);
                }
            },
            _ = tick.tick() => {
                let outcome = so_far(run);
                if outcome.calls() > answered {
                    (answered, since) = (outcome.calls(), Instant::now());
                } else if since.elapsed() > deadline {
                    return Err(run.rpc.expired());
                }
                if watch(&outcome).is_break() {
                    return Ok(());
                }
            }
        }
    }
}

/// Returns the outcome of a run so far.
fn so_far(run: &Run) -> std::cell::RefMut<'_, Outcome> {
    let mut outcome = run.outcome.borrow_mut();
    outcome.elapsed = run.begun.elapsed();
    outcome
}
