//! The load: calls as bytes over the `h2` crate, so that the client takes as little of the time
//! as can be.

use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::Rc,
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes, BytesMut};
use h2::{
    RecvStream,
    client::{self, SendRequest},
};
use hdrhistogram::Histogram;
use seenset_client::Coalescing;
use tokio::{
    net::TcpStream,
    task::{self, LocalSet},
};
use tonic::codegen::http::{HeaderMap, Request};

use super::messages::{KEY_BYTES, PREFIX_BYTES, Template};

/// More than is ever under way: the client never holds a server up.
const WINDOW_BYTES: u32 = 1 << 24;

/// What is asked, and by how many at once.
#[derive(Debug, Clone, Copy)]
pub enum Load {
    /// Calls for one key each: so many callers on so many connections.
    Single { connections: usize, callers: usize },
    /// Calls for so many keys each, by so many callers.
    Batch { keys: usize, callers: usize },
    /// The client crate's single calls, which it sends together.
    Coalesced { callers: usize },
    /// One stream of batches of so many keys, so many of them in flight.
    Stream { keys: usize, window: usize },
}

impl Load {
    fn connections(self) -> usize {
        match self {
            Self::Single { connections, .. } => connections,
            Self::Batch { .. } | Self::Stream { .. } => 1,
            Self::Coalesced { .. } => 0,
        }
    }

    fn keys(self) -> usize {
        match self {
            Self::Single { .. } | Self::Coalesced { .. } => 1,
            Self::Batch { keys, .. } | Self::Stream { keys, .. } => keys,
        }
    }
}

/// Which keys are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// Those never asked for before.
    New,
    /// Those asked for before, again and again.
    Seen,
}

/// What came of a load.
pub struct Outcome {
    pub keys: u64,
    /// Those that the server said it had seen.
    pub seen: u64,
    pub elapsed: Duration,
    /// How long each call or batch took, in nanoseconds.
    pub latencies: Histogram<u64>,
}

/// A client of one server.
pub struct Client {
    runtime: tokio::runtime::Runtime,
    local: LocalSet,
    address: String,
    connections: Vec<SendRequest<Bytes>>,
    /// The number of the next new key.
    next: u32,
    /// The number of the next key among those seen.
    again: u32,
}

impl Client {
    pub fn new(address: &str) -> Self {
        Self {
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap(),
            local: LocalSet::new(),
            address: address.to_owned(),
            connections: Vec::new(),
            next: 0,
            again: 0,
        }
    }

    /// Loads the server for a while.
    pub fn run(&mut self, load: Load, keys: Keys, time: Duration) -> Outcome {
        while self.connections.len() < load.connections() {
            let connect = self.local.run_until(connect(&self.address));
            self.connections.push(self.runtime.block_on(connect));
        }
        let run = Rc::new(Run {
            template: Template::new(load.keys()),
            batch: load.keys() as u32,
            keys,
            end: Instant::now() + time,
            progress: RefCell::new(Progress {
                next: self.next,
                again: self.again,
                outcome: Outcome {
                    keys: 0,
                    seen: 0,
                    elapsed: Duration::ZERO,
                    latencies: Histogram::new(3).unwrap(),
                },
            }),
        });
        let begun = Instant::now();
        let callers = async {
            let connections = self.connections.iter().take(load.connections()).cycle();
            let tasks: Vec<_> = match load {
                Load::Single { callers, .. } | Load::Batch { callers, .. } => connections
                    .take(callers)
                    .map(|connection| {
                        let method = if load.keys() == 1 {
                            "QueryAndAdd"
                        } else {
                            "QueryAndAddBatch"
                        };
                        task::spawn_local(run.clone().call(connection.clone(), method))
                    })
                    .collect(),
                Load::Coalesced { callers } => {
                    let client = seenset_client::Client::connect(&self.address)
                        .await
                        .unwrap();
                    let client = client.coalescing();
                    (0..callers)
                        .map(|_| task::spawn_local(run.clone().coalesced(client.clone())))
                        .collect()
                }
                Load::Stream { window, .. } => connections
                    .take(1)
                    .map(|connection| {
                        task::spawn_local(run.clone().stream(connection.clone(), window))
                    })
                    .collect(),
            };
            for task in tasks {
                task.await.unwrap();
            }
        };
        self.runtime.block_on(self.local.run_until(callers));
        let progress = Rc::into_inner(run).unwrap().progress.into_inner();
        (self.next, self.again) = (progress.next, progress.again);
        Outcome {
            elapsed: begun.elapsed(),
            ..progress.outcome
        }
    }
}

