//! Tests of the messages in the bytes of a call, of the memory that they take, and of their time
//! limit.

use futures_util::{FutureExt, future::poll_fn};
use http_body::Frame;
use tokio::{sync::mpsc, task::unconstrained};
use tonic::Code;

use super::*;
use crate::grpc::{testing, wire::memory::ClientMemory};

const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// The data that a client sends, as a body.
struct Sent(mpsc::UnboundedReceiver<Bytes>);

impl Body for Sent {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.0
            .poll_recv(cx)
            .map(|data| Some(Ok(Frame::data(data?))))
    }
}

type Client = mpsc::UnboundedSender<Bytes>;

/// Returns a call that is alone on its connection.
fn call() -> (Client, Messages<Sent>) {
    call_of(&testing::connection())
}

/// Returns a call of a connection.
fn call_of(connection: &Arc<ConnectionMemory>) -> (Client, Messages<Sent>) {
    let (client, sent) = mpsc::unbounded_channel();
    let messages = Messages::new(Sent(sent), connection, MAX_MESSAGE_BYTES);
    (client, messages.unwrap())
}

/// Returns the header of a message of `bytes`.
fn header(bytes: usize) -> impl Iterator<Item = u8> {
    [0].into_iter().chain((bytes as u32).to_be_bytes())
}

fn message(bytes: usize) -> Vec<u8> {
    header(bytes).chain((0..bytes).map(|i| i as u8)).collect()
}

/// Sends a message of `bytes` in two frames: its header with a first byte, and the rest.
fn send(client: &Client, bytes: usize) {
    begin(client, bytes);
    client.send(vec![1; bytes - 1].into()).unwrap();
}

fn begin(client: &Client, bytes: usize) {
    client.send(header(bytes).chain([1]).collect()).unwrap();
}

/// Returns the next message, if it has arrived.
fn next(messages: &mut Messages<Sent>) -> Option<Bytes> {
    // `unconstrained` ignores how much of tokio's budget the test has used in this turn.
    let next = unconstrained(messages.next()).now_or_never()?;
    Some(next.unwrap().expect("a message"))
}

/// Returns the length of the next message, if it has arrived.
fn arrived(messages: &mut Messages<Sent>) -> Option<usize> {
    next(messages).map(|message| message.len())
}

async fn code<T>(result: impl Future<Output = Result<T, Status>>) -> Code {
    result.await.err().expect("an error").code()
}

