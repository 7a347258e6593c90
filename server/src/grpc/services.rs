//! All services behind one face.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::Either;
use seenset_proto::server::dedup_service_server::{DedupServiceServer, SERVICE_NAME};
use tonic::{
    body::Body,
    codegen::http::{Request, Response},
    service::Routes,
};
use tower::Service;

use super::dedup::Dedup;

/// All services.
#[derive(Debug)]
pub struct Services {
    dedup: Dedup,
    rest: Routes,
    max_message_bytes: usize,
}

impl Services {
    /// The services that are not [`Dedup`] limit their messages themselves.
    pub(super) fn new(dedup: Dedup, rest: Routes, max_message_bytes: usize) -> Self {
        // The router shares what it would copy for each call otherwise.
        let rest = rest.prepare();
        Self {
            dedup,
            rest,
            max_message_bytes,
        }
    }

    /// The services for one core. What is cloned for each call is the core's own, or all cores
    /// would contend for the counts of its owners.
    pub fn for_core(&self) -> CoreServices {
        let dedup = DedupServiceServer::new(self.dedup.for_core())
            .max_decoding_message_size(self.max_message_bytes);
        CoreServices {
            dedup,
            rest: Arc::new(self.rest.clone()),
        }
    }
}

/// All services, for the calls of one core. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CoreServices {
    dedup: DedupServiceServer<Dedup>,
    rest: Arc<Routes>,
}

/// The service of a path: `/package.Service/Method`.
fn service(path: &str) -> Option<&str> {
    let (service, _method) = path.strip_prefix('/')?.split_once('/')?;
    Some(service)
}

impl Service<Request<Body>> for CoreServices {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<
        <DedupServiceServer<Dedup> as Service<Request<Body>>>::Future,
        <Routes as Service<Request<Body>>>::Future,
    >;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // All are always ready: what limits calls is further out.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The router takes some 6 % of a call for one key, and crawlers make no other calls.
        if service(request.uri().path()) == Some(SERVICE_NAME) {
            Either::Left(self.dedup.call(request))
        } else {
            Either::Right(Routes::clone(&self.rest).call(request))
        }
    }
}
