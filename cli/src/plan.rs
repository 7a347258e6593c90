//! `plan`: the size of a filter, computed with the same code as the server's.

mod layers;

use seenset_filter::{
    scaling::{OnFull, OnFullName, ScalingError},
    spec::{Aging, FilterSpec, HashFunction, Kind, Layout, SpecRequest},
};
use serde_json::json;

use super::{
    args::{Global, HashFunctionArg, KindArg, OnFullArg, Spec},
    failure::Failure,
    output::Output,
};

pub(super) fn run(global: &Global, spec: &Spec) -> Result<(), Failure> {
    spec.check()?;
    let layouts = match (spec.layout, spec.kind()) {
        (None, KindArg::Plain) => Layout::OWN.to_vec(),
        (layout, _) => vec![layout.map_or(Layout::default(), Layout::from)],
    };
    let plans = layouts
        .into_iter()
        .map(|layout| request(spec, layout)?.resolve())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Failure::Usage(error.to_string()))?;

    let mut output = Output::new(global.output);
    for plan in &plans {
        output.line(|| text(plan), || json(plan))?;
    }
    output.finish()
}

fn request(spec: &Spec, layout: Layout) -> Result<SpecRequest, ScalingError> {
    Ok(SpecRequest {
        capacity: spec.capacity,
        false_positive_rate: spec.rate(),
        bit_count: spec.bit_count,
        hash_count: spec.hash_count,
        layout,
        hash_function: match spec.hash_function {
            None => layout.hash_function(),
            Some(HashFunctionArg::SipHash) => HashFunction::SipHash13_128,
            Some(HashFunctionArg::Xxh3) => HashFunction::Xxh3_128,
        },
        kind: match spec.kind() {
            KindArg::Plain => Kind::Plain,
            KindArg::Counting => Kind::Counting,
            KindArg::Aging => Kind::Aging(Aging {
                max_age: spec.aging.max_age.unwrap_or_default(),
                slices: spec.aging.slices.unwrap_or(Aging::DEFAULT_SLICES),
                refresh: spec.aging.refresh,
            }),
            KindArg::Scaling => Kind::Scaling(on_full(spec)?),
        },
        key_profile: None,
    })
}

fn on_full(spec: &Spec) -> Result<OnFull, ScalingError> {
    let name = match spec.scaling.on_full.unwrap_or_default() {
        OnFullArg::Scale => OnFullName::Scale,
        OnFullArg::Reject => OnFullName::Reject,
        OnFullArg::Degrade => OnFullName::Degrade,
    };
    OnFull::new(name, spec.scaling.growth, spec.scaling.max_memory)
}

fn bits_per_key(plan: &FilterSpec) -> f64 {
    plan.body.bit_count() as f64 / plan.capacity as f64
}

fn text(plan: &FilterSpec) -> String {
    if let Some(layers) = plan.body.layers() {
        return layers::text(plan, layers);
    }
    format!(
        "{}{}: n = {}, p = {}: m = {} bits ({} bytes), k = {}, {:.2} bits per key{}",
        match plan.body.kind() {
            Kind::Plain | Kind::Scaling(_) => "",
            Kind::Counting => "counting, ",
            Kind::Aging(_) => "aging, ",
        },
        plan.body.layout(),
        plan.capacity,
        plan.false_positive_rate,
        plan.body.bit_count(),
        plan.memory_bytes(),
        plan.body.hash_count(),
        bits_per_key(plan),
        plan.missed_rate().map_or(String::new(), |rate| format!(
            ", p at capacity = {rate:.2e}"
        )),
    )
}

fn json(plan: &FilterSpec) -> serde_json::Value {
    let mut json = json!({
        "kind": plan.body.kind().name().as_str(),
        "layout": plan.body.layout().name(),
        "capacity": plan.capacity,
        "false_positive_rate": plan.false_positive_rate,
        "predicted_false_positive_rate": plan.predicted_rate(),
        "bit_count": plan.body.bit_count(),
        "hash_count": plan.body.hash_count(),
        "memory_bytes": plan.memory_bytes(),
        "bits_per_key": bits_per_key(plan),
    });
    if let (Some(layers), Some(fields)) = (plan.body.layers(), json.as_object_mut()) {
        fields.extend(layers::json(layers));
    }
    json
}
