//! `explain`: the hash and the bits of a key in a filter.

use seenset_proto::v1::ExplainResponse;
use serde_json::{Value, json};

use super::{
    args::{Explain, Global},
    failure::Failure,
    key::Key,
    output::Output,
};

pub(super) async fn run(global: &Global, args: &Explain) -> Result<(), Failure> {
    let key = Key::parse(&args.key, args.hex)?;
    let explained = global.connect().await?.explain(&key).await?;
    let mut output = Output::new(global.output);
    output.line(|| text(&key, &explained), || json(&key, &explained))?;
    output.finish()
}

fn text(key: &Key, explained: &ExplainResponse) -> Vec<u8> {
    let seen = if explained.seen() { "seen" } else { "new" };
    let mut text = canonical(key, explained).text(seen);
    let rest = format!(
        "\n  hash {}\n{}  bits that are set: {}\n  bits that are not: {}",
        explained.hash,
        place(explained),
        bits(explained, true),
        bits(explained, false),
    );
    text.extend(rest.into_bytes());
    text
}

/// Returns the key that is hashed.
fn canonical(key: &Key, explained: &ExplainResponse) -> Key {
    let text = explained.canonical_key.as_bytes();
    key.another([text, &explained.binary_canonical_key].concat())
}

/// Returns the place of the bits of the key; an empty string if they can be anywhere.
fn place(explained: &ExplainResponse) -> String {
    let lines: Vec<String> = explained.lines.iter().map(u32::to_string).collect();
    let parts = [
        explained.layer.map(|layer| format!("layer {layer}")),
        explained.shard.map(|shard| format!("shard {shard}")),
        explained.block.map(|block| format!("block {block}")),
        (!lines.is_empty()).then(|| format!("lines {}", lines.join(" "))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.as_slice() {
        [] => String::new(),
        parts => format!("  {}\n", parts.join(", ")),
    }
}

/// Returns the bits of the key that are set, or the bits that are not set.
fn bits(explained: &ExplainResponse, is_set: bool) -> String {
    let bits = explained.bits.iter().filter(|bit| bit.is_set() == is_set);
    let bits: Vec<String> = bits.map(|bit| bit.index().to_string()).collect();
    match bits.as_slice() {
        [] => "none".to_owned(),
        bits => bits.join(" "),
    }
}

fn json(key: &Key, explained: &ExplainResponse) -> Value {
    let bits = explained.bits.iter();
    let bits = bits.map(|bit| json!({"index": bit.index(), "is_set": bit.is_set()}));
    let mut json = json!({
        "hash": explained.hash,
        "layer": explained.layer,
        "shard": explained.shard,
        "block": explained.block,
        "lines": explained.lines,
        "bits": bits.collect::<Value>(),
        "seen": explained.seen(),
    });
    if let Value::Object(fields) = &mut json {
        fields.extend([
            key.field("key"),
            canonical(key, explained).field("canonical_key"),
        ]);
    }
    json
}
