//! Writes to a filter that is rebuilt: each is applied to its mirror too.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{
    DataPath, Pending, pending,
    resources::{Need, Resources},
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
pub(super) struct MirrorResources<'a> {
    pub filter: FilterId,
    resources: Resources<'a>,
    /// The order lock, if the filters count.
    _order: Option<OwnedMutexGuard<()>>,
}

/// The requirements of a write to a filter and to its mirror.
pub(super) struct NeedsOfBoth {
    pub own: Need,
    of_mirror: Need,
    order: Option<Arc<Mutex<()>>>,
}

impl NeedsOfBoth {
    pub fn of(own: Need, mirror: &Mirror, id: &str, action: Action, keys: usize) -> Self {
        let of_mirror = Need {
            filter: mirror.filter().id(),
            session: mirror.session_id(id, action),
            records: mirror.filter().records_of_a_call(keys),
        };
        Self {
            own,
            of_mirror,
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
    ) -> Result<(Resources<'_>, MirrorResources<'_>), EngineError> {
        let NeedsOfBoth {
            own,
            of_mirror,
            order,
        } = needs;
        let [own_session, mirror_session] =
            [self.session(own).await?, self.session(of_mirror).await?];
        let order = match order {
            Some(order) => Some(order.lock_owned().await),
            None => None,
        };
        let [own_reservation, mirror_reservation] = match self.journal.get() {
            Some(journal) => {
                let records = [own.records, of_mirror.records];
                journal.reserve_for_both(keys, records).await?.map(Some)
            }
            None => [None, None],
        };
        let own = Resources {
            reservation: own_reservation,
            session: own_session,
        };
        let of_mirror = MirrorResources {
            filter: of_mirror.filter,
            resources: Resources {
                reservation: mirror_reservation,
                session: mirror_session,
            },
            _order: order,
        };
        Ok((own, of_mirror))
    }
}

/// Applies a write to a filter, and to these keys of its mirror.
#[cold]
pub(super) fn write<'a, T>(
    mirror: &Mirror,
    own: WriteContext<'_>,
    of_mirror: MirrorResources<'_>,
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
    let MirrorResources {
        resources, _order, ..
    } = of_mirror;
    let answer = write(filter, own)?;
    let context = WriteContext {
        reservation: resources.reservation,
        session: resources.session,
        ..WriteContext::default()
    };
    Ok(Pending {
        mirror: mirror.write(keys, action, context).map(Box::new),
        capacity_warning: filter.capacity_warning(),
        ..pending(filter, answer)
    })
}
