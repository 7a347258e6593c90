//! A caller of operations on whole filters.

use std::sync::Arc;

use fastrand::Rng;
use seenset_proto::v1::{
    CopyFilterRequest, CreateFilterRequest, DeleteFilterRequest, ExportFilterRequest, FileFormat,
    FinishRebuildRequest, ImportFilterRequest, MergeFiltersRequest, RenameFilterRequest,
    ResetFilterRequest, StartRebuildRequest, StoreRequest,
};
use tonic::{Code, Status};

use crate::{
    Shared, filter_name, kind_name,
    model::{Begun, Model, Name, Outcome},
    operation::{CAPACITY, Kind, Operation},
    server::{Clients, outcome, request},
    violation::violated,
};

/// The size of a message of an import.
const PIECE_BYTES: usize = 32 << 10;

/// Operates until the server ends.
pub async fn run(shared: Arc<Shared>, mut clients: Clients, mut rng: Rng) {
    while !shared.is_over() {
        let begun = {
            let mut model = shared.model.lock();
            choose(&model, &shared.kinds, &mut rng)
                .map(|operation| (model.kind_of(operation), model.begin(operation)))
        };
        let Some((kind, begun)) = begun else {
            // All names are busy.
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            continue;
        };
        let outcome = outcome(call(begun.operation, &mut clients, &mut rng).await);
        shared.note(row(kind, begun.operation), &outcome);
        ended(&shared, begun, outcome);
        let pause = std::time::Duration::from_millis(rng.u64(..10));
        tokio::time::sleep(pause).await;
    }
}

fn ended(shared: &Shared, begun: Begun, outcome: Outcome<()>) {
    let mut model = shared.model.lock();
    match outcome {
        Outcome::Unknown => model.unanswered(begun),
        Outcome::Done(()) => model.end(&begun, true),
        Outcome::Refused(status) => {
            // Two filters that have grown apart cannot be merged.
            let is_merge = matches!(begun.operation, Operation::Merge { .. });
            if !(is_merge && status.code() == Code::FailedPrecondition) {
                shared.check(violated(format!("{begun:?} was refused: {status}")));
            }
            model.end(&begun, false);
        }
    }
}

fn row(kind: Kind, operation: Operation) -> String {
    format!("{} {}", kind_name(kind), operation.title())
}

/// The operation that only filters with Guava's layout support.
pub const EXCHANGE: &str = "export and import";

/// The operations that every run must contain, with filters of any kind.
pub const TITLES: [&str; 10] = [
    "create",
    "delete",
    "reset",
    "rename",
    "copy",
    "merge",
    "start rebuild",
    "finish rebuild",
    EXCHANGE,
    "store",
];

/// Chooses an operation that the server must be able to carry out.
fn choose(model: &Model, kinds: &[Kind], rng: &mut Rng) -> Option<Operation> {
    let idle = model.idle();
    let of = |is: &dyn Fn(Name) -> bool, rng: &mut Rng| {
        let names: Vec<Name> = idle.iter().copied().filter(|&name| is(name)).collect();
        rng.choice(names)
    };
    let free = of(&|name| model.filter(name).is_none(), rng);
    let taken = of(&|name| model.filter(name).is_some(), rng);
    let (Some(name), choice) = (taken, rng.u8(..20)) else {
        return free.map(|name| create(name, kinds, rng));
    };
    let is_rebuilt = model.is_rebuilt(name);
    let is_apart = !is_rebuilt && !model.is_mirror(name);
    let kind = model.filter(name)?.kind;
    match (choice, free) {
        (0..=2, Some(free)) => Some(create(free, kinds, rng)),
        (3..=4, _) if !is_rebuilt => Some(Operation::Delete { name }),
        (5..=6, _) if is_apart => Some(Operation::Reset { name }),
        (7..=8, Some(to)) => Some(Operation::Rename { name, to }),
        (9..=10, Some(to)) if kind == Kind::Guava => Some(Operation::Exchange { name, to }),
        (9..=11, Some(to)) => Some(Operation::Copy { name, to }),
        (12..=14, _) => {
            let family = model.filter(name)?.family;
            let is_target = |other: Name| {
                other != name
                    && model
                        .filter(other)
                        .is_some_and(|filter| filter.family == family)
                    && !model.is_rebuilt(other)
                    && model.rebuilds(other) != Some(name)
            };
            let target = of(&is_target, rng)?;
            Some(Operation::Merge { name, target })
        }
        (15, Some(to)) if is_apart => {
            let kind = match kind {
                // A rebuild keeps the hash function. A removed key is removed from both filters.
                Kind::Guava | Kind::Counting => None,
                _ => rng.choice([
                    None,
                    Some(Kind::Plain),
                    Some(Kind::Scaling),
                    Some(Kind::Counting),
                ])?,
            };
            Some(Operation::StartRebuild { name, to, kind })
        }
        (15..=18, _) if is_rebuilt => {
            let to = model.mirror(name).filter(|mirror| idle.contains(mirror))?;
            Some(Operation::FinishRebuild { name, to })
        }
        (19, _) => Some(Operation::Store { name }),
        _ => None,
    }
}

