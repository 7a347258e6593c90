//! `filter rebuild`: fills a new filter from files while calls continue, and then replaces the old
//! filter with it.

use std::sync::Arc;

use seenset_client::{Client, Error, v1};

use crate::{
    args::{KindArg, Load, Rebuild, Spec, SpecChange},
    failure::Failure,
    load::{self, Adding},
    report::{Kind, Report, Summary},
    source,
};

/// Rebuilds a filter. Returns the summary of the loaded keys, and the new filter under the name of
/// the old one.
pub(super) async fn run(client: &Client, args: Rebuild) -> Result<(Summary, v1::Filter), Failure> {
    let Rebuild {
        name,
        new_name,
        change,
        files,
        lines,
    } = args;
    let load = Load { files, lines };
    change.check()?;
    // The files are checked before a new filter exists that would have to be deleted.
    source::check(&load.files)?;
    let new_name = new_name.unwrap_or_else(|| format!("{name}.rebuild"));
    let current = client.get_filter(&name).await?.spec.unwrap_or_default();
    let spec = change.is_any().then(|| changed(&current, &change));
    let new = client.start_rebuild(&name, &new_name, spec).await?;
    // Keys that came meanwhile, or were loaded by an earlier run, must not be counted twice.
    let adding = match new.spec.and_then(|spec| spec.kind) {
        Some(v1::filter_spec::Kind::Counting(_)) => Adding::IfNew,
        _ => Adding::Always,
    };

    let go_on = |reason: String| {
        format!(
            "{reason}\nThe filter \"{new_name}\" still gets all keys that \"{name}\" gets. To \
             continue, run the same command again. To cancel the rebuild: seenset filter delete \
             {new_name}"
        )
    };
    let report = Arc::new(Report::new(Kind::Load, false));
    let loaded = load::load(&client.filter(&new_name), load, adding, &report).await;
    let summary = report.finish(client);
    loaded.map_err(|failure| failure.map(go_on))?;
    if summary.bad > 0 {
        let reason = format!("{}: bad lines are no keys.", summary.text());
        return Err(Failure::Failed(go_on(reason)));
    }
    let finished = client.finish_rebuild(&name, &new_name).await;
    let filter = finished.map_err(|error: Error| Failure::from(error).map(go_on))?;
    Ok((summary, filter))
}

/// Returns the spec with some changes. Values that are computed from them are computed again.
fn changed(current: &v1::FilterSpec, change: &SpecChange) -> v1::FilterSpec {
    let kept = v1::FilterSpec {
        capacity: change.capacity.unwrap_or(current.capacity),
        false_positive_rate: change
            .false_positive_rate
            .unwrap_or(current.false_positive_rate),
        bit_count: 0,
        hash_count: 0,
        ..current.clone()
    };
    match change.kind {
        None => kept,
        Some(kind) => v1::FilterSpec {
            layout: v1::Layout::Unspecified.into(),
            kind: Some(super::kind(kind, &change.aging, &change.scaling)),
            ..kept
        },
    }
}

impl SpecChange {
    fn is_any(&self) -> bool {
        self.capacity.is_some() || self.false_positive_rate.is_some() || self.kind.is_some()
    }

    /// Checks the combinations that the argument parser cannot check.
    fn check(&self) -> Result<(), Failure> {
        let spec = Spec {
            capacity: 1,
            false_positive_rate: None,
            bit_count: None,
            hash_count: None,
            layout: None,
            hash_function: Default::default(),
            kind: Some(self.kind.unwrap_or(KindArg::Plain)),
            aging: self.aging,
            scaling: self.scaling,
        };
        spec.check()
    }
}
