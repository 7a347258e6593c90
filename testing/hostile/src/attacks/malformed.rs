//! Requests that no correct client sends. The error is in the message, the headers or the frames,
//! or before all of them.

use std::time::Duration;

use tokio::time::timeout;

use super::{Attack, nothing};
use crate::raw::{self, Raw, content_type, field, frame, head, message, path};

/// The number of connections that send at once.
const CONNECTIONS: usize = 4;
/// The time after which a connection is closed that the server leaves open.
const WAIT: Duration = Duration::from_millis(5);

const METHODS: [&str; 10] = [
    "Query",
    "Add",
    "QueryAndAdd",
    "Store",
    "QueryBatch",
    "AddBatch",
    "QueryAndAddBatch",
    "QueryAndAddStream",
    "Remove",
    "RemoveBatch",
];

pub const MALFORMED: Attack = Attack {
    name: "malformed requests",
    prepare: nothing,
    run: |target| {
        Box::pin(async move {
            let requests = requests();
            let count = requests.len();
            let act = move |target: super::Target| {
                let requests = requests.clone();
                async move {
                    for request in &requests {
                        let connected = Raw::with(&target.address, request).await;
                        // Fails if the server has closed the connection.
                        if let Ok(mut connection) = connected {
                            let _ = timeout(WAIT, connection.drain()).await;
                        }
                    }
                    Ok(())
                }
            };
            let turns = target.repeat(CONNECTIONS, act).await?;
            Ok(format!("{count} requests, {turns}"))
        })
    },
    engine_bytes: 0,
};

/// Returns all wrong requests, each as the bytes of one connection.
fn requests() -> Vec<Vec<u8>> {
    let mut requests = bytes_before_frames();
    let settings = frame(raw::SETTINGS, 0, 0, &[]);
    let begin = [raw::PREFACE, &settings].concat();
    let frames = [messages(), headers(), frames()].concat();
    requests.extend(
        frames
            .into_iter()
            .map(|frames| [&begin[..], &frames].concat()),
    );
    requests
}

/// Returns bytes that are not HTTP/2 or not gRPC.
fn bytes_before_frames() -> Vec<Vec<u8>> {
    let settings_of = |id: u8, value: u32| {
        let [a, b, c, d] = value.to_be_bytes();
        let settings = frame(raw::SETTINGS, 0, 0, &[0, id, a, b, c, d]);
        [raw::PREFACE, &settings].concat()
    };
    vec![
        b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(),
        b"POST /seenset.v1.DedupService/Add HTTP/1.1\r\ncontent-length: 99\r\n\r\nx".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
        b"*1\r\n$4\r\nPING\r\n".to_vec(),
        vec![0; 100],
        vec![0xff; 1000],
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n".to_vec(),
        b"PRI * HTTP".to_vec(),
        [raw::PREFACE, &frame(raw::PING, 0, 0, &[0; 8])].concat(),
        [raw::PREFACE, raw::PREFACE].concat(),
        // Settings with forbidden values.
        settings_of(2, 2),
        settings_of(4, 1 << 31),
        settings_of(5, 1),
        settings_of(5, 1 << 24),
    ]
}

/// Returns correct headers with wrong bodies.
fn messages() -> Vec<Vec<u8>> {
    let bodies = [
        // The head of a message that ends too soon, has an unknown flag, claims to be compressed,
        // or announces more bytes than follow.
        vec![0, 0, 0],
        vec![2, 0, 0, 0, 0],
        vec![1, 0, 0, 0, 1, 0],
        vec![0, 0, 0, 0, 100, 1],
        vec![0, 0xff, 0xff, 0xff, 0xff],
        // A tag of zero, an unknown wire type, a group, a varint and a field without end.
        message(&[0, 0]),
        message(&[0x0f, 0]),
        message(&[0x0b]),
        message(&[0xff; 12]),
        message(&[0x12, 200, b'a']),
        // A text that is not UTF-8, and a field of another type.
        message(&[0x12, 2, 0xc3, 0x28]),
        message(&[0x0d, 1, 2, 3, 4]),
        // Two messages, where one is expected.
        [message(&[]), message(&[])].concat(),
    ];
    let call = |method: &str, body: &[u8]| {
        let head = head(&format!("DedupService/{method}"));
        let head = frame(raw::HEADERS, raw::END_HEADERS, 1, &head);
        [head, frame(raw::DATA, raw::END_STREAM, 1, body)].concat()
    };
    let of_all = METHODS
        .iter()
        .flat_map(|method| bodies.iter().map(move |body| call(method, body)));
    of_all.collect()
}