fn create(name: Name, kinds: &[Kind], rng: &mut Rng) -> Operation {
    let kind = rng.choice(kinds).copied().unwrap_or(Kind::Plain);
    Operation::Create { name, kind }
}

async fn call(operation: Operation, clients: &mut Clients, rng: &mut Rng) -> Result<(), Status> {
    let name = filter_name(operation.name());
    let filters = &mut clients.filters;
    match operation {
        Operation::Create { kind, .. } => {
            let spec = Some(kind.spec());
            let message = CreateFilterRequest { name, spec };
            filters.create_filter(request(message, rng)).await?;
        }
        Operation::Delete { .. } => {
            let message = DeleteFilterRequest { name };
            filters.delete_filter(request(message, rng)).await?;
        }
        Operation::Reset { .. } => {
            let message = ResetFilterRequest { name };
            filters.reset_filter(request(message, rng)).await?;
        }
        Operation::Rename { to, .. } => {
            let new_name = filter_name(to);
            let message = RenameFilterRequest { name, new_name };
            filters.rename_filter(request(message, rng)).await?;
        }
        Operation::Copy { to, .. } => {
            let new_name = filter_name(to);
            let message = CopyFilterRequest { name, new_name };
            filters.copy_filter(request(message, rng)).await?;
        }
        Operation::Merge { target, .. } => {
            let (source, target) = (name, filter_name(target));
            let message = MergeFiltersRequest { source, target };
            filters.merge_filters(request(message, rng)).await?;
        }
        Operation::StartRebuild { to, kind, .. } => {
            let message = StartRebuildRequest {
                name,
                new_name: filter_name(to),
                spec: kind.map(Kind::spec),
            };
            filters.start_rebuild(request(message, rng)).await?;
        }
        Operation::FinishRebuild { to, .. } => {
            let new_name = filter_name(to);
            let message = FinishRebuildRequest { name, new_name };
            filters.finish_rebuild(request(message, rng)).await?;
        }
        Operation::Exchange { to, .. } => {
            let message = ExportFilterRequest { name };
            let pieces = filters.export_filter(request(message, rng)).await?;
            let mut pieces = pieces.into_inner();
            let mut file = Vec::new();
            while let Some(piece) = pieces.message().await? {
                file.extend(piece.data);
            }
            import(filter_name(to), &file, clients, rng).await?;
        }
        Operation::Store { .. } => {
            let message = StoreRequest { filter: name };
            clients.dedup.store(request(message, rng)).await?;
        }
    }
    Ok(())
}

async fn import(
    name: String,
    file: &[u8],
    clients: &mut Clients,
    rng: &mut Rng,
) -> Result<(), Status> {
    let head = ImportFilterRequest {
        name,
        format: FileFormat::Guava.into(),
        size_bytes: file.len() as u64,
        capacity: CAPACITY,
        ..ImportFilterRequest::default()
    };
    let pieces = file.chunks(PIECE_BYTES).map(|piece| ImportFilterRequest {
        data: piece.to_vec(),
        ..ImportFilterRequest::default()
    });
    let messages: Vec<_> = [head].into_iter().chain(pieces).collect();
    let messages = request(tokio_stream::iter(messages), rng);
    clients.filters.import_filter(messages).await?;
    Ok(())
}
