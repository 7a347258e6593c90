//! The calls that an operator makes: filters, snapshots and health.

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

/// How many filters one page asks for: the most that the contract gives.
const PAGE_SIZE: i32 = 1000;

impl Client {
    /// Writes a snapshot of the filter `name`, or of every filter if `name` is empty.
    /// When this is answered they are on stable storage.
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

    /// Makes an empty filter. A name taken by a filter of the same spec succeeds, and
    /// changes nothing.
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

    /// Shows one filter; empty means the one named `default`.
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

    /// Shows every filter, in the order of the names. One call for each 1,000 of them,
    /// each with its own deadline.
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

    /// Removes the filter `name`, from memory and from the disk. Its keys are forgotten.
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

    /// Gives the filter `name` another name, and returns it.
    ///
    /// # Errors
    ///
    /// See [`Client`]; a name that is taken is `ALREADY_EXISTS`.
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

    /// Makes a filter of the same spec and content as the filter `name`, and returns it. One of
    /// many GiB takes longer than the default deadline: see
    /// [`with_deadline`](Self::with_deadline).
    ///
    /// # Errors
    ///
    /// See [`Client`]; a name that is taken is `ALREADY_EXISTS`.
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

    /// Has the filter `target` take all keys of the filter `source`, and returns it. Both must be
    /// copies of one filter. Where keys are counted, the counts of both add up: after an error that
    /// leaves open whether the call was carried out, another call may count them again. One of many
    /// GiB takes longer than the default deadline: see [`with_deadline`](Self::with_deadline).
    ///
    /// # Errors
    ///
    /// See [`Client`]; filters that have no union are `FAILED_PRECONDITION`, and one that has no
    /// memory for the layers of the other `RESOURCE_EXHAUSTED`.
    pub async fn merge_filters(&self, source: &str, target: &str) -> Result<v1::Filter, Error> {
        let response = self
            // Where keys are counted, a second time they would be counted again.
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

    /// Has the filter `name` forget all its keys, and returns it.
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

    /// Begins to rebuild the filter `name` as `new_name`, of the same spec if none is given, and
    /// returns the new one. Until [`finish_rebuild`](Self::finish_rebuild) what is added to the one
    /// comes to the other, and whoever rebuilds it adds to `new_name` what is to be there besides.
    ///
    /// # Errors
    ///
    /// See [`Client`]; a name that is taken is `ALREADY_EXISTS`.
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

    /// Has the filter `new_name` take the place and the name of the filter `name`, which is gone
    /// then, and returns it.
    ///
    /// # Errors
    ///
    /// See [`Client`]; where no rebuild has begun it is `FAILED_PRECONDITION`.
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

    /// What the filter makes of `key`: its canonical form, its hash and its bits, and which of
    /// them are set. Changes nothing. For whoever wonders why a key is seen.
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

    /// Whether the server serves `service` (for instance `seenset.v1.DedupService`;
    /// empty means the server as a whole). It does not while it recovers and while it
    /// drains.
    ///
    /// # Errors
    ///
    /// See [`Client`]; a service that the server does not know is `NOT_FOUND`.
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
