//! Tests of the time that a file may take to arrive.

use futures_util::stream;
use tokio::time::{Instant, sleep};
use tonic::Code;

use super::*;
use crate::{engine::Durability, grpc::testing::engine};

const WORDS: u32 = 100 << 17;

/// Returns the beginning of a Guava filter with [`WORDS`]: 100 MiB.
fn head() -> ImportFilterRequest {
    let data = [&[1, 4][..], &WORDS.to_be_bytes()].concat();
    ImportFilterRequest {
        name: "imported".to_owned(),
        format: v1::FileFormat::Guava.into(),
        size_bytes: data.len() as u64 + 8 * u64::from(WORDS),
        capacity: 0,
        data,
    }
}

/// Imports a file of which one byte arrives after each interval `every`. Returns the error, and the
/// time that the import took.
async fn import_of_bytes(every: Duration) -> (Status, Duration) {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path(), Durability::Always).await;
    let messages = stream::unfold(Some(head()), |head| async move {
        if let Some(head) = head {
            return Some((Ok(head), None));
        }
        match every {
            Duration::MAX => std::future::pending().await,
            _ => sleep(every).await,
        }
        let data = vec![0];
        let byte = ImportFilterRequest {
            data,
            ..Default::default()
        };
        Some((Ok(byte), None))
    });
    let (_drain, draining) = watch::channel(Drain::No);
    // From here on time advances when no task has anything else to do.
    tokio::time::pause();
    let begun = Instant::now();
    let ended = run(&engine, Box::pin(messages), draining).await;
    let took = begun.elapsed();
    let gone = engine.get_filter("imported").await.unwrap_err();
    assert_eq!(status(gone).code(), Code::NotFound);
    (ended.unwrap_err(), took)
}

#[tokio::test]
async fn a_client_that_is_silent_for_a_minute_has_no_import_any_more() {
    let (status, took) = import_of_bytes(Duration::MAX).await;
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert!(
        status.message().contains("nothing came for 60 s"),
        "{status}"
    );
    assert_eq!(took.as_secs(), 60);
}

/// A minute, and a second for each MiB.
#[tokio::test]
async fn a_client_that_sends_a_byte_now_and_then_keeps_nothing_for_long() {
    let (status, took) = import_of_bytes(Duration::from_secs(10)).await;
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert!(status.message().contains("within 160 s"), "{status}");
    // The time can advance to the next byte before the engine has given up.
    assert!((160..=170).contains(&took.as_secs()), "{took:?}");
}
