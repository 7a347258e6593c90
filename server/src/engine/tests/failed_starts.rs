//! Starts that fail on a disk error, after a kill.

use std::io;

use fastrand::Rng;

use super::{durability::start, *};
use crate::store::simulated::{Fault, SimulatedDisk};

/// Data that a sync failed to write may still be readable, and a later sync does not report it. So
/// the next start must not assume that the data it finds is durable.
#[tokio::test]
async fn what_a_failed_start_has_not_kept_the_next_one_keeps() {
    for durability in [Durability::Always, INTERVAL] {
        let mut failed_starts = 0;
        for call in 0.. {
            let case = format!("{durability:?}, call {call}");
            let disk = SimulatedDisk::default();
            let engine = start(&disk, durability).await.unwrap();
            engine.create_filter("urls", small()).await.unwrap();
            engine.add("urls", "synced").await.unwrap();
            engine.store("urls").await.unwrap();
            engine.add("urls", "a").await.unwrap();
            // The server changes nothing on `killed` from here on, not even when it ends.
            let killed = disk.kill();
            drop(engine);

            killed.fail(call, 1, Fault::Error(io::ErrorKind::Other));
            let failed = start(&killed, durability).await.is_err();
            failed_starts += u64::from(failed);
            let was_met = killed.calls() > call;
            killed.heal();
            let killed = killed.kill();
            // This start appends to the log. After that the log says that all records before are
            // durable.
            let engine = start(&killed, durability).await.expect(&case);
            engine.add("urls", "b").await.unwrap();
            drop(engine);
            for seed in 0..4 {
                let found = killed.cut(&mut Rng::with_seed(seed));
                let engine = start(&found, durability).await.expect(&case);
                for key in ["synced", "a", "b"] {
                    assert!(engine.query("urls", key).await.unwrap(), "{case}: {key}");
                }
            }
            if !was_met {
                break;
            }
        }
        assert!(failed_starts > 5, "{failed_starts}");
    }
}
