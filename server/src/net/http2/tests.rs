//! Tests of the connections of hostile clients, and of silent ones.

use std::{
    future::ready,
    io::{Read, Write},
    os::unix::net::UnixStream,
};

use futures_util::stream;
use http_body::{Body, Frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Status;

use super::*;
use crate::{
    config::Address,
    connections::{ConnectionLimits, Connections},
    listeners::Listeners,
};

/// A response without a body.
struct Nothing;

impl Body for Nothing {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }
}

impl Sendable for Nothing {
    fn wait_to_be_sent(&mut self, _: &mut Context<'_>) {}

    fn may_be_refused(&self) -> bool {
        false
    }
}

fn memory() -> ClientMemory {
    ClientMemory::new(ClientMemory::LEAST_BYTES)
}

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const ENHANCE_YOUR_CALM: u8 = 11;
const END_STREAM_AND_HEADERS: u8 = 5;
/// POST, http and the path "/", as indexes into the static table.
const HEAD: [u8; 3] = [0x83, 0x86, 0x84];

fn frame(kind: u8, flags: u8, stream: usize, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let stream = (stream as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream, payload].concat()
}

/// Cancels the given number of calls as soon as they are made, and makes one more. Returns when
/// that one is answered.
async fn answered_after(cancelled: usize) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listeners = Listeners::bind(&[Address::Unix(path.clone())])
        .await
        .unwrap();
    let connections = Connections::new(
        listeners,
        ConnectionLimits {
            connections: 1,
            for_each_address: 1,
        },
    );
    let mut client = UnixStream::connect(&path).unwrap();
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(SETTINGS, 0, 0, &[]));
    for call in 0..cancelled {
        sent.extend(frame(HEADERS, 4, 2 * call + 1, &HEAD));
        sent.extend(frame(RST_STREAM, 0, 2 * call + 1, &[0, 0, 0, 8]));
    }
    let last = 2 * cancelled + 1;
    sent.extend(frame(HEADERS, END_STREAM_AND_HEADERS, last, &HEAD));
    let accepted = connections.accept().await.open(Arc::default()).unwrap();
    let incoming: Incoming = Box::pin(stream::iter([Ok(accepted)]).chain(stream::pending()));
    let answer = |_| ready(Response::new(Nothing));
    let serving = tokio::spawn(serve(incoming, memory(), answer));
    let answered = tokio::task::spawn_blocking(move || {
        client.write_all(&sent).unwrap();
        loop {
            let mut header = [0; 9];
            client.read_exact(&mut header).unwrap();
            let [_, high, low, kind, _, _, _, _, _] = header;
            let mut payload = vec![0; usize::from(high) << 8 | usize::from(low)];
            client.read_exact(&mut payload).unwrap();
            match kind {
                HEADERS => break,
                GOAWAY => panic!("closed: {payload:?}"),
                _ => {}
            }
        }
    });
    answered.await.unwrap();
    serving.abort();
}

#[tokio::test]
async fn cancelled_calls_end_no_other_call() {
    for cancelled in [1, MAX_STREAMS as usize, MAX_CANCELLED, 4 * MAX_CANCELLED] {
        answered_after(cancelled).await;
    }
}

fn counts(read_frames: u64, written_bytes: u64, is_blocked: bool) -> Counts {
    Counts {
        read_frames,
        written_bytes,
        is_blocked,
        ..Counts::default()
    }
}

#[test]
fn a_client_that_says_nothing_is_asked_whether_it_is_there() {
    use Verdict::{Alive, Gone, Silent};

    let mut quiet = Quiet::default();
    let ticks = [
        (1, Alive),
        (1, Alive),
        (1, Alive),
        (1, Silent),
        // It has answered.
        (2, Alive),
        (2, Alive),
        (2, Alive),
        (2, Silent),
        (2, Gone),
    ];
    for (number, (frames, expected)) in ticks.into_iter().enumerate() {
        assert_eq!(quiet.tick(counts(frames, 0, false)), expected, "{number}");
    }
}

