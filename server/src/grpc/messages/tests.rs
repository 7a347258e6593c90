//! What comes out of the bytes of a call; and who waits for room, who gives it back, and when.

use futures_util::{FutureExt, future::poll_fn};
use http_body::Frame;
use tokio::{sync::mpsc, task::unconstrained};
use tonic::Code;

use super::*;

const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// What a client sends, as a body.
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

fn call(room: &Room) -> (Client, Messages<Sent>) {
    let (client, sent) = mpsc::unbounded_channel();
    let messages = Messages::new(Sent(sent), &Arc::new(room.clone()));
    (client, messages)
}

/// What precedes a message of `bytes`.
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

/// The next message, if it is there.
fn next(messages: &mut Messages<Sent>) -> Option<Bytes> {
    // Whatever the test has had of tokio in this turn.
    let next = unconstrained(messages.next()).now_or_never()?;
    Some(next.unwrap().expect("a message"))
}

/// Its length.
fn arrived(messages: &mut Messages<Sent>) -> Option<usize> {
    next(messages).map(|message| message.len())
}

async fn code<T>(result: impl Future<Output = Result<T, Status>>) -> Code {
    result.await.err().expect("an error").code()
}

/// Whatever the pieces in which the bytes come.
#[tokio::test]
async fn messages_are_told_apart() {
    let lengths = [3, 0, 300, 1];
    let sent: Vec<u8> = lengths.into_iter().flat_map(message).collect();
    for piece in 1..=sent.len() {
        let (client, mut messages) = call(&Room::new(MAX_MESSAGE_BYTES));
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
    let (client, mut messages) = call(&Room::new(MAX_MESSAGE_BYTES));
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
            let (client, mut messages) = call(&Room::new(MAX_MESSAGE_BYTES));
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
        let (client, messages) = call(&Room::new(MAX_MESSAGE_BYTES));
        for bytes in sent {
            client.send(Bytes::copy_from_slice(bytes)).unwrap();
        }
        let mut only = Only::new(messages);
        let mut next = Box::pin(async move { poll_fn(|cx| only.poll(cx)).await });
        // Before its end it may be one of two.
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

#[tokio::test]
async fn a_large_message_waits_until_another_is_answered() {
    let room = Room::of(1 << 20, MAX_MESSAGE_BYTES);
    let (first_client, first) = call(&room);
    let (second_client, mut second) = call(&room);
    send(&first_client, 700_000);
    send(&second_client, 700_000);
    drop(first_client);
    let mut first = Only::new(first);
    let message = poll_fn(|cx| first.poll(cx)).await.unwrap();
    assert_eq!(message.len(), 700_000);

    assert_eq!(arrived(&mut second), None, "no room");
    drop(first);
    assert_eq!(arrived(&mut second), Some(700_000));
}

#[tokio::test]
async fn a_stream_gives_back_what_it_no_longer_needs() {
    let room = Room::of(1 << 20, MAX_MESSAGE_BYTES);
    let (client, mut stream) = call(&room);
    send(&client, 700_000);
    assert_eq!(arrived(&mut stream), Some(700_000));
    let (second_client, mut second) = call(&room);
    send(&second_client, 700_000);
    assert_eq!(arrived(&mut second), None, "no room");
    // It waits for its next message: so the one before has been answered.
    assert_eq!(arrived(&mut stream), None);
    assert_eq!(arrived(&mut second), Some(700_000));

    // Nor does it hold the room of one message while it waits for that of the next.
    assert_eq!(arrived(&mut second), None);
    send(&client, 700_000);
    send(&client, 700_000);
    assert_eq!(arrived(&mut stream), Some(700_000));
    assert_eq!(arrived(&mut stream), Some(700_000), "waits for itself");
}

#[tokio::test]
async fn small_messages_never_wait_and_those_past_the_room_do_not_wait_for_ever() {
    let room = Room::of(1 << 20, MAX_MESSAGE_BYTES);
    let (first_client, mut first) = call(&room);
    send(&first_client, 5 << 20);
    assert_eq!(arrived(&mut first), Some(5 << 20));
    let (second_client, mut second) = call(&room);
    send(&second_client, SMALL_BYTES);
    assert_eq!(arrived(&mut second), Some(SMALL_BYTES));
}

#[tokio::test]
async fn no_more_than_some_may_wait() {
    let room = Room::of(1 << 20, MAX_MESSAGE_BYTES);
    let (first_client, mut first) = call(&room);
    send(&first_client, 1 << 20);
    assert_eq!(arrived(&mut first), Some(1 << 20));
    let mut waiting = Vec::new();
    for _ in 0..room::MAX_WAITING {
        let (client, mut next) = call(&room);
        begin(&client, 1 << 20);
        assert_eq!(arrived(&mut next), None);
        waiting.push((client, next));
    }
    let (client, mut last) = call(&room);
    begin(&client, 1 << 20);
    assert_eq!(code(last.next()).await, Code::ResourceExhausted);
    // One that goes away makes room for another to wait.
    waiting.pop();
    let (client, mut last) = call(&room);
    begin(&client, 1 << 20);
    assert_eq!(arrived(&mut last), None);
}

/// The time of a large message is over when it has arrived, and its room is given back.
#[tokio::test(start_paused = true)]
async fn a_small_message_has_nothing_of_the_large_one_before() {
    let room = Room::of(1 << 20, MAX_MESSAGE_BYTES);
    let (client, mut stream) = call(&room);
    send(&client, 700_000);
    begin(&client, 100);
    assert_eq!(arrived(&mut stream), Some(700_000));
    assert!(!room.is_free());
    let next = tokio::time::timeout(2 * ARRIVAL_TIMEOUT, stream.next()).await;
    assert!(next.is_err(), "{next:?}");
    assert!(room.is_free());
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_come_loses_its_room() {
    let room = Room::of(1 << 20, MAX_MESSAGE_BYTES);
    let (client, mut slow) = call(&room);
    begin(&client, 700_000);
    assert_eq!(code(slow.next()).await, Code::DeadlineExceeded);
    drop((slow, client));
    assert!(room.is_free());
}

/// Nor does one whose request goes on behind it keep its room.
#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_end_loses_its_room() {
    let room = Room::of(1 << 20, MAX_MESSAGE_BYTES);
    let (client, messages) = call(&room);
    send(&client, 700_000);
    let mut only = Only::new(messages);
    assert_eq!(
        code(poll_fn(|cx| only.poll(cx))).await,
        Code::DeadlineExceeded
    );
    drop((only, client));
    assert!(room.is_free());
}

/// The memory of a message is what its room stands for: nothing of it is left when that is free.
#[tokio::test]
async fn what_has_been_dealt_with_takes_no_memory() {
    let room = Room::of(1 << 20, MAX_MESSAGE_BYTES);
    let (client, mut stream) = call(&room);
    send(&client, 700_000);
    assert_eq!(arrived(&mut stream), Some(700_000));
    assert!(!room.is_free());
    stream.dealt_with();
    assert!(room.is_free());
    send(&client, 7);
    assert_eq!(arrived(&mut stream), Some(7));
    begin(&client, 7);
    assert_eq!(arrived(&mut stream), None);
    assert!(stream.begun.capacity() < SMALL_BYTES);
}
