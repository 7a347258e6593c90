//! `match`: writes the lines that contain a word of the filter, in order.
//!
//! Three steps overlap, as in `dedup`. A thread reads. Threads cut batches of lines into words, and
//! a window of them is sent as queries. A thread writes. A query changes nothing, so a run that
//! ends early has changed nothing on the server.

use std::{
    io::{self, IsTerminal},
    iter,
    sync::Arc,
};

use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::{sync::mpsc, task};

use super::{
    args::{Global, Match, RUN_TIMEOUT},
    failure::Failure,
    interrupt::interrupted,
    lines::{LineBatch, Position},
    output::Output,
    report::{Kind, Report},
    source,
    words::{Asking, Words},
    writer::Writer,
};
use seenset_client::{Client, Error};

pub(super) async fn run(global: &Global, args: Match) -> Result<(), Failure> {
    let client = global.connect_for(RUN_TIMEOUT).await?;
    let report = Arc::new(Report::new(Kind::Match, io::stdout().is_terminal()));
    let files = args.files.clone();
    let batches = source::spawn(files, args.limits(), Arc::clone(&report))?;
    let writer = Writer::spawn(())?;

    let end = pump(batches, &client, &args, &writer, &report).await;
    let written = task::block_in_place(|| writer.finish());
    let summary = report.finish(&client);
    written.result?;
    if end.is_ok() && args.count {
        let count = match args.invert_match {
            true => summary.other,
            false => summary.one,
        };
        let mut output = Output::new(global.output);
        output.line(|| count.to_string(), || json!({ "count": count }))?;
        output.finish()?;
    }
    summary.note(global.output);
    let done = match written.end {
        Some(end) => format!("Every line up to {end} is done."),
        None => "No line is done.".to_owned(),
    };
    match end {
        Ok(()) if summary.bad == 0 => Ok(()),
        Ok(()) => Err(Failure::Reported),
        Err(failure) => Err(failure.after(&done)),
    }
}

/// Moves batches from the reader to the server, and the lines to write to the writer.
async fn pump(
    mut batches: mpsc::Receiver<Result<LineBatch, Failure>>,
    client: &Client,
    args: &Match,
    writer: &Writer,
    report: &Report,
) -> Result<(), Failure> {
    let asking = args.asking();
    let batches = stream::poll_fn(move |context| batches.poll_recv(context));
    let mut answered = batches
        .map(|batch| async { ask(client, batch?, asking).await })
        .buffered(args.window as usize);
    let mut signal = interrupted();
    loop {
        let next = tokio::select! {
            next = answered.next() => next,
            _ = &mut signal => return Err(Failure::Interrupted("interrupted.".to_owned())),
        };
        let Some(outcome) = next else { return Ok(()) };
        let (words, answers) = outcome?;
        let matches = words.matches(&answers);
        let matching = matches.iter().filter(|matches| **matches).count();
        report.answered(matching, matches.len() - matching);
        report.long_words(words.long_words);
        let batch = to_write(words, &answers, matches, args);
        if writer.batches.send(batch).await.is_err() {
            // The writer has ended, for instance because its pipe is closed, and has the reason.
            return Ok(());
        }
    }
}

/// Cuts a batch into words, which takes longer than all the rest, and sends queries for them.
async fn ask(
    client: &Client,
    batch: LineBatch,
    asking: Asking,
) -> Result<(Words, Vec<bool>), Failure> {
    let words = task::spawn_blocking(move || Words::of(batch, asking)).await;
    let mut words = words.map_err(|error| Failure::Failed(format!("a batch was lost: {error}")))?;
    let mut answers = Vec::new();
    for question in std::mem::take(&mut words.questions) {
        match client.query_batch(question).await {
            Ok(more) => answers.extend(more),
            Err(error) => return Err(unanswered(error, &words.batch.end)),
        }
    }
    Ok((words, answers))
}

fn unanswered(error: Error, end: &Position) -> Failure {
    Failure::from(error).after(&format!("This was for the lines up to {end}."))
}

/// Returns the lines of a batch that are written.
fn to_write(words: Words, answers: &[bool], matches: Vec<bool>, args: &Match) -> LineBatch {
    if args.only_matching {
        let bytes = words.found_lines(answers);
        return LineBatch {
            lines: iter::once(0..bytes.len()).collect(),
            bytes,
            ..words.batch
        };
    }
    let mut batch = words.batch;
    let is_wanted = |matches: &bool| !args.count && *matches != args.invert_match;
    let wanted: Vec<bool> = matches.iter().map(is_wanted).collect();
    batch.keep(&wanted);
    batch
}
