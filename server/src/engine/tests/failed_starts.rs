//! Starts that the disk fails, of a server that was killed.

use std::io;

use super::{durability::start, *};
use crate::store::simulated::{Chance, Fault, SimulatedDisk};

/// What a sync could not put on stable storage may still be read, and a later sync says nothing
/// of it. So what the next start finds must not be taken to be there for good.
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
            // Whatever the server does from here on is for nothing, its end as well.
            let killed = disk.kill();
            drop(engine);

            killed.fail(call, 1, Fault::Error(io::ErrorKind::Other));
            let failed = start(&killed, durability).await.is_err();
            failed_starts += u64::from(failed);
            let was_met = killed.calls() > call;
            killed.heal();
            let killed = killed.kill();
            // One that adds to the log, which then says that what is before that is there.
            let engine = start(&killed, durability).await.expect(&case);
            engine.add("urls", "b").await.unwrap();
            drop(engine);
            for seed in 0..4 {
                let found = killed.cut(&mut Chance::new(seed));
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