async fn connect(address: &str) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (send, connection) = client::Builder::new()
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buffer_size(WINDOW_BYTES as usize)
        .handshake(stream)
        .await
        .unwrap();
    task::spawn_local(async move { connection.await.unwrap() });
    send
}

/// One run of a load, shared by its callers.
struct Run {
    template: Template,
    batch: u32,
    keys: Keys,
    end: Instant,
    progress: RefCell<Progress>,
}

struct Progress {
    next: u32,
    again: u32,
    outcome: Outcome,
}

impl Run {
    fn request(&self) -> Bytes {
        let mut progress = self.progress.borrow_mut();
        let numbers = match self.keys {
            Keys::New => {
                let first = progress.next;
                progress.next += self.batch;
                first..progress.next
            }
            Keys::Seen => {
                if progress.again + self.batch > progress.next {
                    progress.again = 0;
                }
                let first = progress.again;
                progress.again += self.batch;
                first..progress.again
            }
        };
        self.template.fill(numbers)
    }

    /// Counts an answer, which is a whole message, to a request of that time.
    fn answered(&self, message: &[u8], sent: Instant) {
        let outcome = &mut self.progress.borrow_mut().outcome;
        let latency = u64::try_from(sent.elapsed().as_nanos()).unwrap();
        outcome.latencies.record(latency).unwrap();
        // Whatever comes before the answers, they come last, a byte for each key.
        let answers = &message[message.len() - self.batch as usize..];
        outcome.keys += answers.len() as u64;
        outcome.seen += answers.iter().map(|&seen| u64::from(seen)).sum::<u64>();
    }

    /// One call after the other.
    async fn call(self: Rc<Self>, connection: SendRequest<Bytes>, method: &'static str) {
        while Instant::now() < self.end {
            let request = self.request();
            let sent = Instant::now();
            let mut connection = connection.clone().ready().await.unwrap();
            let (response, mut send) = connection.send_request(head(method), false).unwrap();
            send.send_data(request, true).unwrap();
            let mut body = response.await.unwrap().into_body();
            let mut message = BytesMut::new();
            while let Some(data) = body.data().await {
                take(&mut body, data.unwrap(), &mut message);
            }
            check(&body.trailers().await.unwrap().unwrap());
            self.answered(&message, sent);
        }
    }

    /// One call of the client crate after the other.
    async fn coalesced(self: Rc<Self>, client: Coalescing) {
        while Instant::now() < self.end {
            let request = self.request();
            let key = str::from_utf8(&request[request.len() - KEY_BYTES..]).unwrap();
            let sent = Instant::now();
            let seen = client.query_and_add(key).await.unwrap();
            self.answered(&[u8::from(seen)], sent);
        }
    }

    /// Batches one behind the other.
    async fn stream(self: Rc<Self>, connection: SendRequest<Bytes>, window: usize) {
        let mut connection = connection.ready().await.unwrap();
        let (response, mut send) = connection
            .send_request(head("QueryAndAddStream"), false)
            .unwrap();
        let mut sent = VecDeque::new();
        let fill = |sent: &mut VecDeque<Instant>, send: &mut h2::SendStream<Bytes>| {
            while sent.len() < window && Instant::now() < self.end {
                let request = self.request();
                sent.push_back(Instant::now());
                send.send_data(request, false).unwrap();
            }
        };
        fill(&mut sent, &mut send);
        let mut body = response.await.unwrap().into_body();
        let mut received = BytesMut::new();
        while !sent.is_empty() {
            let data = body.data().await.unwrap().unwrap();
            take(&mut body, data, &mut received);
            while let Some((header, rest)) = received.split_first_chunk::<PREFIX_BYTES>() {
                let [_, length @ ..] = *header;
                let length = u32::from_be_bytes(length) as usize;
                let Some(message) = rest.get(..length) else {
                    break;
                };
                self.answered(message, sent.pop_front().unwrap());
                received.advance(PREFIX_BYTES + length);
            }
            fill(&mut sent, &mut send);
        }
        send.send_data(Bytes::new(), true).unwrap();
        assert!(body.data().await.is_none());
        check(&body.trailers().await.unwrap().unwrap());
    }
}

fn head(method: &str) -> Request<()> {
    Request::post(format!("http://localhost/seenset.v1.DedupService/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap()
}

fn take(body: &mut RecvStream, data: Bytes, to: &mut BytesMut) {
    body.flow_control().release_capacity(data.len()).unwrap();
    to.extend_from_slice(&data);
}

fn check(trailers: &HeaderMap) {
    assert_eq!(trailers["grpc-status"], "0", "{trailers:?}");
}
