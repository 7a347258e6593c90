//! `filter create|get|list|rename|copy|merge|import|export|reset|rebuild|delete`.

mod destination;
mod exchange;
mod layers;
mod rebuild;
mod vitals;

use std::time::{Duration, SystemTime};

use prost_types::{Duration as ProtoDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    args::{
        AgingArgs, FilterCommand, Global, HashFunctionArg, KindArg, LayoutArg, OnFullArg, Profile,
        ScalingArgs, Spec,
    },
    failure::Failure,
    output::Output,
};
use seenset_client::v1::{self, filter_spec::Kind};

pub(super) async fn run(global: &Global, command: FilterCommand) -> Result<(), Failure> {
    let client = global.connect().await?;
    let mut output = Output::new(global.output);
    match command {
        FilterCommand::Create {
            name,
            spec,
            profile,
        } => {
            spec.check()?;
            let request = request(&spec, profile);
            let filter = client.create_filter(&name, request).await?;
            output.line(|| text(&filter), || json(&filter))?;
        }
        FilterCommand::Get { name } => {
            let name = name.as_ref().or(global.filter.as_ref());
            let filter = client
                .get_filter(name.map_or("default", String::as_str))
                .await?;
            output.line(|| text(&filter), || json(&filter))?;
        }
        FilterCommand::List => {
            for filter in client.list_filters().await? {
                output.line(|| text(&filter), || json(&filter))?;
            }
        }
        FilterCommand::Rename { name, new_name } => {
            let filter = client.rename_filter(&name, &new_name).await?;
            output.line(|| text(&filter), || json(&filter))?;
        }
        FilterCommand::Copy { name, new_name } => {
            let client = client.with_deadline(global.long_timeout());
            let filter = client.copy_filter(&name, &new_name).await?;
            output.line(|| text(&filter), || json(&filter))?;
        }
        FilterCommand::Merge { source, target } => {
            let client = client.with_deadline(global.long_timeout());
            let filter = client.merge_filters(&source, &target).await?;
            output.line(|| text(&filter), || json(&filter))?;
        }
        FilterCommand::Import(arguments) => {
            let client = client.with_deadline(global.long_timeout());
            let filter = exchange::import(&client, &arguments).await?;
            output.line(|| text(&filter), || json(&filter))?;
        }
        FilterCommand::Export { name, file } => {
            let client = client.with_deadline(global.long_timeout());
            let exported = exchange::export(&client, &name, &file).await?;
            let bytes = exported.bytes;
            let text = || format!("exported\t{name}\t{bytes} bytes");
            let json = || json!({"name": name, "file": file, "bytes": bytes});
            match exported.to_stdout {
                true => output.note(text, json),
                false => output.line(text, json)?,
            }
        }
        FilterCommand::Reset { name } => {
            let filter = client.reset_filter(&name).await?;
            output.line(|| text(&filter), || json(&filter))?;
        }
        FilterCommand::Rebuild(args) => {
            let client = client.with_deadline(global.long_timeout());
            let (summary, filter) = rebuild::run(&client, args).await?;
            output.line(|| summary.text(), || summary.json())?;
            output.line(|| text(&filter), || json(&filter))?;
        }
        FilterCommand::Delete { name } => {
            client.delete_filter(&name).await?;
            output.line(
                || format!("deleted\t{name}"),
                || json!({"name": name, "deleted": true}),
            )?;
        }
    }
    output.finish()
}

/// Builds the spec that the flags ask for. The server chooses the value of a field at zero.
fn request(spec: &Spec, profile: Profile) -> v1::FilterSpec {
    let layout = match spec.layout {
        None => v1::Layout::Unspecified,
        Some(LayoutArg::Blocked) => v1::Layout::Blocked,
        Some(LayoutArg::Classic) => v1::Layout::Classic,
        Some(LayoutArg::Guava) => v1::Layout::Guava,
        Some(LayoutArg::GuavaMitz32) => v1::Layout::GuavaMitz32,
    };
    let hash_function = match spec.hash_function {
        None => v1::HashFunction::Unspecified,
        Some(HashFunctionArg::SipHash) => v1::HashFunction::Siphash13128,
        Some(HashFunctionArg::Xxh3) => v1::HashFunction::Xxh3128,
    };
    v1::FilterSpec {
        capacity: spec.capacity,
        false_positive_rate: spec.rate().unwrap_or_default(),
        bit_count: spec.bit_count.unwrap_or_default(),
        hash_count: spec.hash_count.unwrap_or_default(),
        layout: layout.into(),
        hash_function: hash_function.into(),
        kind: Some(kind(spec.kind(), &spec.aging, &spec.scaling)),
        key_profile: profile.key_profile.map(|name| v1::KeyProfile {
            name,
            sort_query: profile.sort_query,
            drop_parameters: profile.drop_parameter,
        }),
    }
}

