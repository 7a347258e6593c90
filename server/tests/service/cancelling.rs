//! Clients that cancel calls. This must not harm other calls.

use std::time::Duration;

use h2::Reason;
use seenset_proto::v1::{QueryAndAddRequest, QueryRequest};
use tokio::{net::TcpStream, task::JoinSet, time::timeout};
use tonic::Code;

use crate::{
    common::{config, dedup, start, stop},
    key,
};

/// More calls than a connection can have in flight.
const CANCELLED: u32 = 2000;

/// All calls that are cancelled at once reach the server before it handles the first of them.
#[tokio::test]
async fn calls_that_are_cancelled_at_once_end_no_other_call() {
    const HEADERS: u8 = 1;
    const END_HEADERS: u8 = 4;
    const RST_STREAM: u8 = 3;
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let path = b"/seenset.v1.DedupService/QueryAndAdd";
    let kind = b"application/grpc";
    // POST, http, the path and the content type as they are.
    let headers = [
        &[0x83, 0x86, 0x04, path.len() as u8],
        &path[..],
        &[0x0f, 0x10, kind.len() as u8],
        &kind[..],
    ]
    .concat();
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(4, 0, 0, &[]));
    for call in 0..CANCELLED {
        let stream = 2 * call + 1;
        sent.extend(frame(HEADERS, END_HEADERS, stream, &headers));
        let cancel = u32::from(Reason::CANCEL).to_be_bytes();
        sent.extend(frame(RST_STREAM, 0, stream, &cancel));
    }
    // One more call that is not cancelled, with a key.
    let message = [0, 0, 0, 0, 3, 0x12, 1, b'a'];
    let last = 2 * CANCELLED + 1;
    sent.extend(frame(HEADERS, END_HEADERS, last, &headers));
    sent.extend(frame(0, 1, last, &message));

    let mut connection = TcpStream::connect(server.local_addr()).await.unwrap();
    let answered = async {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        connection.write_all(&sent).await.unwrap();
        loop {
            let mut header = [0; 9];
            connection.read_exact(&mut header).await.unwrap();
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            let mut payload = vec![0; length as usize];
            connection.read_exact(&mut payload).await.unwrap();
            let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
            assert_ne!(
                header[3],
                7,
                "GOAWAY: {}",
                String::from_utf8_lossy(&payload)
            );
            if (header[3], stream) == (0, last) {
                return payload;
            }
        }
    };
    let answer = timeout(Duration::from_secs(20), answered).await.unwrap();
    assert_eq!(answer, [0, 0, 0, 0, 2, 0x08, 0]);
    let mut client = dedup(&server).await;
    let seen = client.query(QueryRequest {
        key: key("a"),
        ..Default::default()
    });
    assert_eq!(seen.await.unwrap().into_inner().seen, Some(true));
    stop(server).await;
}

/// Some callers give up after some milliseconds, on one connection with a caller that does not.
#[tokio::test(flavor = "multi_thread")]
async fn callers_that_give_up_harm_no_other_caller() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let client = dedup(&server).await;
    let mut impatient = JoinSet::new();
    for caller in 0..100_u64 {
        let mut client = client.clone();
        impatient.spawn(async move {
            // Fewer calls in total than the 1,024 resets that the client's h2 allows itself.
            for call in 0..10_u64 {
                let request = QueryAndAddRequest {
                    key: format!("{caller} {call}"),
                    ..Default::default()
                };
                // From no time at all to some.
                let patience = Duration::from_micros(50 * ((caller + call) % 40));
                match timeout(patience, client.query_and_add(request)).await {
                    Err(_) | Ok(Ok(_)) => {}
                    Ok(Err(status)) => return Err(status),
                }
            }
            Ok(())
        });
    }
    let mut patient = client.clone();
    let mut calls = 0;
    while !impatient.is_empty() {
        let request = QueryAndAddRequest {
            key: format!("patient {calls}"),
            ..Default::default()
        };
        let answer = patient.query_and_add(request).await;
        assert_eq!(answer.unwrap().into_inner().seen, Some(false));
        calls += 1;
        while let Some(ended) = impatient.try_join_next() {
            let ended = ended.unwrap();
            assert!(ended.is_ok(), "{ended:?}");
        }
    }
    assert!(calls > 0);
    // Each call has its own deadline, which the server knows.
    let mut request = tonic::Request::new(QueryAndAddRequest {
        key: key("late"),
        ..Default::default()
    });
    request.set_timeout(Duration::ZERO);
    let mut again = client.clone();
    let refused = again.query_and_add(request).await.unwrap_err();
    assert!(
        matches!(refused.code(), Code::DeadlineExceeded | Code::Cancelled),
        "{refused}"
    );
    let seen = again
        .query(QueryRequest {
            key: key("late"),
            ..Default::default()
        })
        .await;
    assert_eq!(seen.unwrap().into_inner().seen, Some(false));
    stop(server).await;
}
