//! A service that answers exactly from a set in memory and fails on demand, and a way to it that
//! can be cut. A real server cannot be made to fail at the right moment.

#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod filters;

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use seenset_client::{
    Client, Options,
    v1::{
        self,
        dedup_service_server::{DedupService, DedupServiceServer},
        filter_service_server::FilterServiceServer,
    },
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::{broadcast, mpsc},
    task::JoinHandle,
};
use tokio_stream::{
    Stream, StreamExt, wrappers::TcpListenerStream, wrappers::UnboundedReceiverStream,
};
use tonic::{Request, Response, Status, Streaming, transport::Server};

/// The behaviour of the fake service in its next calls.
#[derive(Default)]
pub struct State {
    /// The filters and keys, and the ids of the requests that added them first.
    seen: Mutex<HashMap<(String, String), String>>,
    /// The keys that were removed, and the ids of the requests that removed them.
    removed: Mutex<HashMap<(String, String), String>>,
    /// The number of calls that reached the service.
    pub calls: AtomicUsize,
    /// The number of calls that answer UNAVAILABLE.
    pub unavailable: AtomicUsize,
    /// The number of calls that are applied, and whose answer is lost with the connection.
    pub lose_reply: AtomicUsize,
    /// The number of a call, counted from 1, that is applied and whose answer is lost.
    pub lose_reply_of_call: AtomicUsize,
    /// The number of a call, counted from 1. From it on, all calls are applied and their answers
    /// are lost.
    pub lose_reply_from_call: AtomicUsize,
    /// The number of calls that are never answered.
    pub hang: AtomicUsize,
    /// The number of a call, counted from 1. From it on, no call is answered.
    pub hang_from_call: AtomicUsize,
    /// The number of calls that are answered as if they had added nothing.
    pub forget: AtomicUsize,
    /// The filters that were created and not removed.
    pub filters: Mutex<HashSet<String>>,
    /// If true, filters are not removed.
    pub keep_filters: AtomicBool,
    /// The number of messages that a stream needs before it answers any.
    pub hold: AtomicUsize,
    /// The number of answers on streams that are followed by another answer that nobody asked for.
    pub unasked: AtomicUsize,
    /// The maximum number of stream messages that had come and were not answered.
    pub most_held: AtomicUsize,
    /// The number of connections that clients have made.
    pub connections: AtomicUsize,
    cut: Mutex<Option<broadcast::Sender<()>>>,
}

impl State {
    /// Returns whether the filter holds the key.
    pub fn contains(&self, filter: &str, key: &str) -> bool {
        let entry = (filter.to_owned(), key.to_owned());
        self.seen.lock().unwrap().contains_key(&entry)
    }

    /// Returns the number of keys in all filters.
    pub fn key_count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// Forgets which requests have added which keys.
    pub fn forget_requests(&self) {
        self.seen
            .lock()
            .unwrap()
            .values_mut()
            .for_each(String::clear);
    }

    fn query(&self, filter: &str, keys: &[String]) -> Vec<bool> {
        keys.iter().map(|key| self.contains(filter, key)).collect()
    }

    fn mark(&self, filter: &str, keys: &[String], request_id: &str) -> Vec<bool> {
        if take(&self.forget) {
            return vec![false; keys.len()];
        }
        let mut seen = self.seen.lock().unwrap();
        let mut told = HashSet::new();
        let mark = |key: &String| match seen.entry((filter.to_owned(), key.clone())) {
            Entry::Vacant(new) => {
                new.insert(request_id.to_owned());
                !told.insert(key.clone())
            }
            Entry::Occupied(winner) => {
                let is_again = !request_id.is_empty() && winner.get() == request_id;
                !(is_again && told.insert(key.clone()))
            }
        };
        keys.iter().map(mark).collect()
    }

    fn remove(&self, filter: &str, keys: &[String], request_id: &str) -> Vec<bool> {
        let (mut seen, mut removed) = (self.seen.lock().unwrap(), self.removed.lock().unwrap());
        let remove = |key: &String| {
            let entry = (filter.to_owned(), key.clone());
            if seen.remove(&entry).is_some() {
                removed.insert(entry, request_id.to_owned());
                return true;
            }
            !request_id.is_empty() && removed.get(&entry).is_some_and(|by| by == request_id)
        };
        keys.iter().map(remove).collect()
    }

    /// Runs a call. Fails it before or after `apply`, as the counters say.
    async fn run<T>(&self, keys: &[String], apply: impl FnOnce() -> T) -> Result<T, Status> {
        let call = self.calls.fetch_add(1, SeqCst) + 1;
        if take(&self.unavailable) {
            return Err(Status::unavailable("recovering"));
        }
        let hangs_from = self.hang_from_call.load(SeqCst);
        if take(&self.hang) || (hangs_from > 0 && call >= hangs_from) {
            std::future::pending::<()>().await;
        }
        if keys.iter().any(|key| key == "refuse me") {
            return Err(Status::invalid_argument("keys: refuse me"));
        }
        if keys.iter().any(|key| key == "no room") {
            return Err(Status::resource_exhausted("the log: no room"));
        }
        let answer = apply();
        let lost_from = self.lose_reply_from_call.load(SeqCst);
        let is_lost = lost_from > 0 && call >= lost_from;
        if is_lost || take(&self.lose_reply) || call == self.lose_reply_of_call.load(SeqCst) {
            self.cut();
            std::future::pending::<()>().await;
        }
        Ok(answer)
    }

