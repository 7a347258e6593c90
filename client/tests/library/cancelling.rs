//! Cancelled calls: they break no connection, so no other call fails.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use tokio::{task::JoinSet, time::timeout};

use seenset_fake::Service;

/// h2 by default closes the connection after 1,024 answers to cancelled calls.
#[tokio::test(flavor = "multi_thread")]
async fn callers_that_give_up_end_no_other_call() {
    let service = Service::start().await;
    let client = service.client().await;
    let mut impatient = JoinSet::new();
    for caller in 0..100_u64 {
        let client = client.clone();
        impatient.spawn(async move {
            let mut given_up = 0;
            for call in 0..200 {
                let key = format!("{caller} {call}");
                let patience = Duration::from_micros(50 * ((caller + call) % 40));
                match timeout(patience, client.query_and_add(&key)).await {
                    Ok(seen) => assert!(!seen.unwrap()),
                    Err(_) => given_up += 1,
                }
            }
            given_up
        });
    }
    let given_up: u64 = impatient.join_all().await.into_iter().sum();
    assert!(given_up > 2048, "{given_up}");
    assert_eq!(service.state.connections.load(SeqCst), 1);
}
