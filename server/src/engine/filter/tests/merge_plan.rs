//! Keys that a merge will add to layers take room before they are there, and only until then.

use super::*;
use crate::{
    engine::filter::body::{MergePlan, Unfit, Whole},
    filter::scaling::{OnFull, Scaling},
    store::FilterReader,
};

const CAPACITY: usize = 20_000;

fn with_keys(keys: std::ops::Range<usize>) -> Filter {
    let filter = filter_of(&SpecRequest {
        kind: Kind::Scaling(OnFull::Scale(Scaling::default())),
        ..SpecRequest::new(CAPACITY as u64, 0.01)
    });
    add(&filter, keys);
    filter
}

fn add(filter: &Filter, keys: std::ops::Range<usize>) {
    let keys: Vec<String> = keys.map(key).collect();
    for keys in keys.chunks(100) {
        let added = filter.add_batch(&keys.to_vec(), WriteContext::default());
        added.unwrap();
    }
}

fn stored(filter: &Filter) -> FilterReader {
    let directory = DataDirectory::on(Arc::new(SimulatedDisk::default())).unwrap();
    store(filter, &directory).unwrap();
    directory.read_filter(&filter.name()).unwrap().unwrap()
}

fn left(filter: &Filter) -> u64 {
    let partitions = &filter.body.layered().unwrap().partitions;
    partitions.left().map(|(_, left)| left).sum()
}

#[test]
fn keys_find_the_room_beside_what_is_expected() {
    let (filter, other) = (
        with_keys(0..CAPACITY / 4),
        with_keys(CAPACITY..CAPACITY * 3 / 2),
    );
    let layered = filter.body.layered().unwrap();
    let partitions = &layered.partitions;
    let full = partitions.layers().layers()[0].spec().full_bits;
    let its_bits = other.status().fill_ratio * other.shape.bit_count() as f64;
    let left_before = left(&filter);

    let merge_plan = MergePlan::find(layered, &stored(&other)).unwrap();
    merge_plan.expect(layered).unwrap();
    let taken = left_before - left(&filter);
    // Some of the bits are set already.
    assert!(taken as f64 <= its_bits && taken as f64 > its_bits * 0.8);
    layered.recount();
    assert_eq!(left(&filter), left_before);

    merge_plan.expect(layered).unwrap();
    add(&filter, CAPACITY * 2..CAPACITY * 4);
    let own = partitions.bits_in(0, 0);
    assert!(own + taken >= full, "{own} and {taken} of {full}");
    assert!(own + taken < full + 100, "{own} and {taken} of {full}");
    assert!(partitions.bits_in(0, 1) > 0);
    layered.recount();
    // The layer is not the newest any more.
    merge_plan.expect(layered).unwrap();
}

#[test]
fn what_does_not_fit_takes_no_room() {
    let (filter, other) = (with_keys(0..CAPACITY), with_keys(CAPACITY..CAPACITY * 3));
    let layered = filter.body.layered().unwrap();
    let (left_before, mapped) = (left(&filter), layered.partitions.mapped());
    let merge_plan = MergePlan::find(layered, &stored(&other)).unwrap();
    let unfit = merge_plan.expect(layered).unwrap_err();
    assert!(matches!(unfit, Unfit::Overfull), "{unfit:?}");
    assert_eq!(left(&filter), left_before);
    assert_eq!(layered.partitions.mapped(), mapped);
    // The same keys come twice, but count once.
    let merge_plan = MergePlan::find(layered, &stored(&filter)).unwrap();
    merge_plan.expect(layered).unwrap();
    layered.recount();
    assert_eq!(left(&filter), left_before);
}
