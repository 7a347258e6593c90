//! The calls of an operator: filters, snapshots and health.

use seenset_proto::v1::{self, filter_service_client::FilterServiceClient};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::{
    batch::MAX_MESSAGE_BYTES,
    client::{Client, timed},
    error::Error,
    retry::{Attempt, Repeat},
    sent::WatchedChannel,
};

/// The number of filters that one page asks for: the most that the contract returns.
const PAGE_SIZE: i32 = 1000;

impl Client {
    /// Writes a snapshot of the filter `name`, or of every filter if `name` is empty. When the call
    /// returns, the snapshots are on stable storage.
    ///
    /// A filter of many GiB takes longer than the default deadline: see
    /// [`with_deadline`](Self::with_deadline).
    ///
    /// # Errors
    ///
    /// See [`Client`].
    pub async fn store(&self, name: &str) -> Result<Vec<v1::StoredFilter>, Error> {
        let response = self
            .call("Store", Repeat::UnlessSent)
            .run(&self.options, |attempt| {
                let filter = name.to_owned();
                let mut dedup = self.dedup(&attempt);
                async move {
                    dedup
                        .store(timed(v1::StoreRequest { filter }, attempt.left))
                        .await
                }
            })
            .await?;
        Ok(response.filters)
    }

    /// Creates an empty filter. If a filter of this name and the same spec exists, the call
    /// succeeds and changes nothing.
    ///
    /// # Errors
    ///
    /// See [`Client`].
    pub async fn create_filter(
        &self,
        name: &str,
        spec: v1::FilterSpec,
    ) -> Result<v1::Filter, Error> {
        let response = self
            .call("CreateFilter", Repeat::UnlessSent)
            .run(&self.options, |attempt| {
                let request = v1::CreateFilterRequest {
                    name: name.to_owned(),
                    spec: Some(spec.clone()),
                };
                let mut filters = self.filters(&attempt);
                async move { filters.create_filter(timed(request, attempt.left)).await }
            })
            .await?;
        present("CreateFilter", response.filter)
    }

    /// Returns one filter. An empty name means the filter named `default`.
    ///
    /// # Errors
    ///
    /// See [`Client`].
    pub async fn get_filter(&self, name: &str) -> Result<v1::Filter, Error> {
        let response = self
            .call("GetFilter", Repeat::Safe)
            .run(&self.options, |attempt| {
                let name = name.to_owned();
                let mut filters = self.filters(&attempt);
                async move {
                    let request = timed(v1::GetFilterRequest { name }, attempt.left);
                    filters.get_filter(request).await
                }
            })
            .await?;
        present("GetFilter", response.filter)
    }

