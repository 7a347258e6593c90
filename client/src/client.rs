//! The calls of a crawler: typed, with deadlines and retries.

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
    endpoint::{self, Address},
    error::Error,
    options::Options,
    retry::{Attempt, Repeat, Rpc},
    sent::WatchedChannel,
};

/// A connection to a server, and the name of the filter that its calls use.
///
/// A key is any bytes: `"https://example.org/"`, a `String`, `&digest`, a `Vec<u8>`. The type does
/// not matter: the same bytes are the same key.
///
/// A client is cheap to clone. Clones share the connection, which is made again by itself when it
/// breaks.
///
/// All calls can fail with any [`Error`] except [`Endpoint`](Error::Endpoint) and
/// [`StreamClosed`](Error::StreamClosed). The contract ([`proto`](crate::proto)) says which
/// requests the server refuses.
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
    /// Connects with the default [`Options`]. `endpoint` is `host:port`, `http://host:port` (both
    /// use port 9090 if they name none) or `unix:/PATH`.
    ///
    /// # Errors
    ///
    /// [`Error::Endpoint`] if `endpoint` is not a valid address, [`Error::Connect`] or
    /// [`Error::Deadline`] if no connection could be made.
    pub async fn connect(endpoint: &str) -> Result<Self, Error> {
        Self::connect_with(endpoint, Options::default()).await
    }

    /// Connects like [`connect`](Self::connect), but with the given [`Options`].
    ///
    /// # Errors
    ///
    /// The same as for [`connect`](Self::connect).
    pub async fn connect_with(endpoint: &str, options: Options) -> Result<Self, Error> {
        let address: Address = endpoint.parse()?;
        let budget = Arc::new(Budget::new(options.retries_per_second));
        Ok(Self {
            channel: endpoint::connect(&address, &options, &budget).await?,
            options,
            budget,
            endpoint: endpoint::name(&address),
            filter: "".into(),
            max_age: None,
            capacity_warnings: CapacityWarnings::default(),
        })
    }

    /// Returns a client that uses the filter `name` on the same connection. An empty name means the
    /// filter named `default`.
    ///
    /// This costs a clone and makes no call. If the filter does not exist, the first call that uses
    /// it fails with `NOT_FOUND`.
    #[must_use]
    pub fn filter(&self, name: &str) -> Self {
        Self {
            filter: name.into(),
            ..self.clone()
        }
    }

    /// Returns a client on the same connection to which only keys of at most this age are seen. It
    /// works on a filter whose keys age. An older key is new.
    ///
    /// `max_age` must be above 0 and at most the `max_age` of the filter. The server rounds it up
    /// to whole slices of the filter. 292 billion years and more mean no limit. Without this
    /// setting, a key is seen for as long as the filter remembers it.
    ///
    /// It applies to all calls that return whether keys are seen, also on streams. On a filter of
    /// another kind these calls fail with `FAILED_PRECONDITION`.
    #[must_use]
    pub fn with_max_age(&self, max_age: Duration) -> Self {
        Self {
            max_age: max_age.try_into().ok(),
            ..self.clone()
        }
    }

    /// Returns a client on the same connection with another deadline for each call. See
    /// [`Options::deadline`].
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

    /// Returns the latest warning of each filter that holds at least 80 % of its capacity. The
    /// server sends these warnings with its answers to batches and streams, so only filters that
    /// were used in this way on this connection are listed.
    ///
    /// A filter that does not grow and is past its capacity reports more and more new keys as seen.
    /// The first warning about a filter, and the first one that says that it is full, also go to
    /// the log (`tracing`).
    pub fn capacity_warnings(&self) -> Vec<CapacityWarning> {
        self.capacity_warnings.all()
    }

    /// Returns whether `key` has been seen. Changes nothing.
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

    /// Marks `key` as seen. After this call has returned, every later query reports the key as
    /// seen, until it is [removed](Self::remove) or, in a filter whose keys age, is too old.
    ///
    /// # Errors
    ///
    /// See [`Client`].
    pub async fn add(&self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        let key = key.as_ref();
        // Without the id, a repeated call would make a counting filter count the key twice.
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

    /// Marks `key` as seen and returns whether it had been seen before, in one atomic step. If
    /// several callers race on one new key, exactly one of them gets `false`.
    ///
    /// # Errors
    ///
    /// See [`Client`]. After [`Error::Broken`] and [`Error::Deadline`] the key may be marked
    /// although no caller got `false`.
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

    /// Removes `key` from a counting filter and returns whether it was there.
    ///
    /// Remove only keys that were added. A key that was never added can be there by chance (a false
    /// positive). Removing it counts down other keys, and the filter may then forget some of them.
    ///
    /// # Errors
    ///
    /// See [`Client`]. On a filter that is not a counting filter the call fails with
    /// `FAILED_PRECONDITION`.
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

    /// [`query`](Self::query) for many keys. Returns one answer for each key, in the order of the
    /// keys.
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

    /// [`add`](Self::add) for many keys. Adds all of them, or none if the server refuses one of
    /// them.
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

    /// [`query_and_add`](Self::query_and_add) for many keys. Returns one answer for each key, in
    /// the order of the keys. If the batch contains a key twice, at most the first one is new.
    ///
    /// # Errors
    ///
    /// The same as for [`query_and_add`](Self::query_and_add).
    pub async fn query_and_add_batch(&self, keys: impl Into<KeyBatch>) -> Result<Vec<bool>, Error> {
        self.query_and_add_batch_as(&request_id(), keys).await
    }

    /// [`query_and_add_batch`](Self::query_and_add_batch) with an idempotency key of the caller,
    /// for a caller that may have to repeat the call from another process. A call that repeats it
    /// with the same `request_id`, and with the same keys or some of them, gets the first answers.
    ///
    /// A `request_id` has at most 128 bytes and names one call. `retry_age` and `retry_keys` of the
    /// filter say how long the server remembers it.
    ///
    /// # Errors
    ///
    /// The same as for [`query_and_add`](Self::query_and_add).
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

    /// [`remove`](Self::remove) for many keys. Returns one answer for each key, in the order of the
    /// keys.
    ///
    /// # Errors
    ///
    /// The same as for [`remove`](Self::remove).
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
        call: &Rpc,
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

    /// Encodes a message with a new random id, so that the server recognises a repeated call.
    fn message_with_id(&self, keys: KeyBatch) -> Result<Message, Error> {
        self.message_as(&request_id(), keys)
    }

    /// Encodes a message with this id.
    pub(crate) fn message_as(&self, request_id: &str, keys: KeyBatch) -> Result<Message, Error> {
        keys.into_message(&self.filter, request_id, self.max_age)
    }

    pub(crate) fn call(&self, name: &'static str, repeat: Repeat) -> Rpc {
        Rpc {
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

    /// Returns the channel for one attempt of a call.
    pub(crate) fn watched(&self, attempt: &Attempt) -> WatchedChannel {
        WatchedChannel::new(self.channel.clone(), attempt.sent.clone())
    }
}

/// Returns a channel for messages that are already encoded, once it is ready.
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

/// Returns a new random id for one call. The server recognises the call by it if it is repeated.
pub(crate) fn request_id() -> String {
    Uuid::new_v4().simple().to_string()
}

/// Returns a request that carries the time left to the server (`grpc-timeout`).
pub(crate) fn timed<T>(message: T, left: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(left);
    request
}

/// Checks that every key has its answer. A shorter list would silently pair the answers with the
/// wrong keys.
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
