//! A thread that leased a version before a snapshot uses it for a change: the next snapshot has the
//! change.

use super::{
    durability::{key, start},
    *,
};
use crate::store::simulated::SimulatedDisk;

#[tokio::test]
async fn what_is_leased_before_a_snapshot_is_of_no_change_behind_it() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Snapshot).await.unwrap();
    let spec = SpecRequest::new(1000, 1e-9);
    engine.create_filter("urls", spec).await.unwrap();
    let filter = engine.filter_named("urls".parse().unwrap()).unwrap();
    filter.lease_versions();
    engine.store("urls").await.unwrap();
    engine.add("urls", &key(1)).await.unwrap();
    engine.store("urls").await.unwrap();
    let engine = start(&disk.kill(), Durability::Snapshot).await.unwrap();
    assert!(engine.query("urls", &key(1)).await.unwrap());
}
