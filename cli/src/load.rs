//! `load`: marks every line as seen. Adding is safe to repeat. So several batches are in flight as
//! separate calls, each with its retries.

use std::sync::Arc;

use futures_util::{StreamExt, stream};

use super::{
    args::{Global, Load, RUN_TIMEOUT},
    failure::Failure,
    interrupt::interrupted,
    lines::{LineBatch, Position},
    output::Output,
    report::{Kind, Report},
    source,
};
use seenset_client::{Client, Error};

pub(super) async fn run(global: &Global, args: Load) -> Result<(), Failure> {
    let client = global.connect_for(RUN_TIMEOUT).await?;
    let report = Arc::new(Report::new(Kind::Load, false));
    let outcome = load(&client, args, Adding::Always, &report).await;
    let summary = report.finish(&client);
    outcome?;
    let mut output = Output::new(global.output);
    output.line(|| summary.text(), || summary.json())?;
    output.finish()?;
    if summary.bad > 0 {
        return Err(Failure::Reported);
    }
    Ok(())
}

/// The advice after a run that ended early.
const AGAIN: &str = "Run it again: adding a key twice does no harm, except in a counting filter, \
                     which counts each time.";

/// The way in which lines are added.
#[derive(Debug, Clone, Copy)]
pub(super) enum Adding {
    /// Adds each occurrence, which matters in a counting filter.
    Always,
    /// Adds a line only if it is not there.
    IfNew,
}

/// Adds every line to the client's filter.
pub(super) async fn load(
    client: &Client,
    args: Load,
    adding: Adding,
    report: &Arc<Report>,
) -> Result<(), Failure> {
    let mut batches = source::spawn(args.files, args.lines.limits(), Arc::clone(report))?;
    let batches = stream::poll_fn(move |context| batches.poll_recv(context));
    let mut added = batches
        .map(|batch| async { Ok::<_, Failure>(add(client, batch?, adding).await) })
        .buffered(args.lines.window as usize);
    let mut signal = interrupted();
    let mut end = None;
    loop {
        let next = tokio::select! {
            next = added.next() => next,
            _ = &mut signal => {
                let done = done(end.as_ref());
                return Err(Failure::Interrupted(format!(
                    "interrupted: {done}. {AGAIN}"
                )));
            }
        };
        let Some(outcome) = next else { break };
        let (batch, result) = outcome.map_err(|failure| {
            let done = done(end.as_ref());
            failure.after(&format!("Before that, {done}."))
        })?;
        if let Err(error) = result {
            let done = done(end.as_ref());
            return Err(Failure::Failed(format!(
                "{error}\nThis was for the lines up to {}; {done}. {AGAIN}",
                batch.end
            )));
        }
        report.answered(batch.lines.len(), 0);
        end = Some(batch.end);
    }
    Ok(())
}

fn done(end: Option<&Position>) -> String {
    match end {
        Some(end) => format!("every line up to {end} is added"),
        None => "no line is known to be added".to_owned(),
    }
}

async fn add(
    client: &Client,
    mut batch: LineBatch,
    adding: Adding,
) -> (LineBatch, Result<(), Error>) {
    let keys = std::mem::take(&mut batch.keys);
    let result = match adding {
        Adding::Always => client.add_batch(keys).await,
        Adding::IfNew => client.query_and_add_batch(keys).await.map(|_| ()),
    };
    (batch, result)
}
