//! Calls for one key: most calls of a crawler, and the calls that do the least work.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::Body;
use seenset_proto::{
    codec,
    v1::{AddRequest, QueryAndAddRequest, QueryRequest, RemoveRequest},
};
use tokio::time::Instant;
use tonic::{
    Status,
    codegen::{StdError, http::Response},
};

use crate::engine::{Action, Call, Engine, Op, Pending};
use crate::grpc::{
    convert,
    core::Core,
    dedup::keys::Key,
    wire::{
        deadline::Deadline,
        messages::{Messages, Only},
        request_body::RequestBody,
        response::{Content, failure, success},
    },
};

/// A decoded call for one key.
#[derive(Debug)]
pub struct OneKey {
    op: Op,
    filter: String,
    key: Key,
    /// Empty for [`Op::Query`].
    request_id: String,
    max_age: Option<Duration>,
    deadline: Option<Instant>,
}

impl OneKey {
    fn decode(op: Op, message: Bytes, deadline: Option<Instant>) -> Result<Self, Status> {
        let (filter, key, binary_key, request_id, max_age) = match op {
            Op::Query => {
                let request: QueryRequest = codec::decode(message)?;
                let (key, binary_key) = (request.key, request.binary_key);
                (
                    request.filter,
                    key,
                    binary_key,
                    String::new(),
                    request.max_age,
                )
            }
            Op::Write(Action::Add) => {
                let request: AddRequest = codec::decode(message)?;
                let (key, binary_key) = (request.key, request.binary_key);
                (request.filter, key, binary_key, request.request_id, None)
            }
            Op::Write(Action::QueryAndAdd) => {
                let request: QueryAndAddRequest = codec::decode(message)?;
                let (key, binary_key) = (request.key, request.binary_key);
                (
                    request.filter,
                    key,
                    binary_key,
                    request.request_id,
                    request.max_age,
                )
            }
            Op::Write(Action::Remove) => {
                let request: RemoveRequest = codec::decode(message)?;
                let (key, binary_key) = (request.key, request.binary_key);
                (request.filter, key, binary_key, request.request_id, None)
            }
        };
        Ok(Self {
            op,
            filter,
            key: Key::new(key, binary_key)?,
            request_id,
            max_age: convert::max_age(max_age)?,
            deadline,
        })
    }

    fn call(&self) -> Call<'_> {
        Call {
            filter: &self.filter,
            request_id: &self.request_id,
            max_age: self.max_age,
            deadline: self.deadline,
        }
    }

    /// Answers the call if it can do so without waiting. The answer may still have to wait for the
    /// log.
    fn try_answer(&self, engine: &Engine) -> Result<Option<Pending<bool>>, Status> {
        let answer = engine.try_answer(self.call(), self.op, self.key.bytes());
        answer.map_err(|error| self.key.status(error))
    }

    /// Waits until the answer can be sent, and returns it.
    async fn answer(
        &self,
        engine: &Engine,
        answer: Option<Pending<bool>>,
    ) -> Result<Reply, Status> {
        let (call, key) = (self.call(), self.key.bytes());
        let answer = match answer {
            Some(answer) => engine.finish(call, self.op, key, answer).await,
            None => engine.answer(call, self.op, key).await,
        };
        match answer {
            Ok(is_so) => Ok(Reply::of(self.op, is_so)),
            Err(error) => Err(self.key.status(error)),
        }
    }
}

/// The answer for one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Done,
    No,
    Yes,
}

impl Reply {
    fn of(op: Op, is_so: bool) -> Self {
        match (op, is_so) {
            (Op::Write(Action::Add), _) => Self::Done,
            (_, false) => Self::No,
            (_, true) => Self::Yes,
        }
    }

    /// Returns the encoded message, with its header: `AddResponse`, or a response that has `seen`
    /// or `removed` in field 1.
    pub fn message(self) -> Bytes {
        Bytes::from_static(match self {
            Self::Done => &[0, 0, 0, 0, 0],
            Self::No => &[0, 0, 0, 0, 2, 0x08, 0],
            Self::Yes => &[0, 0, 0, 0, 2, 0x08, 1],
        })
    }
}

/// A call for one key, up to the head of its response.
pub struct OneKeyCall<B = RequestBody> {
    core: Arc<Core>,
    op: Op,
    deadline: Deadline,
    message: Only<B>,
    /// The answer, if the call has to wait for it after the message has arrived.
    answer: Option<BoxFuture<'static, Result<Reply, Status>>>,
}

impl<B> OneKeyCall<B>
where
    B: Body<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    pub fn new(core: &Arc<Core>, op: Op, messages: Messages<B>, deadline: Deadline) -> Self {
        Self {
            core: core.clone(),
            op,
            deadline,
            message: Only::new(messages),
            answer: None,
        }
    }

    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Response<Content>> {
        if self.answer.is_none() {
            let message = ready!(self.message.poll(cx));
            if let Some(answer) = self.begin(message).transpose() {
                return Poll::Ready(replied(answer));
            }
        }
        match &mut self.answer {
            Some(answer) => answer.as_mut().poll(cx).map(replied),
            None => Poll::Pending,
        }
    }

    /// Answers the call if the answer can be sent at once. Otherwise begins to wait for it.
    fn begin(&mut self, message: Result<Bytes, Status>) -> Result<Option<Reply>, Status> {
        let call = OneKey::decode(self.op, message?, self.deadline.at())?;
        let answer = call.try_answer(&self.core.engine)?;
        if let Some(answer) = &answer
            && let Some(is_so) = answer.value_if_durable()
        {
            return Ok(Some(Reply::of(self.op, *is_so)));
        }
        let core = self.core.clone();
        self.answer = Some(Box::pin(
            async move { call.answer(&core.engine, answer).await },
        ));
        Ok(None)
    }
}

