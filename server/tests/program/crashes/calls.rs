//! Calls: one for each form of the service.

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
    workload::fields,
};

/// Longer than any call takes while the server is alive.
const PATIENCE: Duration = Duration::from_secs(20);

/// The number of batches of a stream that are in flight.
const ON_THE_WAY: usize = 4;

pub type Dedup = DedupServiceClient<Channel>;

/// Makes a call of one key. Returns whether it was answered, like the other functions here.
pub async fn single(dedup: &mut Dedup, request: Request, record: &mut Record) -> bool {
    let [filter, request_id] = [String::new(), request.id()];
    let (mut texts, mut binaries) = fields(&request.keys);
    let key = texts.pop().unwrap_or_default();
    let binary_key = binaries.pop().unwrap_or_default();
    let begin = now();
    let answer = timely(async {
        Ok(match request.operation {
            Operation::Query => {
                let request = QueryRequest {
                    filter,
                    key,
                    binary_key,
                    ..Default::default()
                };
                let seen = dedup.query(request).await?.into_inner().seen;
                Answer::Seen(vec![seen.unwrap()])
            }
            Operation::QueryAndAdd => {
                let request = QueryAndAddRequest {
                    filter,
                    key,
                    binary_key,
                    request_id,
                    ..Default::default()
                };
                let seen = dedup.query_and_add(request).await?.into_inner().seen;
                Answer::Seen(vec![seen.unwrap()])
            }
            Operation::Add => {
                let request = AddRequest {
                    filter,
                    key,
                    binary_key,
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

/// Makes a call of several keys.
pub async fn batch(dedup: &mut Dedup, request: Request, record: &mut Record) -> bool {
    let (filter, request_id) = (String::new(), request.id());
    let (keys, binary_keys) = fields(&request.keys);
    let begin = now();
    let answer = timely(async {
        Ok(match request.operation {
            Operation::Query => {
                let request = QueryBatchRequest {
                    filter,
                    keys,
                    binary_keys,
                    ..Default::default()
                };
                Answer::Seen(dedup.query_batch(request).await?.into_inner().seen)
            }
            Operation::QueryAndAdd => {
                let request = QueryAndAddBatchRequest {
                    filter,
                    keys,
                    binary_keys,
                    request_id,
                    ..Default::default()
                };
                Answer::Seen(dedup.query_and_add_batch(request).await?.into_inner().seen)
            }
            Operation::Add => {
                let request = AddBatchRequest {
                    filter,
                    keys,
                    binary_keys,
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

/// Sends one batch after the other on a stream, until none is left or the stream breaks.
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
        let (keys, binary_keys) = fields(&request.keys);
        let message = QueryAndAddStreamRequest {
            keys,
            binary_keys,
            request_id: request.id(),
            ..Default::default()
        };
        sent.push_back((request, now()));
        // Sending fails if the stream has ended. Then this batch gets no answer either.
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
