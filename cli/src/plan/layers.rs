//! The layers that a scaling filter can get.

use seenset_filter::{
    scaling::{Layer, Layers},
    spec::FilterSpec,
};
use serde_json::{Map, Value, json};

/// A layer, and the filter with it and all layers before it.
struct Row<'a> {
    number: usize,
    layer: &'a Layer,
    /// The number of keys in the filter when the layer is added.
    from_keys: u64,
    /// The number of keys that the filter has room for with it.
    to_keys: u64,
    /// The memory of the filter with it, in bytes.
    memory_bytes: u64,
    /// The false-positive rate of the filter when the layer is full.
    rate: f64,
}

impl Row<'_> {
    fn bits_per_key(&self) -> f64 {
        self.memory_bytes as f64 * 8.0 / self.to_keys as f64
    }
}

fn rows(layers: &Layers) -> impl Iterator<Item = Row<'_>> {
    let (mut keys, mut bytes) = (0, 0);
    layers.layers().iter().zip(1..).map(move |(layer, number)| {
        let from_keys = keys;
        keys += layer.spec().capacity;
        bytes += layer.memory_bytes();
        Row {
            number,
            layer,
            from_keys,
            to_keys: keys,
            memory_bytes: bytes,
            rate: layers.false_positive_rate(keys),
        }
    })
}

/// Returns a line for the filter, and a table of its layers.
pub(super) fn text(plan: &FilterSpec, layers: &Layers) -> String {
    let mut text = format!(
        "{}, {}: n = {}, p = {}: up to {} keys in {} bytes, {} layers\n\
         {:>5} {:>18} {:>17} {:>2} {:>9}   {:>18} {:>17} {:>12} {:>9}",
        plan.body.kind(),
        plan.body.layout(),
        plan.capacity,
        plan.false_positive_rate,
        layers.capacity(),
        layers.max_memory_bytes(),
        layers.layers().len(),
        "layer",
        "from keys",
        "bytes",
        "k",
        "rate",
        "all: to keys",
        "bytes",
        "bits per key",
        "rate",
    );
    for row in rows(layers) {
        text += &format!(
            "\n{:>5} {:>18} {:>17} {:>2} {:>9.2e}   {:>18} {:>17} {:>12.2} {:>9.2e}",
            row.number,
            row.from_keys,
            row.layer.memory_bytes(),
            row.layer.spec().hash_count,
            row.layer.rate(),
            row.to_keys,
            row.memory_bytes,
            row.bits_per_key(),
            row.rate,
        );
    }
    text
}

/// Returns the additional fields of the plan of a scaling filter.
pub(super) fn json(layers: &Layers) -> Map<String, Value> {
    let layer = |row: Row| {
        json!({
            "from_keys": row.from_keys,
            "to_keys": row.to_keys,
            "memory_bytes": row.layer.memory_bytes(),
            "hash_count": row.layer.spec().hash_count,
            "false_positive_rate": row.layer.rate(),
            "total_memory_bytes": row.memory_bytes,
            "total_bits_per_key": row.bits_per_key(),
            "total_false_positive_rate": row.rate,
        })
    };
    [
        ("max_capacity", layers.capacity().into()),
        ("max_memory_bytes", layers.max_memory_bytes().into()),
        ("layers", rows(layers).map(layer).collect()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into_iter()
    .collect()
}

#[cfg(test)]
mod tests {
    use seenset_filter::{
        scaling::{OnFull, Scaling},
        spec::{Kind, SpecRequest},
    };

    use super::*;

    fn plan(on_full: OnFull) -> FilterSpec {
        let request = SpecRequest {
            kind: Kind::Scaling(on_full),
            ..SpecRequest::new(100_000, 0.01)
        };
        request.resolve().unwrap()
    }

    #[test]
    fn the_rows_add_up_to_the_filter() {
        let plan = plan(OnFull::Scale(Scaling {
            growth: 2,
            max_memory_bytes: Some(4 << 20),
        }));
        let layers = plan.body.layers().unwrap();
        let rows: Vec<_> = rows(layers).collect();
        assert!(rows.len() > 2, "{}", rows.len());
        assert_eq!((rows[0].number, rows[0].from_keys), (1, 0));
        assert_eq!(rows[0].memory_bytes, plan.memory_bytes());
        for pair in rows.windows(2) {
            assert_eq!(pair[1].from_keys, pair[0].to_keys);
            assert_eq!(
                pair[1].memory_bytes - pair[0].memory_bytes,
                pair[1].layer.memory_bytes()
            );
            assert!(pair[0].rate < pair[1].rate && pair[1].rate <= 0.01);
        }
        let last = rows.last().unwrap();
        assert_eq!(
            (last.to_keys, last.memory_bytes),
            (layers.capacity(), layers.max_memory_bytes())
        );
        assert!(last.memory_bytes <= 4 << 20);

        let text = text(&plan, layers);
        assert_eq!(text.lines().count(), 2 + rows.len());
        let first = "scaling (growth 2, at most 4194304 bytes), blocked: n = 100000, p = 0.01: up";
        assert!(text.starts_with(first), "{text}");
        let json = json(layers);
        assert_eq!(json["layers"].as_array().unwrap().len(), rows.len());
        assert_eq!(json["layers"][1]["from_keys"], rows[0].to_keys);
        assert_eq!(json["max_capacity"], last.to_keys);
    }

    #[test]
    fn a_filter_that_does_not_grow_has_one_row() {
        let plan = plan(OnFull::Reject);
        let layers = plan.body.layers().unwrap();
        let text = text(&plan, layers);
        assert!(text.starts_with("scaling (on_full reject), blocked:"));
        assert_eq!(text.lines().count(), 3);
        assert_eq!(rows(layers).count(), 1);
    }
}
