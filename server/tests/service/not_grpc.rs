//! Requests that are not gRPC: the server refuses them before it decodes anything.

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::{self, SendRequest};
use prost::Message;
use seenset_proto::v1::{DeleteFilterRequest, GetFilterRequest, QueryAndAddRequest};
use seenset_server::server::Server;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::{
    Code, Status,
    codegen::http::{Method, Request, Response, header::HeaderMap},
};

use crate::{
    common::{config, filters, start, stop},
    key,
};

const DELETE: &str = "/seenset.v1.FilterService/DeleteFilter";
const QUERY_AND_ADD: &str = "/seenset.v1.DedupService/QueryAndAdd";

/// A connection for any request.
pub struct Raw(SendRequest<Bytes>);

impl Raw {
    pub async fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.local_addr()).await.unwrap();
        let (requests, connection) = client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self(requests)
    }

    /// Returns the head of the response, its trailers (or its headers, if it has no trailers) and
    /// its body.
    async fn ask(&self, request: Request<()>, message: &impl Message) -> Answer {
        let requests = self.0.clone().ready().await;
        let (response, mut body) = requests.unwrap().send_request(request, false).unwrap();
        // Sending fails if the server refuses the body.
        let _ = body.send_data(framed(message), true);
        let (head, mut body) = response.await.unwrap().into_parts();
        let mut bytes = Vec::new();
        while let Some(data) = body.data().await {
            let data = data.unwrap();
            let _ = body.flow_control().release_capacity(data.len());
            bytes.extend_from_slice(&data);
        }
        let trailers = body.trailers().await.unwrap();
        let trailers = trailers.unwrap_or_else(|| head.headers.clone());
        Answer {
            head: Response::from_parts(head, ()),
            trailers,
            text: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }
}

struct Answer {
    head: Response<()>,
    trailers: HeaderMap,
    text: String,
}

impl Answer {
    fn code(&self) -> Option<Code> {
        Status::from_header_map(&self.trailers).map(|status| status.code())
    }
}

/// Returns a message with its length prefix.
pub fn framed(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(message.encoded_len() as u32);
    message.encode(&mut bytes).unwrap();
    bytes.freeze()
}

fn post(path: &str, content_type: Option<&str>) -> Request<()> {
    let request = Request::post(format!("http://seenset{path}"));
    let request = match content_type {
        Some(content_type) => request.header("content-type", content_type),
        None => request,
    };
    request.body(()).unwrap()
}

fn delete_default() -> DeleteFilterRequest {
    DeleteFilterRequest {
        name: key("default"),
    }
}

fn one_key() -> QueryAndAddRequest {
    QueryAndAddRequest {
        key: key("a"),
        ..Default::default()
    }
}

#[tokio::test]
async fn what_is_not_grpc_is_not_carried_out() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let raw = Raw::connect(&server).await;
    let paths = [
        DELETE,
        QUERY_AND_ADD,
        "/seenset.v1.DedupService/Nothing",
        "/",
        "/healthz",
    ];
    for path in paths {
        for content_type in [
            None,
            Some(""),
            Some("text/plain"),
            Some("application/json"),
            Some("application/x-www-form-urlencoded"),
            Some("application/grpcx"),
            Some("application/grpc-web"),
            Some("application/grpc-web+proto"),
            Some("application/grpc-web-text"),
            Some("xapplication/grpc"),
            Some("application/gr"),
        ] {
            let answer = raw.ask(post(path, content_type), &delete_default()).await;
            assert_eq!(answer.head.status(), 415, "{path} {content_type:?}");
            assert!(answer.text.contains("application/grpc"), "{}", answer.text);
            assert_eq!(answer.code(), None);
        }
        for method in [
            Method::GET,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
            Method::OPTIONS,
        ] {
            let mut request = post(path, Some("application/grpc"));
            *request.method_mut() = method.clone();
            let answer = raw.ask(request, &delete_default()).await;
            assert_eq!(answer.head.status(), 405, "{method} {path}");
            assert_eq!(answer.head.headers()["allow"], "POST");
            assert!(answer.text.contains(method.as_str()), "{}", answer.text);
        }
        // A client that knows gRPC reads the status from this response.
        let json = raw
            .ask(post(path, Some("application/grpc+json")), &one_key())
            .await;
        assert_eq!(
            (json.head.status().as_u16(), json.code()),
            (200, Some(Code::Unimplemented))
        );
    }
    let mut twice = post(DELETE, Some("application/grpc"));
    let text = "text/plain".parse().unwrap();
    twice.headers_mut().append("content-type", text);
    assert_eq!(raw.ask(twice, &delete_default()).await.head.status(), 415);

    let filter = filters(&server)
        .await
        .get_filter(GetFilterRequest::default())
        .await;
    let filter = filter.unwrap().into_inner().filter.unwrap();
    assert_eq!((filter.version, filter.keys_added), (0, 0));
    stop(server).await;
}

/// The call succeeds with or without `te`, which proxies drop.
#[tokio::test]
async fn what_is_grpc_is_carried_out() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let raw = Raw::connect(&server).await;
    for content_type in [
        "application/grpc",
        "application/grpc+proto",
        "Application/GRPC+Proto",
        "application/grpc; charset=utf-8",
        "application/grpc+proto;a=b",
    ] {
        for te in [None, Some("trailers")] {
            let mut request = post(QUERY_AND_ADD, Some(content_type));
            if let Some(te) = te {
                request.headers_mut().insert("te", te.parse().unwrap());
            }
            let answer = raw.ask(request, &one_key()).await;
            assert_eq!(answer.head.status(), 200, "{content_type}");
            assert_eq!(answer.code(), Some(Code::Ok), "{content_type}");
        }
    }
    for path in [
        "/seenset.v1.DedupService/Nothing",
        "/seenset.v2.DedupService/Add",
        "/x",
        "/",
    ] {
        let answer = raw
            .ask(post(path, Some("application/grpc")), &one_key())
            .await;
        assert_eq!(answer.head.status(), 200, "{path}");
        assert_eq!(answer.code(), Some(Code::Unimplemented), "{path}");
    }
    let deleted = raw
        .ask(post(DELETE, Some("application/grpc")), &delete_default())
        .await;
    assert_eq!(deleted.code(), Some(Code::Ok));
    stop(server).await;
}

/// The port speaks only HTTP/2, and answers in no other protocol.
#[tokio::test]
async fn a_request_of_http_1_ends_its_connection() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let body = framed(&delete_default());
    let head = format!(
        "POST {DELETE} HTTP/1.1\r\nhost: seenset\r\ncontent-type: application/grpc\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let mut connection = TcpStream::connect(server.local_addr()).await.unwrap();
    connection
        .write_all(&[head.as_bytes(), &body].concat())
        .await
        .unwrap();
    // The connection ends, with or without an error. The bytes before the end are the server's side
    // of HTTP/2.
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/1"), "{answer:?}");
    let filter = filters(&server)
        .await
        .get_filter(GetFilterRequest::default())
        .await;
    assert!(filter.is_ok(), "{filter:?}");
    stop(server).await;
}
