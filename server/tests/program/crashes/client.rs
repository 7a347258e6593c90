//! A process of callers. It works on one server after the other, each until it is gone, and writes
//! all calls to a file.

use std::{
    collections::BTreeSet,
    env,
    fs::File,
    io::{BufWriter, Write, stdin},
    mem,
    time::Duration,
};

use fastrand::Rng;
use seenset_history::{Call, Operation, now};
use seenset_proto::v1::StoreRequest;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::{
    calls::{self, Dedup},
    record::Record,
    request::Request,
    retries,
    workload::{key, keys},
};

/// The variable that names the file for the history. It makes this process a process of callers.
pub const HISTORY: &str = "SEENSET_TEST_HISTORY";
/// The variable with the number of the process.
pub const NUMBER: &str = "SEENSET_TEST_CLIENT";
/// The variable with the seed of the run.
pub const SEED: &str = "SEENSET_TEST_SEED";
/// The variable with the begin of the test, by the clock of histories.
pub const BEGAN: &str = "SEENSET_TEST_BEGAN";

/// The callers of one key at a time, and also of batches, in each process. There is also one
/// stream.
const CALLERS: u64 = 2;

/// The most calls that are repeated on one server. A call that is cut short again leaves all calls
/// into which it was regrouped. Without the limit their number would grow without end.
const REPEATED: usize = 500;

pub struct Client {
    history: BufWriter<File>,
    number: u64,
    seed: u64,
    began: u64,
    /// The keys that were requested from the last server.
    asked: BTreeSet<u64>,
    /// The calls that will be repeated.
    again: Vec<Request>,
}

impl Client {
    /// Returns the client of this process, if the environment makes it one.
    pub fn from_environment() -> Option<Self> {
        let history = env::var_os(HISTORY)?;
        let number = |name| env::var(name).unwrap().parse().unwrap();
        Some(Self {
            history: BufWriter::new(File::create(history).unwrap()),
            number: number(NUMBER),
            seed: number(SEED),
            began: number(BEGAN),
            asked: BTreeSet::new(),
            again: Vec::new(),
        })
    }

    /// Works until no more servers come.
    pub fn run(mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        for (round, address) in stdin().lines().enumerate() {
            let seed = self
                .seed
                .wrapping_add(round as u64 * 1000 + self.number * 100);
            let history = runtime.block_on(self.work(&address.unwrap(), seed));
            for call in &history {
                writeln!(self.history, "{}", call.to_line()).unwrap();
            }
            self.asked = history.iter().map(|call| *call.key()).collect();
        }
        self.history.flush().unwrap();
    }

    async fn work(&mut self, address: &str, seed: u64) -> Vec<Call<u64>> {
        let began = self.began;
        let mut callers = JoinSet::new();
        // The calls are taken only if there is a connection to a server.
        if let Some(dedup) = connect(address).await {
            let again = mem::take(&mut self.again);
            callers.spawn(retries::repeat(
                dedup,
                again,
                Rng::with_seed(seed + 40),
                began,
            ));
        }
        for caller in 0..CALLERS {
            let Some(dedup) = connect(address).await else {
                break;
            };
            callers.spawn(singles(dedup.clone(), Rng::with_seed(seed + caller), began));
            callers.spawn(batches(dedup, Rng::with_seed(seed + 10 + caller), began));
        }
        if let Some(mut dedup) = connect(address).await {
            let mut chance = Rng::with_seed(seed + 20);
            callers.spawn(async move {
                let mut record = Record::default();
                let next = || Some(request(Operation::QueryAndAdd, &mut chance, began));
                calls::stream(&mut dedup, &mut record, next).await;
                record
            });
        }
        if let Some(dedup) = connect(address).await {
            callers.spawn(remembered(dedup, self.asked.iter().copied().collect()));
        }
        if self.number == 0
            && let Some(dedup) = connect(address).await
        {
            callers.spawn(stores(dedup, Rng::with_seed(seed + 30)));
        }
        let mut history = Vec::new();
        for record in callers.join_all().await {
            let (calls, again) = record.finish();
            history.extend(calls);
            self.again.extend(again);
        }
        // Keeps the newest calls, because the server remembers requests only for a time.
        let excess = self.again.len().saturating_sub(REPEATED);
        self.again.drain(..excess);
        history
    }
}

/// Returns a separate connection, if the server is alive.
async fn connect(address: &str) -> Option<Dedup> {
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    channel.connect().await.ok().map(Dedup::new)
}

fn operation(chance: &mut Rng) -> Operation {
    match chance.u64(..6) {
        0 => Operation::Query,
        1 => Operation::Add,
        _ => Operation::QueryAndAdd,
    }
}

/// Returns a call of several keys.
fn request(operation: Operation, chance: &mut Rng, began: u64) -> Request {
    let keys = keys(chance, began, now());
    Request::new(operation, keys, chance)
}

async fn singles(mut dedup: Dedup, mut chance: Rng, began: u64) -> Record {
    let mut record = Record::default();
    loop {
        let keys = vec![key(&mut chance, began, now())];
        let request = Request::new(operation(&mut chance), keys, &mut chance);
        if !calls::single(&mut dedup, request, &mut record).await {
            return record;
        }
    }
}

async fn batches(mut dedup: Dedup, mut chance: Rng, began: u64) -> Record {
    let mut record = Record::default();
    loop {
        let request = request(operation(&mut chance), &mut chance, began);
        if !calls::batch(&mut dedup, request, &mut record).await {
            return record;
        }
    }
}

/// Queries the server for all keys that were requested from the one before.
async fn remembered(mut dedup: Dedup, asked: Vec<u64>) -> Record {
    let mut record = Record::default();
    for keys in asked.chunks(1000) {
        let query = Request::query(keys.to_vec());
        if !calls::batch(&mut dedup, query, &mut record).await {
            break;
        }
    }
    record
}

/// Stores one snapshot after the other, so that kills come while a snapshot is written and while
/// the log is cut after it.
async fn stores(mut dedup: Dedup, mut chance: Rng) -> Record {
    while dedup.store(StoreRequest::default()).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(chance.u64(..40))).await;
    }
    Record::default()
}
