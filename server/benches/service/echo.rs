//! The echo: a tonic server for the same messages, with the usual decoding, that answers every key
//! without a look at it. Its cost is the cost of moving the bytes.

use std::{
    convert::Infallible,
    error::Error,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::future::{BoxFuture, Ready, ready};
use tokio::net::TcpListener;
use tokio_stream::{Stream, StreamExt};
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    codegen::{Service, http},
    server::{Grpc, NamedService, StreamingService, UnaryService},
    transport::{Server, server::TcpIncoming},
};
use tonic_prost::ProstCodec;

use super::messages::{Answer, Answers, Key, Keys};

/// Listens on a free port, prints the address on standard output, and echoes until it is killed.
pub fn serve() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        println!("{}", listener.local_addr()?);
        Server::builder()
            .add_service(Echo)
            .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))
            .await?;
        Ok(())
    })
}

#[derive(Clone)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "seenset.v1.DedupService";
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            Ok(match request.uri().path().rsplit('/').next() {
                Some("QueryAndAdd") => {
                    let mut grpc = Grpc::new(ProstCodec::<Answer, Key>::default());
                    grpc.unary(Echo, request).await
                }
                Some("QueryAndAddBatch") => {
                    let mut grpc = Grpc::new(ProstCodec::<Answers, Keys>::default());
                    grpc.unary(Echo, request).await
                }
                _ => {
                    let mut grpc = Grpc::new(ProstCodec::<Answers, Keys>::default());
                    grpc.streaming(Echo, request).await
                }
            })
        })
    }
}

impl UnaryService<Key> for Echo {
    type Response = Answer;
    type Future = Ready<Result<Response<Answer>, Status>>;

    fn call(&mut self, _: Request<Key>) -> Self::Future {
        ready(Ok(Response::new(Answer { seen: Some(false) })))
    }
}

impl UnaryService<Keys> for Echo {
    type Response = Answers;
    type Future = Ready<Result<Response<Answers>, Status>>;

    fn call(&mut self, request: Request<Keys>) -> Self::Future {
        ready(Ok(Response::new(answer(&request.into_inner()))))
    }
}

impl StreamingService<Keys> for Echo {
    type Response = Answers;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<Answers, Status>> + Send>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<Keys>>) -> Self::Future {
        let answers = request.into_inner().map(|keys| Ok(answer(&keys?)));
        ready(Ok(Response::new(Box::pin(answers))))
    }
}

fn answer(keys: &Keys) -> Answers {
    Answers {
        seen: vec![false; keys.keys.len() + keys.binary_keys.len()],
    }
}
