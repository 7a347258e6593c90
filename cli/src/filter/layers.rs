//! The layers of a scaling filter, and its behaviour when it is full.

use serde_json::{Value, json};

use seenset_client::v1;

/// Returns lines of text, with an indent after each line break. If the filter grows, the text says
/// how far it can grow.
pub(super) fn text(scaling: &v1::Scaling, layers: Option<&v1::Layers>) -> String {
    let mut text = on_full_text(scaling) + "\n  ";
    if let (Some(layers), v1::OnFull::Scale) = (layers, scaling.on_full()) {
        text += &growth_text(layers, scaling.max_memory_bytes != 0);
        text += "\n  ";
    }
    text
}

fn on_full_text(scaling: &v1::Scaling) -> String {
    match scaling.on_full() {
        v1::OnFull::Scale => {
            let bound = match scaling.max_memory_bytes {
                0 => String::new(),
                bytes => format!(", all of them {bytes} bytes of memory at most"),
            };
            format!(
                "scaling, each layer {} times the last{bound}",
                scaling.growth
            )
        }
        v1::OnFull::Reject => "scaling, new keys are refused when it is full".to_owned(),
        v1::OnFull::Degrade => "scaling, the rate rises when it is full".to_owned(),
        v1::OnFull::Unspecified => "scaling".to_owned(),
    }
}

/// Returns the text about the growth of the filter. With a bound, the user expects that the filter
/// reaches it. Without a bound, it is clear that the limit of the server ends the growth.
fn growth_text(layers: &v1::Layers, is_bounded: bool) -> String {
    let now = format!("layers: {} now", layers.layers);
    let all = format!(
        "{now}, with all of them {} keys in {} bytes of memory",
        layers.max_capacity, layers.max_memory_bytes
    );
    match (layers.fits_budget, is_bounded) {
        (Some(false), false) => format!("{now}, more until the server's --max-memory is used up"),
        (Some(false), true) => format!(
            "{all}\n  WARNING: as things are the server's --max-memory has no room for all layers: \
             it will be full before"
        ),
        (Some(true) | None, _) => all,
    }
}

/// Returns the settings of the filter as JSON. A setting that has no meaning for it is `null`.
pub(super) fn scaling_json(scaling: &v1::Scaling) -> Value {
    let some = |value: u64| Some(value).filter(|&value| value != 0);
    json!({
        "on_full": match scaling.on_full() {
            v1::OnFull::Scale => "scale",
            v1::OnFull::Reject => "reject",
            v1::OnFull::Degrade => "degrade",
            v1::OnFull::Unspecified => "unknown",
        },
        "growth": some(scaling.growth.into()),
        "max_memory_bytes": some(scaling.max_memory_bytes),
    })
}

pub(super) fn json(layers: &v1::Layers) -> Value {
    json!({
        "layers": layers.layers,
        "max_capacity": layers.max_capacity,
        "max_memory_bytes": layers.max_memory_bytes,
        "fits_budget": layers.fits_budget,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaling(on_full: v1::OnFull, growth: u32, max_memory_bytes: u64) -> v1::Scaling {
        v1::Scaling {
            growth,
            max_memory_bytes,
            on_full: on_full.into(),
        }
    }

    fn layers(fits_budget: Option<bool>) -> v1::Layers {
        v1::Layers {
            layers: 3,
            max_capacity: 127_000,
            max_memory_bytes: 1_048_512,
            fits_budget,
        }
    }

    #[test]
    fn a_filter_that_grows_says_how_far() {
        let bounded = scaling(v1::OnFull::Scale, 4, 1 << 20);
        let expected = "scaling, each layer 4 times the last, all of them 1048576 bytes of memory \
                        at most\n  layers: 3 now, with all of them 127000 keys in 1048512 bytes of \
                        memory\n  ";
        assert_eq!(text(&bounded, Some(&layers(Some(true)))), expected);
        // From a server that does not report it.
        assert_eq!(text(&bounded, Some(&layers(None))), expected);
        let warned = text(&bounded, Some(&layers(Some(false))));
        let warning = warned.strip_prefix(expected).unwrap();
        assert!(warning.starts_with("WARNING: as things are the server's --max-memory has no"));
        assert!(warning.ends_with("full before\n  "), "{warning}");
    }

    #[test]
    fn nobody_is_warned_of_a_bound_that_was_not_set() {
        let text = text(
            &scaling(v1::OnFull::Scale, 2, 0),
            Some(&layers(Some(false))),
        );
        let expected = "scaling, each layer 2 times the last\n  layers: 3 now, more until the \
                        server's --max-memory is used up\n  ";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_filter_of_one_layer_says_what_it_does() {
        let refused = text(
            &scaling(v1::OnFull::Reject, 0, 0),
            Some(&layers(Some(true))),
        );
        assert_eq!(refused, "scaling, new keys are refused when it is full\n  ");
        let risen = text(&scaling(v1::OnFull::Degrade, 0, 0), None);
        assert_eq!(risen, "scaling, the rate rises when it is full\n  ");
    }

    #[test]
    fn json_has_all_of_it() {
        let expected = json!({"on_full": "scale", "growth": 4, "max_memory_bytes": 1 << 20});
        let bounded = scaling(v1::OnFull::Scale, 4, 1 << 20);
        assert_eq!(scaling_json(&bounded), expected);
        let expected = json!({"on_full": "reject", "growth": null, "max_memory_bytes": null});
        assert_eq!(scaling_json(&scaling(v1::OnFull::Reject, 0, 0)), expected);
        let expected = json!({
            "layers": 3,
            "max_capacity": 127_000,
            "max_memory_bytes": 1_048_512,
            "fits_budget": false,
        });
        assert_eq!(json(&layers(Some(false))), expected);
    }
}
