//! `query`, `add`, `query-and-add`, `remove`: keys as arguments.

use super::{
    args::{AgedKeys, Global, Keys},
    failure::Failure,
    key::Key,
    output::Output,
};

/// The number of keys in each call. If a call fails, the answers of the calls before it are
/// printed.
const BATCH_KEYS: usize = 1000;

pub(super) async fn query(global: &Global, args: &AgedKeys) -> Result<(), Failure> {
    let keys = args.keys.parse()?;
    let client = args.age.of(global.connect().await?);
    let mut output = Output::new(global.output);
    for keys in keys.chunks(BATCH_KEYS) {
        print(&mut output, keys, &client.query_batch(keys).await?)?;
    }
    output.finish()
}

pub(super) async fn query_and_add(global: &Global, args: &AgedKeys) -> Result<(), Failure> {
    let keys = args.keys.parse()?;
    let client = args.age.of(global.connect().await?);
    let mut output = Output::new(global.output);
    for keys in keys.chunks(BATCH_KEYS) {
        print(&mut output, keys, &client.query_and_add_batch(keys).await?)?;
    }
    output.finish()
}

pub(super) async fn add(global: &Global, args: &Keys) -> Result<(), Failure> {
    let keys = args.parse()?;
    let client = global.connect().await?;
    let mut output = Output::new(global.output);
    for keys in keys.chunks(BATCH_KEYS) {
        client.add_batch(keys).await?;
        for key in keys {
            output.line(|| key.text("added"), || key.answer("added", true))?;
        }
    }
    output.finish()
}

pub(super) async fn remove(global: &Global, args: &Keys) -> Result<(), Failure> {
    let keys = args.parse()?;
    let client = global.connect().await?;
    let mut output = Output::new(global.output);
    for keys in keys.chunks(BATCH_KEYS) {
        for (key, removed) in keys.iter().zip(client.remove_batch(keys).await?) {
            output.line(
                || key.text(if removed { "removed" } else { "absent" }),
                || key.answer("removed", removed),
            )?;
        }
    }
    output.finish()
}

fn print(output: &mut Output, keys: &[Key], seen: &[bool]) -> Result<(), Failure> {
    for (key, &seen) in keys.iter().zip(seen) {
        output.line(
            || key.text(if seen { "seen" } else { "new" }),
            || key.answer("seen", seen),
        )?;
    }
    Ok(())
}
