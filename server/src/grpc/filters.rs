//! `FilterService`: what operators call.

use seenset_proto::v1::{
    CreateFilterRequest, CreateFilterResponse, DeleteFilterRequest, DeleteFilterResponse,
    ExplainRequest, ExplainResponse, GetFilterRequest, GetFilterResponse, ListFiltersRequest,
    ListFiltersResponse, filter_service_server::FilterService,
};
use tonic::{Request, Response, Status, async_trait};

use super::{convert, status::status};
use crate::engine::{Creation, Engine};

/// The service.
#[derive(Debug)]
pub struct Filters {
    engine: Engine,
}

impl Filters {
    pub fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

#[async_trait]
impl FilterService for Filters {
    async fn create_filter(
        &self,
        request: Request<CreateFilterRequest>,
    ) -> Result<Response<CreateFilterResponse>, Status> {
        let CreateFilterRequest { name, spec } = request.into_inner();
        let spec = convert::spec_request(spec)?;
        let Creation { filter, is_new } = self
            .engine
            .create_filter(&name, spec)
            .await
            .map_err(status)?;
        if is_new {
            tracing::info!(filter = %filter.name, "filter created");
        }
        let filter = Some(convert::filter(filter, &self.engine));
        Ok(Response::new(CreateFilterResponse { filter }))
    }

    async fn get_filter(
        &self,
        request: Request<GetFilterRequest>,
    ) -> Result<Response<GetFilterResponse>, Status> {
        let GetFilterRequest { name } = request.into_inner();
        let filter = self.engine.get_filter(&name).await.map_err(status)?;
        Ok(Response::new(GetFilterResponse {
            filter: Some(convert::filter(filter, &self.engine)),
        }))
    }

    async fn list_filters(
        &self,
        request: Request<ListFiltersRequest>,
    ) -> Result<Response<ListFiltersResponse>, Status> {
        let ListFiltersRequest {
            page_size,
            page_token,
        } = request.into_inner();
        let page = self
            .engine
            .list_filters(page_size, &page_token)
            .await
            .map_err(status)?;
        let filters = page.filters.into_iter();
        let filters = filters.map(|filter| convert::filter(filter, &self.engine));
        Ok(Response::new(ListFiltersResponse {
            filters: filters.collect(),
            next_page_token: page.next.unwrap_or_default(),
        }))
    }

    async fn delete_filter(
        &self,
        request: Request<DeleteFilterRequest>,
    ) -> Result<Response<DeleteFilterResponse>, Status> {
        let DeleteFilterRequest { name } = request.into_inner();
        self.engine.delete_filter(&name).await.map_err(status)?;
        tracing::info!(filter = %name, "filter deleted");
        Ok(Response::new(DeleteFilterResponse {}))
    }

    async fn explain(
        &self,
        request: Request<ExplainRequest>,
    ) -> Result<Response<ExplainResponse>, Status> {
        let ExplainRequest { filter, key } = request.into_inner();
        let explained = self.engine.explain(&filter, &key).await;
        let explanation = convert::explanation(&explained.map_err(status)?);
        Ok(Response::new(explanation))
    }
}
