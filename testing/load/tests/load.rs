//! The load generator, against servers that do not answer like a seenset-server.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{net::SocketAddr, ops::ControlFlow, time::Duration};

use bytes::Bytes;
use h2::{Reason, server::SendResponse};
use seenset_client::{Error, Options};
use seenset_load::{Calls, Generator, Load};
use tokio::{io::AsyncWriteExt, net::TcpListener, time::timeout};
use tonic::{
    Code,
    codegen::http::{HeaderMap, HeaderValue, Response},
};

/// The answer of a server to a call.
type Answer = fn(SendResponse<Bytes>);

/// Serves HTTP/2, and answers every call in the same way.
async fn serve(answer: Answer) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    answer(respond);
                    // To be read no more, which is no reason to reset it.
                    std::mem::forget(request);
                }
            });
        }
    });
    address
}

/// Ten keys in each batch.
async fn load(address: SocketAddr, stream: bool) -> Error {
    let (keys, window) = (10, 3);
    let calls = match stream {
        true => Calls::Stream { keys, window },
        false => Calls::Batch { keys },
    };
    let load = Load {
        calls,
        connections: 1,
        callers: 2,
    };
    let options = Options {
        deadline: Duration::from_millis(500),
        connect_timeout: Duration::from_millis(500),
        ..Options::default()
    };
    let mut generator = Generator::new(&address.to_string(), options, "f", 60).unwrap();
    let time = Duration::from_secs(3600);
    let run = generator.run(load, 0.0, time, |_| ControlFlow::Continue(()));
    let ended = timeout(Duration::from_secs(30), run).await;
    ended.expect("the run goes on").unwrap_err()
}

fn head() -> Response<()> {
    Response::new(())
}

fn trailers(code: &'static str, message: &'static str) -> HeaderMap {
    HeaderMap::from_iter([
        (
            "grpc-status".parse().unwrap(),
            HeaderValue::from_static(code),
        ),
        (
            "grpc-message".parse().unwrap(),
            HeaderValue::from_static(message),
        ),
    ])
}

/// Answers with `body`, and then with the status OK.
fn content(mut respond: SendResponse<Bytes>, body: &'static [u8]) {
    let mut send = respond.send_response(head(), false).unwrap();
    send.send_data(Bytes::from_static(body), false).unwrap();
    send.send_trailers(trailers("0", "")).unwrap();
}

#[tokio::test]
async fn a_refusal_is_told_with_its_status_wherever_it_stands() {
    let in_headers: Answer = |mut respond| {
        let mut head = head();
        *head.headers_mut() = trailers("8", "100%25 full");
        respond.send_response(head, true).unwrap();
    };
    let in_trailers: Answer = |mut respond| {
        let mut send = respond.send_response(head(), false).unwrap();
        send.send_trailers(trailers("8", "100%25 full")).unwrap();
    };
    for answer in [in_headers, in_trailers] {
        for stream in [false, true] {
            let error = load(serve(answer).await, stream).await;
            assert_eq!(error.code(), Some(Code::ResourceExhausted), "{error}");
            assert!(error.to_string().contains("100% full"), "{error}");
        }
    }
}

#[tokio::test]
async fn another_kind_of_server_is_found_out() {
    let not_found: Answer = |mut respond| {
        let mut head = head();
        *head.status_mut() = 404.try_into().unwrap();
        respond.send_response(head, true).unwrap();
    };
    let page: Answer = |respond| content(respond, b"<html>");
    let other_number: Answer = |respond| content(respond, b"\0\0\0\0\x04\x0a\x02\0\0");
    let too_much: Answer = |respond| content(respond, &[0; 1 << 14]);
    for stream in [false, true] {
        let error = load(serve(not_found).await, stream).await;
        assert!(error.to_string().contains("HTTP status 404"), "{error}");
        for answer in [page, other_number, too_much] {
            let error = load(serve(answer).await, stream).await;
            assert!(matches!(error, Error::Mismatch { .. }), "{error}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_ends_the_run() {
    let silent: Answer = |respond| std::mem::forget(respond);
    let reset: Answer = |mut respond| respond.send_reset(Reason::INTERNAL_ERROR);
    let no_status: Answer = |mut respond| drop(respond.send_response(head(), true));
    // One whole answer, and the stream ends as if that were all.
    let one: Answer = |respond| content(respond, b"\0\0\0\0\x0c\x0a\x0a\0\0\0\0\0\0\0\0\0\0");
    let error = load(serve(silent).await, true).await;
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    for answer in [reset, no_status, one] {
        let error = load(serve(answer).await, true).await;
        assert!(matches!(error, Error::Broken { .. }), "{error}");
    }
}

#[tokio::test]
async fn what_speaks_no_http2_or_nothing_at_all_ends_the_run() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = b"HTTP/1.1 400 Bad Request\r\n\r\n";
            stream.write_all(answer).await.unwrap();
        }
    });
    let error = load(address, false).await;
    assert!(matches!(error, Error::Broken { .. }), "{error}");
    accepting.abort();
    let _ = accepting.await;
    let error = load(address, false).await;
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}