fn kind(kind: KindArg, aging: &AgingArgs, scaling: &ScalingArgs) -> Kind {
    match kind {
        KindArg::Plain => Kind::Plain(v1::Plain {}),
        KindArg::Counting => Kind::Counting(v1::Counting {}),
        KindArg::Aging => Kind::Aging(v1::Aging {
            // The longest age that the contract can hold is longer than any server accepts.
            max_age: aging.max_age.map(|age| {
                age.try_into().unwrap_or(ProtoDuration {
                    seconds: i64::MAX,
                    nanos: 0,
                })
            }),
            slices: aging.slices.unwrap_or_default(),
            refresh: aging.refresh,
        }),
        KindArg::Scaling => Kind::Scaling(v1::Scaling {
            growth: scaling.growth.unwrap_or_default(),
            max_memory_bytes: scaling.max_memory.unwrap_or_default(),
            on_full: on_full(scaling.on_full.unwrap_or_default()).into(),
        }),
    }
}

fn on_full(on_full: OnFullArg) -> v1::OnFull {
    match on_full {
        OnFullArg::Scale => v1::OnFull::Scale,
        OnFullArg::Reject => v1::OnFull::Reject,
        OnFullArg::Degrade => v1::OnFull::Degrade,
    }
}

fn text(filter: &v1::Filter) -> String {
    let spec = filter.spec.clone().unwrap_or_default();
    let profile = spec.key_profile.as_ref().map(profile_text);
    format!(
        "{}\n  {}for {} keys at a false-positive rate of {}\n  {}\
         {} layout, {}, {} bits, of which a key sets {}, {} bytes of memory\n  \
         {}\n  \
         {}version {}, stored up to version {} ({})\n  \
         durability {}{}, {} keys of requests remembered for {}",
        filter.name,
        kind_text(filter),
        spec.capacity,
        spec.false_positive_rate,
        profile.unwrap_or_default(),
        layout_name(&spec),
        hash_function_name(&spec),
        spec.bit_count,
        spec.hash_count,
        filter.memory_bytes,
        vitals::text(filter),
        rebuild_text(filter),
        filter.version,
        filter.last_store_version,
        time(filter.last_store_time).unwrap_or_else(|| "never".to_owned()),
        durability_name(filter),
        span(filter.sync_interval).map_or_else(String::new, |interval| format!(" ({interval})")),
        filter.retry_keys,
        span(filter.retry_age).unwrap_or_else(|| "no time".to_owned()),
    )
}

/// Returns the line about a rebuild that the filter takes part in; empty if there is none.
fn rebuild_text(filter: &v1::Filter) -> String {
    match (some(&filter.rebuilt_as), some(&filter.rebuilds)) {
        (Some(new), _) => format!("being rebuilt as {new}\n  "),
        (_, Some(old)) => format!("to take the place of {old}\n  "),
        (None, None) => String::new(),
    }
}

fn some(name: &str) -> Option<&str> {
    Some(name).filter(|name| !name.is_empty())
}

/// Returns the lines about the kind of a filter; empty if it is plain.
fn kind_text(filter: &v1::Filter) -> String {
    match filter.spec.as_ref().and_then(|spec| spec.kind) {
        None | Some(Kind::Plain(_)) => String::new(),
        Some(Kind::Counting(_)) => format!(
            "counting, {} counters saturated\n  ",
            filter.saturated_counters
        ),
        Some(Kind::Aging(aging)) => format!(
            "aging, keys are remembered for {} in {} slices{}\n  ",
            span(aging.max_age).unwrap_or_default(),
            aging.slices,
            if aging.refresh {
                ", from when they were seen last"
            } else {
                ""
            },
        ),
        Some(Kind::Scaling(scaling)) => layers::text(&scaling, filter.layers.as_ref()),
    }
}

/// Returns the line about the key profile.
fn profile_text(profile: &v1::KeyProfile) -> String {
    let mut text = format!("keys by {}", profile.name);
    if profile.sort_query {
        text += ", queries sorted";
    }
    if !profile.drop_parameters.is_empty() {
        text += &format!(", without {}", profile.drop_parameters.join(" "));
    }
    text + "\n  "
}

