//! Promises 1, 2 and 3 against the worst case. The server is killed repeatedly while several
//! processes request the same keys, and all answers must be consistent. Calls without an answer are
//! repeated on the next server with the same ids.
//!
//! The callers are processes for two reasons: programs that see a crash do not crash with the
//! server, and a race between processes has timings that one runtime does not produce. The
//! processes run this test binary itself. [`a_client_of_the_crash_test`] is a caller when
//! [`no_kill_makes_the_callers_disagree`] starts it, and does nothing otherwise.
//!
//! `SEENSET_KILLS` is the number of kills, of all kinds of filters together. The default is 42.
//! `SEENSET_SEED` is the seed. The default comes from the clock and is printed. The seed decides
//! which keys are requested, which calls are repeated and how, and when the kills come. A history
//! that breaks a rule is kept, and the message contains its path.

mod calls;
mod client;
mod record;
mod request;
mod retries;
mod workload;

use std::{
    fs::File,
    io::{BufRead, BufReader, Write, stderr},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use fastrand::Rng;
use seenset_history::{Call, Checked, Checker, now};
use seenset_proto::v1::{
    DeleteFilterRequest, FileFormat, GetFilterRequest, ImportFilterRequest, QueryBatchRequest,
};

use crate::common::{
    program::{Program, Signal},
    redisbloom,
};

/// The number of the callers' processes.
const CLIENTS: u64 = 3;

/// The flags that all servers have.
const FLAGS: [&str; 2] = ["--store-interval", "0"];

/// The flags for a filter of each kind, and of the layouts whose keys have bits in several shards.
/// The filters are so large and so exact that no false positive is expected: a history would show
/// one as a violation. The filter that grows begins with few keys.
const KINDS: [&str; 7] = [
    "--capacity=20000000 --false-positive-rate=0.000001",
    "--capacity=5000000 --false-positive-rate=0.000001 --kind=counting",
    "--capacity=5000000 --false-positive-rate=0.000001 --kind=aging --max-age=30days --refresh=true",
    "--capacity=2000 --false-positive-rate=0.000000001 --kind=scaling",
    "--capacity=5000000 --false-positive-rate=0.000001 --layout=guava",
    "--capacity=5000000 --false-positive-rate=0.000001 --layout=guava-mitz-32",
    REDISBLOOM,
];

/// The flags of a server that uses a RedisBloom filter. No flag makes that filter: it is imported
/// first.
const REDISBLOOM: &str = "--capacity=1000";
/// The words of the RedisBloom filter, which is made for as many keys.
const REDISBLOOM_WORDS: u64 = 1 << 20;
/// The size of a message of its import.
const PIECE_BYTES: usize = 32 << 10;

/// Returns the number of kills for each kind of filter.
fn kills() -> u64 {
    setting("SEENSET_KILLS").unwrap_or(42) / KINDS.len() as u64
}

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect(name))
}

/// Prints a line that is visible even if the test passes.
#[expect(
    clippy::explicit_write,
    reason = "what the macros print is kept back then"
)]
fn print(line: &str) {
    writeln!(stderr(), "{line}").unwrap();
}

/// A process of callers. It reads the address of each new server from its standard input, and ends
/// at the end of the input.
struct Client {
    child: Child,
    input: Option<ChildStdin>,
}

impl Client {
    fn start(number: u64, history: &Path, seed: u64, began: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "crashes::a_client_of_the_crash_test",
                "--nocapture",
            ])
            .env(client::HISTORY, history)
            .env(client::NUMBER, number.to_string())
            .env(client::SEED, seed.to_string())
            .env(client::BEGAN, began.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        Self { child, input }
    }

    fn tell(&mut self, address: &str) {
        if let Err(error) = writeln!(self.input.as_mut().unwrap(), "{address}") {
            panic!(
                "{error}: a client ended with {}",
                self.child.wait().unwrap()
            );
        }
    }

    fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test of its own: see the module documentation.
