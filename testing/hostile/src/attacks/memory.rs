//! Attacks on the memory of the server.

use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::Request;
use prost::Message;
use seenset_proto::v1::{
    CreateFilterRequest, FilterSpec, ListFiltersRequest, QueryAndAddStreamRequest,
    QueryBatchRequest,
};
use tokio::{net::TcpStream, time::sleep_until};

use super::{Attack, Running, Target, nothing};
use crate::raw::{self, MAX_STREAMS, Raw, content_type, frame, head, message, stream};

const BATCH: &str = "DedupService/QueryAndAddBatch";
const STREAM: &str = "DedupService/QueryAndAddStream";
const LIST: &str = "FilterService/ListFilters";

/// The memory that requests and their answers take in addition to the limited memory.
const REMEMBERED_BYTES: u64 = 128 << 20;

const fn attack(name: &'static str, run: fn(Target) -> Running<String>) -> Attack {
    Attack {
        name,
        prepare: nothing,
        run,
        engine_bytes: 0,
    }
}

pub const BEGUN: Attack = attack("messages that are begun", |target| {
    Box::pin(async move {
        target
            .repeat(100, |target| begin(target, 64 << 10, 100))
            .await
    })
});

pub const DECLARED: Attack = attack("large messages that are declared", |target| {
    Box::pin(async move { target.repeat(8, |target| begin(target, 16 << 20, 16)).await })
});

/// Begins calls whose messages have `bytes` bytes, and sends only the first bytes of them.
async fn begin(target: Target, bytes: u32, calls: u32) -> Result<()> {
    let mut connection = Raw::connect(&target.address, 1 << 16).await?;
    let head = head(BATCH);
    let [a, b, c, d] = bytes.to_be_bytes();
    for call in 0..calls.min(MAX_STREAMS) {
        let call = stream(call);
        let begun = [
            frame(raw::HEADERS, raw::END_HEADERS, call, &head),
            frame(raw::DATA, 0, call, &[0, a, b, c, d, 0]),
        ];
        connection.send(&begun.concat()).await?;
    }
    connection.drain().await;
    Ok(())
}

pub const UNREAD_STREAMS: Attack = Attack {
    engine_bytes: REMEMBERED_BYTES,
    ..attack("streams that are not read", |target| {
        Box::pin(async move {
            target
                .repeat(6, |target| unread(target, stream_calls()))
                .await
        })
    })
};

/// The calls of an attack: the message that each of them sends repeatedly.
struct Calls {
    method: &'static str,
    message: Bytes,
    is_stream: bool,
    calls: u32,
}

fn stream_calls() -> Calls {
    let batch = QueryAndAddStreamRequest {
        keys: (0..1000).map(|key| format!("{key:060}")).collect(),
        ..Default::default()
    };
    Calls {
        method: STREAM,
        message: message(&batch.encode_to_vec()).into(),
        is_stream: true,
        calls: 200,
    }
}

/// Makes calls with a library that respects the server's windows. It gives the server no window for
/// its answers.
async fn unread(target: Target, calls: Calls) -> Result<()> {
    let connection = TcpStream::connect(&target.address).await?;
    let mut client = h2::client::Builder::new();
    client.initial_window_size(0);
    let (client, connection) = client.handshake::<_, Bytes>(connection).await?;
    let connection = tokio::spawn(connection);
    let mut client = client.ready().await?;
    let mut open = Vec::new();
    for _ in 0..calls.calls {
        let request = Request::post(format!("http://attack/seenset.v1.{}", calls.method))
            .header("content-type", "application/grpc")
            .body(())?;
        client = client.ready().await?;
        let (response, mut body) = client.send_request(request, false)?;
        let message = calls.message.clone();
        let is_stream = calls.is_stream;
        open.push(tokio::spawn(async move {
            // Continues as long as there is a window.
            loop {
                let mut left = message.clone();
                while !left.is_empty() {
                    body.reserve_capacity(left.len());
                    let window = std::future::poll_fn(|cx| body.poll_capacity(cx)).await;
                    let Some(Ok(window)) = window else {
                        return;
                    };
                    let piece = left.split_to(window.min(left.len()));
                    let is_last = left.is_empty() && !is_stream;
                    if body.send_data(piece, is_last).is_err() || is_last {
                        break;
                    }
                }
                if !is_stream {
                    break;
                }
            }
            // The call is kept: dropping it would cancel it.
            let _ = response.await;
            std::future::pending::<()>().await;
        }));
    }
    tokio::select! {
        _ = connection => {}
        () = sleep_until(target.until) => {}
    }
    open.iter().for_each(|call| call.abort());
    Ok(())
}

