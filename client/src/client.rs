//! The calls that a crawler makes, typed, with deadlines and retries.

use std::{sync::Arc, time::Duration};

use seenset_proto::v1::{self, dedup_service_client::DedupServiceClient};
use tonic::{
    Request, Status,
    body::Body,
    client::{Grpc, GrpcService},
    codegen::http::uri::PathAndQuery,
    transport::Channel,
};
use uuid::Uuid;

use crate::{
    batch::{KeyBatch, MAX_MESSAGE_BYTES, Message, MessageCodec},
    budget::Budget,
    capacity::{CapacityWarning, CapacityWarnings},
    endpoint,
    error::Error,
    options::Options,
    retry::{Attempt, Call, Repeat},
    sent::WatchedChannel,
};

/// A connection to a server, and the filter that its keys go to.
///
/// A key is any bytes: `"https://example.org/"`, a `String`, `&digest`, a `Vec<u8>`. Whatever the
/// type, the same bytes are the same key.
///
/// Cheap to clone; clones share the connection, which comes back by itself when it
/// breaks. All calls may fail with any [`Error`] but
/// [`Endpoint`](Error::Endpoint) and [`StreamClosed`](Error::StreamClosed); what the
/// server refuses is told in the contract.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) channel: Channel,
    pub(crate) options: Options,
    budget: Arc<Budget>,
    endpoint: Arc<str>,
    pub(crate) filter: Arc<str>,
    max_age: Option<prost_types::Duration>,
    pub(crate) capacity_warnings: CapacityWarnings,
}

impl Client {
    /// Connects to `host:port`, `http://host:port` (port 9090 if none is named) or `unix:/PATH`, with
    /// the default [`Options`].
    ///
    /// # Errors
    ///
    /// [`Error::Endpoint`] if that is no address, [`Error::Connect`] or
    /// [`Error::Deadline`] if no connection came about.
    pub async fn connect(endpoint: &str) -> Result<Self, Error> {
        Self::connect_with(endpoint, Options::default()).await
    }

