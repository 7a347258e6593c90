//! The threads that serve calls: one for each processor core, each with a runtime of its own.
//!
//! A call takes less time than moving it to another thread, so a connection and all its calls stay
//! on one thread. A single-threaded runtime also takes its tasks in turn: it answers all calls that
//! arrive together, and then writes their answers at once. A work-stealing runtime first runs the
//! task that became ready last, and writes each answer by itself.

use std::{
    future::Future,
    io,
    pin::{Pin, pin},
    sync::Arc,
    thread,
};

use futures_util::{Stream, StreamExt};
use tokio::{
    runtime::{Builder, Handle},
    sync::{mpsc, oneshot},
    task::{JoinHandle, JoinSet},
};
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::{
    connections::{Accepted, Connection, Connections},
    sync::cores,
};

/// The stream of connections of one core. It ends when no more are accepted.
pub type Incoming = Pin<Box<dyn Stream<Item = io::Result<Connection>> + Send>>;

/// The threads that serve calls. Dropping this soon ends all tasks on them.
#[derive(Debug)]
pub struct Cores(Vec<Core>);

#[derive(Debug)]
struct Core {
    runtime: Handle,
    /// Cloned for each connection that is open here.
    seat: Arc<()>,
    /// Dropping it ends the thread.
    stop: oneshot::Sender<()>,
    /// Closed when all that ran on the thread is gone.
    stopped: oneshot::Receiver<()>,
}

impl Cores {
    /// Starts a thread for each core that the process may use.
    ///
    /// # Errors
    ///
    /// The error of the operating system if it gives no more threads or files.
    pub fn start() -> io::Result<Self> {
        Self::threads(cores())
    }

    fn threads(count: usize) -> io::Result<Self> {
        let cores: io::Result<_> = (0..count).map(Core::start).collect();
        cores.map(Self)
    }

    /// Serves connections until `end` completes. `server` makes a server for each core; each
    /// connection goes to the core that has the fewest. After `end` no more connections are
    /// accepted, and [`Incoming`] ends, which asks the servers to end.
    ///
    /// The returned task completes when all servers have ended. It fails as soon as a server ends
    /// before it is asked to.
    pub fn serve<S, F, E>(
        &self,
        connections: Connections,
        server: S,
        end: E,
    ) -> JoinHandle<Result<(), String>>
    where
        S: Fn(Incoming) -> F,
        F: Future<Output = ()> + Send + 'static,
        E: Future<Output = ()> + Send + 'static,
    {
        let mut servers = JoinSet::new();
        let tables: Vec<Table> = self
            .0
            .iter()
            .map(|core| {
                let (table, incoming) = Table::new(core.seat.clone());
                servers.spawn_on(server(incoming), &core.runtime);
                table
            })
            .collect();
        tokio::spawn(async move {
            let mut end = pin!(end);
            loop {
                tokio::select! {
                    () = &mut end => break,
                    accepted = connections.accept() => deal(&tables, accepted),
                    Some(ended) = servers.join_next() => return Err(match ended {
                        Ok(()) => "no more connections are accepted".to_owned(),
                        Err(error) => error.to_string(),
                    }),
                }
            }
            drop((tables, connections));
            // From here on the results of the servers do not matter.
            while servers.join_next().await.is_some() {}
            Ok(())
        })
    }

    /// Ends the threads and all tasks on them, connections included, and waits until they are gone.
    pub async fn stop(self) {
        for Core { stop, stopped, .. } in self.0 {
            drop(stop);
            // The error is expected: the thread drops the sender when it ends.
            let _ = stopped.await;
        }
    }
}

impl Core {
    fn start(number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopping) = oneshot::channel();
        let (running, stopped) = oneshot::channel();
        let core = Self {
            runtime: runtime.handle().clone(),
            seat: Arc::default(),
            stop,
            stopped,
        };
        thread::Builder::new()
            .name(format!("core-{number}"))
            .spawn(move || {
                // An error means that the sender was dropped, which is the request to stop.
                let _ = runtime.block_on(stopping);
                // Blocking tasks in the runtime, such as writing a snapshot, may go on: nobody
                // waits for them.
                runtime.shutdown_background();
                drop(running);
            })?;
        Ok(core)
    }
}

/// The sending end for the connections of a core.
struct Table {
    seat: Arc<()>,
    deal: mpsc::UnboundedSender<(Accepted, Arc<()>)>,
}

impl Table {
    fn new(seat: Arc<()>) -> (Self, Incoming) {
        // Unbounded, because the number of connections has a limit.
        let (deal, dealt) = mpsc::unbounded_channel::<(Accepted, Arc<()>)>();
        let incoming =
            UnboundedReceiverStream::new(dealt).map(|(accepted, seat)| accepted.open(seat));
        (Self { seat, deal }, Box::pin(incoming))
    }

    fn connections(&self) -> usize {
        Arc::strong_count(&self.seat)
    }
}

fn deal(tables: &[Table], accepted: Accepted) {
    if let Some(table) = tables.iter().min_by_key(|table| table.connections()) {
        // Sending fails only if the server has ended, which `serve` reports as an error of its own.
        let _ = table.deal.send((accepted, table.seat.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::future;

    use tokio::{io::AsyncReadExt, net::TcpStream};

    use super::*;
    use crate::{connections::ConnectionLimits, listeners::Listeners};

    async fn connections(limit: usize) -> Connections {
        let address = "127.0.0.1:0".parse().unwrap();
        Connections::new(
            Listeners::bind(&[address]).await.unwrap(),
            ConnectionLimits {
                connections: limit,
                for_each_address: limit,
            },
        )
    }

    #[tokio::test]
    async fn connections_are_dealt_evenly_and_end_with_the_cores() {
        let connections = connections(10).await;
        let address = connections.listeners().addresses().next().unwrap();
        let cores = Cores::threads(3).unwrap();
        let (served, mut serving) = mpsc::unbounded_channel();
        let (end, ended) = oneshot::channel::<()>();
        let server = |mut incoming: Incoming| {
            let served = served.clone();
            async move {
                let mut open = Vec::new();
                while let Some(connection) = incoming.next().await {
                    open.push(connection.unwrap());
                    let core = thread::current().name().unwrap().to_owned();
                    served.send(core).unwrap();
                }
                future::pending().await
            }
        };
        let running = cores.serve(connections, server, async {
            let _ = ended.await;
        });

        let mut clients = Vec::new();
        let mut used = Vec::new();
        for _ in 0..6 {
            clients.push(TcpStream::connect(address).await.unwrap());
            used.push(serving.recv().await.unwrap());
        }
        used.sort();
        assert_eq!(
            used,
            ["core-0", "core-0", "core-1", "core-1", "core-2", "core-2"]
        );

        // No more come in, and those that are there stay.
        drop(end);
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(!running.is_finished());
        cores.stop().await;
        running.await.unwrap().unwrap();
        for mut client in clients {
            assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        }
    }

    #[tokio::test]
    async fn a_server_that_ends_is_told_of() {
        let cores = Cores::threads(2).unwrap();
        let server = |_| future::ready(());
        let serving = cores.serve(connections(1).await, server, future::pending());
        let error = serving.await.unwrap().unwrap_err();
        assert_eq!(error, "no more connections are accepted");
    }
}
