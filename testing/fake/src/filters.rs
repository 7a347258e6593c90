//! The calls for filters.

use std::sync::atomic::Ordering::SeqCst;

use seenset_client::v1::{self, filter_service_server::FilterService};
use tonic::{Request, Response, Status, Streaming};

use super::Fake;

/// Pages, names, and filters as requested. Tests of the content of filters use the real server.
#[tonic::async_trait]
impl FilterService for Fake {
    /// Three pages, of two filters, none, and one.
    async fn list_filters(
        &self,
        request: Request<v1::ListFiltersRequest>,
    ) -> Result<Response<v1::ListFiltersResponse>, Status> {
        let token = request.into_inner().page_token;
        self.0.run(&[], || ()).await?;
        let (names, next): (&[_], _) = match token.as_str() {
            "" => (&["a", "b"], "second"),
            "second" => (&[], "third"),
            "third" => (&["c"], ""),
            _ => return Err(Status::invalid_argument("page_token")),
        };
        let filters = names.iter().map(|&name| filter(name.to_owned()));
        Ok(Response::new(v1::ListFiltersResponse {
            filters: filters.collect(),
            next_page_token: next.to_owned(),
        }))
    }

    async fn create_filter(
        &self,
        request: Request<v1::CreateFilterRequest>,
    ) -> Result<Response<v1::CreateFilterResponse>, Status> {
        let v1::CreateFilterRequest { name, spec } = request.into_inner();
        self.0.filters.lock().unwrap().insert(name.clone());
        let kind = spec.as_ref().and_then(|spec| spec.kind);
        let is_scaling = matches!(kind, Some(v1::filter_spec::Kind::Scaling(_)));
        let layers = is_scaling.then_some(v1::Layers {
            layers: 1,
            max_capacity: 7000,
            max_memory_bytes: 65_536,
            fits_budget: Some(false),
        });
        Ok(Response::new(v1::CreateFilterResponse {
            filter: Some(v1::Filter {
                spec,
                layers,
                ..filter(name)
            }),
        }))
    }

    async fn get_filter(
        &self,
        request: Request<v1::GetFilterRequest>,
    ) -> Result<Response<v1::GetFilterResponse>, Status> {
        let name = request.into_inner().name;
        if !self.0.filters.lock().unwrap().contains(&name) {
            return Err(Status::not_found(format!("no filter {name}")));
        }
        Ok(Response::new(v1::GetFilterResponse {
            filter: Some(filter(name)),
        }))
    }

    async fn delete_filter(
        &self,
        request: Request<v1::DeleteFilterRequest>,
    ) -> Result<Response<v1::DeleteFilterResponse>, Status> {
        if self.0.keep_filters.load(SeqCst) {
            return Err(Status::internal("the disk is read-only"));
        }
        let name = request.into_inner().name;
        self.0.filters.lock().unwrap().remove(&name);
        Ok(Response::new(v1::DeleteFilterResponse {}))
    }

    async fn rename_filter(
        &self,
        request: Request<v1::RenameFilterRequest>,
    ) -> Result<Response<v1::RenameFilterResponse>, Status> {
        let v1::RenameFilterRequest { name, new_name } = request.into_inner();
        let mut filters = self.0.filters.lock().unwrap();
        if !filters.remove(&name) {
            return Err(Status::not_found(format!("no filter {name}")));
        }
        filters.insert(new_name.clone());
        Ok(Response::new(v1::RenameFilterResponse {
            filter: Some(filter(new_name)),
        }))
    }

    async fn copy_filter(
        &self,
        request: Request<v1::CopyFilterRequest>,
    ) -> Result<Response<v1::CopyFilterResponse>, Status> {
        let v1::CopyFilterRequest { name, new_name } = request.into_inner();
        let mut seen = self.0.seen.lock().unwrap();
        let keys = seen.keys().filter(|(filter, _)| *filter == name);
        let copies = keys.map(|(_, key)| ((new_name.clone(), key.clone()), String::new()));
        let copies: Vec<_> = copies.collect();
        seen.extend(copies);
        self.0.filters.lock().unwrap().insert(new_name.clone());
        Ok(Response::new(v1::CopyFilterResponse {
            filter: Some(filter(new_name)),
        }))
    }

