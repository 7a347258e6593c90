//! `query`, `add`, `query-and-add` and `remove`: keys given as arguments.

use serde_json::json;

use super::{
    args::{AgedKeys, Global},
    failure::Failure,
    output::Output,
};

/// Keys for each call: arguments are few, and what was answered is printed early.
const BATCH_KEYS: usize = 1000;

pub(super) async fn query(global: &Global, args: &AgedKeys) -> Result<(), Failure> {
    let (keys, client) = (&args.keys.keys, args.age.of(global.connect().await?));
    let mut output = Output::new(global.output);
    for keys in keys.chunks(BATCH_KEYS) {
        print(&mut output, keys, &client.query_batch(keys).await?)?;
    }
    output.finish()
}

pub(super) async fn query_and_add(global: &Global, args: &AgedKeys) -> Result<(), Failure> {
    let (keys, client) = (&args.keys.keys, args.age.of(global.connect().await?));
    let mut output = Output::new(global.output);
    for keys in keys.chunks(BATCH_KEYS) {
        print(&mut output, keys, &client.query_and_add_batch(keys).await?)?;
    }
    output.finish()
}

pub(super) async fn add(global: &Global, keys: &[String]) -> Result<(), Failure> {
    let client = global.connect().await?;
    let mut output = Output::new(global.output);
    for keys in keys.chunks(BATCH_KEYS) {
        client.add_batch(keys).await?;
        for key in keys {
            output.line(
                || format!("added\t{key}"),
                || json!({"key": key, "added": true}),
            )?;
        }
    }
    output.finish()
}

pub(super) async fn remove(global: &Global, keys: &[String]) -> Result<(), Failure> {
    let client = global.connect().await?;
    let mut output = Output::new(global.output);
    for keys in keys.chunks(BATCH_KEYS) {
        for (key, removed) in keys.iter().zip(client.remove_batch(keys).await?) {
            output.line(
                || format!("{}\t{key}", if removed { "removed" } else { "absent" }),
                || json!({"key": key, "removed": removed}),
            )?;
        }
    }
    output.finish()
}

fn print(output: &mut Output, keys: &[String], seen: &[bool]) -> Result<(), Failure> {
    for (key, &seen) in keys.iter().zip(seen) {
        output.line(
            || format!("{}\t{key}", if seen { "seen" } else { "new" }),
            || json!({"key": key, "seen": seen}),
        )?;
    }
    Ok(())
}
