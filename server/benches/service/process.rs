//! The measured servers: each is a separate process. They run on a core of their own.

use std::{
    env, fs,
    io::{self, BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::thread::{CpuSet, sched_setaffinity};

/// The core of the servers. They are measured in turns, so they can share a core.
const SERVER_CORE: usize = 0;
/// The core of the clients.
const CLIENT_CORE: usize = 1;

/// The unit in which `/proc` counts CPU time.
const TICKS_PER_SECOND: u64 = 100;

/// Pins this thread, and the threads that it starts, to the core of the clients.
pub fn pin_client() {
    pin(CLIENT_CORE);
}

fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).expect("two cores");
}

/// A server, killed on drop.
pub struct Process {
    child: Child,
    pub address: String,
}

impl Process {
    /// Starts this program again, as the echo server.
    pub fn echo() -> Self {
        let program = env::current_exe().unwrap();
        let mut child = spawn(Command::new(program).arg("--echo").stdout(Stdio::piped()));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.next().unwrap().unwrap();
        Self { child, address }
    }

    /// Starts the real server with a filter of `mib` MiB.
    pub fn seenset(data_dir: &Path, mib: u64, durability: &str) -> Self {
        let bits = mib << 23;
        let mut child = spawn(
            Command::new(env!("CARGO_BIN_EXE_seenset-server"))
                .args(["--listen=127.0.0.1:0", "--log-format=json"])
                .arg("--store-interval=0")
                .arg(format!("--durability={durability}"))
                .arg(format!("--bit-count={bits}"))
                // A rate of 0.001 takes this many bits for each key.
                .arg(format!("--capacity={}", bits / 16))
                .arg("--data-dir")
                .arg(data_dir)
                .stderr(Stdio::piped()),
        );
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap())
            .find_map(|line| Some(line.get("address")?.as_str()?.to_owned()))
            .expect("the server says where it listens");
        // The output is drained, because otherwise the server would wait for room in the pipe.
        thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    /// Returns the CPU time that the process has used so far, including the kernel's time on its
    /// behalf.
    pub fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // The fields follow the name of the program, which is in parentheses and can contain
        // anything.
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let ticks: u64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|field| field.parse::<u64>().unwrap())
            .sum();
        Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
    }
}

/// Starts a process. It runs on the core of the thread that starts it.
fn spawn(command: &mut Command) -> Child {
    pin(SERVER_CORE);
    let child: io::Result<Child> = command.spawn();
    pin(CLIENT_CORE);
    child.unwrap()
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