/// Returns wrong headers.
fn headers() -> Vec<Vec<u8>> {
    let add = "/seenset.v1.DedupService/Add";
    let grpc = || content_type("application/grpc");
    let (post, http) = (&[0x83][..], &[0x86][..]);
    let with = |more: &[u8]| [&head("DedupService/Add"), more].concat();
    let heads = [
        // A method, a path or a content type that does not exist or is missing.
        [&[0x82], http, &path(add), &grpc()].concat(),
        [post, http, &grpc()].concat(),
        [http, &path(add), &grpc()[..]].concat(),
        [post, http, &path(""), &grpc()].concat(),
        [post, http, &path("/"), &grpc()].concat(),
        [
            post,
            http,
            &path("/seenset.v1.DedupService/Nothing"),
            &grpc(),
        ]
        .concat(),
        [post, http, &path("/seenset.v2.DedupService/Add"), &grpc()].concat(),
        [post, http, &path("seenset.v1.DedupService/Add"), &grpc()].concat(),
        [post, http, &path(&add.repeat(4)), &grpc()].concat(),
        [post, http, &path(add)].concat(),
        [post, http, &path(add), &content_type("text/plain")].concat(),
        [
            post,
            http,
            &path(add),
            &content_type("application/grpc-web"),
        ]
        .concat(),
        // Pseudo headers that are repeated, come after others, or are unknown.
        [post, post, http, &path(add), &grpc()].concat(),
        [post, http, &path(add), &path(add), &grpc()].concat(),
        [post, http, &grpc(), &path(add)].concat(),
        with(&field(":unknown", "x")),
        with(&[0x88]),
        // Fields that HTTP/2 forbids, and invalid names and values.
        with(&field("connection", "close")),
        with(&field("transfer-encoding", "chunked")),
        with(&field("te", "gzip")),
        with(&field("Upper-Case", "x")),
        with(&field("", "x")),
        with(&field("a b", "x")),
        with(&field("nul", "a\0b")),
        with(&field("line", "a\r\nb: c")),
        with(&field("content-length", "-1")),
        with(&field("content-length", "1000")),
        with(&field("grpc-encoding", "snappy")),
        with(&field("grpc-timeout", "soon")),
        with(&field("grpc-timeout", "123456789S")),
        with(&field("grpc-timeout", "-1S")),
        with(&field("grpc-timeout", "")),
        with(&field("key-bin", "not base64!")),
        // Wrong encodings of fields: an unknown table entry, a number without end, a text longer
        // than the block, a table larger than allowed.
        vec![0xff, 0xff, 0x7f],
        vec![0xff; 20],
        vec![0x00, 0x7f],
        vec![0x3f, 0xff, 0xff, 0xff, 0x7f],
        vec![0x80],
        Vec::new(),
    ];
    let flags = raw::END_HEADERS | raw::END_STREAM;
    heads
        .iter()
        .map(|head| frame(raw::HEADERS, flags, 1, head))
        .collect()
}

/// Returns wrong frames.
fn frames() -> Vec<Vec<u8>> {
    let flags = raw::END_HEADERS;
    let call = |stream: u32| frame(raw::HEADERS, flags, stream, &head("DedupService/Add"));
    let [a, b, c, d] = (1_u32 << 31).to_be_bytes();
    vec![
        // Frames on a stream where they are forbidden.
        frame(raw::DATA, 0, 0, &[0]),
        frame(raw::DATA, 0, 1, &[0]),
        frame(raw::HEADERS, flags, 0, &head("DedupService/Add")),
        call(2),
        [call(5), call(3)].concat(),
        [call(1), call(1)].concat(),
        frame(raw::RST_STREAM, 0, 0, &[0; 4]),
        frame(raw::RST_STREAM, 0, 1, &[0; 4]),
        frame(raw::SETTINGS, 0, 1, &[]),
        frame(raw::PING, 0, 1, &[0; 8]),
        frame(raw::GOAWAY, 0, 1, &[0; 8]),
        frame(raw::CONTINUATION, flags, 1, &[]),
        [
            call(1),
            frame(raw::DATA, raw::END_STREAM, 1, &[]),
            frame(raw::DATA, 0, 1, &[0]),
        ]
        .concat(),
        // Frames with a forbidden length.
        frame(raw::SETTINGS, 0, 0, &[0; 5]),
        frame(raw::SETTINGS, raw::ACK, 0, &[0; 6]),
        frame(raw::PING, 0, 0, &[0; 7]),
        frame(raw::PRIORITY, 0, 1, &[0; 4]),
        frame(raw::RST_STREAM, 0, 1, &[0; 3]),
        frame(raw::WINDOW_UPDATE, 0, 0, &[0; 3]),
        frame(raw::GOAWAY, 0, 0, &[0; 3]),
        [call(1), frame(raw::DATA, 0, 1, &vec![0; 1 << 20])].concat(),
        // Frames with a forbidden value.
        frame(raw::WINDOW_UPDATE, 0, 0, &[0; 4]),
        frame(raw::WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
        frame(raw::PRIORITY, 0, 1, &[0, 0, 0, 1, 0]),
        frame(raw::PUSH_PROMISE, flags, 1, &[a, b, c, d]),
        [call(1), frame(raw::DATA, raw::PADDED, 1, &[9, 0])].concat(),
        frame(raw::HEADERS, flags | raw::PADDED, 1, &[200, 0x83]),
        // Headers that another frame interrupts.
        [
            frame(raw::HEADERS, 0, 1, &[0x83]),
            frame(raw::PING, 0, 0, &[0; 8]),
        ]
        .concat(),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::requests;

    #[test]
    fn there_are_many() {
        let requests = requests();
        assert!(requests.len() >= 150, "{}", requests.len());
        assert_eq!(
            requests.iter().collect::<BTreeSet<_>>().len(),
            requests.len()
        );
    }
}
