//! Conversions between the messages of the contract and the types of the engine.

use std::time::Duration;

use seenset_proto::v1;
use tokio::time::Instant;
use tonic::Status;

use crate::engine::{
    Aging, Call, Durability, Engine, Explanation, FilterName, FilterSpec, FilterStatus,
    HashFunction, KeyHash, KeyProfile, Kind, KindName, LayersStatus, Layout, Measurement, OnFull,
    OnFullName, Outlook, Pending, Scaling, SpecRequest, StoreReport,
};

/// Returns the per-call context of a request: all its fields except the keys.
pub fn call<'a>(
    filter: &'a str,
    request_id: &'a str,
    max_age: Option<prost_types::Duration>,
    deadline: Option<Instant>,
) -> Result<Call<'a>, Status> {
    Ok(Call {
        filter,
        request_id,
        max_age: self::max_age(max_age)?,
        deadline,
    })
}

/// Returns the capacity warning for the answer to a batch that adds keys to a filter.
pub fn capacity_warning<T>(answer: &Pending<T>) -> Option<v1::CapacityWarning> {
    let warning = answer.capacity_warning()?;
    Some(v1::CapacityWarning {
        keys: warning.keys,
        capacity: warning.capacity,
        false_positive_rate: warning.false_positive_rate,
        predicted_false_positive_rate: warning.predicted_false_positive_rate,
    })
}

/// Converts the `max_age` of a call.
pub fn max_age(age: Option<prost_types::Duration>) -> Result<Option<Duration>, Status> {
    age.map(|age| span(age, "max_age")).transpose()
}

fn span(span: prost_types::Duration, field: &str) -> Result<Duration, Status> {
    Duration::try_from(span)
        .map_err(|_| Status::invalid_argument(format!("{field} is {span}; it must be above 0")))
}

/// Converts the spec of a request. Fields at zero count as left out.
pub fn spec_request(spec: Option<v1::FilterSpec>) -> Result<SpecRequest, Status> {
    let spec = spec.ok_or_else(|| {
        Status::invalid_argument(
            "spec is missing; it must give capacity and false_positive_rate, or capacity and \
             bit_count",
        )
    })?;
    let layout = layout(spec.layout)?;
    let bit_count = Some(spec.bit_count).filter(|&bits| bits != 0);
    let hash_count = Some(spec.hash_count).filter(|&count| count != 0);
    Ok(SpecRequest {
        capacity: spec.capacity,
        false_positive_rate: Some(spec.false_positive_rate).filter(|&rate| rate != 0.0),
        bit_count,
        hash_count,
        layout,
        hash_function: hash_function(spec.hash_function, layout)?,
        kind: match spec.kind {
            None => match KindName::default_for(bit_count, hash_count, layout) {
                KindName::Scaling => Kind::Scaling(OnFull::Scale(Scaling::default())),
                _ => Kind::Plain,
            },
            Some(v1::filter_spec::Kind::Plain(v1::Plain {})) => Kind::Plain,
            Some(v1::filter_spec::Kind::Counting(v1::Counting {})) => Kind::Counting,
            Some(v1::filter_spec::Kind::Aging(aging)) => Kind::Aging(Aging {
                max_age: span(aging.max_age.unwrap_or_default(), "spec.aging.max_age")?,
                slices: match aging.slices {
                    0 => Aging::DEFAULT_SLICES,
                    slices => slices,
                },
                refresh: aging.refresh,
            }),
            Some(v1::filter_spec::Kind::Scaling(scaling)) => Kind::Scaling(on_full(scaling)?),
        },
        key_profile: spec.key_profile.map(key_profile).transpose()?,
    })
}

fn layout(value: i32) -> Result<Layout, Status> {
    match v1::Layout::try_from(value) {
        Ok(v1::Layout::Unspecified) => Ok(Layout::default()),
        Ok(v1::Layout::Blocked) => Ok(Layout::Blocked),
        Ok(v1::Layout::Classic) => Ok(Layout::Classic),
        Ok(v1::Layout::Guava) => Ok(Layout::Guava),
        Ok(v1::Layout::GuavaMitz32) => Ok(Layout::GuavaMitz32),
        Ok(v1::Layout::Redisbloom) => Ok(Layout::RedisBloom),
        Err(_) => Err(unknown(
            "spec.layout",
            value,
            "LAYOUT_BLOCKED, LAYOUT_CLASSIC, LAYOUT_GUAVA or LAYOUT_GUAVA_MITZ_32",
        )),
    }
}