    /// Cuts all connections that go over the way of a [`Service`].
    pub fn cut(&self) {
        if let Some(cut) = &*self.cut.lock().unwrap() {
            let _ = cut.send(());
        }
    }
}

/// Returns the key of a request, from either field.
fn key(text: String, binary: Vec<u8>) -> String {
    assert!(text.is_empty() || binary.is_empty());
    text + &shown(binary)
}

/// Returns the keys of a batch, from either field.
fn keys(texts: Vec<String>, binaries: Vec<Vec<u8>>) -> Vec<String> {
    assert!(texts.is_empty() || binaries.is_empty());
    let binaries = binaries.into_iter().map(shown);
    texts.into_iter().chain(binaries).collect()
}

/// Returns bytes as text. Different bytes have different texts.
fn shown(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| format!("{:?}", error.into_bytes()))
}

fn take(counter: &AtomicUsize) -> bool {
    counter
        .fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1))
        .is_ok()
}

struct Fake(Arc<State>);

#[tonic::async_trait]
impl DedupService for Fake {
    async fn query(
        &self,
        request: Request<v1::QueryRequest>,
    ) -> Result<Response<v1::QueryResponse>, Status> {
        let request = request.into_inner();
        let (filter, keys) = (request.filter, [key(request.key, request.binary_key)]);
        let seen = self.0.run(&keys, || self.0.query(&filter, &keys)).await?;
        let seen = seen.first().copied();
        Ok(Response::new(v1::QueryResponse { seen }))
    }

    async fn add(
        &self,
        request: Request<v1::AddRequest>,
    ) -> Result<Response<v1::AddResponse>, Status> {
        let request = request.into_inner();
        let (filter, keys) = (request.filter, [key(request.key, request.binary_key)]);
        self.0
            .run(&keys, || self.0.mark(&filter, &keys, ""))
            .await?;
        Ok(Response::new(v1::AddResponse {}))
    }

    async fn query_and_add(
        &self,
        request: Request<v1::QueryAndAddRequest>,
    ) -> Result<Response<v1::QueryAndAddResponse>, Status> {
        let request = request.into_inner();
        let (filter, request_id) = (request.filter, request.request_id);
        let keys = [key(request.key, request.binary_key)];
        let apply = || self.0.mark(&filter, &keys, &request_id);
        let seen = self.0.run(&keys, apply).await?;
        let seen = seen.first().copied();
        Ok(Response::new(v1::QueryAndAddResponse { seen }))
    }

    async fn store(
        &self,
        _: Request<v1::StoreRequest>,
    ) -> Result<Response<v1::StoreResponse>, Status> {
        self.0.run(&[], || ()).await?;
        Ok(Response::new(v1::StoreResponse::default()))
    }

    async fn query_batch(
        &self,
        request: Request<v1::QueryBatchRequest>,
    ) -> Result<Response<v1::QueryBatchResponse>, Status> {
        let request = request.into_inner();
        let (filter, keys) = (request.filter, keys(request.keys, request.binary_keys));
        let seen = self.0.run(&keys, || self.0.query(&filter, &keys)).await?;
        Ok(Response::new(v1::QueryBatchResponse { seen }))
    }

    async fn add_batch(
        &self,
        request: Request<v1::AddBatchRequest>,
    ) -> Result<Response<v1::AddBatchResponse>, Status> {
        let request = request.into_inner();
        let (filter, keys) = (request.filter, keys(request.keys, request.binary_keys));
        self.0
            .run(&keys, || self.0.mark(&filter, &keys, ""))
            .await?;
        Ok(Response::new(v1::AddBatchResponse {
            capacity_warning: None,
        }))
    }

    async fn query_and_add_batch(
        &self,
        request: Request<v1::QueryAndAddBatchRequest>,
    ) -> Result<Response<v1::QueryAndAddBatchResponse>, Status> {
        let request = request.into_inner();
        let (filter, request_id) = (request.filter, request.request_id);
        let keys = keys(request.keys, request.binary_keys);
        let apply = || self.0.mark(&filter, &keys, &request_id);
        let seen = self.0.run(&keys, apply).await?;
        Ok(Response::new(v1::QueryAndAddBatchResponse {
            seen,
            capacity_warning: None,
        }))
    }

    async fn remove(
        &self,
        request: Request<v1::RemoveRequest>,
    ) -> Result<Response<v1::RemoveResponse>, Status> {
        let request = request.into_inner();
        let (filter, request_id) = (request.filter, request.request_id);
        let keys = [key(request.key, request.binary_key)];
        let apply = || self.0.remove(&filter, &keys, &request_id);
        let removed = self.0.run(&keys, apply).await?;
        let removed = removed.first().copied();
        Ok(Response::new(v1::RemoveResponse { removed }))
    }

