//! `explain`: what a filter makes of a key.

use seenset_proto::v1::ExplainResponse;
use serde_json::{Value, json};

use super::{args::Global, failure::Failure, output::Output};

pub(super) async fn run(global: &Global, key: &str) -> Result<(), Failure> {
    let explained = global.connect().await?.explain(key).await?;
    let mut output = Output::new(global.output);
    output.line(|| text(&explained), || json(key, &explained))?;
    output.finish()
}

fn text(explained: &ExplainResponse) -> String {
    let place = match (explained.shard, explained.block) {
        (Some(shard), Some(block)) => format!("  shard {shard}, block {block}\n"),
        (Some(shard), None) => format!("  shard {shard}\n"),
        (None, _) => String::new(),
    };
    format!(
        "{}\t{}\n  hash {}\n{}  bits that are set: {}\n  bits that are not: {}",
        if explained.seen() { "seen" } else { "new" },
        explained.canonical_key,
        explained.hash,
        place,
        bits(explained, true),
        bits(explained, false),
    )
}

/// The bits of the key that are set, or those that are not.
fn bits(explained: &ExplainResponse, is_set: bool) -> String {
    let bits = explained.bits.iter().filter(|bit| bit.is_set() == is_set);
    let bits: Vec<String> = bits.map(|bit| bit.index().to_string()).collect();
    match bits.as_slice() {
        [] => "none".to_owned(),
        bits => bits.join(" "),
    }
}

fn json(key: &str, explained: &ExplainResponse) -> Value {
    let bits = explained.bits.iter();
    let bits = bits.map(|bit| json!({"index": bit.index(), "is_set": bit.is_set()}));
    json!({
        "key": key,
        "canonical_key": explained.canonical_key,
        "hash": explained.hash,
        "shard": explained.shard,
        "block": explained.block,
        "bits": bits.collect::<Value>(),
        "seen": explained.seen(),
    })
}