fn hash_function(value: i32, layout: Layout) -> Result<HashFunction, Status> {
    match v1::HashFunction::try_from(value) {
        Ok(v1::HashFunction::Unspecified) => Ok(layout.hash_function()),
        Ok(v1::HashFunction::Siphash13128) => Ok(HashFunction::SipHash13_128),
        Ok(v1::HashFunction::Xxh3128) => Ok(HashFunction::Xxh3_128),
        Ok(v1::HashFunction::Murmur3X64128) => Ok(HashFunction::Murmur3X64_128),
        Ok(v1::HashFunction::Murmur264a) => Ok(HashFunction::Murmur2_64A),
        Err(_) => Err(unknown(
            "spec.hash_function",
            value,
            "HASH_FUNCTION_SIPHASH_1_3_128 or HASH_FUNCTION_XXH3_128",
        )),
    }
}

fn on_full(scaling: v1::Scaling) -> Result<OnFull, Status> {
    let name = match v1::OnFull::try_from(scaling.on_full) {
        Ok(v1::OnFull::Unspecified) => OnFullName::default(),
        Ok(v1::OnFull::Scale) => OnFullName::Scale,
        Ok(v1::OnFull::Reject) => OnFullName::Reject,
        Ok(v1::OnFull::Degrade) => OnFullName::Degrade,
        Err(_) => {
            return Err(unknown(
                "spec.scaling.on_full",
                scaling.on_full,
                "ON_FULL_SCALE, ON_FULL_REJECT or ON_FULL_DEGRADE",
            ));
        }
    };
    let growth = Some(scaling.growth).filter(|&growth| growth != 0);
    let max_memory_bytes = Some(scaling.max_memory_bytes).filter(|&bytes| bytes != 0);
    OnFull::new(name, growth, max_memory_bytes)
        .map_err(|error| Status::invalid_argument(format!("spec.{error}")))
}

fn key_profile(profile: v1::KeyProfile) -> Result<KeyProfile, Status> {
    KeyProfile::new(&profile.name, profile.sort_query, &profile.drop_parameters)
        .map_err(|error| Status::invalid_argument(format!("spec.key_profile.{error}")))
}

fn unknown(field: &str, value: i32, known: &str) -> Status {
    Status::invalid_argument(format!("{field} is {value}; it must be {known}"))
}

/// Converts a filter to the message of the contract.
pub fn filter(status: FilterStatus, engine: &Engine) -> v1::Filter {
    let (durability, sync_interval) = match engine.durability() {
        Durability::Always => (v1::Durability::Always, None),
        Durability::Interval(interval) => (v1::Durability::Interval, Some(interval)),
        Durability::Snapshot => (v1::Durability::Snapshot, None),
    };
    let requests = engine.request_limits();
    let is_full = status.is_full();
    v1::Filter {
        name: status.name.to_string(),
        spec: Some(spec(&status.spec)),
        memory_bytes: status.memory_bytes,
        keys_added: status.keys_added,
        fill_ratio: status.fill_ratio,
        predicted_false_positive_rate: status.predicted_false_positive_rate,
        version: status.version,
        create_time: Some(status.create_time.into()),
        last_store_time: status.last_store.map(|last| last.time.into()),
        last_store_version: status.last_store.map_or(0, |last| last.version),
        durability: durability.into(),
        sync_interval: sync_interval.and_then(|interval| interval.try_into().ok()),
        retry_keys: requests.keys,
        // Only a span of more than 292 billion years would not fit.
        retry_age: requests.age.try_into().ok(),
        saturated_counters: status.saturated_counters,
        measured_false_positive_rate: status.measured.map(measured_rate),
        estimated_keys: status.estimated_keys,
        is_full: Some(is_full),
        last_hour: status.last_hour.map(outlook),
        last_day: status.last_day.map(outlook),
        layers: status.layers.map(layers),
        rebuilt_as: name(status.rebuilt_as),
        rebuilds: name(status.rebuilds),
    }
}

