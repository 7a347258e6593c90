//! The memory of the contenders.

use std::fs;

use seenset_server::filter::hash::KeyHash;

/// The size of a piece. Some of a machine's memory can be several times slower than the rest, in
/// pieces of many MiB: memory of another node, or memory that the host of a virtual machine has in
/// small pages.
const PIECE_MIB: usize = 64;
/// The memory that stays free.
const SPARE_MIB: usize = 2048;

/// Allocates the given amount of memory, or all free memory if that is less, and frees it in random
/// order, piece by piece. Later allocations then come from all of it, and not from the piece that
/// happened to be the first.
pub fn mix(mib: usize) {
    let mib = mib.min(available_mib().saturating_sub(SPARE_MIB));
    // A piece is larger than the allocator keeps for itself. It is not filled with 0, because the
    // kernel would not provide memory for that yet.
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
