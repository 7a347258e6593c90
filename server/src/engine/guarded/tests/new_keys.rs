//! The layers of keys in log records.

use super::*;
use crate::{
    engine::guarded::layered::new_keys::NewKeys,
    filter::scaling::{OnFull, Scaling},
    store::{RecordHead, RecordKind},
};

#[test]
fn each_layer_has_a_record_and_there_is_room_for_all() {
    let filter = filter_of(&SpecRequest {
        kind: Kind::Scaling(OnFull::Scale(Scaling::default())),
        ..SpecRequest::new(1000, 0.01)
    });
    let layers = filter.spec.layers.as_ref().unwrap().layers().len();
    for keys in [1, 2, layers, 5 * layers] {
        let names: Vec<String> = (0..keys).map(key).collect();
        let mut places = filter.places(&names);
        // The keys are visited in another order than they came.
        places.reverse();
        let mut new = NewKeys::among(keys);
        for key in 0..keys {
            new.note(key, key % layers);
        }
        let head = RecordHead::added(FilterId(1), 7);
        let mut told = vec![None; keys];
        let mut records = 0;
        for (head, count, hashes) in new.records(head, &places) {
            records += 1;
            assert_eq!((head.filter, head.version), (FilterId(1), 7));
            let hashes: Vec<KeyHash> = hashes.collect();
            assert_eq!(hashes.len(), count);
            for hash in hashes {
                let place = places.iter().find(|place| place.hash == hash);
                told[place.unwrap().key as usize] = Some(head.kind);
            }
        }
        let expected = (0..keys).map(|key| {
            let layer = (key % layers) as u64;
            Some(RecordKind::AddedTo { layer })
        });
        assert_eq!(told, expected.collect::<Vec<_>>());
        assert_eq!(records, keys.min(layers));
        assert!(records <= filter.records_of_a_call(keys));
        assert_eq!(new.hashes(&places).count(), keys);
    }
}
