//! `DedupService`, the service for crawlers. It is answered without tonic: tonic's path from a
//! frame to a message and back costs more than all work on a key (`docs/adr/0004-grpc.md`).

pub(super) mod keys;
pub(super) mod one_key;
pub(super) mod stream;

use std::{
    future::{Future, poll_fn},
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use prost::Message;
use seenset_proto::{
    batch::{BatchRequest, BatchResponse},
    codec::{self, Decode},
    v1::{StoreRequest, StoreResponse, dedup_service_server::SERVICE_NAME},
};
use tokio::time::Instant;
use tonic::{
    Status,
    codegen::http::{Request, Response},
};

use self::{one_key::OneKeyCall, stream::Answers};
use crate::{
    engine::{Action, Op},
    grpc::{
        convert,
        core::Core,
        status::status,
        wire::{
            deadline::Deadline,
            messages::{self, Messages, Only},
            received::Received,
            request_body::RequestBody,
            response::{self, Content, failure, success},
        },
    },
};

/// The ways to make the head of a response.
pub enum ResponseHead {
    OneKey(OneKeyCall),
    Boxed(BoxFuture<'static, Response<Content>>),
    Now(Response<Content>),
}

/// A method of the service.
#[derive(Debug, Clone, Copy)]
pub enum Method {
    OneKey(Op),
    Batch(Op),
    QueryAndAddStream,
    Store,
}

impl Method {
    /// Returns the method of a path, `/package.Service/Method`, if it belongs to this service.
    pub fn of(path: &str) -> Option<Self> {
        let method = path.strip_prefix('/')?.strip_prefix(SERVICE_NAME)?;
        Some(match method {
            "/QueryAndAdd" => Self::OneKey(Op::Write(Action::QueryAndAdd)),
            "/Query" => Self::OneKey(Op::Query),
            "/Add" => Self::OneKey(Op::Write(Action::Add)),
            "/Remove" => Self::OneKey(Op::Write(Action::Remove)),
            "/RemoveBatch" => Self::Batch(Op::Write(Action::Remove)),
            "/QueryAndAddStream" => Self::QueryAndAddStream,
            "/QueryAndAddBatch" => Self::Batch(Op::Write(Action::QueryAndAdd)),
            "/QueryBatch" => Self::Batch(Op::Query),
            "/AddBatch" => Self::Batch(Op::Write(Action::Add)),
            "/Store" => Self::Store,
            _ => return None,
        })
    }
}

/// Answers a call.
pub fn answer(core: &Arc<Core>, method: Method, request: Request<Received>) -> ResponseHead {
    if let Err(status) = messages::check_encoding(request.headers()) {
        return ResponseHead::Now(failure(status));
    }
    let deadline = Deadline::of(request.headers());
    let body = request.into_body();
    let (connection, kept) = (body.connection(), body.kept());
    let body = match method {
        Method::QueryAndAddStream => RequestBody::of_stream(body),
        _ => RequestBody::new(body, &core.core_calls),
    };
    let messages = match Messages::new(body, &connection, core.max_message_bytes) {
        Ok(messages) => messages,
        Err(refused) => return ResponseHead::Now(failure(refused)),
    };
    match method {
        Method::OneKey(op) => ResponseHead::OneKey(OneKeyCall::new(core, op, messages, deadline)),
        Method::Batch(op) => unary(core, messages, deadline, move |core, request, at| {
            batch(core, op, request, at)
        }),
        Method::QueryAndAddStream => {
            let answers = Answers::new(
                core.engine.clone(),
                messages,
                &connection,
                deadline,
                core.core_calls.drain_state(),
            );
            ResponseHead::Now(success(Content::Stream(Box::new(answers), kept)))
        }
        Method::Store => unary(core, messages, deadline, store),
    }
}

/// Answers a call that has one message in each direction.
fn unary<Q, A, F>(
    core: &Arc<Core>,
    messages: Messages,
    deadline: Deadline,
    answer: impl FnOnce(Arc<Core>, Q, Option<Instant>) -> F + Send + 'static,
) -> ResponseHead
where
    Q: Decode + Send + 'static,
    A: Message + 'static,
    F: Future<Output = Result<A, Status>> + Send + 'static,
{
    let answered = answer_one(core.clone(), messages, deadline, answer);
    ResponseHead::Boxed(Box::pin(async move {
        match answered.await {
            Ok(message) => success(Content::Message(message)),
            Err(status) => failure(status),
        }
    }))
}

async fn answer_one<Q, A, F>(
    core: Arc<Core>,
    messages: Messages,
    mut deadline: Deadline,
    answer: impl FnOnce(Arc<Core>, Q, Option<Instant>) -> F,
) -> Result<Bytes, Status>
where
    Q: Decode,
    A: Message,
    F: Future<Output = Result<A, Status>>,
{
    // The message is kept to the end, because it holds the charge for its memory.
    let mut message = Only::new(messages);
    let arrived = deadline.limit_before(poll_fn(|cx| message.poll(cx)));
    let request = codec::decode(arrived.await??)?;
    let at = deadline.at();
    let answer = deadline.limit(answer(core, request, at)).await??;
    let mut bytes = BytesMut::new();
    response::append(&answer, &mut bytes);
    Ok(bytes.freeze())
}

/// Answers a batch. The answer to an addition has no flags.
async fn batch(
    core: Arc<Core>,
    op: Op,
    request: BatchRequest,
    deadline: Option<Instant>,
) -> Result<BatchResponse, Status> {
    let has_age = matches!(op, Op::Query | Op::Write(Action::QueryAndAdd));
    let call = convert::call(
        &request.filter,
        &request.request_id,
        request.max_age.filter(|_| has_age),
        deadline,
    )?;
    let keys = keys::of_batch(request.keys)?;
    let Op::Write(action) = op else {
        let seen = core.engine.query_batch(call, keys).await;
        return Ok(BatchResponse {
            seen: seen.map_err(status)?,
            capacity_warning: None,
        });
    };
    let written = core.engine.begin_write_batch(call, action, keys).await;
    let written = written.map_err(status)?;
    let capacity_warning = match action {
        Action::Add | Action::QueryAndAdd => convert::capacity_warning(&written),
        Action::Remove => None,
    };
    Ok(BatchResponse {
        capacity_warning,
        seen: written.durable().await.map_err(status)?,
    })
}

async fn store(
    core: Arc<Core>,
    request: StoreRequest,
    _: Option<Instant>,
) -> Result<StoreResponse, Status> {
    let reports = core.engine.store(&request.filter).await.map_err(status)?;
    for report in &reports {
        tracing::info!(
            filter = %report.name,
            version = report.version,
            written_bytes = report.written_bytes,
            duration = ?report.duration,
            "stored as asked"
        );
    }
    let filters = reports.into_iter().map(convert::stored_filter).collect();
    Ok(StoreResponse { filters })
}

#[cfg(test)]
mod tests {
    use seenset_proto::v1::QueryAndAddBatchRequest;
    use tonic::Code;

    use super::*;
    use crate::{
        engine::{Durability, Kind, SpecRequest},
        grpc::testing,
    };

    /// A client can make the server hold one future for each call in flight.
    #[tokio::test]
    async fn a_call_whose_message_has_not_come_takes_little_memory() {
        let dir = tempfile::tempdir().unwrap();
        let core = testing::core(dir.path(), Durability::Always).await;
        let request = || codec::decode(Bytes::new()).unwrap();
        let add = batch(
            core.clone(),
            Op::Write(Action::QueryAndAdd),
            request(),
            None,
        );
        let query = batch(core, Op::Query, request(), None);
        for bytes in [size_of_val(&add), size_of_val(&query)] {
            assert!(bytes <= 1024, "{bytes}");
        }
    }

    /// AddBatch and RemoveBatch have no age. Only calls that add keys are warned.
    #[tokio::test]
    async fn a_batch_has_the_fields_of_its_rpc() {
        let dir = tempfile::tempdir().unwrap();
        let core = testing::core(dir.path(), Durability::Always).await;
        let small = SpecRequest {
            kind: Kind::Counting,
            ..SpecRequest::new(1, 0.01)
        };
        core.engine.create_filter("small", small).await.unwrap();
        let request = QueryAndAddBatchRequest {
            filter: "small".to_owned(),
            keys: ["a", "b", "c"].map(str::to_owned).to_vec(),
            max_age: Some(prost_types::Duration::default()),
            ..Default::default()
        };
        let message = Bytes::from(request.encode_to_vec());
        let answer = |op| {
            batch(
                core.clone(),
                op,
                codec::decode(message.clone()).unwrap(),
                None,
            )
        };
        let add = answer(Op::Write(Action::Add)).await.unwrap();
        assert!(add.seen.is_empty() && add.capacity_warning.is_some());
        let remove = answer(Op::Write(Action::Remove)).await.unwrap();
        assert!(remove.seen == [true; 3] && remove.capacity_warning.is_none());
        for op in [Op::Query, Op::Write(Action::QueryAndAdd)] {
            assert_eq!(
                answer(op).await.unwrap_err().code(),
                Code::FailedPrecondition
            );
        }
    }
}