    async fn remove_batch(
        &self,
        request: Request<v1::RemoveBatchRequest>,
    ) -> Result<Response<v1::RemoveBatchResponse>, Status> {
        let request = request.into_inner();
        let (filter, request_id) = (request.filter, request.request_id);
        let keys = keys(request.keys, request.binary_keys);
        let apply = || self.0.remove(&filter, &keys, &request_id);
        let removed = self.0.run(&keys, apply).await?;
        Ok(Response::new(v1::RemoveBatchResponse { removed }))
    }

    type QueryAndAddStreamStream =
        Pin<Box<dyn Stream<Item = Result<v1::QueryAndAddStreamResponse, Status>> + Send>>;

    async fn query_and_add_stream(
        &self,
        request: Request<Streaming<v1::QueryAndAddStreamRequest>>,
    ) -> Result<Response<Self::QueryAndAddStreamStream>, Status> {
        let state = Arc::clone(&self.0);
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(answer_stream(state, request.into_inner(), sender));
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(
            receiver,
        ))))
    }
}

async fn answer_stream(
    state: Arc<State>,
    mut messages: Streaming<v1::QueryAndAddStreamRequest>,
    answers: mpsc::UnboundedSender<Result<v1::QueryAndAddStreamResponse, Status>>,
) {
    let mut held = Vec::new();
    loop {
        // A pause between messages means that no more come for now.
        let next = tokio::time::timeout(Duration::from_millis(400), messages.next()).await;
        if let Ok(Some(Ok(message))) = &next {
            held.push(message.clone());
            state.most_held.fetch_max(held.len(), SeqCst);
        }
        if next.is_ok() && held.len() < state.hold.load(SeqCst) && matches!(next, Ok(Some(_))) {
            continue;
        }
        for message in held.drain(..) {
            let keys = keys(message.keys, message.binary_keys);
            let apply = || state.mark(&message.filter, &keys, &message.request_id);
            let answer = state.run(&keys, apply).await;
            let ended = answer.is_err();
            let response = answer.map(|seen| v1::QueryAndAddStreamResponse {
                seen,
                capacity_warning: None,
            });
            if answers.send(response).is_err() || ended {
                return;
            }
            if take(&state.unasked) {
                let response = v1::QueryAndAddStreamResponse {
                    seen: vec![true],
                    capacity_warning: None,
                };
                let _ = answers.send(Ok(response));
            }
        }
        if !matches!(next, Err(_) | Ok(Some(Ok(_)))) {
            return;
        }
    }
}

/// A fake server, and the way to it.
pub struct Service {
    /// The keys and filters, and the behaviour in the next calls.
    pub state: Arc<State>,
    /// The address of the way.
    pub address: SocketAddr,
    server: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Service {
    /// Starts the server and the way to it, each on a free port.
    pub async fn start() -> Self {
        let state = Arc::new(State::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let service = DedupServiceServer::new(Fake(Arc::clone(&state)));
        let filters = FilterServiceServer::new(Fake(Arc::clone(&state)));
        let (_, health) = tonic_health::server::health_reporter();
        tokio::spawn(
            Server::builder()
                // Clients can cancel as many calls as they like.
                .http2_max_pending_accept_reset_streams(Some(usize::MAX))
                .add_service(health)
                .add_service(service)
                .add_service(filters)
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        let (cut, _) = broadcast::channel(1);
        *state.cut.lock().unwrap() = Some(cut);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            address: listener.local_addr().unwrap(),
            accepting: tokio::spawn(accept(listener, server, Arc::clone(&state))),
            state,
            server,
        }
    }

    /// Cuts all connections and refuses new ones.
    pub async fn close(&mut self) {
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
        self.state.cut();
    }

    /// Takes connections again.
    pub async fn open(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.accepting = tokio::spawn(accept(listener, self.server, Arc::clone(&self.state)));
    }

    /// Returns a client with short deadlines.
    pub async fn client(&self) -> Client {
        let options = Options {
            deadline: Duration::from_secs(5),
            first_pause: Duration::from_millis(20),
            longest_pause: Duration::from_millis(200),
            ..Options::default()
        };
        Client::connect_with(&self.address.to_string(), options)
            .await
            .unwrap()
    }

    /// Returns the number of calls that reached the service.
    pub fn calls(&self) -> usize {
        self.state.calls.load(SeqCst)
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, state: Arc<State>) {
    while let Ok((mut inbound, _)) = listener.accept().await {
        state.connections.fetch_add(1, SeqCst);
        let mut cut = state.cut.lock().unwrap().as_ref().unwrap().subscribe();
        tokio::spawn(async move {
            let mut outbound = TcpStream::connect(server).await.unwrap();
            tokio::select! {
                _ = copy_bidirectional(&mut inbound, &mut outbound) => {}
                _ = cut.recv() => {}
            }
        });
    }
}
