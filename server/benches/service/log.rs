//! The cost of the log: the real server in each of its modes, and the disk alone.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};

use seenset_load::{Calls, Load};

use crate::{
    FILTER_MIB, Keys, TURN,
    contender::Contender,
    process::Process,
    row::{Row, print, quantiles},
};

const ROUNDS: usize = 21;
/// The rounds between two stores. The stores are not timed. Without them a log would become longer
/// than its filter, and the server would store the filter during a turn.
const ROUNDS_A_STORE: usize = 3;
const MODES: [&str; 3] = ["snapshot", "interval", "always"];

/// The scenarios, each with the words that select it.
pub const SCENARIOS: [(&str, Load); 4] = {
    const fn stream(keys: usize, window: usize) -> Load {
        Load {
            calls: Calls::Stream { keys, window },
            connections: 1,
            callers: 1,
        }
    }
    const SINGLE: Load = Load {
        calls: Calls::Single,
        connections: 4,
        callers: 512,
    };
    [
        ("log stream 1000x64", stream(1000, 64)),
        ("log stream 1000x16", stream(1000, 16)),
        ("log stream 100x64", stream(100, 64)),
        ("log single 512", SINGLE),
    ]
};

/// Runs the selected scenarios.
pub fn run(chosen: impl Fn(&str) -> bool) {
    let dirs = MODES.map(|_| tempfile::tempdir().unwrap());
    let mut contenders: Vec<Contender> = MODES
        .into_iter()
        .zip(&dirs)
        .map(|(mode, dir)| Contender::new(mode, Process::seenset(dir.path(), FILTER_MIB, mode)))
        .collect();
    for contender in &mut contenders {
        contender.fill();
        contender.store().join().unwrap();
    }
    for (name, load) in SCENARIOS {
        if chosen(name) {
            compare(name, load, &mut contenders, dirs[0].path());
        }
    }
}

fn compare(name: &str, load: Load, contenders: &mut [Contender], dir: &Path) {
    let mut rows: Vec<Row> = contenders.iter().map(|it| Row::new(it.name)).collect();
    let mut syncs = Vec::new();
    for contender in &mut *contenders {
        if contender.make_room() {
            contender.store().join().unwrap();
        }
    }
    for round in 1..=ROUNDS {
        for (contender, row) in contenders.iter_mut().zip(&mut rows) {
            row.add(contender.turn(load, Keys::New, TURN));
        }
        syncs.push(syncs_per_second(dir));
        if round % ROUNDS_A_STORE == 0 {
            contenders
                .iter()
                .for_each(|contender| contender.store().join().unwrap());
        }
    }
    print(name, &rows);
    let [low, median, high] = quantiles(&syncs);
    println!("  the disk does {median:.0} ({low:.0}, {high:.0}) syncs of 4 KiB a second");
    if load.calls == Calls::Single {
        for row in &rows {
            let times = row
                .keys_per_second
                .iter()
                .zip(&syncs)
                .map(|(own, syncs)| own / syncs);
            let [low, median, high] = quantiles(&times.collect::<Vec<_>>());
            println!(
                "  {:16} {median:.1} ({low:.1}, {high:.1}) calls for each of them",
                row.name
            );
        }
    }
}

/// Returns the number of page writes per second that the disk can do if each waits for the one
/// before to be durable. This is the limit for answers that each wait for a sync of their own.
fn syncs_per_second(dir: &Path) -> f64 {
    const PAGE: [u8; 4096] = [7; 4096];
    const PAGES: u64 = 1024;
    let path = dir.join("syncs.bench");
    let file = File::create(&path).unwrap();
    file.write_all_at(&vec![1; PAGE.len() * PAGES as usize], 0)
        .unwrap();
    file.sync_all().unwrap();
    let (begun, mut syncs) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_millis(300) {
        let at = syncs % PAGES * PAGE.len() as u64;
        file.write_all_at(&PAGE, at).unwrap();
        file.sync_data().unwrap();
        syncs += 1;
    }
    let per_second = syncs as f64 / begun.elapsed().as_secs_f64();
    drop(file);
    std::fs::remove_file(path).unwrap();
    per_second
}
