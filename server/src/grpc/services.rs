//! All services behind one face.

use std::{
    convert::Infallible,
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

/// All services. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Services {
    dedup: DedupServiceServer<Dedup>,
    rest: Routes,
}

impl Services {
    pub(super) fn new(dedup: DedupServiceServer<Dedup>, rest: Routes) -> Self {
        // The router shares what it would copy for each call otherwise.
        let rest = rest.prepare();
        Self { dedup, rest }
    }
}

/// The service of a path: `/package.Service/Method`.
fn service(path: &str) -> Option<&str> {
    let (service, _method) = path.strip_prefix('/')?.split_once('/')?;
    Some(service)
}

impl Service<Request<Body>> for Services {
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
            Either::Right(self.rest.call(request))
        }
    }
}
