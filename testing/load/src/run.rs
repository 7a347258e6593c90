//! One run of a load: the state that its callers share, and the calls of each.

use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::Rc,
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes, BytesMut};
use h2::SendStream;
use seenset_client::{Coalescing, Error};

use super::{
    answer::Answer,
    connection::Connection,
    numbers::{Batch, Numbers},
    outcome::Outcome,
    rpc::Rpc,
    template::Template,
};

/// One run of a load, shared by its callers.
pub(super) struct Run {
    pub rpc: Rpc,
    pub template: Template,
    pub numbers: Rc<RefCell<Numbers>>,
    pub begun: Instant,
    /// The time for which new calls are made.
    pub time: Duration,
    pub outcome: RefCell<Outcome>,
}

/// A batch in flight, and the time when it was sent.
type Sent = (Batch, Instant);

impl Run {
    /// Makes one call after the other.
    pub async fn call(self: Rc<Self>, connection: Connection) -> Result<(), Error> {
        let mut now = Instant::now();
        while self.goes_on(now) {
            let (batch, request) = self.request();
            let answers = self.rpc.unary(connection.clone(), request).await?;
            now = self.answered((batch, now), &answers);
        }
        Ok(())
    }

    /// Makes one call of the client crate after the other.
    pub async fn coalesced(self: Rc<Self>, client: Coalescing) -> Result<(), Error> {
        let mut key = String::new();
        let mut now = Instant::now();
        while self.goes_on(now) {
            let batch = self.numbers.borrow_mut().take();
            self.template.key(batch.first, &mut key);
            let seen = client.query_and_add(&key).await?;
            now = self.answered((batch, now), &[u8::from(seen)]);
        }
        Ok(())
    }

    /// Sends batches one after the other on a stream.
    pub async fn stream(
        self: Rc<Self>,
        connection: Connection,
        window: usize,
    ) -> Result<(), Error> {
        let (response, mut send) = self.rpc.open(connection).await?;
        let mut under_way = VecDeque::new();
        self.fill(&mut under_way, window, &mut send);
        if under_way.is_empty() {
            // The time was over before the stream began, so nothing would be answered.
            return Ok(());
        }
        let mut body = self.rpc.body(response).await?;
        let mut received = BytesMut::new();
        while !under_way.is_empty() {
            if !self.rpc.receive(&mut body, &mut received).await? {
                return Err(self.rpc.out_of_step());
            }
            while let Some(Answer { seen, bytes }) = self.rpc.read(&received)? {
                let Some(sent) = under_way.pop_front() else {
                    return Err(self.rpc.out_of_step());
                };
                self.answered(sent, seen);
                received.advance(bytes);
            }
            self.fill(&mut under_way, window, &mut send);
        }
        // If the server has already ended the stream, it has reported that.
        let _ = send.send_data(Bytes::new(), true);
        while self.rpc.receive(&mut body, &mut received).await? {}
        if received.is_empty() {
            Ok(())
        } else {
            Err(self.rpc.out_of_step())
        }
    }

    /// Sends batches until the window is full.
    fn fill(&self, under_way: &mut VecDeque<Sent>, window: usize, send: &mut SendStream<Bytes>) {
        while under_way.len() < window.max(1) {
            let now = Instant::now();
            if !self.goes_on(now) {
                break;
            }
            let (batch, request) = self.request();
            under_way.push_back((batch, now));
            // If the server takes no more data, its answer says why.
            let _ = send.send_data(request, false);
        }
    }

    fn goes_on(&self, now: Instant) -> bool {
        now.duration_since(self.begun) < self.time
    }

    fn request(&self) -> (Batch, Bytes) {
        let batch = self.numbers.borrow_mut().take();
        (batch, self.template.fill(batch.first))
    }

    /// Counts the answers to a batch, one byte for each key. Returns the time of the answer,
    /// because the next call follows at once. A single call is so short that more reads of the
    /// clock would show in the results.
    fn answered(&self, (batch, sent): Sent, answers: &[u8]) -> Instant {
        self.numbers.borrow_mut().answered(batch);
        let now = Instant::now();
        let mut outcome = self.outcome.borrow_mut();
        outcome.count(batch, now.duration_since(sent), answers);
        now
    }
}
