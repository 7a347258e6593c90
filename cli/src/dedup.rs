//! `dedup`: writes the lines that were never seen before, in order.
//!
//! Three steps overlap: a thread reads, this task keeps a window of batches in flight on one
//! stream, and a thread writes. Sending a line marks it. So the run ends only after all lines that
//! were sent are answered and written. If that is not possible, the error names the lines.

mod continuation;

use std::{
    io::{self, ErrorKind, IsTerminal},
    sync::Arc,
};

use self::continuation::Run;
use super::{
    args::{Dedup, Global, RUN_TIMEOUT},
    failure::Failure,
    interrupt::interrupted,
    lines::{Limits, LineBatch},
    report::{Kind, Report},
    source::{self, Batches},
    writer::Writer,
};
use seenset_client::{Answered, BatchReceiver, BatchSender, Broken};

pub(super) async fn run(global: &Global, args: Dedup) -> Result<(), Failure> {
    let client = args.age.of(global.connect_for(RUN_TIMEOUT).await?);
    let run = Run::begin(&client, global, &args).await?;
    // Lines and a progress bar on one terminal would write over each other.
    let report = Arc::new(Report::new(Kind::Dedup, io::stdout().is_terminal()));
    let limits = Limits {
        // Batches must have the same lines when the files are read again.
        whole_batches: run.is_repeatable(),
        ..args.lines.limits()
    };
    let batches = source::spawn_from(run.from(), args.files, limits, Arc::clone(&report))?;
    let writer = Writer::spawn(run.clone())?;
    let (sender, receiver) = client.stream(args.lines.window as usize);

    let end = pump(feed(batches, sender, &run), receiver, &writer, &report).await;
    let written = tokio::task::block_in_place(|| writer.finish());
    let summary = report.finish(&client);
    let done = match &written.end {
        Some(end) => format!("Every line up to {end} is answered, and written if new"),
        None => "No line is written".to_owned(),
    };
    if let Err(error) = written.result {
        let hint = run.interrupt(None, false);
        return Err(match error.kind() {
            ErrorKind::BrokenPipe => Failure::Unread,
            _ => followed_by(
                hint,
                Failure::Failed(format!(
                    "cannot write the output: {error}\n{done}; lines after it that were sent are \
                     marked as seen without having been written."
                )),
            ),
        });
    }
    summary.note(global.output);
    let failure = match &end {
        End::Input | End::Output => {
            run.complete()?;
            return match summary.bad {
                0 => Ok(()),
                _ => Err(Failure::Reported),
            };
        }
        End::Unfed(failure) => failure
            .clone()
            .after(&format!("{done}; no line after it is marked.")),
        End::Signal => {
            Failure::Interrupted(format!("interrupted. {done}; no line after it is marked."))
        }
        End::Broken(broken) => broken_failure(broken, &done, &run),
    };
    let sent = end.last_doubtful().map(|batch| batch.progress);
    Err(followed_by(run.interrupt(sent, true), failure))
}

/// Appends to a failure how to continue.
fn followed_by(hint: Option<String>, failure: Failure) -> Failure {
    match hint {
        Some(hint) => failure.after(&hint),
        None => failure,
    }
}

/// The reason why no more lines are sent.
enum End {
    /// All lines were sent.
    Input,
    /// The reader has closed the output pipe.
    Output,
    /// The rest cannot be read or sent.
    Unfed(Failure),
    /// A signal from the user or the operating system ended the run.
    Signal,
    /// The server refused, or the connection broke.
    Broken(Broken<LineBatch>),
}

impl End {
    /// Returns the last batch that may be applied and was not answered.
    fn last_doubtful(&self) -> Option<&LineBatch> {
        match self {
            Self::Broken(broken) => broken.unanswered.iter().take(broken.doubtful).last(),
            _ => None,
        }
    }
}

/// Moves batches from the reader to the server and their answers to the writer, until all batches
/// that were sent are answered.
async fn pump(
    feed: impl Future<Output = Result<(), Failure>>,
    mut receiver: BatchReceiver<LineBatch>,
    writer: &Writer,
    report: &Report,
) -> End {
    // Dropping the future closes the stream. The stream ends once all batches are answered.
    let mut feed = Some(Box::pin(feed));
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

/// Sends batches until there are no more. If the stream has ended, its receiver has the reason, and
/// that replaces the failure from here.
async fn feed(
    mut batches: Batches,
    mut sender: BatchSender<LineBatch>,
    run: &Run,
) -> Result<(), Failure> {
    while let Some(batch) = batches.recv().await {
        let mut batch = batch?;
        let keys = std::mem::take(&mut batch.keys);
        let request_id = run.request_id(&batch);
        sender.send_as(&request_id, keys, batch).await?;
    }
    Ok(())
}

fn broken_failure(broken: &Broken<LineBatch>, done: &str, run: &Run) -> Failure {
    let mut doubtful = broken.unanswered.iter().take(broken.doubtful);
    let marked = match (doubtful.next(), doubtful.last()) {
        (None, _) => "no line after it is marked".to_owned(),
        (Some(first), last) => {
            let last = last.unwrap_or(first);
            format!(
                "lines after it, up to {}, were in flight and may be marked as seen without having \
                 been written: they were sent as the requests {} to {}",
                last.end,
                run.request_id(first),
                run.request_id(last)
            )
        }
    };
    Failure::Failed(format!("{}\n{done}; {marked}.", broken.error))
}
