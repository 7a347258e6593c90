//! Exported files of other programs: any bytes, unchanged or with repaired header fields.
//!
//! The first byte of an input selects the program that made the file, whether the file is repaired,
//! and how much the stated length exceeds the true length.

#![no_main]

use libfuzzer_sys::fuzz_target;
use seenset_server::filter::{
    exchange::{ExchangeError, guava, redisbloom},
    hash::murmur,
};

const KEY: &[u8] = b"https://example.com/";

fuzz_target!(|input: &[u8]| {
    let Some((how, file)) = input.split_first() else {
        return;
    };
    let mut file = file.to_vec();
    let missing = u64::from(how >> 2);
    let read = match how % 4 {
        0 => guava(&file, missing),
        1 => redisbloom(&file, missing),
        2 => {
            repair_guava(&mut file);
            guava(&file, missing)
        }
        _ => {
            repair_redisbloom(&mut file);
            redisbloom(&file, missing)
        }
    };
    match read {
        Ok(()) => assert_eq!(missing, 0, "what is not there was read"),
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
});

fn guava(file: &[u8], missing: u64) -> Result<(), ExchangeError> {
    let reader = guava::FilterReader::open(file, file.len() as u64 + missing)?;
    let (shape, mut words) = (reader.shape(), Vec::new());
    reader.read_words(|first, piece| {
        assert_eq!(first, words.len() as u64);
        words.extend_from_slice(piece);
        Ok::<(), ExchangeError>(())
    })?;
    assert_eq!(words.len() as u64, shape.word_count());

    let mut writer = guava::FilterWriter::create(Vec::new(), &shape)?;
    writer.write_words(&words)?;
    assert!(writer.finish()? == file, "another file than was read");

    let hash = murmur::of_guava(KEY);
    let fresh = !shape.contains(&words, hash);
    assert_eq!(shape.insert(&mut words, hash) > 0, fresh);
    assert!(shape.contains(&words, hash));
    Ok(())
}

fn redisbloom(file: &[u8], missing: u64) -> Result<(), ExchangeError> {
    let reader = redisbloom::DumpReader::open(file, file.len() as u64 + missing)?;
    let chain = reader.chain().clone();
    let mut words = vec![Vec::new(); chain.layers().len()];
    reader.read_words(|layer, first, piece| {
        assert_eq!(first, words[layer].len() as u64);
        words[layer].extend_from_slice(piece);
        Ok::<(), ExchangeError>(())
    })?;

    let hash = murmur::of_redisbloom(KEY);
    for (layer, words) in chain.layers().iter().zip(&mut words) {
        assert_eq!(words.len() as u64, layer.word_count());
        let fresh = !layer.contains(words, hash);
        assert_eq!(layer.insert(words, hash) > 0, fresh);
        assert!(layer.contains(words, hash));
    }
    Ok(())
}

/// Sets the number of words to that of the file. Drops the bytes after the last whole word.
fn repair_guava(file: &mut Vec<u8>) {
    if let Some(words) = file.len().checked_sub(6) {
        file.truncate(6 + words / 8 * 8);
        file[2..6].copy_from_slice(&((words / 8) as u32).to_be_bytes());
    }
}

/// Makes a dump of up to three layers. The sizes agree with each other, and all bytes after the
/// layers are their bits, in two chunks. Fields with a meaning of their own are not changed: rates,
/// hash counts, the modulus, most options.
fn repair_redisbloom(file: &mut Vec<u8>) {
    const HEADER: usize = 16;
    const CHAIN: usize = HEADER + 20;
    const LAYER: usize = 53;
    let Some(count) = file.get(HEADER + 8).map(|count| usize::from(count % 3) + 1) else {
        return;
    };
    let end = CHAIN + count * LAYER;
    if file.len() < end {
        return;
    }
    let mut data = file.split_off(end);
    let (mut keys, mut bytes) = (0_u64, 0);
    for layer in file[CHAIN..].chunks_exact_mut(LAYER) {
        let here = 8 * (u64::from(layer[0] % 32) + 1);
        layer[..8].copy_from_slice(&here.to_le_bytes());
        layer[8..16].copy_from_slice(&(here * 8).to_le_bytes());
        // Few enough that the sum does not overflow.
        layer[20..24].fill(0);
        keys += u64::from(u32::from_le_bytes([
            layer[16], layer[17], layer[18], layer[19],
        ]));
        bytes += here as usize;
    }
    file[..8].copy_from_slice(&1_i64.to_le_bytes());
    file[8..HEADER].copy_from_slice(&((end - HEADER) as u64).to_le_bytes());
    file[HEADER..][..8].copy_from_slice(&keys.to_le_bytes());
    file[HEADER + 8..][..4].copy_from_slice(&(count as u32).to_le_bytes());
    file[HEADER + 12] |= 4;

    let cut = 1 + usize::from(data.first().copied().unwrap_or_default()) % (bytes - 1);
    data.resize(bytes, 0);
    for (from, to) in [(0, cut), (cut, bytes)] {
        file.extend((to as i64 + 1).to_le_bytes());
        file.extend(((to - from) as u64).to_le_bytes());
        file.extend(&data[from..to]);
    }
}
