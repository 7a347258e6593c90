//! Writes to a filter that is rebuilt: each is applied to its mirror too.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{
    DataPath, Pending, pending,
    share::{Need, Share},
};
use crate::{
    engine::{
        call::Action,
        error::EngineError,
        filter::{Answer, Filter, WriteContext},
        registry::Mirror,
    },
    store::FilterId,
};

/// The resources of a write for the mirror.
#[derive(Debug)]
pub(super) struct MirrorShare<'a> {
    pub filter: FilterId,
    share: Share<'a>,
    /// The order lock, if the filters count.
    _order: Option<OwnedMutexGuard<()>>,
}

/// The requirements of a write to a filter and to its mirror.
pub(super) struct NeedsOfBoth {
    pub own: Need,
    mirrors: Need,
    order: Option<Arc<Mutex<()>>>,
}

impl NeedsOfBoth {
    pub fn of(own: Need, mirror: &Mirror, id: &str, action: Action, keys: usize) -> Self {
        let mirrors = Need {
            filter: mirror.filter().id(),
            session: mirror.session_id(id, action),
            records: mirror.filter().records_of_a_call(keys),
        };
        Self {
            own,
            mirrors,
            order: mirror.order(),
        }
    }
}

impl DataPath {
    /// Acquires everything for a write of `keys` keys to a filter and to its mirror.
    pub(super) async fn acquire_for_both(
        &self,
        needs: NeedsOfBoth,
        keys: usize,
    ) -> Result<(Share<'_>, MirrorShare<'_>), EngineError> {
        let NeedsOfBoth {
            own,
            mirrors,
            order,
        } = needs;
        let [own_session, mirrors_session] =
            [self.session(own).await?, self.session(mirrors).await?];
        let order = match order {
            Some(order) => Some(order.lock_owned().await),
            None => None,
        };
        let [own_reservation, mirrors_reservation] = match self.journal.get() {
            Some(journal) => {
                let records = [own.records, mirrors.records];
                journal.reserve_for_both(keys, records).await?.map(Some)
            }
            None => [None, None],
        };
        let share = Share {
            reservation: mirrors_reservation,
            session: mirrors_session,
        };
        let own = Share {
            reservation: own_reservation,
            session: own_session,
        };
        let mirrors = MirrorShare {
            filter: mirrors.filter,
            share,
            _order: order,
        };
        Ok((own, mirrors))
    }
}

/// Applies a write to a filter, and to these keys of its mirror.
#[cold]
pub(super) fn write<'a, T>(
    mirror: &Mirror,
    own: WriteContext<'_>,
    mirrors: MirrorShare<'_>,
    write: impl FnOnce(&Filter, WriteContext<'_>) -> Result<Answer<T>, EngineError>,
    action: Action,
    keys: impl Iterator<Item = &'a [u8]>,
) -> Result<Pending<T>, EngineError> {
    let [filter, new] = [mirror.of(), mirror.filter()];
    filter.check_age(own.max_age)?;
    filter.check_takes_keys()?;
    new.check_takes_keys()?;
    // The mirror must get every key that the filter gets, even if it has to wait for that.
    if own.must_not_wait && new.may_be_full() {
        return Err(EngineError::FilterBusy);
    }
    let MirrorShare { share, _order, .. } = mirrors;
    let answer = write(filter, own)?;
    let context = WriteContext {
        reservation: share.reservation,
        session: share.session,
        ..WriteContext::default()
    };
    Ok(Pending {
        mirror: mirror.write(keys, action, context).map(Box::new),
        capacity_warning: filter.capacity_warning(),
        ..pending(filter, answer)
    })
}
