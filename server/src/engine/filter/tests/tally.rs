//! The records of keys with different tags.

use super::*;
use crate::{
    engine::filter::body::by_tag,
    filter::scaling::{OnFull, Scaling},
    store::{RecordHead, RecordKind},
};

#[test]
fn each_layer_has_a_record_and_there_is_room_for_all() {
    let filter = filter_of(&SpecRequest {
        kind: Kind::Scaling(OnFull::Scale(Scaling::default())),
        ..SpecRequest::new(1000, 0.01)
    });
    let layers = filter.spec.body.layers().as_ref().unwrap().layers().len();
    for keys in [1, 2, layers, 5 * layers] {
        let layer_of = |index: usize| (index % layers) as u8;
        let hash = |index| filter.hash(key(index).as_bytes());
        let changed = (0..keys).map(|index| (layer_of(index), hash(index)));
        let mut changed: Vec<(u8, KeyHash)> = changed.collect();
        let head = |layer: u8| RecordHead {
            kind: RecordKind::AddedTo {
                layer: layer.into(),
            },
            ..RecordHead::added(FilterId(1), 7)
        };
        let mut records = Vec::new();
        for (head, count, hashes) in by_tag(&mut changed, head) {
            let hashes: Vec<KeyHash> = hashes.collect();
            assert_eq!(hashes.len(), count);
            records.push((head.kind, hashes));
        }
        let expected = (0..keys.min(layers)).map(|layer| {
            let own = (0..keys).filter(|index| index % layers == layer);
            let layer = layer as u64;
            (RecordKind::AddedTo { layer }, own.map(hash).collect())
        });
        assert_eq!(records, expected.collect::<Vec<_>>());
        assert!(records.len() <= filter.records_of_a_call(keys));
    }
}
