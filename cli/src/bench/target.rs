//! The filter that the keys are added to: the command's own filter, unless the user names one.

use std::{collections::hash_map::RandomState, hash::BuildHasher};

use tonic::Code;

use super::units::count;
use seenset_client::{Client, Error, v1};

use crate::{args::Bench, failure::Failure, notes::note};

/// The capacity of the command's own filter, the same as the default of a server.
const CAPACITY: u64 = 100_000_000;
/// The false-positive rate of the command's own filter.
const RATE: f64 = 0.001;

/// The filter that the keys are added to.
pub(super) enum Target {
    /// The command's own filter, created for this run and removed after it.
    Own {
        /// `bench-` and a random number.
        name: String,
        /// The number of keys that it is made for.
        capacity: u64,
    },
    /// The filter that the user named. It keeps the keys.
    Named(String),
}

impl Target {
    /// Creates a filter, or finds the filter that the user named.
    pub(super) async fn prepare(
        client: &Client,
        named: Option<&str>,
        args: &Bench,
    ) -> Result<Self, Failure> {
        if let Some(name) = named {
            if args.capacity.is_some() {
                return Err(Failure::Usage(
                    "--capacity is for a filter of the command's own, and --filter names \
                     another"
                        .to_owned(),
                ));
            }
            let filter = client.get_filter(name).await?;
            return Ok(Self::Named(filter.name));
        }
        let capacity = args.capacity.unwrap_or(CAPACITY);
        let name = format!("bench-{:016x}", RandomState::new().hash_one(0));
        let spec = v1::FilterSpec {
            capacity,
            false_positive_rate: RATE,
            ..v1::FilterSpec::default()
        };
        match client.create_filter(&name, spec).await {
            Ok(_) => Ok(Self::Own { name, capacity }),
            Err(error) => {
                // Without an answer, the filter may exist in spite of the error.
                if !error.changed_nothing() {
                    let _ = remove(client, &name).await;
                }
                Err(error.into())
            }
        }
    }

    /// Removes the command's own filter.
    pub(super) async fn remove(&self, client: &Client) -> Result<(), Failure> {
        match self {
            Self::Own { name, .. } => remove(client, name).await,
            Self::Named(_) => Ok(()),
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Own { name, .. } | Self::Named(name) => name,
        }
    }

    /// Returns a line about the filter.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Own { name, capacity } => {
                format!(
                    "filter: {name} for {} keys, deleted after the run",
                    count(*capacity)
                )
            }
            Self::Named(name) => format!("filter: {name}, which keeps the keys"),
        }
    }
}

/// The number of attempts to remove a filter if connections break.
const ATTEMPTS: usize = 4;

async fn remove(client: &Client, name: &str) -> Result<(), Failure> {
    let mut removed = client.delete_filter(name).await;
    for _ in 1..ATTEMPTS {
        if !matches!(removed, Err(Error::Broken { .. })) {
            break;
        }
        // The failure that ended the load may have broken this connection too, unnoticed until now,
        // or the connection is just breaking. The filter's name is unique to this run, so removing
        // it twice does no harm.
        removed = client.delete_filter(name).await;
    }
    match removed {
        Ok(()) => Ok(()),
        Err(error) if error.code() == Some(Code::NotFound) => Ok(()),
        Err(error) => {
            note(&format!(
                "seenset: {error}\nThe filter {name} may still be there; this removes it: \
                 seenset filter delete {name}"
            ));
            Err(Failure::Reported)
        }
    }
}
