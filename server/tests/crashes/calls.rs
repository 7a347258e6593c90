//! Calls: one for each form that the service has.

use std::{collections::VecDeque, time::Duration};

use seenset_history::{Operation, now};
use seenset_proto::v1::{
    AddBatchRequest, AddRequest, QueryAndAddBatchRequest, QueryAndAddRequest,
    QueryAndAddStreamRequest, QueryBatchRequest, QueryRequest,
    dedup_service_client::DedupServiceClient,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, transport::Channel};

use super::{
    record::{Answer, Record},
    request::Request,
    workload::{name, names},
};

/// Longer than any call takes whose server lives.
const PATIENCE: Duration = Duration::from_secs(20);

/// The stream has that many batches on the way.
const ON_THE_WAY: usize = 4;

pub type Dedup = DedupServiceClient<Channel>;

/// A call of one key. Returns whether it was answered, as the others do.
pub async fn single(dedup: &mut Dedup, request: Request, record: &mut Record) -> bool {
    let [filter, request_id, key] = [String::new(), request.id(), name(request.keys[0])];
    let begin = now();
    let answer = timely(async {
        Ok(match request.operation {
            Operation::Query => {
                let request = QueryRequest {
                    filter,
                    key,
                    max_age: None,
                };
                let seen = dedup.query(request).await?.into_inner().seen;
                Answer::Seen(vec![seen.unwrap()])
            }
            Operation::QueryAndAdd => {
                let request = QueryAndAddRequest {
                    filter,
                    key,
                    request_id,
                    max_age: None,
                };
                let seen = dedup.query_and_add(request).await?.into_inner().seen;
                Answer::Seen(vec![seen.unwrap()])
            }
            Operation::Add => {
                let request = AddRequest {
                    filter,
                    key,
                    request_id,
                };
                dedup.add(request).await?;
                Answer::Added
            }
        })
    });
    let answer = answer.await;
    record.take(request, begin, answer)
}

/// A call of several keys.
pub async fn batch(dedup: &mut Dedup, request: Request, record: &mut Record) -> bool {
    let (filter, keys, request_id) = (String::new(), names(&request.keys), request.id());
    let begin = now();
    let answer = timely(async {
        Ok(match request.operation {
            Operation::Query => {
                let request = QueryBatchRequest {
                    filter,
                    keys,
                    max_age: None,
                };
                Answer::Seen(dedup.query_batch(request).await?.into_inner().seen)
            }
            Operation::QueryAndAdd => {
                let request = QueryAndAddBatchRequest {
                    filter,
                    keys,
                    request_id,
                    max_age: None,
                };
                Answer::Seen(dedup.query_and_add_batch(request).await?.into_inner().seen)
            }
            Operation::Add => {
                let request = AddBatchRequest {
                    filter,
                    keys,
                    request_id,
                };
                dedup.add_batch(request).await?;
                Answer::Added
            }
        })
    });
    let answer = answer.await;
    record.take(request, begin, answer)
}

/// Batch after batch on a stream, until there are no more or it breaks.
pub async fn stream(
    dedup: &mut Dedup,
    record: &mut Record,
    mut next: impl FnMut() -> Option<Request>,
) -> bool {
    let (requests, receiver) = mpsc::channel(ON_THE_WAY);
    let mut requests = Some(requests);
    let mut sent = VecDeque::new();
    let mut send = |sent: &mut VecDeque<(Request, u64)>| {
        let Some(request) = next() else {
            requests = None;
            return;
        };
        let message = QueryAndAddStreamRequest {
            filter: String::new(),
            keys: names(&request.keys),
            request_id: request.id(),
            max_age: None,
        };
        sent.push_back((request, now()));
        // It fails when the stream has ended, and then nothing is told of this batch either.
        if let Some(requests) = &requests {
            let _ = requests.try_send(message);
        }
    };
    for _ in 0..ON_THE_WAY {
        send(&mut sent);
    }
    let answers = timely(dedup.query_and_add_stream(ReceiverStream::new(receiver))).await;
    if let Ok(answers) = answers {
        let mut answers = answers.into_inner();
        while let Ok(Some(answer)) = timely(answers.message()).await {
            let (request, begin) = sent.pop_front().expect("an answer to nothing");
            record.take(request, begin, Ok(Answer::Seen(answer.seen)));
            send(&mut sent);
        }
    }
    let is_answered = sent.is_empty();
    for (request, begin) in sent {
        let broken = Err(Status::unavailable("the stream has ended"));
        record.take(request, begin, broken);
    }
    is_answered
}

async fn timely<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let late = |_| Status::deadline_exceeded("no answer");
    tokio::time::timeout(PATIENCE, call).await.map_err(late)?
}
