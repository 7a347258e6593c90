//! Prints the memory of filters that grow, compared with filters made for the same number of keys
//! from the start: the tables of `docs/lab/scaling.md`.
//!
//! ```text
//! scaling [CAPACITY]
//! ```

#![allow(clippy::print_stdout, reason = "a program that prints tables")]

use std::{env, error::Error};

use seenset_filter::{
    scaling::{Layers, Scaling},
    spec::SpecRequest,
};

const FACTORS: [u64; 8] = [1, 2, 4, 16, 64, 128, 256, 1024];

fn main() -> Result<(), Box<dyn Error>> {
    let capacity: u64 = env::args()
        .nth(1)
        .map_or(Ok(1_000_000), |arg| arg.parse())?;
    for growth in [2, 3, 4, 8, 16] {
        let factors = FACTORS.map(|factor| format!(" {factor}x |")).concat();
        println!(
            "\n| growth {growth} |{factors} bits a key at 64x | rate at 64x | layers, their hash counts |"
        );
        for rate in [0.1, 0.01, 0.001, 0.0001] {
            let scaling = Scaling {
                growth,
                max_memory_bytes: None,
            };
            let (layers, _) = Layers::plan(capacity, rate, &scaling)?;
            print!("| {rate} |");
            for factor in FACTORS {
                let keys = capacity * factor;
                let plain = SpecRequest::new(keys, rate).resolve()?.memory_bytes();
                print!(" {:.3} |", layers.memory_bytes(keys) as f64 / plain as f64);
            }
            let all = layers.layers().iter();
            let counts: Vec<u32> = all.map(|layer| layer.spec().hash_count).collect();
            let keys = 64 * capacity;
            let bits = layers.memory_bytes(keys) as f64 * 8.0 / keys as f64;
            let reached = layers.false_positive_rate(keys) / rate;
            println!(
                " {bits:.2} | {reached:.2} p | {}: {counts:?} |",
                counts.len()
            );
        }
    }
    Ok(())
}
