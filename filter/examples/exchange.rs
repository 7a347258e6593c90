//! Creates and queries filters of other programs, for tests against the real ones.
//!
//! ```text
//! exchange guava create STRATEGY CAPACITY RATE KEYS FILE
//! exchange guava query KEYS FILE
//! exchange guava sizes < REQUESTS
//! exchange redisbloom query KEYS FILE
//! ```
//!
//! KEYS is a file with a key in hexadecimal digits on each line. A query prints how many keys it
//! finds and how many keys the file has. Each line of REQUESTS has a capacity and a rate. For each
//! line, `sizes` prints the hash count and the number of words, or 0 and 0 if the request is
//! refused.

#![allow(
    clippy::print_stdout,
    reason = "a program whose answers are read by tests"
)]

use std::{
    error::Error,
    fs::{self, File},
    io::{BufReader, BufWriter, Write, stdin},
    path::Path,
};

use seenset_filter::{
    exchange::{ExchangeError, guava, redisbloom},
    hash::murmur,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *arguments.as_slice() {
        ["guava", "create", strategy, capacity, rate, keys, file] => {
            let shape =
                guava::Shape::for_capacity(strategy.parse()?, capacity.parse()?, rate.parse()?)?;
            create_guava(&shape, &read_keys(keys)?, file.as_ref())
        }
        ["guava", "query", keys, file] => query_guava(&read_keys(keys)?, file.as_ref()),
        ["guava", "sizes"] => size_guava(),
        ["redisbloom", "query", keys, file] => query_redisbloom(&read_keys(keys)?, file.as_ref()),
        _ => Err("see the head of examples/exchange.rs for how to call it".into()),
    }
}

fn create_guava(shape: &guava::Shape, keys: &[Vec<u8>], path: &Path) -> Outcome<()> {
    let mut words = vec![0; usize::try_from(shape.word_count())?];
    for key in keys {
        shape.insert(&mut words, murmur::of_guava(key));
    }
    let file = BufWriter::new(File::create(path)?);
    let mut writer = guava::FilterWriter::create(file, shape)?;
    writer.write_words(&words)?;
    writer.finish()?.flush()?;
    Ok(())
}

fn query_guava(keys: &[Vec<u8>], path: &Path) -> Outcome<()> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let reader = guava::FilterReader::open(BufReader::new(file), bytes)?;
    let shape = reader.shape();
    let mut words = Vec::new();
    reader.read_words::<ExchangeError>(|_, piece| {
        words.extend_from_slice(piece);
        Ok(())
    })?;
    answer(keys, |key| shape.contains(&words, murmur::of_guava(key)));
    Ok(())
}

fn size_guava() -> Outcome<()> {
    for line in stdin().lines() {
        let line = line?;
        let (capacity, rate) = line.split_once(' ').ok_or("a line without a rate")?;
        let (capacity, rate) = (capacity.parse()?, rate.parse()?);
        match guava::Shape::for_capacity(guava::Strategy::default(), capacity, rate) {
            Ok(shape) => println!("{} {}", shape.hash_count(), shape.word_count()),
            Err(_) => println!("0 0"),
        }
    }
    Ok(())
}

fn query_redisbloom(keys: &[Vec<u8>], path: &Path) -> Outcome<()> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let reader = redisbloom::DumpReader::open(BufReader::new(file), bytes)?;
    let layers = reader.chain().layers().to_vec();
    let mut words = vec![Vec::new(); layers.len()];
    reader.read_words::<ExchangeError>(|layer, _, piece| {
        words
            .get_mut(layer)
            .into_iter()
            .for_each(|words| words.extend_from_slice(piece));
        Ok(())
    })?;
    answer(keys, |key| {
        let hash = murmur::of_redisbloom(key);
        layers
            .iter()
            .zip(&words)
            .any(|(layer, words)| layer.contains(words, hash))
    });
    Ok(())
}

fn answer(keys: &[Vec<u8>], is_there: impl Fn(&[u8]) -> bool) {
    let found = keys.iter().filter(|key| is_there(key)).count();
    println!("{found} {}", keys.len());
}

fn read_keys(path: &str) -> Outcome<Vec<Vec<u8>>> {
    fs::read_to_string(path)?.lines().map(decode_hex).collect()
}

fn decode_hex(line: &str) -> Outcome<Vec<u8>> {
    let (pairs, []) = line.as_bytes().as_chunks::<2>() else {
        return Err(format!("{line:?} has an odd number of digits").into());
    };
    let byte = |pair: &[u8; 2]| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?);
    pairs.iter().map(byte).collect()
}
