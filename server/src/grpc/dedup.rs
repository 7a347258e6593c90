//! `DedupService`: what crawlers call.

use std::sync::Arc;

use seenset_proto::{
    batch::{BatchRequest, BatchResponse},
    server::dedup_service_server::DedupService,
    v1::{
        AddBatchResponse, AddRequest, QueryAndAddRequest, QueryRequest, StoreRequest, StoreResponse,
    },
};
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming, async_trait};

use super::{
    Drain, convert,
    one_key::{OneAnswer, OneKey},
    status::status,
    stream::Answers,
};
use crate::engine::{AtOnce, Call, Engine};

/// The service.
#[derive(Debug, Clone)]
pub struct Dedup {
    engine: Engine,
    at_once: Option<Arc<AtOnce>>,
    draining: watch::Receiver<Drain>,
}

impl Dedup {
    pub fn new(engine: Engine, draining: watch::Receiver<Drain>) -> Self {
        Self {
            at_once: engine.at_once().map(Arc::new),
            engine,
            draining,
        }
    }

    /// The service for one core, with what its calls count the owners of.
    pub fn for_core(&self) -> Self {
        Self::new(self.engine.clone(), self.draining.clone())
    }

    /// Answers a call for one key.
    async fn answer<Q: OneKey>(
        &self,
        request: Request<Q>,
    ) -> Result<Response<OneAnswer<Q>>, Status> {
        let (engine, at_once) = (&self.engine, self.at_once.as_ref());
        let answer = OneAnswer::new(engine, at_once, request.into_inner()).await?;
        Ok(Response::new(answer))
    }
}

#[async_trait]
impl DedupService for Dedup {
    type QueryStream = OneAnswer<QueryRequest>;
    type AddStream = OneAnswer<AddRequest>;
    type QueryAndAddStream = OneAnswer<QueryAndAddRequest>;
    type QueryAndAddStreamStream = Answers;

    async fn query(
        &self,
        request: Request<QueryRequest>,
    ) -> Result<Response<OneAnswer<QueryRequest>>, Status> {
        self.answer(request).await
    }

    async fn add(
        &self,
        request: Request<AddRequest>,
    ) -> Result<Response<OneAnswer<AddRequest>>, Status> {
        self.answer(request).await
    }

    async fn query_and_add(
        &self,
        request: Request<QueryAndAddRequest>,
    ) -> Result<Response<OneAnswer<QueryAndAddRequest>>, Status> {
        self.answer(request).await
    }

    async fn store(
        &self,
        request: Request<StoreRequest>,
    ) -> Result<Response<StoreResponse>, Status> {
        let StoreRequest { filter } = request.into_inner();
        let reports = self.engine.store(&filter).await.map_err(status)?;
        for report in &reports {
            tracing::info!(
                filter = %report.name,
                version = report.version,
                written_bytes = report.written_bytes,
                duration = ?report.duration,
                "stored as asked"
            );
        }
        let filters = reports.into_iter().map(convert::stored_filter).collect();
        Ok(Response::new(StoreResponse { filters }))
    }

    async fn query_batch(
        &self,
        request: Request<BatchRequest>,
    ) -> Result<Response<BatchResponse>, Status> {
        let BatchRequest { filter, keys, .. } = request.into_inner();
        let seen = self
            .engine
            .query_batch(&filter, keys)
            .await
            .map_err(status)?;
        Ok(Response::new(BatchResponse { seen }))
    }

    async fn add_batch(
        &self,
        request: Request<BatchRequest>,
    ) -> Result<Response<AddBatchResponse>, Status> {
        let BatchRequest {
            filter,
            keys,
            request_id,
        } = request.into_inner();
        let call = Call {
            filter: &filter,
            request_id: &request_id,
        };
        self.engine.add_batch(call, keys).await.map_err(status)?;
        Ok(Response::new(AddBatchResponse {}))
    }

    async fn query_and_add_batch(
        &self,
        request: Request<BatchRequest>,
    ) -> Result<Response<BatchResponse>, Status> {
        let BatchRequest {
            filter,
            keys,
            request_id,
        } = request.into_inner();
        let call = Call {
            filter: &filter,
            request_id: &request_id,
        };
        let seen = self.engine.query_and_add_batch(call, keys).await;
        let seen = seen.map_err(status)?;
        Ok(Response::new(BatchResponse { seen }))
    }

    async fn query_and_add_stream(
        &self,
        request: Request<Streaming<BatchRequest>>,
    ) -> Result<Response<Answers>, Status> {
        let answers = Answers::new(
            self.engine.clone(),
            request.into_inner(),
            self.draining.clone(),
        );
        Ok(Response::new(answers))
    }
}