    /// Connects with other [`Options`], see [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    pub async fn connect_with(endpoint: &str, options: Options) -> Result<Self, Error> {
        let uri = endpoint::parse(endpoint)?;
        let budget = Arc::new(Budget::new(options.retries_per_second));
        Ok(Self {
            channel: endpoint::connect(&uri, &options, &budget).await?,
            options,
            budget,
            endpoint: endpoint::name(&uri),
            filter: "".into(),
            max_age: None,
            capacity_warnings: CapacityWarnings::default(),
        })
    }

    /// The same connection, for the keys of the filter `name`. Empty means the filter
    /// named `default`. Costs a clone, and no call: a filter that does not exist is
    /// `NOT_FOUND` in the first call that asks it.
    #[must_use]
    pub fn filter(&self, name: &str) -> Self {
        Self {
            filter: name.into(),
            ..self.clone()
        }
    }

    /// The same connection, for calls to which keys are seen that are at most this old, in a
    /// filter whose keys age: above 0, at most the filter's own, and rounded up to whole slices of
    /// it. Without it they are seen for as long as the filter remembers them. It is of account for
    /// all calls that tell whether keys are seen, also on streams; any of them on a filter of
    /// another kind is `FAILED_PRECONDITION`. 292 billion years and more are no limit.
    #[must_use]
    pub fn with_max_age(&self, max_age: Duration) -> Self {
        Self {
            max_age: max_age.try_into().ok(),
            ..self.clone()
        }
    }

    /// The same connection, for calls that may take `deadline` each.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        let options = Options {
            deadline,
            ..self.options
        };
        Self {
            options,
            ..self.clone()
        }
    }

    /// The filters that are nearly at their capacity, or past it, as far as answers to batches and
    /// streams of this connection have said so. Past its capacity a filter that does not grow calls
    /// more and more new keys seen. Each warning also goes to the log (`tracing`), once.
    pub fn capacity_warnings(&self) -> Vec<CapacityWarning> {
        self.capacity_warnings.all()
    }

    /// Whether `key` has been seen. Changes nothing.
    ///
    /// # Errors
    ///
    /// See [`Client`].
    pub async fn query(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let key = key.as_ref();
        let call = self.call("Query", Repeat::Safe);
        let response = call
            .run(&self.options, |attempt| {
                let request = v1::QueryRequest {
                    filter: self.filter.to_string(),
                    binary_key: key.to_owned(),
                    max_age: self.max_age,
                    ..Default::default()
                };
                let mut dedup = self.dedup(&attempt);
                async move { dedup.query(timed(request, attempt.left)).await }
            })
            .await?;
        present(call.name, response.seen)
    }

    /// Marks `key` as seen. Once this is answered, every later query says so, until the key is
    /// [removed](Self::remove) or, in a filter whose keys age, too old.
    ///
    /// # Errors
    ///
    /// See [`Client`].
    pub async fn add(&self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        let key = key.as_ref();
        // A counting filter would count the key once more.
        let request_id = request_id();
        self.call("Add", Repeat::Safe)
            .run(&self.options, |attempt| {
                let request = v1::AddRequest {
                    filter: self.filter.to_string(),
                    binary_key: key.to_owned(),
                    request_id: request_id.clone(),
                    ..Default::default()
                };
                let mut dedup = self.dedup(&attempt);
                async move { dedup.add(timed(request, attempt.left)).await }
            })
            .await?;
        Ok(())
    }

    /// Whether `key` had been seen before, and marks it as seen, in one atomic step. Of
    /// all callers that race on one new key, exactly one is told `false`.
    ///
    /// # Errors
    ///
    /// See [`Client`]. After [`Error::Broken`] and [`Error::Deadline`] the key may be
    /// marked though nobody was told `false`.
    pub async fn query_and_add(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let key = key.as_ref();
        let call = self.call("QueryAndAdd", Repeat::Safe);
        let request_id = request_id();
        let response = call
            .run(&self.options, |attempt| {
                let request = v1::QueryAndAddRequest {
                    filter: self.filter.to_string(),
                    binary_key: key.to_owned(),
                    request_id: request_id.clone(),
                    max_age: self.max_age,
                    ..Default::default()
                };
                let mut dedup = self.dedup(&attempt);
                async move { dedup.query_and_add(timed(request, attempt.left)).await }
            })
            .await?;
        present(call.name, response.seen)
    }

    /// Takes `key` out of a counting filter again, if it is there, and tells whether it was.
    /// Remove only what was added: a key that is there by chance alone is taken for others, and
    /// some of these may then be forgotten.
    ///
    /// # Errors
    ///
    /// See [`Client`]. A filter that does not count is `FAILED_PRECONDITION`.
    pub async fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let key = key.as_ref();
        let call = self.call("Remove", Repeat::Safe);
        let request_id = request_id();
        let response = call
            .run(&self.options, |attempt| {
                let request = v1::RemoveRequest {
                    filter: self.filter.to_string(),
                    binary_key: key.to_owned(),
                    request_id: request_id.clone(),
                    ..Default::default()
                };
                let mut dedup = self.dedup(&attempt);
                async move { dedup.remove(timed(request, attempt.left)).await }
            })
            .await?;
        present(call.name, response.removed)
    }

    /// [`query`](Self::query) for many keys: one answer for each, in their order.
    ///
    /// # Errors
    ///
    /// See [`Client`].
    pub async fn query_batch(&self, keys: impl Into<KeyBatch>) -> Result<Vec<bool>, Error> {
        let keys = keys.into();
        let expected = keys.len();
        let path = "/seenset.v1.DedupService/QueryBatch";
        let call = self.call("QueryBatch", Repeat::Safe);
        let message = self.message(keys)?;
        let response: v1::QueryBatchResponse = self.run_batch(&call, path, message).await?;
        one_for_each(call.name, expected, response.seen)
    }

    /// [`add`](Self::add) for many keys. All are added, or none if one of them is
    /// refused.
    ///
    /// # Errors
    ///
    /// See [`Client`].
    pub async fn add_batch(&self, keys: impl Into<KeyBatch>) -> Result<(), Error> {
        let path = "/seenset.v1.DedupService/AddBatch";
        let call = self.call("AddBatch", Repeat::Safe);
        let message = self.message_with_id(keys.into())?;
        let response: v1::AddBatchResponse = self.run_batch(&call, path, message).await?;
        self.capacity_warnings
            .note(&self.filter, response.capacity_warning);
        Ok(())
    }

    /// [`query_and_add`](Self::query_and_add) for many keys: one answer for each, in
    /// their order. A key that stands in the batch twice is new at most the first time.
    ///
    /// # Errors
    ///
    /// As for [`query_and_add`](Self::query_and_add).
    pub async fn query_and_add_batch(&self, keys: impl Into<KeyBatch>) -> Result<Vec<bool>, Error> {
        self.query_and_add_batch_as(&request_id(), keys).await
    }

    /// [`query_and_add_batch`](Self::query_and_add_batch) as the request of this id, for a caller
    /// that may have to repeat it in another process: the call that repeats it, with the same keys
    /// or some of them, gets the first answers.
    ///
    /// An id of at most 128 bytes is the name of one call. For how long it is remembered,
    /// `retry_age` and `retry_keys` of a filter say.
    ///
    /// # Errors
    ///
    /// As for [`query_and_add`](Self::query_and_add).
    pub async fn query_and_add_batch_as(
        &self,
        request_id: &str,
        keys: impl Into<KeyBatch>,
    ) -> Result<Vec<bool>, Error> {
        let keys = keys.into();
        let expected = keys.len();
        let path = "/seenset.v1.DedupService/QueryAndAddBatch";
        let call = self.call("QueryAndAddBatch", Repeat::Safe);
        let message = self.message_as(request_id, keys)?;
        let response: v1::QueryAndAddBatchResponse = self.run_batch(&call, path, message).await?;
        self.capacity_warnings
            .note(&self.filter, response.capacity_warning);
        one_for_each(call.name, expected, response.seen)
    }

    /// [`remove`](Self::remove) for many keys: one answer for each, in their order.
    ///
    /// # Errors
    ///
    /// As for [`remove`](Self::remove).
    pub async fn remove_batch(&self, keys: impl Into<KeyBatch>) -> Result<Vec<bool>, Error> {
        let keys = keys.into();
        let expected = keys.len();
        let path = "/seenset.v1.DedupService/RemoveBatch";
        let call = self.call("RemoveBatch", Repeat::Safe);
        let message = self.message_with_id(keys)?;
        let response: v1::RemoveBatchResponse = self.run_batch(&call, path, message).await?;
        one_for_each(call.name, expected, response.removed)
    }

    async fn run_batch<R>(
        &self,
        call: &Call,
        path: &'static str,
        message: Message,
    ) -> Result<R, Error>
    where
        R: prost::Message + prost::Name + Default + 'static,
    {
        call.run(&self.options, |attempt| {
            let message = message.clone();
            async move {
                let mut grpc = ready(self.watched(&attempt)).await?;
                let path = PathAndQuery::from_static(path);
                let codec = MessageCodec::<R>::default();
                grpc.unary(timed(message, attempt.left), path, codec).await
            }
        })
        .await
    }

    fn message(&self, keys: KeyBatch) -> Result<Message, Error> {
        keys.into_message(&self.filter, "", self.max_age)
    }

    /// A message that the server knows again.
    fn message_with_id(&self, keys: KeyBatch) -> Result<Message, Error> {
        self.message_as(&request_id(), keys)
    }

    /// A message that the server knows by this id.
    pub(crate) fn message_as(&self, request_id: &str, keys: KeyBatch) -> Result<Message, Error> {
        keys.into_message(&self.filter, request_id, self.max_age)
    }

    pub(crate) fn call(&self, name: &'static str, repeat: Repeat) -> Call {
        Call {
            name,
            repeat,
            endpoint: Arc::clone(&self.endpoint),
            budget: Arc::clone(&self.budget),
        }
    }

    pub(crate) fn dedup(&self, attempt: &Attempt) -> DedupServiceClient<WatchedChannel> {
        DedupServiceClient::new(self.watched(attempt))
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// The connection, for one attempt of a call.
    pub(crate) fn watched(&self, attempt: &Attempt) -> WatchedChannel {
        WatchedChannel::new(self.channel.clone(), attempt.sent.clone())
    }
}

/// A connection, for messages that are encoded already.
pub(crate) async fn ready<T>(channel: T) -> Result<Grpc<T>, Status>
where
    T: GrpcService<Body>,
{
    let mut grpc = Grpc::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    grpc.ready()
        .await
        .map_err(|error| Status::from_error(error.into()))?;
    Ok(grpc)
}

/// A name for one call, by which the server knows it should it come again.
pub(crate) fn request_id() -> String {
    Uuid::new_v4().simple().to_string()
}

/// A request that tells the server how long the caller will wait.
pub(crate) fn timed<T>(message: T, left: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(left);
    request
}

/// Checks that every key has its answer: a shorter list would silently pair the answers
/// with the wrong keys.
pub(crate) fn one_for_each(
    call: &'static str,
    expected: usize,
    answers: Vec<bool>,
) -> Result<Vec<bool>, Error> {
    if answers.len() == expected {
        return Ok(answers);
    }
    Err(Error::Mismatch {
        call,
        expected,
        actual: answers.len(),
    })
}

fn present(call: &'static str, answer: Option<bool>) -> Result<bool, Error> {
    answer.ok_or(Error::Mismatch {
        call,
        expected: 1,
        actual: 0,
    })
}
