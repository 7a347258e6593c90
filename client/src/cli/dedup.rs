//! `dedup`: writes the lines never seen before, in their order.
//!
//! Three things overlap: a thread reads, this task keeps a window of batches in flight on
//! one stream, and a thread writes. Asking marks a line, so a line that was sent is
//! answered and written before the run ends, whatever ends it, and where that is not
//! possible the error says which lines are concerned.

use std::{
    io::{self, ErrorKind, IsTerminal},
    sync::Arc,
};

use tokio::sync::mpsc;

use super::{
    args::{Dedup, Global},
    failure::Failure,
    interrupt::interrupted,
    lines::{Batch, Position},
    report::{Kind, Report},
    source,
    writer::Writer,
};
use crate::{Answered, BatchReceiver, BatchSender, Broken};

pub(super) async fn run(global: &Global, args: Dedup) -> Result<(), Failure> {
    let client = args.age.of(global.connect().await?);
    // Lines and a progress bar on one terminal would write over each other.
    let report = Arc::new(Report::new(Kind::Dedup, io::stdout().is_terminal()));
    let batches = source::spawn(args.files, args.lines.limits(), Arc::clone(&report))?;
    let writer = Writer::spawn()?;
    let (sender, receiver) = client.stream(args.lines.window as usize);

    let end = pump(batches, sender, receiver, &writer, &report).await;
    let written = tokio::task::block_in_place(|| writer.finish());
    let summary = report.finish();
    let done = match &written.end {
        Some(end) => format!("Every line up to {end} is answered, and written if new"),
        None => "No line is written".to_owned(),
    };
    if let Err(error) = written.result {
        return Err(match error.kind() {
            ErrorKind::BrokenPipe => Failure::Unread,
            _ => Failure::Failed(format!(
                "cannot write the output: {error}\n{done}; lines after it that were sent \
                 are marked as seen without having been written."
            )),
        });
    }
    summary.note(global.output);
    match end {
        End::Input | End::Output if summary.bad == 0 => Ok(()),
        End::Input | End::Output => Err(Failure::Reported),
        End::Unfed(failure) => Err(failure.after(&format!("{done}; no line after it is marked."))),
        End::Signal => Err(Failure::Interrupted(format!(
            "interrupted. {done}; no line after it is marked."
        ))),
        End::Broken(broken) => Err(broken_failure(broken, &done)),
    }
}

/// Why no more lines are sent.
enum End {
    /// All were.
    Input,
    /// Nobody takes the output any more.
    Output,
    /// The rest can't be read or sent.
    Unfed(Failure),
    /// The user or the system wants it.
    Signal,
    /// The server refused, or the connection broke.
    Broken(Broken<Batch>),
}

/// Moves batches from the reader to the server and their answers to the writer, until
/// all that was sent is answered.
async fn pump(
    batches: mpsc::Receiver<Result<Batch, Failure>>,
    sender: BatchSender<Batch>,
    mut receiver: BatchReceiver<Batch>,
    writer: &Writer,
    report: &Report,
) -> End {
    // Dropping the future closes the stream, which ends once all is answered.
    let mut feed = Some(Box::pin(feed(batches, sender)));
    let mut signal = interrupted();
    let mut end = End::Input;
    loop {
        let answer = tokio::select! {
            answer = receiver.recv() => answer,
            fed = async { feed.as_mut().expect("the guard of this branch").await },
                if feed.is_some() =>
            {
                feed = None;
                if let Err(failure) = fed {
                    end = End::Unfed(failure);
                }
                continue;
            }
            _ = &mut signal, if feed.is_some() => {
                feed = None;
                end = End::Signal;
                continue;
            }
        };
        match answer {
            None => return end,
            Some(Err(broken)) => return End::Broken(broken),
            Some(Ok(answered)) => {
                let Answered {
                    tag: mut batch,
                    seen,
                } = answered;
                let new: Vec<bool> = seen.iter().map(|seen| !seen).collect();
                batch.keep(&new);
                report.answered(batch.lines.len(), seen.len() - batch.lines.len());
                if writer.batches.send(batch).await.is_err() {
                    return End::Output;
                }
            }
        }
    }
}

/// Sends batches as long as there are any. If the stream has ended, its receiver tells
/// why, and that replaces the failure from here.
async fn feed(
    mut batches: mpsc::Receiver<Result<Batch, Failure>>,
    mut sender: BatchSender<Batch>,
) -> Result<(), Failure> {
    while let Some(batch) = batches.recv().await {
        let mut batch = batch?;
        let keys = std::mem::take(&mut batch.keys);
        sender.send(keys, batch).await?;
    }
    Ok(())
}

fn broken_failure(Broken { error, unanswered }: Broken<Batch>, done: &str) -> Failure {
    let last: Option<&Position> = unanswered.last().map(|batch| &batch.end);
    let marked = match last {
        _ if error.changed_nothing() => "no line after it is marked".to_owned(),
        Some(last) => format!(
            "lines after it, up to {last}, were in flight and may be marked as seen \
             without having been written"
        ),
        None => "no line after it was sent".to_owned(),
    };
    Failure::Failed(format!("{error}\n{done}; {marked}."))
}