    /// Returns every filter, in the order of the names. Makes one call for each 1,000 filters. Each
    /// call has its own deadline.
    ///
    /// # Errors
    ///
    /// See [`Client`].
    pub async fn list_filters(&self) -> Result<Vec<v1::Filter>, Error> {
        let call = self.call("ListFilters", Repeat::Safe);
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let page = call
                .run(&self.options, |attempt| {
                    let request = v1::ListFiltersRequest {
                        page_size: PAGE_SIZE,
                        page_token: page_token.clone(),
                    };
                    let mut filters = self.filters(&attempt);
                    async move { filters.list_filters(timed(request, attempt.left)).await }
                })
                .await?;
            all.extend(page.filters);
            if page.next_page_token.is_empty() {
                return Ok(all);
            }
            page_token = page.next_page_token;
        }
    }

    /// Deletes the filter `name` from memory and from the disk. Its keys are forgotten.
    ///
    /// # Errors
    ///
    /// See [`Client`].
    pub async fn delete_filter(&self, name: &str) -> Result<(), Error> {
        self.call("DeleteFilter", Repeat::UnlessSent)
            .run(&self.options, |attempt| {
                let name = name.to_owned();
                let mut filters = self.filters(&attempt);
                async move {
                    let request = timed(v1::DeleteFilterRequest { name }, attempt.left);
                    filters.delete_filter(request).await
                }
            })
            .await?;
        Ok(())
    }

    /// Renames the filter `name` to `new_name`, and returns it.
    ///
    /// # Errors
    ///
    /// See [`Client`]; `ALREADY_EXISTS` if the new name is taken.
    pub async fn rename_filter(&self, name: &str, new_name: &str) -> Result<v1::Filter, Error> {
        let response = self
            .call("RenameFilter", Repeat::UnlessSent)
            .run(&self.options, |attempt| {
                let request = v1::RenameFilterRequest {
                    name: name.to_owned(),
                    new_name: new_name.to_owned(),
                };
                let mut filters = self.filters(&attempt);
                async move { filters.rename_filter(timed(request, attempt.left)).await }
            })
            .await?;
        present("RenameFilter", response.filter)
    }

    /// Creates a filter with the spec and the content of the filter `name`, and returns it.
    ///
    /// Copying a filter of many GiB takes longer than the default deadline: see
    /// [`with_deadline`](Self::with_deadline).
    ///
    /// # Errors
    ///
    /// See [`Client`]; `ALREADY_EXISTS` if the new name is taken.
    pub async fn copy_filter(&self, name: &str, new_name: &str) -> Result<v1::Filter, Error> {
        let response = self
            .call("CopyFilter", Repeat::UnlessSent)
            .run(&self.options, |attempt| {
                let request = v1::CopyFilterRequest {
                    name: name.to_owned(),
                    new_name: new_name.to_owned(),
                };
                let mut filters = self.filters(&attempt);
                async move { filters.copy_filter(timed(request, attempt.left)).await }
            })
            .await?;
        present("CopyFilter", response.filter)
    }

    /// Adds all keys of the filter `source` to the filter `target`, and returns the target. Both
    /// must be copies of one filter.
    ///
    /// In a counting filter, the counts of both filters add up. If an error leaves open whether the
    /// call was carried out, another call may add the counts again.
    ///
    /// Merging a filter of many GiB takes longer than the default deadline: see
    /// [`with_deadline`](Self::with_deadline).
    ///
    /// # Errors
    ///
    /// See [`Client`]; `FAILED_PRECONDITION` if the two filters cannot be merged, and
    /// `RESOURCE_EXHAUSTED` if the target has no memory for the layers of the source.
    pub async fn merge_filters(&self, source: &str, target: &str) -> Result<v1::Filter, Error> {
        let response = self
            // A repeated call would add the counts of a counting filter again.
            .call("MergeFilters", Repeat::UnlessSent)
            .run(&self.options, |attempt| {
                let request = v1::MergeFiltersRequest {
                    source: source.to_owned(),
                    target: target.to_owned(),
                };
                let mut filters = self.filters(&attempt);
                async move { filters.merge_filters(timed(request, attempt.left)).await }
            })
            .await?;
        present("MergeFilters", response.filter)
    }

    /// Removes all keys from the filter `name`, and returns it.
    ///
    /// # Errors
    ///
    /// See [`Client`].
    pub async fn reset_filter(&self, name: &str) -> Result<v1::Filter, Error> {
        let response = self
            .call("ResetFilter", Repeat::UnlessSent)
            .run(&self.options, |attempt| {
                let name = name.to_owned();
                let mut filters = self.filters(&attempt);
                async move {
                    let request = timed(v1::ResetFilterRequest { name }, attempt.left);
                    filters.reset_filter(request).await
                }
            })
            .await?;
        present("ResetFilter", response.filter)
    }

    /// Begins to rebuild the filter `name` as `new_name`, and returns the new filter. Without a
    /// `spec`, the new filter has the spec of the old one.
    ///
    /// Until [`finish_rebuild`](Self::finish_rebuild), every key that is added to the old filter
    /// also goes to the new one. The caller adds the other keys that the new filter should have to
    /// `new_name`.
    ///
    /// # Errors
    ///
    /// See [`Client`]; `ALREADY_EXISTS` if the new name is taken.
    pub async fn start_rebuild(
        &self,
        name: &str,
        new_name: &str,
        spec: Option<v1::FilterSpec>,
    ) -> Result<v1::Filter, Error> {
        let response = self
            .call("StartRebuild", Repeat::Safe)
            .run(&self.options, |attempt| {
                let request = v1::StartRebuildRequest {
                    name: name.to_owned(),
                    new_name: new_name.to_owned(),
                    spec: spec.clone(),
                };
                let mut filters = self.filters(&attempt);
                async move { filters.start_rebuild(timed(request, attempt.left)).await }
            })
            .await?;
        present("StartRebuild", response.filter)
    }

    /// Replaces the filter `name` with the filter `new_name`, and returns the filter. The new
    /// filter gets the name of the old one, and the old one is deleted.
    ///
    /// # Errors
    ///
    /// See [`Client`]; `FAILED_PRECONDITION` if no rebuild of these filters has begun.
    pub async fn finish_rebuild(&self, name: &str, new_name: &str) -> Result<v1::Filter, Error> {
        let response = self
            .call("FinishRebuild", Repeat::Safe)
            .run(&self.options, |attempt| {
                let request = v1::FinishRebuildRequest {
                    name: name.to_owned(),
                    new_name: new_name.to_owned(),
                };
                let mut filters = self.filters(&attempt);
                async move { filters.finish_rebuild(timed(request, attempt.left)).await }
            })
            .await?;
        present("FinishRebuild", response.filter)
    }

    /// Returns the canonical form of `key` in the filter, its hash, its bits, and which of the bits
    /// are set. Changes nothing. It helps to find out why a key is seen.
    ///
    /// # Errors
    ///
    /// See [`Client`].
    pub async fn explain(&self, key: impl AsRef<[u8]>) -> Result<v1::ExplainResponse, Error> {
        let key = key.as_ref();
        self.call("Explain", Repeat::Safe)
            .run(&self.options, |attempt| {
                let request = v1::ExplainRequest {
                    filter: self.filter.to_string(),
                    binary_key: key.to_owned(),
                    ..Default::default()
                };
                let mut filters = self.filters(&attempt);
                async move { filters.explain(timed(request, attempt.left)).await }
            })
            .await
    }

    /// Returns whether the server serves `service` (for instance `seenset.v1.DedupService`; an
    /// empty name means the server as a whole). It does not serve while it recovers and while it
    /// drains.
    ///
    /// # Errors
    ///
    /// See [`Client`]; `NOT_FOUND` if the server does not know the service.
    pub async fn is_serving(&self, service: &str) -> Result<bool, Error> {
        let response = self
            .call("Check", Repeat::Safe)
            .run(&self.options, |attempt| {
                let service = service.to_owned();
                let mut health = HealthClient::new(self.watched(&attempt));
                async move {
                    let request = timed(HealthCheckRequest { service }, attempt.left);
                    health.check(request).await
                }
            })
            .await?;
        Ok(response.status() == ServingStatus::Serving)
    }

    pub(crate) fn filters(&self, attempt: &Attempt) -> FilterServiceClient<WatchedChannel> {
        FilterServiceClient::new(self.watched(attempt))
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }
}

fn present(call: &'static str, filter: Option<v1::Filter>) -> Result<v1::Filter, Error> {
    filter.ok_or(Error::Mismatch {
        call,
        expected: 1,
        actual: 0,
    })
}
