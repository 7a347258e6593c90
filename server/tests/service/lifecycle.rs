//! From the start to the stop: health, draining, connections.

use std::time::{Duration, Instant};

use seenset_proto::v1::{
    QueryAndAddStreamRequest, QueryAndAddStreamResponse, QueryBatchRequest, QueryRequest,
    dedup_service_client::DedupServiceClient,
};
use seenset_server::{
    config::Config,
    server::{self, Server},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufStream},
    net::TcpStream,
    sync::mpsc,
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::{
    common::{channel, config, dedup, start, stop},
    key, keys,
};

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

async fn health(channel: &Channel, service: &str) -> i32 {
    let request = HealthCheckRequest {
        service: key(service),
    };
    HealthClient::new(channel.clone())
        .check(request)
        .await
        .unwrap()
        .into_inner()
        .status
}

/// Opens a stream and keeps it open. Returns the sender and the answers.
async fn open_stream(
    server: &Server,
) -> (
    mpsc::Sender<QueryAndAddStreamRequest>,
    Streaming<QueryAndAddStreamResponse>,
) {
    let (batches, receiver) = mpsc::channel(1);
    let mut client = dedup(server).await;
    let answers = client.query_and_add_stream(ReceiverStream::new(receiver));
    (batches, answers.await.unwrap().into_inner())
}

fn batch(text: &str) -> QueryAndAddStreamRequest {
    QueryAndAddStreamRequest {
        keys: keys(&[text]),
        ..Default::default()
    }
}

#[tokio::test]
async fn health_follows_recovery_and_draining() {
    let services = ["", "seenset.v1.DedupService", "seenset.v1.FilterService"];
    let dir = tempfile::tempdir().unwrap();
    let mut server = server::bind(config(dir.path())).await.unwrap();
    let connection = channel(&server).await;
    for service in services {
        assert_eq!(health(&connection, service).await, NOT_SERVING);
    }
    let early = dedup(&server)
        .await
        .query(QueryRequest {
            key: key("a"),
            ..Default::default()
        })
        .await;
    assert_eq!(early.unwrap_err().code(), Code::Unavailable);
    server.recover().await.unwrap();
    for service in services {
        assert_eq!(health(&connection, service).await, SERVING);
    }

    // While a call is in flight, the connection stays open and reports that the server drains.
    let (batches, mut answers) = open_stream(&server).await;
    batches.send(batch("before")).await.unwrap();
    assert_eq!(answers.message().await.unwrap().unwrap().seen, [false]);
    let stopping = tokio::spawn(stop(server));
    tokio::time::sleep(Duration::from_millis(100)).await;
    // Batches that are still sent on the stream are answered. After that the silence ends the
    // stream.
    batches.send(batch("while draining")).await.unwrap();
    assert_eq!(answers.message().await.unwrap().unwrap().seen, [false]);
    let status = answers.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    timeout(Duration::from_secs(4), stopping)
        .await
        .expect("an idle stream held up the stop")
        .unwrap();

    let server = start(config(dir.path())).await;
    let batch = QueryBatchRequest {
        keys: keys(&["before", "while draining"]),
        ..Default::default()
    };
    let seen = dedup(&server)
        .await
        .query_batch(batch)
        .await
        .unwrap()
        .into_inner()
        .seen;
    assert_eq!(seen, [true, true]);
    stop(server).await;
}

/// A call holds up the stop, and a new connection makes requests: health is reported, new calls are
/// refused, and the old call finishes.
#[tokio::test]
async fn a_draining_server_says_so_and_takes_no_more_calls() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let (batches, mut answers) = open_stream(&server).await;
    let address = format!("http://{}", server.local_addr());
    let stopping = tokio::spawn(stop(server));
    // Less than the silence that would end the stream.
    tokio::time::sleep(Duration::from_millis(200)).await;

    let connection = Channel::from_shared(address).unwrap().connect().await;
    let connection = connection.expect("a server that drains answers");
    assert_eq!(health(&connection, "").await, NOT_SERVING);
    let mut late = DedupServiceClient::new(connection.clone());
    let refused = late.query(QueryRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("is stopping"), "{refused}");

    // Longer than connections without a call can stay.
    for text in ["a", "b", "c", "d", "e", "f"] {
        batches.send(batch(text)).await.unwrap();
        assert_eq!(answers.message().await.unwrap().unwrap().seen, [false]);
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    drop(batches);
    assert!(answers.message().await.unwrap().is_none());
    // A connection that only checks health, and is still open, does not hold up the stop.
    timeout(Duration::from_secs(4), stopping)
        .await
        .expect("nothing is in flight")
        .unwrap();
}

/// A client that connects and sends nothing has no call in flight.
#[tokio::test]
async fn a_silent_connection_does_not_hold_up_the_stop() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(Config {
        drain_timeout: "30s".parse().unwrap(),
        ..config(dir.path())
    })
    .await;
    let _silent = TcpStream::connect(server.local_addr()).await.unwrap();
    timeout(Duration::from_secs(5), stop(server))
        .await
        .expect("a silent connection held up the stop");
}

