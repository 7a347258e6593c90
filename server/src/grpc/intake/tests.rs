//! Who waits for room, who gives it back, and when.

use futures_util::FutureExt;
use tokio::sync::mpsc;

use super::*;

/// What a client sends, as a body.
struct Sent(mpsc::UnboundedReceiver<Bytes>);

impl HttpBody for Sent {
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

fn call(room: &Room) -> (mpsc::UnboundedSender<Bytes>, Intake, Share) {
    let (client, sent) = mpsc::unbounded_channel();
    let share = Share::default();
    let intake = Intake::new(
        Body::new(Sent(sent)),
        &Arc::new(room.clone()),
        share.clone(),
    );
    (client, intake, share)
}

/// Sends a message of `bytes` in two frames: its header with a first byte, and the rest.
fn send(client: &mpsc::UnboundedSender<Bytes>, bytes: usize) {
    begin(client, bytes);
    client.send(vec![1; bytes - 1].into()).unwrap();
}

fn begin(client: &mpsc::UnboundedSender<Bytes>, bytes: usize) {
    let mut first = vec![0];
    first.extend((bytes as u32).to_be_bytes());
    first.push(1);
    client.send(first.into()).unwrap();
}

async fn frame(intake: &mut Intake) -> Option<Result<usize, Status>> {
    let next = std::future::poll_fn(|cx| Pin::new(&mut *intake).poll_frame(cx));
    let length = |frame: Frame<Bytes>| frame.into_data().unwrap().len();
    next.await.map(|frame| frame.map(length))
}

async fn read(intake: &mut Intake, frames: usize) -> usize {
    let mut length = 0;
    for _ in 0..frames {
        length += frame(intake).await.unwrap().unwrap();
    }
    length
}

#[tokio::test]
async fn a_large_message_waits_until_another_is_answered() {
    let room = Room::of(1 << 20);
    let (first_client, mut first, first_share) = call(&room);
    let (second_client, mut second, _second_share) = call(&room);
    send(&first_client, 700_000);
    send(&second_client, 700_000);
    drop(first_client);
    assert_eq!(read(&mut first, 2).await, 700_005);
    // As tonic reads a single call: to the end, and then lets the body go.
    assert!(frame(&mut first).await.is_none());
    drop(first);

    assert_eq!(read(&mut second, 1).await, 6);
    assert!(frame(&mut second).now_or_never().is_none(), "no room");
    drop(first_share);
    assert_eq!(frame(&mut second).await.unwrap().unwrap(), 699_999);
}

#[tokio::test]
async fn a_stream_gives_back_what_it_no_longer_needs() {
    let room = Room::of(1 << 20);
    let (client, mut stream, _share) = call(&room);
    send(&client, 700_000);
    read(&mut stream, 2).await;
    let (second_client, mut second, _second_share) = call(&room);
    send(&second_client, 700_000);
    read(&mut second, 1).await;
    assert!(frame(&mut second).now_or_never().is_none(), "no room");
    // It waits for its next message: so the one before has been answered.
    assert!(frame(&mut stream).now_or_never().is_none());
    assert_eq!(read(&mut second, 1).await, 699_999);

    // Nor does it hold the room of one message while it waits for that of the next.
    assert!(frame(&mut second).now_or_never().is_none());
    send(&client, 700_000);
    send(&client, 700_000);
    let both = timeout(read(&mut stream, 4)).await;
    assert_eq!(both, 2 * 700_005);
}

async fn timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(5), future)
        .await
        .expect("waits for itself")
}

#[tokio::test]
async fn small_messages_never_wait_and_those_past_the_room_do_not_wait_for_ever() {
    let room = Room::of(1 << 20);
    let (first_client, mut first, _first_share) = call(&room);
    send(&first_client, 5 << 20);
    timeout(read(&mut first, 2)).await;
    let (second_client, mut second, _second_share) = call(&room);
    send(&second_client, SMALL_BYTES);
    assert_eq!(timeout(read(&mut second, 2)).await, SMALL_BYTES + 5);
}

#[tokio::test]
async fn no_more_than_some_may_wait() {
    let room = Room::of(1 << 20);
    let (first_client, mut first, _first_share) = call(&room);
    send(&first_client, 1 << 20);
    read(&mut first, 2).await;
    let mut waiting = Vec::new();
    for _ in 0..MAX_WAITING {
        let (client, mut next, share) = call(&room);
        begin(&client, 1 << 20);
        read(&mut next, 1).await;
        assert!(frame(&mut next).now_or_never().is_none());
        waiting.push((client, next, share));
    }
    let (client, mut last, _share) = call(&room);
    begin(&client, 1 << 20);
    read(&mut last, 1).await;
    let status = frame(&mut last).now_or_never().expect("it waits").unwrap();
    assert_eq!(status.unwrap_err().code(), tonic::Code::ResourceExhausted);
    // One that goes away makes room for another to wait.
    waiting.pop();
    let (client, mut last, _share) = call(&room);
    begin(&client, 1 << 20);
    read(&mut last, 1).await;
    assert!(frame(&mut last).now_or_never().is_none());
}

/// The time of a large message is over when it has arrived, and its room is given back.
#[tokio::test(start_paused = true)]
async fn a_small_message_has_nothing_of_the_large_one_before() {
    let room = Room::of(1 << 20);
    let (client, mut stream, _share) = call(&room);
    send(&client, 700_000);
    begin(&client, 100);
    assert_eq!(read(&mut stream, 3).await, 700_005 + 6);
    let next = tokio::time::timeout(2 * ARRIVAL_TIMEOUT, frame(&mut stream)).await;
    assert!(next.is_err(), "{next:?}");
    assert_eq!(room.units.available_permits(), 1 << 10);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_come_loses_its_room() {
    let room = Room::of(1 << 20);
    let (client, mut slow, share) = call(&room);
    begin(&client, 700_000);
    read(&mut slow, 1).await;
    let status = frame(&mut slow).await.unwrap().unwrap_err();
    assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
    drop((slow, share));
    assert_eq!(room.units.available_permits(), 1 << 10);
}