fn name(name: Option<FilterName>) -> String {
    name.map_or_else(String::new, |name| name.to_string())
}

fn layers(status: LayersStatus) -> v1::Layers {
    v1::Layers {
        // There are at most 32.
        layers: status.layers as u32,
        max_capacity: status.max_capacity,
        max_memory_bytes: status.max_memory_bytes,
        fits_budget: Some(status.fits_budget),
    }
}

fn measured_rate(measured: Measurement) -> v1::MeasuredRate {
    let (lowest, highest) = measured.interval();
    v1::MeasuredRate {
        rate: Some(measured.rate()),
        lowest: Some(lowest),
        highest: Some(highest),
        canaries: Some(measured.canaries),
        canaries_seen: Some(measured.seen),
    }
}

fn outlook(outlook: Outlook) -> v1::Outlook {
    v1::Outlook {
        // Only a span of more than 292 billion years would not fit.
        span: outlook.growth.span.try_into().ok(),
        new_keys: Some(outlook.growth.new_keys),
        full_time: outlook.full_time.map(Into::into),
    }
}

fn spec(spec: &FilterSpec) -> v1::FilterSpec {
    let layout = match spec.body.layout() {
        Layout::Blocked => v1::Layout::Blocked,
        Layout::Classic => v1::Layout::Classic,
        Layout::Guava => v1::Layout::Guava,
        Layout::GuavaMitz32 => v1::Layout::GuavaMitz32,
        Layout::RedisBloom => v1::Layout::Redisbloom,
    };
    let hash_function = match spec.hash_function {
        HashFunction::SipHash13_128 => v1::HashFunction::Siphash13128,
        HashFunction::Xxh3_128 => v1::HashFunction::Xxh3128,
        HashFunction::Murmur3X64_128 => v1::HashFunction::Murmur3X64128,
        HashFunction::Murmur2_64A => v1::HashFunction::Murmur264a,
    };
    v1::FilterSpec {
        capacity: spec.capacity,
        false_positive_rate: spec.false_positive_rate,
        bit_count: spec.body.bit_count(),
        hash_count: spec.body.hash_count(),
        layout: layout.into(),
        hash_function: hash_function.into(),
        kind: match spec.body.kind() {
            Kind::Plain => Some(v1::filter_spec::Kind::Plain(v1::Plain {})),
            Kind::Counting => Some(v1::filter_spec::Kind::Counting(v1::Counting {})),
            Kind::Aging(aging) => Some(v1::filter_spec::Kind::Aging(v1::Aging {
                // The maximum is a century.
                max_age: aging.max_age.try_into().ok(),
                slices: aging.slices,
                refresh: aging.refresh,
            })),
            Kind::Scaling(on_full) => Some(v1::filter_spec::Kind::Scaling(scaling(on_full))),
        },
        key_profile: spec.key_profile.as_ref().map(|profile| v1::KeyProfile {
            name: KeyProfile::NAME.to_owned(),
            sort_query: profile.sort_query(),
            drop_parameters: profile.drop_parameters().to_vec(),
        }),
    }
}

fn scaling(on_full: OnFull) -> v1::Scaling {
    let (on_full, growth, max_memory_bytes) = match on_full {
        OnFull::Scale(scaling) => (
            v1::OnFull::Scale,
            scaling.growth,
            scaling.max_memory_bytes.unwrap_or_default(),
        ),
        OnFull::Reject => (v1::OnFull::Reject, 0, 0),
        OnFull::Degrade => (v1::OnFull::Degrade, 0, 0),
    };
    v1::Scaling {
        growth,
        max_memory_bytes,
        on_full: on_full.into(),
    }
}