#[tokio::test]
async fn one_connection_too_many_is_closed_and_the_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let base = config(dir.path());
    let of_all = Config {
        max_connections: 2,
        ..base.clone()
    };
    let of_each_address = Config {
        max_connections_per_address: 2,
        ..base
    };
    for config in [of_all, of_each_address] {
        no_third_connection(config).await;
    }
}

async fn no_third_connection(config: Config) {
    let server = start(config).await;
    let (first, second) = (channel(&server).await, channel(&server).await);
    let mut third = TcpStream::connect(server.local_addr()).await.unwrap();
    let closed = timeout(Duration::from_secs(5), third.read(&mut [0])).await;
    assert_eq!(closed.expect("it is left open").unwrap_or(0), 0);
    assert_eq!(health(&first, "").await, SERVING);
    assert_eq!(health(&second, "").await, SERVING);

    drop(second);
    // The server notices it at the next read from that connection.
    let again = async {
        loop {
            let next = Channel::from_shared(format!("http://{}", server.local_addr()));
            if let Ok(next) = next.unwrap().connect().await
                && HealthClient::new(next)
                    .check(HealthCheckRequest::default())
                    .await
                    .is_ok()
            {
                break;
            }
        }
    };
    timeout(Duration::from_secs(5), again)
        .await
        .expect("a place that is free again is not given");
    stop(server).await;
}

/// A client that opens more calls than a connection can have gets a refusal for each of them. A
/// client that does nothing else is disconnected.
#[tokio::test]
async fn a_connection_that_has_the_server_reset_calls_without_end_is_closed() {
    const MAX_CALLS: u32 = 256;
    const RST_STREAM: u8 = 3;
    const GOAWAY: u8 = 7;
    const ENHANCE_YOUR_CALM: u8 = 11;
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let other = channel(&server).await;
    let mut connection = BufStream::new(TcpStream::connect(server.local_addr()).await.unwrap());

    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = (payload.len() as u32).to_be_bytes();
        let stream = stream.to_be_bytes();
        [&length[1..], &[kind, flags], &stream, payload].concat()
    };
    let path = b"/seenset.v1.DedupService/QueryAndAddStream";
    // POST, http, and the path as it is.
    let headers = [&[0x83, 0x86, 0x04, path.len() as u8], &path[..]].concat();
    let begin_call = |number: u32| frame(1, 4, 2 * number + 1, &headers);
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(4, 0, 0, &[]));
    sent.extend((0..MAX_CALLS).flat_map(begin_call));
    let mut refused = 0;
    let reason = async {
        loop {
            sent.extend(begin_call(MAX_CALLS + refused));
            connection.write_all(&sent).await.unwrap();
            connection.flush().await.unwrap();
            sent.clear();
            loop {
                let mut header = [0; 9];
                connection.read_exact(&mut header).await.unwrap();
                let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
                let mut payload = vec![0; length as usize];
                connection.read_exact(&mut payload).await.unwrap();
                match header[3] {
                    RST_STREAM => break refused += 1,
                    GOAWAY => return payload[7],
                    _ => {}
                }
            }
        }
    };
    let reason = timeout(Duration::from_secs(20), reason).await;
    assert_eq!(reason.expect("it goes on without end"), ENHANCE_YOUR_CALM);
    assert!((10_000..20_000).contains(&refused), "{refused}");
    assert_eq!(health(&other, "").await, SERVING);
    stop(server).await;
}

/// A stream that is always busy is ended when the time is up, between two batches. The answered
/// batches are stored, and the others have changed nothing.
#[tokio::test]
async fn a_busy_stream_is_ended_between_two_batches() {
    let dir = tempfile::tempdir().unwrap();
    let settings = || Config {
        drain_timeout: "1s".parse().unwrap(),
        ..config(dir.path())
    };
    let server = start(settings()).await;
    let (batches, mut answers) = open_stream(&server).await;
    let stopping = tokio::spawn(stop(server));
    let mut answered = Vec::new();
    let status = loop {
        let next = format!("key {}", answered.len());
        let _ = batches.send(batch(&next)).await;
        match answers.message().await {
            Ok(_) => answered.push(next),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("has been answered"), "{status}");
    timeout(Duration::from_secs(4), stopping)
        .await
        .expect("a busy stream held up the stop")
        .unwrap();

    let server = start(settings()).await;
    let mut client = dedup(&server).await;
    let mut all_seen = async |keys: Vec<String>| {
        let batch = QueryBatchRequest {
            keys,
            ..Default::default()
        };
        let seen = client.query_batch(batch).await.unwrap().into_inner().seen;
        seen.iter().all(|&seen| seen)
    };
    let refused = format!("key {}", answered.len());
    assert!(!all_seen(vec![refused]).await);
    for keys in answered.chunks(10_000) {
        assert!(all_seen(keys.to_vec()).await);
    }
    stop(server).await;
}

/// A second stop signal cuts nothing off if no call is in flight.
#[tokio::test]
async fn a_hurried_stop_of_an_idle_server_waits_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..8 {
        let server = start(config(dir.path())).await;
        let begun = Instant::now();
        server.shutdown(std::future::ready(())).await.unwrap();
        assert!(begun.elapsed() < Duration::from_millis(900), "it waited");
    }
}
