//! Calls that write down what they were told: one for each form that the service has.

use std::time::Duration;

use seenset_history::{Call, Operation, now};
use seenset_proto::v1::{
    AddBatchRequest, AddRequest, QueryAndAddBatchRequest, QueryAndAddRequest,
    QueryAndAddStreamRequest, QueryBatchRequest, QueryRequest,
    dedup_service_client::DedupServiceClient,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, transport::Channel};

use super::workload::names;

/// Longer than any call takes whose server lives.
const PATIENCE: Duration = Duration::from_secs(20);

/// The stream has that many batches on the way.
const ON_THE_WAY: usize = 4;

pub type Dedup = DedupServiceClient<Channel>;

/// What a call was told of its keys: whether each was seen, or that they are added.
enum Answer {
    Seen(Vec<bool>),
    Added,
}

/// A call of one key.
pub async fn single(dedup: &mut Dedup, operation: Operation, key: u64) -> (Vec<Call<u64>>, bool) {
    let name = names(&[key]).remove(0);
    let begin = now();
    let answer = timely(async {
        Ok(match operation {
            Operation::Query => {
                let request = QueryRequest {
                    key: name,
                    ..Default::default()
                };
                let seen = dedup.query(request).await?.into_inner().seen;
                Answer::Seen(vec![seen.unwrap()])
            }
            Operation::QueryAndAdd => {
                let request = QueryAndAddRequest {
                    key: name,
                    ..Default::default()
                };
                let seen = dedup.query_and_add(request).await?.into_inner().seen;
                Answer::Seen(vec![seen.unwrap()])
            }
            Operation::Add => {
                let request = AddRequest {
                    key: name,
                    ..Default::default()
                };
                dedup.add(request).await?;
                Answer::Added
            }
        })
    });
    written(operation, &[key], begin, answer.await)
}

/// A call of several keys.
pub async fn batch(
    dedup: &mut Dedup,
    operation: Operation,
    numbers: &[u64],
) -> (Vec<Call<u64>>, bool) {
    let keys = names(numbers);
    let begin = now();
    let answer = timely(async {
        Ok(match operation {
            Operation::Query => {
                let request = QueryBatchRequest {
                    keys,
                    ..Default::default()
                };
                Answer::Seen(dedup.query_batch(request).await?.into_inner().seen)
            }
            Operation::QueryAndAdd => {
                let request = QueryAndAddBatchRequest {
                    keys,
                    ..Default::default()
                };
                Answer::Seen(dedup.query_and_add_batch(request).await?.into_inner().seen)
            }
            Operation::Add => {
                let request = AddBatchRequest {
                    keys,
                    ..Default::default()
                };
                dedup.add_batch(request).await?;
                Answer::Added
            }
        })
    });
    written(operation, numbers, begin, answer.await)
}

/// Batch after batch on a stream, until it breaks.
pub async fn stream(dedup: &mut Dedup, mut next: impl FnMut() -> Vec<u64>) -> Vec<Call<u64>> {
    const OPERATION: Operation = Operation::QueryAndAdd;
    let (requests, receiver) = mpsc::channel(ON_THE_WAY);
    let mut sent = std::collections::VecDeque::new();
    let mut send = |sent: &mut std::collections::VecDeque<(Vec<u64>, u64)>| {
        let numbers = next();
        let request = QueryAndAddStreamRequest {
            keys: names(&numbers),
            ..Default::default()
        };
        sent.push_back((numbers, now()));
        // It fails when the stream has ended, and then nothing is told of this batch either.
        let _ = requests.try_send(request);
    };
    let mut history = Vec::new();
    for _ in 0..ON_THE_WAY {
        send(&mut sent);
    }
    let answers = timely(dedup.query_and_add_stream(ReceiverStream::new(receiver))).await;
    if let Ok(answers) = answers {
        let mut answers = answers.into_inner();
        while let Ok(Some(answer)) = timely(answers.message()).await {
            let (numbers, begin) = sent.pop_front().expect("an answer to nothing");
            let answer = Ok(Answer::Seen(answer.seen));
            history.extend(written(OPERATION, &numbers, begin, answer).0);
            send(&mut sent);
        }
    }
    for (numbers, begin) in sent {
        let broken = Err(Status::unavailable("the stream has ended"));
        history.extend(written(OPERATION, &numbers, begin, broken).0);
    }
    history
}

async fn timely<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let late = |_| Status::deadline_exceeded("no answer");
    tokio::time::timeout(PATIENCE, call).await.map_err(late)?
}

/// The call of each key, and whether there was an answer.
fn written(
    operation: Operation,
    keys: &[u64],
    begin: u64,
    answer: Result<Answer, Status>,
) -> (Vec<Call<u64>>, bool) {
    let end = now();
    let calls = keys.iter().enumerate().map(|(place, &key)| match &answer {
        Ok(Answer::Added) => Call::add(key, begin, end),
        Ok(Answer::Seen(seen)) if operation == Operation::Query => {
            Call::query(key, begin, end, seen[place])
        }
        Ok(Answer::Seen(seen)) => Call::query_and_add(key, begin, end, seen[place]),
        Err(_) => Call::unknown(operation, key, begin),
    });
    (calls.collect(), answer.is_ok())
}
