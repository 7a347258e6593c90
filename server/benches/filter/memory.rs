//! The memory that the contenders get.

use std::fs;

use seenset_server::filter::hash::KeyHash;

/// Some of a machine's memory may be several times slower than the rest, in pieces of many MiB:
/// another node's, or what the host of a virtual machine has in small pages.
const PIECE_MIB: usize = 64;
/// What is left alone.
const SPARE_MIB: usize = 2048;

/// Takes so much memory, or all that is free if that is less, and gives it back in random order,
/// piece by piece. What is allocated next comes from all of it, and not from the piece that
/// happened to be the first.
pub fn mix(mib: usize) {
    let mib = mib.min(available_mib().saturating_sub(SPARE_MIB));
    // More than the allocator keeps for itself. Not 0, or it would be no memory yet.
    let piece = |_| vec![1_u8; PIECE_MIB << 20];
    let mut pieces: Vec<Vec<u8>> = (0..mib / PIECE_MIB).map(piece).collect();
    let random = KeyHash { low: 5, high: 7 };
    while !pieces.is_empty() {
        let chosen = random.value(pieces.len() as u32) % pieces.len() as u64;
        pieces.swap_remove(chosen as usize);
    }
}

fn available_mib() -> usize {
    let info = fs::read_to_string("/proc/meminfo").unwrap();
    let line = info.lines().find(|line| line.starts_with("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<usize>().unwrap() >> 10
}
