//! All services behind one interface.

use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tonic::{
    body::Body,
    codegen::{
        Service as _,
        http::{Request, Response},
    },
    service::Routes,
};
use tracing::Span;

use crate::{
    engine::Engine,
    grpc::{
        SMALL_MESSAGE_BYTES, STREAM_WINDOW_BYTES,
        core::Core,
        dedup::{self, ResponseHead},
        status::out_of_memory,
        wire::{
            calls::{Calls, Token},
            deadline::Deadline,
            head, malformed,
            memory::CALL_BYTES,
            received::Received,
            request_body::RequestBody,
            response::{Content, ResponseBody, failure},
        },
    },
};

/// The memory of a call that tonic answers. Its buffer has the size of the longest message before
/// that message has arrived.
const ROUTED_BYTES: usize = CALL_BYTES + SMALL_MESSAGE_BYTES;

/// The prefix of the paths of reflection. These calls are streams, whose data can wait in HTTP/2.
const REFLECTION: &str = "/grpc.reflection.";

/// All services.
#[derive(Debug)]
pub struct Services {
    engine: Engine,
    calls: Calls,
    max_message_bytes: usize,
    rest: Routes,
}

impl Services {
    /// Returns `DedupService`, and the other services as routes of tonic.
    pub(super) fn new(
        engine: Engine,
        calls: Calls,
        max_message_bytes: usize,
        rest: Routes,
    ) -> Self {
        Self {
            engine,
            calls,
            max_message_bytes,
            // The router then shares what it would otherwise copy for each call.
            rest: rest.prepare(),
        }
    }

    /// Returns the services for one core. The core has its own `Arc` of the state that each call
    /// clones: with one `Arc` for all, the cores would contend for its reference count.
    pub fn for_core(&self) -> CoreServices {
        CoreServices {
            core: Arc::new(Core {
                engine: self.engine.clone(),
                max_message_bytes: self.max_message_bytes,
                core_calls: self.calls.core_calls(),
            }),
            rest: self.rest.clone(),
        }
    }
}

/// All services, for the calls of one core. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CoreServices {
    pub(super) core: Arc<Core>,
    rest: Routes,
}

impl CoreServices {
    /// Answers a call through tonic.
    fn route(&self, request: Request<Received>) -> ResponseHead {
        let deadline = Deadline::of(request.headers());
        // `ImportFilter` is the only call here that takes its messages as they arrive and that a
        // stop waits for. A stop does not wait for reflection and health.
        let is_stream = request.uri().path().ends_with("/ImportFilter");
        let connection = request.body().connection();
        let charge = connection.charge(match request.uri().path().starts_with(REFLECTION) {
            true => ROUTED_BYTES + STREAM_WINDOW_BYTES as usize,
            false => ROUTED_BYTES,
        });
        let charge = match charge.map_err(out_of_memory) {
            Ok(charge) => charge,
            Err(refused) => return ResponseHead::Now(failure(refused)),
        };
        let answer = self.rest.clone().call(request.map(|body| {
            Body::new(match is_stream {
                true => RequestBody::of_stream(body),
                false => RequestBody::new(body, &self.core.core_calls).in_time(),
            })
        }));
        ResponseHead::Boxed(Box::pin(async move {
            match deadline.limit(answer).await {
                Ok(Ok(response)) => {
                    let response = malformed::correct_response(response);
                    // Some requests are read while their responses are sent.
                    response.map(|body| Content::Routed(body, Some(charge)))
                }
                Err(status) => failure(status),
            }
        }))
    }

    /// Answers a call.
    pub fn answer(&self, request: Request<Received>) -> TracedCall {
        let core = &self.core;
        let path = request.uri().path();
        // The span costs nothing if the log filter leaves it out.
        let span = tracing::debug_span!("call", method = path);
        let (token, answer) = match head::refusal(&request) {
            Some(refused) => (None, ResponseHead::Now(refused)),
            None => match core.core_calls.admit(path) {
                Ok(token) => {
                    let answer = match dedup::Method::of(path) {
                        Some(method) => dedup::answer(core, method, request),
                        None => self.route(request),
                    };
                    (token, answer)
                }
                Err(refused) => (None, ResponseHead::Now(failure(refused))),
            },
        };
        TracedCall {
            answer,
            token,
            span,
        }
    }
}

/// A call, up to the head of its response.
pub struct TracedCall {
    answer: ResponseHead,
    token: Option<Token>,
    span: Span,
}

impl Future for TracedCall {
    type Output = Response<ResponseBody>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            answer,
            token,
            span,
        } = &mut *self;
        let _entered = span.enter();
        let response = match answer {
            ResponseHead::OneKey(call) => ready!(Pin::new(call).poll(cx)),
            ResponseHead::Boxed(response) => ready!(response.as_mut().poll(cx)),
            ResponseHead::Now(response) => mem::replace(response, Response::new(Content::Over)),
        };
        let mut token = token.take();
        if let Some(token) = &mut token {
            token.sending();
        }
        Poll::Ready(response.map(|content| ResponseBody::new(content, token)))
    }
}