fn replied(answer: Result<Reply, Status>) -> Response<Content> {
    match answer {
        Ok(reply) => success(Content::Message(reply.message())),
        Err(status) => failure(status),
    }
}

impl<B> Future for OneKeyCall<B>
where
    B: Body<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    type Output = Response<Content>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Content>> {
        match self.poll_response(cx) {
            Poll::Ready(response) => Poll::Ready(response),
            Poll::Pending if self.answer.is_none() => self.deadline.poll_before(cx).map(failure),
            Poll::Pending => self.deadline.poll(cx).map(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use bytes::BytesMut;
    use prost::Message;
    use seenset_proto::v1::{AddResponse, QueryAndAddResponse};
    use tonic::{
        Code,
        codegen::http::{HeaderMap, HeaderName},
    };

    use super::*;
    use crate::{
        engine::Durability,
        grpc::{testing, wire::response},
    };

    fn framed(message: &impl Message) -> Bytes {
        let mut bytes = BytesMut::new();
        response::append(message, &mut bytes);
        bytes.freeze()
    }

    /// Returns the message in the body of a response, and the code that the response ends with.
    async fn taken(mut content: Content) -> (Option<Bytes>, Code) {
        let mut said = None;
        loop {
            let frame = poll_fn(|cx| content.poll(cx)).await.unwrap().unwrap();
            match frame.into_data() {
                Ok(data) => assert_eq!(said.replace(data), None),
                Err(trailers) => {
                    let trailers = trailers.into_trailers().unwrap();
                    let ended = Status::from_header_map(&trailers).unwrap();
                    return (said, ended.code());
                }
            }
        }
    }

    /// The server core, and the headers of the calls.
    struct Server(Arc<Core>, HeaderMap);

    impl Server {
        /// Returns the response to a call, before any of its body is taken.
        async fn call(&self, op: Op, key: &str) -> Response<Content> {
            let message = framed(&QueryAndAddRequest {
                key: key.to_owned(),
                ..Default::default()
            });
            let messages = testing::messages(testing::Arrived::new([message]));
            let deadline = Deadline::of(&self.1);
            OneKeyCall::new(&self.0, op, messages, deadline).await
        }

        async fn has(&self, key: &str) -> bool {
            self.0.engine.query("", key).await.unwrap()
        }
    }

    fn seen(seen: bool) -> (Option<Bytes>, Code) {
        let answer = QueryAndAddResponse { seen: Some(seen) };
        (Some(framed(&answer)), Code::Ok)
    }

    #[tokio::test]
    async fn answers_are_what_prost_writes() {
        for durability in [Durability::Snapshot, Durability::Always] {
            let dir = tempfile::tempdir().unwrap();
            let server = Server(
                testing::core(dir.path(), durability).await,
                HeaderMap::new(),
            );
            let answer = async |op, key| taken(server.call(op, key).await.into_body()).await;
            assert_eq!(answer(Op::Query, "a").await, seen(false));
            assert_eq!(
                answer(Op::Write(Action::QueryAndAdd), "a").await,
                seen(false)
            );
            assert_eq!(
                answer(Op::Write(Action::QueryAndAdd), "a").await,
                seen(true)
            );
            assert_eq!(answer(Op::Query, "a").await, seen(true));
            let added = (Some(framed(&AddResponse {})), Code::Ok);
            assert_eq!(answer(Op::Write(Action::Add), "b").await, added);
            assert_eq!(answer(Op::Query, "b").await, seen(true));
        }
    }

    /// A call that still waits for the log at its deadline ends with an error, whatever its result.
    /// The paused time of the test advances when no task has anything else to do.
    #[tokio::test(start_paused = true)]
    async fn a_call_has_until_its_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let core = testing::core(dir.path(), Durability::Always).await;
        let timeout = HeaderName::from_static("grpc-timeout");
        let server = Server(
            core,
            [(timeout, "1S".parse().unwrap())].into_iter().collect(),
        );
        let mut ended = Vec::new();
        // The disk is sometimes faster than the deadline.
        for key in 0..50 {
            let key = key.to_string();
            let response = server.call(Op::Write(Action::QueryAndAdd), &key).await;
            ended.extend(Status::from_header_map(response.headers()));
            assert!(server.has(&key).await);
        }
        assert!(!ended.is_empty());
        let is_late = |status: &Status| status.code() == Code::DeadlineExceeded;
        assert!(ended.iter().all(is_late), "{ended:?}");

        // The deadline also ends a call that waits for its message.
        let Server(core, headers) = server;
        let messages = testing::messages(testing::Silent);
        let call = OneKeyCall::new(&core, Op::Query, messages, Deadline::of(&headers));
        assert!(is_late(
            &Status::from_header_map(call.await.headers()).unwrap()
        ));
    }
}
