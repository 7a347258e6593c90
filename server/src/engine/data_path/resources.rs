//! The resources that a write needs for one filter.

use super::DataPath;
use crate::{
    engine::{call::requests::RetrySession, commit::WalReservation, error::EngineError},
    store::{FilterId, RequestId},
};

/// The requirements of a write for one filter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    pub filter: FilterId,
    pub session: Option<RequestId>,
    pub records: usize,
}

/// The session and the log reservation of a write for one filter.
#[derive(Debug)]
pub(super) struct Resources<'a> {
    /// The reservation, if there is a log.
    pub reservation: Option<WalReservation<'a>>,
    /// The session, if the call has a request id.
    pub session: Option<Box<RetrySession<'a>>>,
}

impl DataPath {
    /// Acquires the session of a write, if it needs one.
    pub(super) async fn session(
        &self,
        need: Need,
    ) -> Result<Option<Box<RetrySession<'_>>>, EngineError> {
        match need.session {
            Some(id) if self.requests.is_on() => {
                self.requests.begin(need.filter, id).await.map(Some)
            }
            _ => Ok(None),
        }
    }
}