    async fn merge_filters(
        &self,
        request: Request<v1::MergeFiltersRequest>,
    ) -> Result<Response<v1::MergeFiltersResponse>, Status> {
        let v1::MergeFiltersRequest { source, target } = request.into_inner();
        let mut seen = self.0.seen.lock().unwrap();
        let keys = seen.keys().filter(|(filter, _)| *filter == source);
        let keys: Vec<String> = keys.map(|(_, key)| key.clone()).collect();
        for key in keys {
            seen.entry((target.clone(), key)).or_default();
        }
        Ok(Response::new(v1::MergeFiltersResponse {
            filter: Some(filter(target)),
        }))
    }

    async fn reset_filter(
        &self,
        request: Request<v1::ResetFilterRequest>,
    ) -> Result<Response<v1::ResetFilterResponse>, Status> {
        let name = request.into_inner().name;
        let mut seen = self.0.seen.lock().unwrap();
        seen.retain(|(filter, _), _| *filter != name);
        Ok(Response::new(v1::ResetFilterResponse {
            filter: Some(filter(name)),
        }))
    }

    async fn start_rebuild(
        &self,
        request: Request<v1::StartRebuildRequest>,
    ) -> Result<Response<v1::StartRebuildResponse>, Status> {
        let new_name = request.into_inner().new_name;
        self.0.filters.lock().unwrap().insert(new_name.clone());
        Ok(Response::new(v1::StartRebuildResponse {
            filter: Some(filter(new_name)),
        }))
    }

    async fn finish_rebuild(
        &self,
        request: Request<v1::FinishRebuildRequest>,
    ) -> Result<Response<v1::FinishRebuildResponse>, Status> {
        let v1::FinishRebuildRequest { name, new_name } = request.into_inner();
        self.0.filters.lock().unwrap().remove(&new_name);
        let mut seen = self.0.seen.lock().unwrap();
        let old = std::mem::take(&mut *seen);
        *seen = old
            .into_iter()
            .filter(|((filter, _), _)| *filter != name)
            .map(|((filter, key), id)| match filter == new_name {
                true => ((name.clone(), key), id),
                false => ((filter, key), id),
            })
            .collect();
        Ok(Response::new(v1::FinishRebuildResponse {
            filter: Some(filter(name)),
        }))
    }

    /// Returns a filter with the name of the import. Its version is the announced length, and its
    /// memory is the length of the data. The content of the file does not matter.
    async fn import_filter(
        &self,
        request: Request<Streaming<v1::ImportFilterRequest>>,
    ) -> Result<Response<v1::ImportFilterResponse>, Status> {
        let mut messages = request.into_inner();
        let first = messages.message().await?.unwrap_or_default();
        let mut bytes = first.data.len();
        while let Some(next) = messages.message().await? {
            bytes += next.data.len();
        }
        self.0.run(&[], || ()).await?;
        Ok(Response::new(v1::ImportFilterResponse {
            filter: Some(v1::Filter {
                version: first.size_bytes,
                memory_bytes: bytes as u64,
                ..filter(first.name)
            }),
        }))
    }

    type ExportFilterStream = tokio_stream::Once<Result<v1::ExportFilterResponse, Status>>;

    /// Returns a file whose content is the name. For `short` it announces one byte more.
    async fn export_filter(
        &self,
        request: Request<v1::ExportFilterRequest>,
    ) -> Result<Response<Self::ExportFilterStream>, Status> {
        let name = request.into_inner().name;
        self.0.run(&[], || ()).await?;
        let response = v1::ExportFilterResponse {
            size_bytes: name.len() as u64 + u64::from(name == "short"),
            data: name.into_bytes(),
        };
        Ok(Response::new(tokio_stream::once(Ok(response))))
    }

    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainResponse>, Status> {
        let request = request.into_inner();
        let (filter, keys) = (
            request.filter,
            [super::key(request.key, request.binary_key)],
        );
        let seen = self.0.run(&keys, || self.0.query(&filter, &keys)).await?;
        Ok(Response::new(v1::ExplainResponse {
            seen: seen.first().copied(),
            ..v1::ExplainResponse::default()
        }))
    }
}

fn filter(name: String) -> v1::Filter {
    v1::Filter {
        // Filters of other names have another creation time.
        create_time: Some(prost_types::Timestamp {
            seconds: name.len() as i64,
            nanos: 0,
        }),
        name,
        retry_keys: 1 << 20,
        retry_age: Some(prost_types::Duration {
            seconds: 600,
            nanos: 0,
        }),
        ..v1::Filter::default()
    }
}
