//! A process of callers: it works on one server after the other, each until it is gone, and
//! writes down all calls.

use std::{
    collections::BTreeSet,
    env,
    fs::File,
    io::{BufWriter, Write, stdin},
    time::Duration,
};

use seenset_history::{Call, Operation, now};
use seenset_proto::v1::StoreRequest;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::{
    calls::{self, Dedup},
    workload::Chance,
};

/// The variable that names the file for the history, and makes this process one of callers.
pub const HISTORY: &str = "SEENSET_TEST_HISTORY";
/// The number of the process.
pub const NUMBER: &str = "SEENSET_TEST_CLIENT";
/// When the test began, by the clock of histories.
pub const BEGAN: &str = "SEENSET_TEST_BEGAN";

/// Callers of one key at a time, and of batches, in each process. There is one stream as well.
const CALLERS: u64 = 2;

pub struct Client {
    history: BufWriter<File>,
    number: u64,
    began: u64,
    /// The keys that the last server was asked for.
    asked: BTreeSet<u64>,
}

impl Client {
    /// The client that this process is to be.
    pub fn from_environment() -> Option<Self> {
        let history = env::var_os(HISTORY)?;
        let number = |name| env::var(name).unwrap().parse().unwrap();
        Some(Self {
            history: BufWriter::new(File::create(history).unwrap()),
            number: number(NUMBER),
            began: number(BEGAN),
            asked: BTreeSet::new(),
        })
    }

    /// Works until there are no more servers.
    pub fn run(mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        for (round, address) in stdin().lines().enumerate() {
            let seed = round as u64 * 1000 + self.number * 100;
            let history = runtime.block_on(self.work(&address.unwrap(), seed));
            for call in &history {
                writeln!(self.history, "{}", call.to_line()).unwrap();
            }
            self.asked = history.iter().map(|call| *call.key()).collect();
        }
        self.history.flush().unwrap();
    }

    async fn work(&self, address: &str, seed: u64) -> Vec<Call<u64>> {
        let began = self.began;
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let Some(dedup) = connect(address).await else {
                break;
            };
            callers.spawn(singles(dedup.clone(), Chance::new(seed + caller), began));
            callers.spawn(batches(dedup, Chance::new(seed + 10 + caller), began));
        }
        if let Some(mut dedup) = connect(address).await {
            let mut chance = Chance::new(seed + 20);
            callers.spawn(
                async move { calls::stream(&mut dedup, || chance.keys(began, now())).await },
            );
        }
        if let Some(dedup) = connect(address).await {
            callers.spawn(remembered(dedup, self.asked.iter().copied().collect()));
        }
        if self.number == 0
            && let Some(dedup) = connect(address).await
        {
            callers.spawn(stores(dedup, Chance::new(seed + 30)));
        }
        callers.join_all().await.into_iter().flatten().collect()
    }
}

/// A connection of its own, if the server still lives.
async fn connect(address: &str) -> Option<Dedup> {
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    channel.connect().await.ok().map(Dedup::new)
}

fn operation(chance: &mut Chance) -> Operation {
    match chance.below(6) {
        0 => Operation::Query,
        1 => Operation::Add,
        _ => Operation::QueryAndAdd,
    }
}

async fn singles(mut dedup: Dedup, mut chance: Chance, began: u64) -> Vec<Call<u64>> {
    let mut history = Vec::new();
    loop {
        let key = chance.key(began, now());
        let (calls, answered) = calls::single(&mut dedup, operation(&mut chance), key).await;
        history.extend(calls);
        if !answered {
            return history;
        }
    }
}

async fn batches(mut dedup: Dedup, mut chance: Chance, began: u64) -> Vec<Call<u64>> {
    let mut history = Vec::new();
    loop {
        let keys = chance.keys(began, now());
        let (calls, answered) = calls::batch(&mut dedup, operation(&mut chance), &keys).await;
        history.extend(calls);
        if !answered {
            return history;
        }
    }
}

/// Asks the server for all that the one before it was asked for.
async fn remembered(mut dedup: Dedup, asked: Vec<u64>) -> Vec<Call<u64>> {
    let mut history = Vec::new();
    for keys in asked.chunks(1000) {
        let (calls, answered) = calls::batch(&mut dedup, Operation::Query, keys).await;
        history.extend(calls);
        if !answered {
            break;
        }
    }
    history
}

/// Snapshots follow each other, so that kills come while they are written and while the log is
/// cut after them.
async fn stores(mut dedup: Dedup, mut chance: Chance) -> Vec<Call<u64>> {
    while dedup.store(StoreRequest::default()).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(chance.below(40))).await;
    }
    Vec::new()
}
