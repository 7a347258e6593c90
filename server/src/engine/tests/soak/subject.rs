//! The filters under test, of every kind and layout.

use std::time::SystemTime;

use super::{super::*, KEYS, RATE, model::SLICE};
use crate::{
    filter::{
        exchange::redisbloom::{Chain, ChainLayer},
        hash::Secret,
    },
    store::{FilterId, SnapshotFiles, SnapshotHeader, simulated::SimulatedDisk},
};

/// A filter under test.
pub struct Subject {
    pub name: &'static str,
    pub spec: FilterSpec,
    /// Whether it keeps its false positive rate.
    pub keeps_rate: bool,
}

/// The number of keys that are added to filters that never forget. The other keys are only queried.
const KEPT: u64 = KEYS / 2;

/// Returns all subjects. Each has room for its keys, unless it is meant to get full or to grow.
pub fn all() -> Vec<Subject> {
    let subject = |name, spec| Subject {
        name,
        spec,
        keeps_rate: true,
    };
    let of = |capacity, kind, layout: Layout| {
        let request = SpecRequest {
            kind,
            layout,
            hash_function: layout.hash_function(),
            ..SpecRequest::new(capacity, RATE)
        };
        request.resolve().unwrap()
    };
    let ages = |refresh| {
        Kind::Aging(Aging {
            max_age: SLICE * 8,
            slices: 8,
            refresh,
        })
    };
    let in_layers = |capacity, on_full| of(capacity, Kind::Scaling(on_full), Layout::Blocked);
    vec![
        subject("plain, blocked", of(KEPT, Kind::Plain, Layout::Blocked)),
        subject("plain, classic", of(KEPT, Kind::Plain, Layout::Classic)),
        subject("counting", of(KEYS, Kind::Counting, Layout::Blocked)),
        subject("aging", of(KEYS, ages(false), Layout::Blocked)),
        subject("aging, refreshing", of(KEYS, ages(true), Layout::Blocked)),
        subject(
            "scaling",
            in_layers(KEPT / 32, OnFull::Scale(Scaling::default())),
        ),
        subject("scaling, rejecting", in_layers(KEPT / 2, OnFull::Reject)),
        Subject {
            keeps_rate: false,
            ..subject("scaling, degrading", in_layers(KEPT / 2, OnFull::Degrade))
        },
        subject("guava", of(KEPT, Kind::Plain, Layout::Guava)),
        subject("guava, mitz 32", of(KEPT, Kind::Plain, Layout::GuavaMitz32)),
        subject("redisbloom", redisbloom()),
    ]
}

/// Returns a filter with two layers. The first has the size of a full one, but no keys.
fn redisbloom() -> FilterSpec {
    let layer = |capacity, bits_a_key, hash_count| {
        let bits: u64 = capacity * bits_a_key;
        ChainLayer::new(bits.div_ceil(64), bits, hash_count, capacity, RATE).unwrap()
    };
    let chain = Chain::new(vec![layer(1000, 9, 6), layer(KEPT, 9, 6)]).unwrap();
    FilterSpec::of_chain(&chain, None)
}

/// Returns a disk that has such a filter, without keys. Not every one can be made by a call.
pub fn on_disk(spec: &FilterSpec) -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    let directory = DataDirectory::on(Arc::new(disk.clone())).unwrap();
    let header = SnapshotHeader {
        filter: FilterId(directory.new_number()),
        number: directory.new_number(),
        name: "urls".parse().unwrap(),
        spec: spec.clone(),
        secret: Secret::new([7; 16]),
        version: 0,
        create_time: SystemTime::now(),
        store_time: SystemTime::UNIX_EPOCH,
    };
    let written = directory.write_snapshot(&header, &[], |_, _| unreachable!());
    let files = SnapshotFiles::default().with(&written.unwrap());
    directory
        .set_filter(&header.name, header.filter, &files, 0, None)
        .unwrap();
    disk
}