fn json(filter: &v1::Filter) -> Value {
    let spec = filter.spec.clone().unwrap_or_default();
    json!({
        "name": filter.name,
        "capacity": spec.capacity,
        "false_positive_rate": spec.false_positive_rate,
        "bit_count": spec.bit_count,
        "hash_count": spec.hash_count,
        "layout": layout_name(&spec),
        "hash_function": hash_function_name(&spec),
        "kind": kind_name(&spec),
        "key_profile": spec.key_profile.as_ref().map(|profile| json!({
            "name": profile.name,
            "sort_query": profile.sort_query,
            "drop_parameters": profile.drop_parameters,
        })),
        "memory_bytes": filter.memory_bytes,
        "keys_added": filter.keys_added,
        "fill_ratio": filter.fill_ratio,
        "predicted_false_positive_rate": filter.predicted_false_positive_rate,
        "measured_false_positive_rate": vitals::measured_json(filter),
        "estimated_keys": filter.estimated_keys,
        "is_full": filter.is_full,
        "last_hour": vitals::outlook_json(filter.last_hour.as_ref()),
        "last_day": vitals::outlook_json(filter.last_day.as_ref()),
        "saturated_counters": matches!(spec.kind, Some(Kind::Counting(_)))
            .then_some(filter.saturated_counters),
        "aging": match &spec.kind {
            Some(Kind::Aging(aging)) => Some(json!({
                "max_age": span(aging.max_age),
                "slices": aging.slices,
                "refresh": aging.refresh,
            })),
            _ => None,
        },
        "scaling": match &spec.kind {
            Some(Kind::Scaling(scaling)) => Some(layers::scaling_json(scaling)),
            _ => None,
        },
        "layers": filter.layers.as_ref().map(layers::json),
        "rebuilt_as": some(&filter.rebuilt_as),
        "rebuilds": some(&filter.rebuilds),
        "version": filter.version,
        "create_time": time(filter.create_time),
        "last_store_time": time(filter.last_store_time),
        "last_store_version": filter.last_store_version,
        "durability": durability_name(filter),
        "sync_interval": span(filter.sync_interval),
        "retry_keys": filter.retry_keys,
        "retry_age": span(filter.retry_age),
    })
}

fn layout_name(spec: &v1::FilterSpec) -> &'static str {
    match spec.layout() {
        v1::Layout::Blocked => "blocked",
        v1::Layout::Classic => "classic",
        v1::Layout::Guava => "guava",
        v1::Layout::GuavaMitz32 => "guava-mitz-32",
        v1::Layout::Redisbloom => "redisbloom",
        v1::Layout::Unspecified => "unknown",
    }
}

fn kind_name(spec: &v1::FilterSpec) -> &'static str {
    match spec.kind {
        None | Some(Kind::Plain(_)) => "plain",
        Some(Kind::Counting(_)) => "counting",
        Some(Kind::Aging(_)) => "aging",
        Some(Kind::Scaling(_)) => "scaling",
    }
}

fn hash_function_name(spec: &v1::FilterSpec) -> &'static str {
    match spec.hash_function() {
        v1::HashFunction::Siphash13128 => "siphash-1-3-128",
        v1::HashFunction::Xxh3128 => "xxh3-128",
        v1::HashFunction::Murmur3X64128 => "murmur3-x64-128",
        v1::HashFunction::Murmur264a => "murmur2-64a",
        v1::HashFunction::Unspecified => "unknown",
    }
}

fn durability_name(filter: &v1::Filter) -> &'static str {
    match filter.durability() {
        v1::Durability::Always => "always",
        v1::Durability::Interval => "interval",
        v1::Durability::Snapshot => "snapshot",
        v1::Durability::Unspecified => "unknown",
    }
}

/// Formats a duration as the flags of the server take it; `None` if it is absent or negative.
fn span(duration: Option<ProtoDuration>) -> Option<String> {
    let duration = Duration::try_from(duration?).ok()?;
    Some(humantime::format_duration(duration).to_string())
}

/// Formats a time as RFC 3339, in UTC; `None` if it is absent or out of range.
fn time(timestamp: Option<Timestamp>) -> Option<String> {
    let timestamp = timestamp?;
    let seconds = Duration::from_secs(u64::try_from(timestamp.seconds).ok()?);
    let nanos = Duration::from_nanos(u64::try_from(timestamp.nanos).ok()?);
    let time = SystemTime::UNIX_EPOCH.checked_add(seconds.checked_add(nanos)?)?;
    // The formatter panics past the year 9999.
    (timestamp.seconds < 253_402_300_800)
        .then(|| humantime::format_rfc3339_millis(time).to_string())
}