/// The messages are the same, whatever the pieces in which the bytes arrive.
#[tokio::test]
async fn messages_are_told_apart() {
    let lengths = [3, 0, 300, 1];
    let sent: Vec<u8> = lengths.into_iter().flat_map(message).collect();
    for piece in 1..=sent.len() {
        let (client, mut messages) = call();
        for bytes in sent.chunks(piece) {
            client.send(Bytes::copy_from_slice(bytes)).unwrap();
            client.send(Bytes::new()).unwrap();
        }
        for length in lengths {
            assert_eq!(
                next(&mut messages).unwrap(),
                message(length)[HEADER_BYTES..]
            );
        }
        assert_eq!(arrived(&mut messages), None);
        drop(client);
        assert!(messages.next().await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_message_in_one_piece_is_not_copied() {
    let (client, mut messages) = call();
    let sent = Bytes::from([message(7), message(9)].concat());
    client.send(sent.clone()).unwrap();
    for place in [HEADER_BYTES, 2 * HEADER_BYTES + 7] {
        let next = messages.next().await.unwrap().unwrap();
        assert_eq!(next.as_ptr(), sent[place..].as_ptr());
    }
}

#[tokio::test]
async fn what_is_no_message_is_refused() {
    for (sent, expected) in [
        (message(7)[..11].to_vec(), Code::InvalidArgument),
        (message(7)[..3].to_vec(), Code::InvalidArgument),
        (vec![1, 0, 0, 0, 0], Code::Internal),
        (
            header(MAX_MESSAGE_BYTES + 1).collect(),
            Code::ResourceExhausted,
        ),
    ] {
        for piece in [1, sent.len()] {
            let (client, mut messages) = call();
            for bytes in sent.chunks(piece) {
                client.send(Bytes::copy_from_slice(bytes)).unwrap();
            }
            drop(client);
            assert_eq!(code(messages.next()).await, expected, "{sent:?}");
        }
    }
}

#[tokio::test]
async fn the_only_message_is_the_only_one() {
    let only = |sent: &[Vec<u8>]| {
        let (client, messages) = call();
        for bytes in sent {
            client.send(Bytes::copy_from_slice(bytes)).unwrap();
        }
        let mut only = Only::new(messages);
        let mut next = Box::pin(async move { poll_fn(|cx| only.poll(cx)).await });
        // Before the end of the request, the message may be one of two.
        let early = next.as_mut().now_or_never();
        drop(client);
        early.unwrap_or_else(|| next.now_or_never().unwrap())
    };
    assert_eq!(only(&[message(7)]).unwrap(), message(7)[HEADER_BYTES..]);
    assert!(only(&[message(0), vec![]]).unwrap().is_empty());
    for sent in [
        vec![],
        vec![message(7), message(7)],
        vec![[message(7), message(7)].concat()],
        vec![message(7), vec![0]],
    ] {
        let status = only(&sent).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{sent:?}");
    }
}

#[test]
fn compressed_messages_are_refused() {
    let check = |value: Option<&'static str>| {
        let value = value.map(|value| (ENCODING, value.parse().unwrap()));
        check_encoding(&value.into_iter().collect())
    };
    check(None).unwrap();
    check(Some("identity")).unwrap();
    let status = check(Some("gzip")).unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert_eq!(status.metadata().get(ACCEPTED).unwrap(), IDENTITY);
}

/// Returns the bytes that the calls of a connection hold, without those of the connection itself.
fn held(connection: &ConnectionMemory) -> usize {
    connection.held_bytes() - testing::connection().held_bytes()
}

/// No memory is taken for a length that is only declared.
#[tokio::test]
async fn memory_is_taken_for_what_has_arrived() {
    let connection = testing::connection();
    let (client, mut messages) = call_of(&connection);
    assert_eq!(held(&connection), CALL_BYTES);
    client.send(header(MAX_MESSAGE_BYTES).collect()).unwrap();
    assert_eq!(arrived(&mut messages), None);
    assert!(held(&connection) <= CALL_BYTES + LEAST_BUFFER_BYTES);
    let mut sent = 0;
    while sent < MAX_MESSAGE_BYTES {
        let piece = 50_000.min(MAX_MESSAGE_BYTES - sent);
        client.send(vec![1; piece].into()).unwrap();
        sent += piece;
        let length = arrived(&mut messages);
        assert_eq!(length, (sent == MAX_MESSAGE_BYTES).then_some(sent));
        // The last frame can be charged together with the buffer that it was copied to.
        let most = (2 * (sent + HEADER_BYTES)).min(HEADER_BYTES + MAX_MESSAGE_BYTES) + piece;
        let taken = held(&connection) - CALL_BYTES;
        assert!((sent..=most).contains(&taken), "{taken} for {sent}");
    }
    messages.dealt_with();
    assert_eq!(held(&connection), CALL_BYTES);
    drop(messages);
    assert_eq!(held(&connection), 0);
}

/// A frame is held as long as a part of it is not parsed.
#[tokio::test]
async fn a_frame_of_many_messages_is_charged_until_the_last_is_dealt_with() {
    let connection = testing::connection();
    let (client, mut messages) = call_of(&connection);
    let sent: Vec<u8> = (0..10).flat_map(|_| message(1000)).collect();
    let frame_bytes = sent.len();
    client.send(sent.into()).unwrap();
    for _ in 0..10 {
        assert_eq!(arrived(&mut messages), Some(1000));
        assert_eq!(held(&connection), CALL_BYTES + frame_bytes);
    }
    messages.dealt_with();
    assert_eq!(held(&connection), CALL_BYTES);
}

#[tokio::test]
async fn a_connection_that_holds_too_much_is_refused_more() {
    let connection = testing::connection();
    let mut calls = Vec::new();
    let refused = loop {
        let (client, mut messages) = call_of(&connection);
        send(&client, MAX_MESSAGE_BYTES);
        match unconstrained(messages.next()).now_or_never().unwrap() {
            Ok(message) => assert_eq!(message.unwrap().len(), MAX_MESSAGE_BYTES),
            Err(status) => break status,
        }
        calls.push((client, messages));
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.metadata().get("seenset-applied").unwrap(), "no");
    assert!(refused.metadata().contains_key("grpc-retry-pushback-ms"));
    assert_eq!(
        calls.len(),
        ClientMemory::LEAST_BYTES / MAX_MESSAGE_BYTES - 1
    );
    // A small message is still taken, and a large one again when there is room.
    let (client, mut small) = call_of(&connection);
    send(&client, 100_000);
    assert_eq!(arrived(&mut small), Some(100_000));
    calls.clear();
    let (client, mut large) = call_of(&connection);
    send(&client, MAX_MESSAGE_BYTES);
    assert_eq!(arrived(&mut large), Some(MAX_MESSAGE_BYTES));
}

/// Returns the seconds that a call waits for data that does not arrive.
async fn patience<T>(next: impl Future<Output = Result<T, Status>>) -> u64 {
    let begun = tokio::time::Instant::now();
    let late = next.await.err().expect("an error");
    assert_eq!(late.code(), Code::Unavailable);
    assert_eq!(late.metadata().get("seenset-applied").unwrap(), "no");
    begun.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_message_that_has_begun_has_to_arrive() {
    for (length, expected) in [(100, 60), (MAX_MESSAGE_BYTES, 124)] {
        let (client, mut messages) = call();
        begin(&client, length);
        assert_eq!(patience(messages.next()).await, expected);
    }
    // A part of its header counts as a beginning.
    let (client, mut messages) = call();
    client.send(vec![0, 0].into()).unwrap();
    assert_eq!(patience(messages.next()).await, 60);
    drop(client);
}

/// A byte now and then is not enough.
#[tokio::test(start_paused = true)]
async fn a_message_that_trickles_is_late() {
    let (client, mut messages) = call();
    begin(&client, 100_000);
    let trickle = tokio::spawn(async move {
        while client.send(vec![1].into()).is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    assert_eq!(patience(messages.next()).await, 60);
    drop(messages);
    trickle.await.unwrap();
}

/// Between two messages a stream may be silent.
#[tokio::test(start_paused = true)]
async fn a_stream_waits_for_its_next_message_for_ever() {
    let (client, mut stream) = call();
    send(&client, 700_000);
    assert_eq!(arrived(&mut stream), Some(700_000));
    let next = tokio::time::timeout(Duration::from_secs(100_000), stream.next()).await;
    assert!(next.is_err(), "{next:?}");
    begin(&client, 100);
    assert_eq!(patience(stream.next()).await, 60);
    // The time in which nobody asked for it does not count.
    stream.ask_again();
    assert_eq!(patience(stream.next()).await, 60);
}

/// The only message of a call begins with the call, and ends with the request.
#[tokio::test(start_paused = true)]
async fn a_call_of_one_message_does_not_wait_for_ever() {
    for sent in [0, 1] {
        let (client, messages) = call();
        (0..sent).for_each(|_| send(&client, 700_000));
        let mut only = Only::new(messages);
        let waited = patience(poll_fn(|cx| only.poll(cx))).await;
        assert!((60..=62).contains(&waited), "{waited}");
    }
}