#[test]
fn a_client_of_the_crash_test() {
    if let Some(client) = client::Client::from_environment() {
        client.run();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_kill_makes_the_callers_disagree() {
    let mut all = [0; 3];
    for kind in KINDS {
        let checked = no_kill_of_a_server_with(kind).await;
        let numbers = [checked.won, checked.won_again, checked.unknown];
        all.iter_mut()
            .zip(numbers)
            .for_each(|(all, number)| *all += number);
    }
    // For one kind alone the numbers can be small: kills can all come before the server serves.
    let kills = kills() * KINDS.len() as u64;
    let [won, won_again, unknown] = all;
    assert!(won > 50 * kills, "{won}");
    assert!(won_again > kills, "{won_again}");
    assert!(unknown > kills, "{unknown}");
}

async fn no_kill_of_a_server_with(kind: &str) -> Checked {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("data");
    if kind == REDISBLOOM {
        import(&data_dir).await;
    }
    let kind: Vec<&str> = kind.split(' ').collect();
    let histories: Vec<_> = (0..CLIENTS)
        .map(|number| dir.path().join(format!("client-{number}.history")))
        .collect();
    let began = now();
    let seed = setting("SEENSET_SEED").unwrap_or(began);
    print(&format!(
        "{} kills of {kind:?}, SEENSET_SEED={seed}",
        kills()
    ));
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|number| Client::start(number, &histories[number as usize], seed, began))
        .collect();
    let mut chance = Rng::with_seed(seed);
    for round in 0..kills() {
        let durability = ["interval", "always"][(round % 2) as usize];
        let flags = [&FLAGS[..], &kind, &["--durability", durability]].concat();
        let mut program = Program::start(&data_dir, &flags);
        for client in &mut clients {
            client.tell(program.address());
        }
        // The kill comes sometimes during recovery, and sometimes long after a first snapshot.
        let longest = [1, 30, 200, 500][(round % 4) as usize];
        tokio::time::sleep(Duration::from_millis(chance.u64(..longest))).await;
        program.signal(Signal::KILL);
        assert_eq!(program.exit_code(), None);
    }
    for client in clients {
        client.end();
    }

    let mut checker = Checker::default();
    for history in &histories {
        let lines = BufReader::new(File::open(history).unwrap()).lines();
        checker.extend(lines.map(|line| line.unwrap().parse::<Call<u64>>().unwrap()));
    }
    let program = Program::start(&data_dir, &[&FLAGS[..], &kind].concat());
    let keys = workload::keys_until(began, now());
    checker.extend(ask_for_all(&program, keys).await);
    match checker.finish() {
        Ok(checked) => {
            print(&format!("{checked:?}"));
            assert_no_false_positives(&program, checked.keys).await;
            checked
        }
        Err(violations) => {
            let kept = dir.keep();
            panic!("{violations}\nthe histories are kept in {}", kept.display());
        }
    }
}

/// Replaces the default filter of a data directory by a RedisBloom filter.
async fn import(data_dir: &Path) {
    let program = Program::start(data_dir, &FLAGS);
    let (_, mut filters) = program.connect().await;
    let name = "default".to_owned();
    let own = DeleteFilterRequest { name: name.clone() };
    filters.delete_filter(own).await.unwrap();
    let dump = redisbloom::empty(REDISBLOOM_WORDS);
    let head = ImportFilterRequest {
        name,
        format: FileFormat::Redisbloom.into(),
        size_bytes: dump.len() as u64,
        ..ImportFilterRequest::default()
    };
    let pieces = dump.chunks(PIECE_BYTES).map(|piece| ImportFilterRequest {
        data: piece.to_vec(),
        ..ImportFilterRequest::default()
    });
    let messages: Vec<_> = [head].into_iter().chain(pieces).collect();
    let messages = tokio_stream::iter(messages);
    filters.import_filter(messages).await.unwrap();
}

/// Returns the server's answers for every key after all kills.
async fn ask_for_all(program: &Program, keys: u64) -> Vec<Call<u64>> {
    let (mut dedup, _) = program.connect().await;
    let mut calls = Vec::new();
    for first in (0..keys).step_by(10_000) {
        let numbers: Vec<u64> = (first..first + 10_000).collect();
        let (keys, binary_keys) = workload::fields(&numbers);
        let request = QueryBatchRequest {
            keys,
            binary_keys,
            ..Default::default()
        };
        let begin = now();
        let seen = dedup.query_batch(request).await.unwrap().into_inner().seen;
        let end = now();
        let answers = numbers.into_iter().zip(seen);
        calls.extend(answers.map(|(key, seen)| Call::query(key, begin, end, seen)));
    }
    calls
}

/// Asserts that no false positive was to be expected, because the checker treats the filter as a
/// set.
async fn assert_no_false_positives(program: &Program, keys: u64) {
    let (_, mut filters) = program.connect().await;
    let answer = filters.get_filter(GetFilterRequest::default()).await;
    let rate = answer
        .unwrap()
        .into_inner()
        .filter
        .unwrap()
        .predicted_false_positive_rate;
    let expected = rate * keys as f64;
    assert!(
        expected < 0.001,
        "{expected} false positives are to be expected"
    );
}
