//! `FilterService`, the service for operators.

use futures_util::stream::BoxStream;
use seenset_proto::v1::{
    CopyFilterRequest, CopyFilterResponse, CreateFilterRequest, CreateFilterResponse,
    DeleteFilterRequest, DeleteFilterResponse, ExplainRequest, ExplainResponse,
    ExportFilterRequest, ExportFilterResponse, FinishRebuildRequest, FinishRebuildResponse,
    GetFilterRequest, GetFilterResponse, ImportFilterRequest, ImportFilterResponse,
    ListFiltersRequest, ListFiltersResponse, MergeFiltersRequest, MergeFiltersResponse,
    RenameFilterRequest, RenameFilterResponse, ResetFilterRequest, ResetFilterResponse,
    StartRebuildRequest, StartRebuildResponse, filter_service_server::FilterService,
};
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming, async_trait};

use crate::engine::{Creation, Engine};
use crate::grpc::{
    admin::{export, import},
    convert,
    dedup::keys::Key,
    status::status,
    wire::calls::Drain,
};

/// The service.
#[derive(Debug)]
pub struct Filters {
    engine: Engine,
    drain: watch::Receiver<Drain>,
}

impl Filters {
    pub fn new(engine: Engine, drain: watch::Receiver<Drain>) -> Self {
        Self { engine, drain }
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

    async fn rename_filter(
        &self,
        request: Request<RenameFilterRequest>,
    ) -> Result<Response<RenameFilterResponse>, Status> {
        let RenameFilterRequest { name, new_name } = request.into_inner();
        let renamed = self.engine.rename_filter(&name, &new_name).await;
        let filter = renamed.map_err(status)?;
        tracing::info!(filter = %name, to = %new_name, "filter renamed");
        let filter = Some(convert::filter(filter, &self.engine));
        Ok(Response::new(RenameFilterResponse { filter }))
    }

    async fn copy_filter(
        &self,
        request: Request<CopyFilterRequest>,
    ) -> Result<Response<CopyFilterResponse>, Status> {
        let CopyFilterRequest { name, new_name } = request.into_inner();
        let copied = self.engine.copy_filter(&name, &new_name).await;
        let filter = copied.map_err(status)?;
        tracing::info!(filter = %name, to = %new_name, "filter copied");
        let filter = Some(convert::filter(filter, &self.engine));
        Ok(Response::new(CopyFilterResponse { filter }))
    }

    async fn merge_filters(
        &self,
        request: Request<MergeFiltersRequest>,
    ) -> Result<Response<MergeFiltersResponse>, Status> {
        let MergeFiltersRequest { source, target } = request.into_inner();
        let merged = self.engine.merge_filters(&source, &target).await;
        let filter = merged.map_err(status)?;
        tracing::info!(filter = %target, %source, "filters merged");
        let filter = Some(convert::filter(filter, &self.engine));
        Ok(Response::new(MergeFiltersResponse { filter }))
    }

    async fn reset_filter(
        &self,
        request: Request<ResetFilterRequest>,
    ) -> Result<Response<ResetFilterResponse>, Status> {
        let ResetFilterRequest { name } = request.into_inner();
        let filter = self.engine.reset_filter(&name).await.map_err(status)?;
        tracing::info!(filter = %name, "filter reset");
        let filter = Some(convert::filter(filter, &self.engine));
        Ok(Response::new(ResetFilterResponse { filter }))
    }

    async fn start_rebuild(
        &self,
        request: Request<StartRebuildRequest>,
    ) -> Result<Response<StartRebuildResponse>, Status> {
        let StartRebuildRequest {
            name,
            new_name,
            spec,
        } = request.into_inner();
        let spec = spec.map(|spec| convert::spec_request(Some(spec)));
        let started = self
            .engine
            .start_rebuild(&name, &new_name, spec.transpose()?)
            .await;
        let filter = started.map_err(status)?;
        tracing::info!(filter = %name, new = %new_name, "rebuild started");
        let filter = Some(convert::filter(filter, &self.engine));
        Ok(Response::new(StartRebuildResponse { filter }))
    }

    async fn finish_rebuild(
        &self,
        request: Request<FinishRebuildRequest>,
    ) -> Result<Response<FinishRebuildResponse>, Status> {
        let FinishRebuildRequest { name, new_name } = request.into_inner();
        let finished = self.engine.finish_rebuild(&name, &new_name).await;
        let filter = finished.map_err(status)?;
        tracing::info!(filter = %name, new = %new_name, "rebuild finished");
        let filter = Some(convert::filter(filter, &self.engine));
        Ok(Response::new(FinishRebuildResponse { filter }))
    }

    async fn import_filter(
        &self,
        request: Request<Streaming<ImportFilterRequest>>,
    ) -> Result<Response<ImportFilterResponse>, Status> {
        let messages = request.into_inner();
        let filter = import::run(&self.engine, messages, self.drain.clone()).await?;
        tracing::info!(filter = %filter.name, "filter imported");
        let filter = Some(convert::filter(filter, &self.engine));
        Ok(Response::new(ImportFilterResponse { filter }))
    }

    type ExportFilterStream = BoxStream<'static, Result<ExportFilterResponse, Status>>;

    async fn export_filter(
        &self,
        request: Request<ExportFilterRequest>,
    ) -> Result<Response<Self::ExportFilterStream>, Status> {
        let ExportFilterRequest { name } = request.into_inner();
        let export = self.engine.export_filter(&name).await.map_err(status)?;
        Ok(Response::new(export::pieces(export, self.drain.clone())))
    }

    async fn explain(
        &self,
        request: Request<ExplainRequest>,
    ) -> Result<Response<ExplainResponse>, Status> {
        let request = request.into_inner();
        let key = Key::new(request.key, request.binary_key)?;
        let explained = self.engine.explain(&request.filter, key.bytes()).await;
        let explained = explained.map_err(|error| key.status(error))?;
        let explanation = convert::explanation(&explained);
        Ok(Response::new(explanation))
    }
}
