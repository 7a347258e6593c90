//! Clients that must not hold up a stop for the whole drain time: clients that send nothing, and
//! clients that read nothing.

use std::time::Duration;

use bytes::Bytes;
use h2::{SendStream, client};
use prost::Message;
use seenset_proto::v1::{AddBatchRequest, CopyFilterRequest, QueryAndAddRequest, QueryRequest};
use seenset_server::{config::Config, server::Server};
use tokio::{io::AsyncWriteExt, net::TcpStream, sync::oneshot, time::timeout};
use tonic::{
    Code, Status,
    codegen::http::{Request, Response},
};

use crate::{
    common::{config, dedup, start, stop},
    key, keys,
    not_grpc::framed,
};

/// Far longer than the test may take.
const DRAIN: &str = "10m";
const SOON: Duration = Duration::from_secs(60);

async fn patient_server(dir: &std::path::Path) -> Server {
    let settings = Config {
        drain_timeout: DRAIN.parse().unwrap(),
        ..config(dir)
    };
    start(settings).await
}

async fn stop_soon(server: Server, what: &str) {
    let stopped = timeout(SOON, server.shutdown(std::future::pending()));
    stopped.await.expect(what).unwrap();
}

type Answer = oneshot::Receiver<Result<Response<h2::RecvStream>, h2::Error>>;

/// A connection with one call, of which only some bytes are sent.
struct HalfSent {
    _body: SendStream<Bytes>,
    answer: Answer,
}

impl HalfSent {
    /// Begins a call. `window` is the number of bytes that the client lets the server send.
    async fn new(server: &Server, rpc: &str, sent: Bytes, is_whole: bool, window: u32) -> Self {
        let stream = TcpStream::connect(server.local_addr()).await.unwrap();
        let mut builder = client::Builder::new();
        let (requests, connection) = builder
            .initial_window_size(window)
            .handshake(stream)
            .await
            .unwrap();
        tokio::spawn(connection);
        let request = Request::post(format!("http://seenset/seenset.v1.{rpc}"))
            .header("content-type", "application/grpc")
            .body(())
            .unwrap();
        let mut requests = requests.ready().await.unwrap();
        let (response, mut body) = requests.send_request(request, false).unwrap();
        body.send_data(sent, is_whole).unwrap();
        let (answered, answer) = oneshot::channel();
        tokio::spawn(async move {
            let _requests = requests;
            let _ = answered.send(response.await);
        });
        Self {
            _body: body,
            answer,
        }
    }
}

fn one_key(text: &str) -> QueryAndAddRequest {
    QueryAndAddRequest {
        key: key(text),
        ..Default::default()
    }
}

/// Returns a message without its last byte, and the whole message without the end of the request.
fn parts(message: &impl Message) -> [Bytes; 2] {
    let whole = framed(message);
    [whole.slice(..whole.len() - 1), whole]
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_have_not_arrived_get_some_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let server = patient_server(dir.path()).await;
    let batch = AddBatchRequest {
        keys: keys(&["b", "c"]),
        ..Default::default()
    };
    let copy = CopyFilterRequest {
        name: key("default"),
        new_name: key("copy"),
    };
    let calls = [
        ("DedupService/QueryAndAdd", parts(&one_key("a"))),
        ("DedupService/AddBatch", parts(&batch)),
        ("FilterService/CopyFilter", parts(&copy)),
    ];
    let mut half_sent = Vec::new();
    for (rpc, sent) in calls {
        for sent in [Bytes::new()].into_iter().chain(sent) {
            half_sent.push((rpc, HalfSent::new(&server, rpc, sent, false, 65_535).await));
        }
    }
    // The calls have arrived by the time others have been answered.
    let mut client = dedup(&server).await;
    for _ in 0..20 {
        client
            .query(QueryRequest {
                key: key("a"),
                ..Default::default()
            })
            .await
            .unwrap();
    }
    stop_soon(server, "half a call held up the stop").await;
    for (rpc, call) in half_sent {
        let response = call.answer.await.unwrap().expect(rpc);
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.code(), Code::Unavailable, "{rpc}: {status}");
        assert!(
            status.message().contains("not carried out"),
            "{rpc}: {status}"
        );
    }

    let server = start(config(dir.path())).await;
    let mut client = dedup(&server).await;
    for text in ["a", "b", "c"] {
        let query = QueryRequest {
            key: key(text),
            ..Default::default()
        };
        assert_eq!(
            client.query(query).await.unwrap().into_inner().seen,
            Some(false),
            "{text}"
        );
    }
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_does_not_hold_up_the_stop() {
    let dir = tempfile::tempdir().unwrap();
    let server = patient_server(dir.path()).await;
    let mut unread = Vec::new();
    for (rpc, text) in [("QueryAndAdd", "a"), ("QueryAndAddStream", "b")] {
        let message = framed(&one_key(text));
        let rpc = format!("DedupService/{rpc}");
        unread.push(HalfSent::new(&server, &rpc, message, true, 0).await);
    }
    for call in unread {
        // The head of the response has arrived, and the window has no room for the rest.
        assert_eq!(call.answer.await.unwrap().unwrap().status(), 200);
    }
    stop_soon(server, "a client that does not read held up the stop").await;
}

/// No connection has a call in flight.
#[tokio::test(flavor = "multi_thread")]
async fn connections_without_a_call_do_not_hold_up_the_stop() {
    let dir = tempfile::tempdir().unwrap();
    let server = patient_server(dir.path()).await;
    let mut idle = dedup(&server).await;
    idle.query(QueryRequest {
        key: key("a"),
        ..Default::default()
    })
    .await
    .unwrap();
    let mut begun = Vec::new();
    for sent in ["", "P", "PRI * HTTP/2.0\r\n\r\nSM", "GET / HT"] {
        let mut connection = TcpStream::connect(server.local_addr()).await.unwrap();
        connection.write_all(sent.as_bytes()).await.unwrap();
        begun.push(connection);
    }
    let stream = HalfSent::new(
        &server,
        "DedupService/QueryAndAddStream",
        Bytes::new(),
        false,
        65_535,
    );
    let _stream = stream.await;
    stop_soon(server, "a connection without a call held up the stop").await;
}
