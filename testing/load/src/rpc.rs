//! Calls as bytes: the headers of a request, and the checks of its answer.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use h2::{RecvStream, client::ResponseFuture};
use seenset_client::{Address, Error, Options};
use tonic::{
    Code, Status,
    codegen::http::{
        HeaderMap, HeaderValue, Method, Request, StatusCode, Uri,
        header::{CONTENT_TYPE, TE},
        uri::PathAndQuery,
    },
};

use super::{
    Calls,
    answer::{Answer, Form, Unfit},
    connection::Connection,
};

/// One rpc, called many times.
pub(super) struct Rpc {
    name: &'static str,
    endpoint: Arc<str>,
    options: Options,
    head: Request<()>,
    form: Form,
    keys: usize,
}

impl Rpc {
    /// Creates the rpc for calls of this form.
    pub fn new(server: &Address, options: Options, calls: Calls) -> Result<Self, Error> {
        let path = match calls {
            Calls::Single => "/seenset.v1.DedupService/QueryAndAdd",
            Calls::Batch { .. } => "/seenset.v1.DedupService/QueryAndAddBatch",
            Calls::Coalesced | Calls::Stream { .. } => "/seenset.v1.DedupService/QueryAndAddStream",
        };
        let uri = match server {
            Address::Http(uri) => uri.clone(),
            Address::Unix(_) => Uri::from_static("http://localhost"),
        };
        let mut uri = uri.into_parts();
        uri.path_and_query = Some(PathAndQuery::from_static(path));
        let mut head = Request::new(());
        *head.method_mut() = Method::POST;
        *head.uri_mut() = Uri::from_parts(uri).map_err(|reason| Error::Endpoint {
            endpoint: server.to_string(),
            reason: reason.to_string(),
        })?;
        let headers = head.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        Ok(Self {
            name: path.rsplit('/').next().unwrap_or(path),
            endpoint: server.to_string().into(),
            options,
            head,
            form: Form::new(calls),
            keys: calls.keys(),
        })
    }

    /// Makes one call and returns its answers, one byte for each key.
    pub async fn unary(&self, connection: Connection, request: Bytes) -> Result<BytesMut, Error> {
        let (response, mut send) = self.open(connection).await?;
        // If the server does not want the data any more, its answer says why.
        let _ = send.send_data(request, true);
        let mut body = self.body(response).await?;
        let mut received = BytesMut::new();
        while self.receive(&mut body, &mut received).await? {
            self.read(&received)?;
        }
        let seen = self.form.read_all(&received);
        let seen = seen.map_err(|unfit| self.unfit(unfit))?.len();
        received.advance(self.form.head_bytes());
        received.truncate(seen);
        Ok(received)
    }

    /// Opens a call.
    pub async fn open(
        &self,
        connection: Connection,
    ) -> Result<(ResponseFuture, h2::SendStream<Bytes>), Error> {
        let opened = connection.call(self.head.clone()).await;
        opened.map_err(|error| self.broken(error))
    }

    /// Returns the body of the answer, unless the server refuses the call at once.
    pub async fn body(&self, response: ResponseFuture) -> Result<RecvStream, Error> {
        let (head, body) = response
            .await
            .map_err(|error| self.broken(error))?
            .into_parts();
        // A refusal can come without a body, and then without trailers.
        if head.headers.contains_key(Status::GRPC_STATUS) {
            self.check(&head.headers)?;
        } else if head.status != StatusCode::OK {
            let status = Status::unknown(format!("the answer is HTTP status {}", head.status));
            return Err(self.failed(status));
        }
        Ok(body)
    }

    /// Appends the next data. Returns false at the end of the answer, if the server reports
    /// success.
    pub async fn receive(&self, body: &mut RecvStream, to: &mut BytesMut) -> Result<bool, Error> {
        if let Some(data) = body.data().await {
            let data = data.map_err(|error| self.broken(error))?;
            to.extend_from_slice(&data);
            let released = body.flow_control().release_capacity(data.len());
            released.map_err(|error| self.broken(error))?;
            return Ok(true);
        }
        match body.trailers().await.map_err(|error| self.broken(error))? {
            Some(trailers) => self.check(&trailers)?,
            None => return Err(self.ended("the answer ended without a status")),
        }
        Ok(false)
    }

    /// Returns the answer at the start of the received bytes, if it is complete.
    pub fn read<'a>(&self, received: &'a [u8]) -> Result<Option<Answer<'a>>, Error> {
        self.form.read(received).map_err(|unfit| self.unfit(unfit))
    }

    /// Returns the error for a stream that the server ended before all was answered, or on which it
    /// answered more than was asked.
    pub fn out_of_step(&self) -> Error {
        self.ended("there are not as many answers as requests")
    }

    /// Returns the error for a run in which no answer has come within the deadline.
    pub fn expired(&self) -> Error {
        Error::Deadline {
            call: self.name,
            endpoint: Arc::clone(&self.endpoint),
            deadline: self.options.deadline,
            may_be_applied: true,
        }
    }

    fn check(&self, headers: &HeaderMap) -> Result<(), Error> {
        // The usual case, and faster than parsing the status.
        if headers
            .get(Status::GRPC_STATUS)
            .is_some_and(|code| code == "0")
        {
            return Ok(());
        }
        match Status::from_header_map(headers) {
            Some(status) if status.code() == Code::Ok => Ok(()),
            Some(status) => Err(self.failed(status)),
            None => Err(self.ended("the answer ended without a status")),
        }
    }

    fn broken(&self, error: h2::Error) -> Error {
        self.failed(Status::from_error(Box::new(error)))
    }

    /// Returns the error for a call that ended with `status`.
    fn failed(&self, status: Status) -> Error {
        let deadline = self.options.deadline;
        Error::from_status(self.name, &self.endpoint, deadline, status, true)
    }

    /// Returns the error for a call whose answer ended for this reason.
    fn ended(&self, reason: &str) -> Error {
        Error::Broken {
            call: self.name,
            endpoint: Arc::clone(&self.endpoint),
            reason: reason.to_owned(),
            may_be_applied: true,
            status: Box::new(Status::unavailable(reason)),
        }
    }

    fn unfit(&self, unfit: Unfit) -> Error {
        Error::Mismatch {
            call: self.name,
            expected: self.keys,
            actual: unfit.answers,
        }
    }
}
