//! Calls for one key, and the one answer to each.
//!
//! Where nothing has to be waited for, the answer is made when it is about to be sent: the
//! processor fetches the line of the filter while the head of the response is made
//! (`docs/decisions/0013-late-answers.md`).

use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::stream::Stream;
use seenset_proto::v1::{
    AddRequest, AddResponse, QueryAndAddRequest, QueryAndAddResponse, QueryRequest, QueryResponse,
};
use tonic::Status;

use super::status::status;
use crate::engine::{AtOnce, Call, Engine, EngineError};

/// The longest key that waits until its answer is sent. A client that takes no answers can make
/// the server hold as many as it has calls under way.
const MAX_LATE_BYTES: usize = 1024;

/// A call for one key.
pub trait OneKey: Send + Unpin + Sized {
    type Answer: Send + Unpin;

    /// The call, and the key.
    fn parts(&self) -> (Call<'_>, &str);

    /// Answers the call, now.
    fn answer_at_once(&self, engine: &AtOnce) -> Result<Self::Answer, EngineError>;

    /// Answers the call when the answer may be told.
    fn answer(
        &self,
        engine: &Engine,
    ) -> impl Future<Output = Result<Self::Answer, EngineError>> + Send;
}

/// The answer to a call for one key, as a stream of one message.
#[derive(Debug)]
pub enum OneAnswer<Q: OneKey> {
    /// It is there.
    Made(Q::Answer),
    /// It is to be made.
    Due(Arc<AtOnce>, Q),
    /// It has been taken.
    Taken,
}

impl<Q: OneKey> OneAnswer<Q> {
    /// Answers a call, now or late. Late if there is an engine for that.
    ///
    /// # Errors
    ///
    /// What the engine says, if the call is refused now.
    pub async fn new(
        engine: &Engine,
        at_once: Option<&Arc<AtOnce>>,
        request: Q,
    ) -> Result<Self, Status> {
        let (call, key) = request.parts();
        match at_once {
            Some(at_once) if key.len() <= MAX_LATE_BYTES => {
                at_once.foresee(call, key).map_err(status)?;
                Ok(Self::Due(at_once.clone(), request))
            }
            _ => {
                let answer = request.answer(engine).await;
                Ok(Self::Made(answer.map_err(status)?))
            }
        }
    }
}

impl<Q: OneKey> Stream for OneAnswer<Q> {
    type Item = Result<Q::Answer, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(match mem::replace(&mut *self, Self::Taken) {
            Self::Made(answer) => Some(Ok(answer)),
            Self::Due(engine, request) => Some(request.answer_at_once(&engine).map_err(status)),
            Self::Taken => None,
        })
    }
}

fn call<'a>(filter: &'a str, request_id: &'a str) -> Call<'a> {
    Call { filter, request_id }
}

impl OneKey for QueryRequest {
    type Answer = QueryResponse;

    fn parts(&self) -> (Call<'_>, &str) {
        (Call::from(&*self.filter), &self.key)
    }

    fn answer_at_once(&self, engine: &AtOnce) -> Result<QueryResponse, EngineError> {
        let seen = engine.query(&self.filter, &self.key)?;
        Ok(QueryResponse { seen: Some(seen) })
    }

    async fn answer(&self, engine: &Engine) -> Result<QueryResponse, EngineError> {
        let seen = engine.query(&self.filter, &self.key).await?;
        Ok(QueryResponse { seen: Some(seen) })
    }
}

impl OneKey for AddRequest {
    type Answer = AddResponse;

    fn parts(&self) -> (Call<'_>, &str) {
        (call(&self.filter, &self.request_id), &self.key)
    }

    fn answer_at_once(&self, engine: &AtOnce) -> Result<AddResponse, EngineError> {
        let (call, key) = self.parts();
        engine.add(call, key)?;
        Ok(AddResponse {})
    }

    async fn answer(&self, engine: &Engine) -> Result<AddResponse, EngineError> {
        let (call, key) = self.parts();
        engine.add(call, key).await?;
        Ok(AddResponse {})
    }
}

impl OneKey for QueryAndAddRequest {
    type Answer = QueryAndAddResponse;

    fn parts(&self) -> (Call<'_>, &str) {
        (call(&self.filter, &self.request_id), &self.key)
    }

    fn answer_at_once(&self, engine: &AtOnce) -> Result<QueryAndAddResponse, EngineError> {
        let (call, key) = self.parts();
        let seen = engine.query_and_add(call, key)?;
        Ok(QueryAndAddResponse { seen: Some(seen) })
    }

    async fn answer(&self, engine: &Engine) -> Result<QueryAndAddResponse, EngineError> {
        let (call, key) = self.parts();
        let seen = engine.query_and_add(call, key).await?;
        Ok(QueryAndAddResponse { seen: Some(seen) })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt};
    use tonic::Code;

    use super::*;
    use crate::{engine::Durability, grpc::testing};

    fn request(key: &str) -> QueryAndAddRequest {
        QueryAndAddRequest {
            key: key.to_owned(),
            ..Default::default()
        }
    }

    /// The answer to a call is made when it is taken, and one that nobody takes is not.
    #[tokio::test]
    async fn a_late_answer_is_made_when_it_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let engine = testing::engine(dir.path(), Durability::Snapshot).await;
        let at_once = engine.at_once().map(Arc::new);
        let begin = async |key| OneAnswer::new(&engine, at_once.as_ref(), request(key)).await;
        let taken = async |mut answer: OneAnswer<QueryAndAddRequest>| {
            let seen = answer.next().now_or_never().unwrap().unwrap();
            assert!(answer.next().await.is_none());
            seen.unwrap().seen.unwrap()
        };
        let (first, second) = (begin("a").await.unwrap(), begin("a").await.unwrap());
        drop(begin("b").await.unwrap());
        assert!(!engine.query("", "a").await.unwrap());
        assert!(!taken(second).await);
        assert!(taken(first).await);
        assert!(!engine.query("", "b").await.unwrap());

        // Nobody can have the server hold long keys, or learns of an error later than without.
        let long = "k".repeat(MAX_LATE_BYTES + 1);
        let answer = begin(&long).await.unwrap();
        assert!(engine.query("", &long).await.unwrap());
        assert!(!taken(answer).await);
        let error = begin("").await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);

        // What ends between is told.
        let late = begin("c").await.unwrap();
        engine.close();
        let error = { late }.next().await.unwrap().unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
    }

    /// An answer that may have to wait for the log is there before any of it is sent.
    #[tokio::test]
    async fn with_a_log_no_answer_is_late() {
        let dir = tempfile::tempdir().unwrap();
        let engine = testing::engine(dir.path(), Durability::Always).await;
        assert!(engine.at_once().is_none());
        let answer = OneAnswer::new(&engine, None, request("a")).await.unwrap();
        assert!(engine.query("", "a").await.unwrap());
        drop(answer);
    }
}
