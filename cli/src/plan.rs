//! `plan`: the size of a filter, computed with the same code as the server's.

mod layers;

use seenset_filter::{
    scaling::OnFullName,
    spec::{FilterSpec, HashFunction, Kind, KindOptions, Layout, SpecError, SpecRequest},
};
use serde_json::json;

use super::{
    args::{Global, HashFunctionArg, KindArg, Spec},
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

fn request(spec: &Spec, layout: Layout) -> Result<SpecRequest, SpecError> {
    let options = KindOptions {
        max_age: spec.aging.max_age,
        slices: spec.aging.slices,
        refresh: spec.aging.refresh,
        on_full: spec.scaling.on_full.map(OnFullName::from),
        growth: spec.scaling.growth,
        max_memory_bytes: spec.scaling.max_memory,
    };
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
        kind: options.kind(spec.kind().into())?,
        key_profile: None,
    })
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