pub const UNREAD_LISTS: Attack = Attack {
    engine_bytes: REMEMBERED_BYTES,
    prepare: |target| {
        Box::pin(async move {
            let mut filters = target.filters().await?;
            for number in 0..300 {
                let spec = FilterSpec {
                    capacity: 1000,
                    false_positive_rate: 0.01,
                    ..Default::default()
                };
                let request = CreateFilterRequest {
                    name: format!("filter-{number}"),
                    spec: Some(spec),
                };
                filters.create_filter(request).await?;
            }
            Ok(())
        })
    },
    ..attack("lists that are not read", |target| {
        Box::pin(async move {
            let act = |target| {
                let list = ListFiltersRequest {
                    page_size: 300,
                    ..Default::default()
                };
                let calls = Calls {
                    method: LIST,
                    message: message(&list.encode_to_vec()).into(),
                    is_stream: false,
                    calls: 200,
                };
                unread(target, calls)
            };
            target.repeat(6, act).await
        })
    })
};

pub const UNREAD_SOCKETS: Attack = attack("sockets that are not read", |target| {
    Box::pin(async move { target.repeat(50, unread_socket).await })
});

/// Requests many large answers, with windows for all of them, and does not read them.
async fn unread_socket(target: Target) -> Result<()> {
    let mut connection = Raw::connect(&target.address, (1 << 31) - 1).await?;
    let window = ((1_u32 << 31) - (1 << 17)).to_be_bytes();
    let mut sent = frame(raw::WINDOW_UPDATE, 0, 0, &window);
    let head = head("DedupService/QueryBatch");
    let batch = QueryBatchRequest {
        keys: (0..15_000).map(|_| "k".to_owned()).collect(),
        ..Default::default()
    };
    let batch = message(&batch.encode_to_vec());
    for call in 0..MAX_STREAMS {
        let call = stream(call);
        sent.extend(frame(raw::HEADERS, raw::END_HEADERS, call, &head));
        sent.extend(frame(raw::DATA, raw::END_STREAM, call, &batch));
    }
    connection.send(&sent).await?;
    sleep_until(target.until).await;
    Ok(())
}

pub const SMALL_PIECES: Attack = attack("data in pieces of a byte", |target| {
    Box::pin(async move { target.repeat(20, small_pieces).await })
});

/// Sends the data of many calls byte by byte, between pieces that fill the buffer of the server.
async fn small_pieces(target: Target) -> Result<()> {
    let mut connection = Raw::connect(&target.address, 0).await?;
    let head = head(STREAM);
    let calls = 100;
    for call in 0..calls {
        let begun = [
            frame(raw::HEADERS, raw::END_HEADERS, stream(call), &head),
            // A batch whose answer the server cannot send.
            frame(raw::DATA, 0, stream(call), &message(&[0x12, 1, b'k'])),
        ];
        connection.send(&begun.concat()).await?;
    }
    // A call that the server ends at once, after which it takes and forgets what comes.
    let filler = frame(raw::UNKNOWN, 0, 0, &vec![0; 60_000]);
    for byte in 0.. {
        let piece = frame(raw::DATA, 0, stream(byte % calls), &[0]);
        connection.send(&[piece, filler.clone()].concat()).await?;
        if !connection.skip() || target.is_over() {
            break;
        }
    }
    Ok(())
}

pub const LARGE_HEADERS: Attack = attack("large headers", |target| {
    Box::pin(async move { target.repeat(50, large_headers).await })
});

/// Makes calls with headers of the greatest allowed length, and sends nothing more.
async fn large_headers(target: Target) -> Result<()> {
    let mut connection = Raw::connect(&target.address, 1 << 16).await?;
    for call in 0..MAX_STREAMS {
        let mut head = head(STREAM);
        // A field of 14,000 bytes that does not enter the table.
        head.extend([0x00, 1, b'x', 0x7f, 0xb1, 0x6c]);
        head.extend(vec![b'y'; 14_000]);
        let (first, rest) = head.split_at(10_000);
        let sent = [
            frame(raw::HEADERS, 0, stream(call), first),
            frame(raw::CONTINUATION, raw::END_HEADERS, stream(call), rest),
        ];
        connection.send(&sent.concat()).await?;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    connection.drain().await;
    Ok(())
}

pub const HEADER_TABLES: Attack = attack("tables of headers", |target| {
    Box::pin(async move { target.repeat(100, header_tables).await })
});

/// Fills the table of headers with fields that each lie in a separate buffer of the server, and
/// keeps the connection.
async fn header_tables(target: Target) -> Result<()> {
    let mut connection = Raw::connect(&target.address, 1 << 16).await?;
    // The ACK must come after the settings of the server. After it the server allows long frames.
    tokio::time::sleep(Duration::from_millis(200)).await;
    connection
        .send(&frame(raw::SETTINGS, raw::ACK, 0, &[]))
        .await?;
    let filler = frame(raw::UNKNOWN, 0, 0, &vec![0; 60_000]);
    for call in 0..100 {
        // ":path" enters the table.
        let path = format!("/{call}");
        let mut head = vec![0x83, 0x86, 0x44, path.len() as u8];
        head.extend(path.as_bytes());
        head.extend(content_type("application/grpc"));
        let flags = raw::END_HEADERS | raw::END_STREAM;
        let call = frame(raw::HEADERS, flags, stream(call), &head);
        connection.send(&[call, filler.clone()].concat()).await?;
        if !connection.skip() {
            return Ok(());
        }
    }
    connection.drain().await;
    Ok(())
}
