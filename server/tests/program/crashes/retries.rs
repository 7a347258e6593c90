//! Repeats the calls that a killed server has not answered: unchanged, or in other batches, as
//! single calls and on streams.

use fastrand::Rng;
use seenset_history::{Operation, now};

use super::{
    calls::{self, Dedup},
    record::Record,
    request::Request,
    workload::key,
};

/// Repeats the calls until the server is gone.
pub async fn repeat(
    mut dedup: Dedup,
    requests: Vec<Request>,
    mut chance: Rng,
    began: u64,
) -> Record {
    let mut record = Record::default();
    let mut lives = true;
    for request in requests {
        // Another call sees the keys first. The repeated call is still answered that it has added
        // them first.
        if lives && chance.bool() {
            let look = Request::query(request.keys.clone());
            lives = calls::batch(&mut dedup, look, &mut record).await;
        }
        let mut parts = parts(&request, &mut chance, began).into_iter();
        if lives && request.operation == Operation::QueryAndAdd && chance.bool() {
            lives = calls::stream(&mut dedup, &mut record, || parts.next()).await;
        }
        for part in parts {
            lives = match part.keys.len() {
                _ if !lives => {
                    record.leave(part);
                    false
                }
                1 if chance.bool() => calls::single(&mut dedup, part, &mut record).await,
                _ => calls::batch(&mut dedup, part, &mut record).await,
            };
        }
    }
    record
}

/// Returns a call unchanged, or its keys in other batches. Some of these have additional keys.
fn parts(request: &Request, chance: &mut Rng, began: u64) -> Vec<Request> {
    if chance.u64(..3) == 0 {
        return vec![request.clone()];
    }
    let mut keys = request.keys.clone();
    keys.sort_unstable();
    keys.dedup();
    chance.shuffle(&mut keys);
    let longest = match chance.u64(..3) {
        0 => 1,
        _ => 1 + chance.u64(..keys.len() as u64),
    };
    let parts = keys.chunks(longest as usize).map(|keys| {
        let mut keys = keys.to_vec();
        if chance.u64(..4) == 0 {
            keys.push(key(chance, began, now()));
        }
        request.with_keys(keys)
    });
    parts.collect()
}