/// Converts an explanation of a key to the message of the contract. A filter has at most 2^25
/// shards.
pub fn explanation(explanation: &Explanation) -> v1::ExplainResponse {
    let KeyHash { low, high } = explanation.hash;
    let canonical_key = explanation.canonical_key.clone();
    let (canonical_key, binary_canonical_key) = match String::from_utf8(canonical_key) {
        Ok(text) => (text, Vec::new()),
        Err(error) => (String::new(), error.into_bytes()),
    };
    let bits = explanation.place.bits.iter();
    let bits = bits.map(|&(index, is_set)| v1::ExplainedBit {
        index: Some(index),
        is_set: Some(is_set),
    });
    v1::ExplainResponse {
        canonical_key,
        binary_canonical_key,
        // Little-endian, the byte order in which hashes are stored.
        hash: format!("{:016x}{:016x}", low.swap_bytes(), high.swap_bytes()),
        shard: explanation.place.shard.map(|shard| shard as u32),
        block: explanation.place.block.map(|block| block as u32),
        bits: bits.collect(),
        seen: Some(explanation.seen()),
        layer: explanation.place.layer.map(|layer| layer as u32),
        lines: explanation
            .place
            .lines
            .iter()
            .map(|&line| line as u32)
            .collect(),
    }
}

/// Converts the report of a snapshot to the message of the contract.
pub fn stored_filter(report: StoreReport) -> v1::StoredFilter {
    v1::StoredFilter {
        name: report.name.to_string(),
        version: report.version,
        written_bytes: report.written_bytes,
        // Only a span of more than 292 billion years would not fit.
        duration: report.duration.try_into().ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::engine::{Growth, Scaling};

    #[test]
    fn what_is_done_when_full_goes_both_ways() {
        let asked = |on_full: v1::OnFull, growth, max_memory_bytes| v1::Scaling {
            growth,
            max_memory_bytes,
            on_full: on_full.into(),
        };
        let grows = |growth, max_memory_bytes| {
            OnFull::Scale(Scaling {
                growth,
                max_memory_bytes,
            })
        };
        for (asked, expected, resolved) in [
            (
                asked(v1::OnFull::Unspecified, 0, 0),
                grows(2, None),
                asked(v1::OnFull::Scale, 2, 0),
            ),
            (
                asked(v1::OnFull::Scale, 4, 1 << 30),
                grows(4, Some(1 << 30)),
                asked(v1::OnFull::Scale, 4, 1 << 30),
            ),
            (
                asked(v1::OnFull::Reject, 0, 0),
                OnFull::Reject,
                asked(v1::OnFull::Reject, 0, 0),
            ),
            (
                asked(v1::OnFull::Degrade, 0, 0),
                OnFull::Degrade,
                asked(v1::OnFull::Degrade, 0, 0),
            ),
        ] {
            let found = on_full(asked).unwrap();
            assert_eq!(found, expected);
            assert_eq!(scaling(found), resolved);
        }
    }

    #[test]
    fn what_cannot_be_done_when_full_is_refused_by_name() {
        for (scaling, says) in [
            (
                (3, 0, v1::OnFull::Reject.into()),
                "spec.scaling.growth is 3 and scaling.on_full is reject,",
            ),
            (
                (0, 7, v1::OnFull::Degrade.into()),
                "spec.scaling.max_memory_bytes is 7 and scaling.on_full is degrade,",
            ),
            (
                (0, 0, 4),
                "spec.scaling.on_full is 4; it must be ON_FULL_SCALE",
            ),
        ] {
            let (growth, max_memory_bytes, on_full) = scaling;
            let refused = super::on_full(v1::Scaling {
                growth,
                max_memory_bytes,
                on_full,
            });
            let refused = refused.unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
            assert!(refused.message().starts_with(says), "{refused}");
        }
    }

    #[test]
    fn layers_are_told_whole() {
        let told = layers(LayersStatus {
            layers: 3,
            max_capacity: 127,
            max_memory_bytes: 4096,
            fits_budget: false,
        });
        let expected = v1::Layers {
            layers: 3,
            max_capacity: 127,
            max_memory_bytes: 4096,
            fits_budget: Some(false),
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn an_outlook_is_told_whole() {
        let full_time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let growth = Growth {
            span: Duration::from_millis(3_600_500),
            new_keys: -3,
        };
        let told = outlook(Outlook {
            growth,
            full_time: Some(full_time),
        });
        assert_eq!(told.new_keys, Some(-3));
        let span = told.span.unwrap();
        assert_eq!((span.seconds, span.nanos), (3600, 500_000_000));
        assert_eq!(told.full_time.unwrap().seconds, 1_800_000_000);
    }
}