#[test]
fn a_client_that_reads_nothing_is_left() {
    let mut quiet = Quiet::default();
    // Bytes are sent, or no data waits.
    for (frames, (written, is_blocked)) in [(5, true), (6, true), (6, false), (6, true), (6, true)]
        .into_iter()
        .enumerate()
    {
        let verdict = quiet.tick(counts(frames as u64, written, is_blocked));
        assert_eq!(verdict, Verdict::Alive);
    }
    assert_eq!(quiet.tick(counts(9, 6, true)), Verdict::Gone);
}

/// Sends bytes, and reads until the connection is closed. Returns the reason of the GOAWAY frame.
async fn closed_after(sent: Vec<u8>, memory: ClientMemory) -> Option<u8> {
    let (mut client, server) = tokio::io::duplex(1 << 20);
    let answer = |_| ready(Response::new(Nothing));
    let stopping = Arc::new(AtomicBool::new(false));
    let serving = serve_one(server, memory.connection(), answer, stopping);
    let talking = async {
        // It fails if the connection is closed meanwhile.
        let _ = client.write_all(&sent).await;
        let mut reason = None;
        let mut header = [0; 9];
        while client.read_exact(&mut header).await.is_ok() {
            let [_, high, low, kind, ..] = header;
            let mut payload = vec![0; usize::from(high) << 8 | usize::from(low)];
            client.read_exact(&mut payload).await.unwrap();
            if kind == GOAWAY {
                reason = payload.get(7).copied();
            }
        }
        reason
    };
    let ((), reason) = tokio::join!(serving, talking);
    reason
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PING: u8 = 6;
const UNKNOWN: u8 = 99;

#[tokio::test(start_paused = true)]
async fn a_connection_that_does_not_begin_is_closed() {
    for sent in [&b""[..], &PREFACE[..10]] {
        let begun = tokio::time::Instant::now();
        assert_eq!(closed_after(sent.to_vec(), memory()).await, None);
        assert_eq!(begun.elapsed().as_secs(), PREFACE_TIMEOUT.as_secs());
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_falls_silent_is_closed() {
    let begun = tokio::time::Instant::now();
    // Half a frame is no frame.
    let sent = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &[0, 0, 8]].concat();
    let reason = closed_after(sent, memory()).await;
    assert_eq!(reason, Some(ENHANCE_YOUR_CALM));
    let expected = TICK * (2 + SILENT_TICKS);
    assert_eq!(begun.elapsed().as_secs(), expected.as_secs());
}

#[tokio::test(start_paused = true)]
async fn floods_close_their_connection() {
    for kind in [PING, UNKNOWN] {
        let flood = frame(kind, 0, 0, &[0; 8]).repeat(100_000);
        let sent = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &flood].concat();
        let begun = tokio::time::Instant::now();
        closed_after(sent, memory()).await;
        assert!(begun.elapsed() < TICK, "kind {kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_holds_too_much_is_closed() {
    let memory = memory();
    let other = memory.connection();
    let sent = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let closing = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        // Each charge closes the largest connection that is not closing yet: first `other`, and
        // then the connection that is served.
        other.charge_always(2 * ClientMemory::LEAST_BYTES);
        let _held = other.charge_always(4 * ClientMemory::LEAST_BYTES);
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    let begun = tokio::time::Instant::now();
    let (reason, ()) = tokio::join!(closed_after(sent, memory.clone()), closing);
    assert_eq!(reason, Some(ENHANCE_YOUR_CALM));
    assert!(begun.elapsed() < TICK);
}

#[tokio::test(start_paused = true)]
async fn the_header_table_of_a_connection_is_charged() {
    // Puts ":path" into the table, between frames that each fill a part of a buffer.
    let filler = frame(UNKNOWN, 0, 0, &[0; 16_000]).repeat(5);
    let call = |call: usize| {
        let path = [&HEAD[..2], &[0x44, 2, b'/', b'a' + call as u8]].concat();
        let head = frame(HEADERS, END_STREAM_AND_HEADERS, 2 * call + 1, &path);
        [head, filler.clone()].concat()
    };
    let calls: Vec<u8> = (0..10).flat_map(call).collect();
    let sent = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &calls].concat();
    let memory = memory();
    let held = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        memory.held_bytes()
    };
    let (_, held_bytes) = tokio::join!(closed_after(sent, memory.clone()), held);
    assert!(held_bytes > 400 << 10, "{held_bytes}");
    assert_eq!(memory.held_bytes(), 0);
}
