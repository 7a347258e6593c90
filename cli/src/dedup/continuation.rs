//! `dedup --continue`: continues a run that ended early, and saves the state for the next run.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use uuid::Uuid;

use seenset_client::{Client, v1};

use crate::{
    args::{Dedup, Global},
    checkpoint::{
        Checkpoint, CheckpointFile, FilterIdentity, InputFile, OutputFile, Sent, Settings, Witness,
    },
    failure::Failure,
    lines::{LineBatch, RunProgress, from_hex, to_hex},
    notes::note,
    source,
    writer::Follow,
};

/// The longest time between two saved checkpoints.
const INTERVAL: Duration = Duration::from_secs(1);

/// The request ids of a run, and its checkpoints.
#[derive(Clone)]
pub(super) struct Run {
    id: Arc<str>,
    checkpoints: Option<Arc<Mutex<Checkpoints>>>,
}

/// The checkpoints of a run whose files can be read again.
struct Checkpoints {
    /// The file that they are saved in, if the user wants it.
    file: Option<CheckpointFile>,
    output: OutputFile,
    /// The length of the output at the start, in bytes.
    output_start: Option<u64>,
    /// The checkpoint that includes lines that are written and not flushed yet.
    written: Checkpoint,
    /// The current checkpoint.
    now: Checkpoint,
    saved: Instant,
    /// The number of batches up to the last saved checkpoint, and between two.
    saved_batches: u64,
    every_batches: u64,
    /// The lines in doubt of the continued run, until this run has passed them; `None` if this run
    /// continues none.
    inherited: Option<Option<Sent>>,
    /// The reason why a checkpoint could not be saved.
    failure: Option<String>,
}

impl Run {
    /// Begins a run, or continues the run of the checkpoint.
    pub(super) async fn begin(
        client: &Client,
        global: &Global,
        args: &Dedup,
    ) -> Result<Self, Failure> {
        let name = global.filter.clone().unwrap_or_default();
        let name = if name.is_empty() {
            "default".to_owned()
        } else {
            name
        };
        let filter = FilterIdentity {
            name,
            created_at: None,
        };
        let id: Arc<str> = Uuid::new_v4().simple().to_string().into();
        let new = |filter, files| Checkpoint::new(id.to_string(), filter, args.settings(), files);
        let Some(path) = &args.continue_from else {
            // If a file cannot be found, the reader of the files reports it.
            let files = InputFile::all(&args.files).ok().flatten();
            let output = OutputFile::stdout()?;
            let checkpoint = files.map(|files| new(filter, files));
            let checkpoints = checkpoint.map(|it| Checkpoints::new(None, output, it, u64::MAX));
            return Ok(Self::of(id, checkpoints.transpose()?));
        };
        source::check(&args.files)?;
        let files = regular_files(&args.files)?;
        let output = lock_output()?;
        let (file, found) = CheckpointFile::open(path)?;
        let served = client.get_filter(&filter.name).await?;
        if served.retry_keys == 0 {
            return Err(Failure::Failed(
                "cannot use --continue: the server remembers no requests (its --retry-keys or \
                 --retry-age is 0)"
                    .to_owned(),
            ));
        }
        let filter = FilterIdentity {
            created_at: served
                .create_time
                .map(|time| format!("{}.{:09}", time.seconds, time.nanos)),
            ..filter
        };
        let inherited = found.as_ref().map(|found| found.sent);
        let checkpoint = match found {
            None => new(filter, files),
            Some(found) => {
                let now = new(filter, files);
                let checked =
                    check(&found, &now, &output).and_then(|()| check_memory(&found, &served));
                checked.map_err(|reason| refused(path, &reason))?;
                ask_witness(client, &found)
                    .await?
                    .map_err(|reason| refused(path, &reason))?;
                take_over(&found, &output)?;
                Checkpoint {
                    filter: now.filter,
                    files: now.files,
                    sent: None,
                    ..found
                }
            }
        };
        // The server remembers at least half of its `retry_keys` for sure, and other clients add
        // keys too.
        let every_keys = served.retry_keys / 16;
        let every_batches = (every_keys / u64::from(args.lines.batch_keys)).max(1);
        let id = checkpoint.run.as_str().into();
        let mut checkpoints = Checkpoints::new(Some(file), output, checkpoint, every_batches)?;
        checkpoints.inherited = inherited;
        // The checkpoint must be saved before the first batch is sent.
        checkpoints.save().map_err(|_| checkpoints.failed())?;
        Ok(Self::of(id, Some(checkpoints)))
    }

    fn of(id: Arc<str>, checkpoints: Option<Checkpoints>) -> Self {
        Self {
            id,
            checkpoints: checkpoints.map(|it| Arc::new(Mutex::new(it))),
        }
    }

    /// Returns the point from which on the files are read.
    pub(super) fn from(&self) -> RunProgress {
        self.checkpoints()
            .map_or(RunProgress::default(), |checkpoints| checkpoints.now.done)
    }

    /// Returns whether the files can be read again.
    pub(super) fn is_repeatable(&self) -> bool {
        self.checkpoints.is_some()
    }

    /// Returns the request id of a batch.
    pub(super) fn request_id(&self, batch: &LineBatch) -> String {
        Checkpoint::request_id(&self.id, batch.progress.batches)
    }

    /// Ends a run that came to the end of its input. Nothing is left to continue.
    pub(super) fn complete(&self) -> Result<(), Failure> {
        let Some(mut checkpoints) = self.checkpoints() else {
            return Ok(());
        };
        checkpoints.output.unlock();
        let Some(file) = &mut checkpoints.file else {
            return Ok(());
        };
        let path = file.path().display().to_string();
        file.remove().map_err(|error| {
            Failure::Failed(format!("all is done, but cannot remove {path}: {error}"))
        })
    }

    /// Ends a run early, and returns how to continue it. `sent` is the last batch that may be
    /// applied and is not in the output, as far as that is known.
    pub(super) fn interrupt(&self, sent: Option<RunProgress>, all_written: bool) -> Option<String> {
        let mut checkpoints = self.checkpoints()?;
        let sent = Sent::from(sent.unwrap_or(checkpoints.now.done));
        let sent = match checkpoints.inherited {
            None => Some(sent),
            Some(inherited) => {
                inherited.map(|it| if it.batches > sent.batches { it } else { sent })
            }
        };
        checkpoints.now.sent = sent.filter(|_| all_written);
        checkpoints.now.stamp();
        if checkpoints.failure.is_some() {
            return checkpoints.failure.clone();
        }
        let saved = checkpoints.file.is_some().then(|| checkpoints.save());
        checkpoints.output.unlock();
        match saved {
            Some(Ok(())) => Some("To continue, run the same command again.".to_owned()),
            Some(Err(_)) => checkpoints.failure.clone(),
            // Without lines in doubt, continuing saves little, and nothing is lost.
            None => checkpoints.now.doubtful_lines().map(|_| {
                format!(
                    "To continue, save the next line as a file, and run again with --continue and \
                     that file, and with >> for the output.\n{}",
                    checkpoints.now.text()
                )
            }),
        }
    }

    fn checkpoints(&self) -> Option<MutexGuard<'_, Checkpoints>> {
        let checkpoints = self.checkpoints.as_ref()?;
        Some(checkpoints.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Follow for Run {
    fn written(&mut self, batch: &LineBatch) {
        if let Some(mut checkpoints) = self.checkpoints() {
            checkpoints.written(batch);
        }
    }

    fn flushed(&mut self, bytes: u64) -> io::Result<()> {
        self.checkpoints()
            .map_or(Ok(()), |mut checkpoints| checkpoints.flushed(bytes))
    }
}

impl Checkpoints {
    fn new(
        file: Option<CheckpointFile>,
        output: OutputFile,
        checkpoint: Checkpoint,
        every_batches: u64,
    ) -> io::Result<Self> {
        let output_start = output.bytes()?;
        let now = Checkpoint {
            output_bytes: output_start,
            ..checkpoint
        };
        Ok(Self {
            file,
            output,
            output_start,
            written: now.clone(),
            saved_batches: now.done.batches,
            now,
            saved: Instant::now(),
            every_batches,
            inherited: None,
            failure: None,
        })
    }

    fn written(&mut self, batch: &LineBatch) {
        self.written.done = batch.progress;
        let line = batch
            .lines
            .last()
            .and_then(|line| batch.bytes.get(line.clone()));
        let key = line.and_then(|line| batch.format.key(batch.format.content(line)).ok());
        if let Some(key) = key {
            self.written.witness = Some(Witness {
                batch: batch.progress.batches,
                key_hex: to_hex(&key),
            });
        }
    }

    fn flushed(&mut self, bytes: u64) -> io::Result<()> {
        self.now.clone_from(&self.written);
        self.now.output_bytes = self.output_start.map(|start| start + bytes);
        let batches = self.now.done.batches - self.saved_batches;
        let is_due = batches >= self.every_batches || self.saved.elapsed() >= INTERVAL;
        if self.file.is_some() && is_due {
            return self.save();
        }
        Ok(())
    }

    /// Saves the checkpoint, after the output that it describes is on stable storage.
    fn save(&mut self) -> io::Result<()> {
        self.now.stamp();
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let synced = self.output.sync();
        if let Err(error) = synced.and_then(|()| file.save(&self.now)) {
            let path = file.path().display();
            self.failure = Some(format!("cannot save the checkpoint {path}: {error}"));
            return Err(error);
        }
        self.saved = Instant::now();
        self.saved_batches = self.now.done.batches;
        Ok(())
    }

    fn failed(&self) -> Failure {
        Failure::Failed(self.failure.clone().unwrap_or_default())
    }
}

impl Dedup {
    fn settings(&self) -> Settings {
        Settings {
            max_key_bytes: self.lines.max_key_bytes,
            batch_keys: self.lines.batch_keys,
            max_age: self.age.text(),
            format: self.lines.format(),
        }
    }
}

fn refused(path: &std::path::Path, reason: &str) -> Failure {
    Failure::Failed(format!("cannot continue from {}: {reason}", path.display()))
}

fn regular_files(files: &[PathBuf]) -> Result<Vec<InputFile>, Failure> {
    InputFile::all(files)?.ok_or_else(|| {
        Failure::Usage(
            "--continue needs regular files, which can be read again: save what comes on \
                 standard input or from a pipe, and name the file"
                .to_owned(),
        )
    })
}

fn lock_output() -> Result<OutputFile, Failure> {
    let output = OutputFile::stdout()?;
    if !output.appends()? {
        return Err(Failure::Usage(
            "--continue needs an output that is appended to (>> in place of >): with > the run \
             that continues would find it empty"
                .to_owned(),
        ));
    }
    if !output.lock() {
        return Err(Failure::Failed(
            "cannot use --continue: another run writes to the same output, and each needs one of \
             its own"
                .to_owned(),
        ));
    }
    Ok(output)
}

/// Checks that the filter, the files and the output are still those of the checkpoint.
fn check(found: &Checkpoint, now: &Checkpoint, output: &OutputFile) -> Result<(), String> {
    if let Some(created_at) = &found.filter.created_at {
        if now.filter.created_at.as_ref() != Some(created_at) {
            return Err(format!(
                "the filter {:?} is not the one of the checkpoint, {:?}: it was made at {}, and \
                 that one at {created_at} (seconds since 1970)",
                now.filter.name,
                found.filter.name,
                now.filter
                    .created_at
                    .as_deref()
                    .unwrap_or("an unknown time")
            ));
        }
    } else if found.filter.name != now.filter.name {
        return Err(format!(
            "it is for the filter {:?}, and not for {:?}",
            found.filter.name, now.filter.name
        ));
    }
    let (then, now_set) = (&found.settings, &now.settings);
    for (name, then, now) in [
        (
            "--max-key-bytes",
            then.max_key_bytes.to_string(),
            now_set.max_key_bytes.to_string(),
        ),
        (
            "--batch-keys",
            then.batch_keys.to_string(),
            now_set.batch_keys.to_string(),
        ),
        (
            "--max-age",
            then.max_age.clone().unwrap_or("not given".to_owned()),
            now_set.max_age.clone().unwrap_or("not given".to_owned()),
        ),
        (
            "the format of keys",
            then.format.argument().to_owned(),
            now_set.format.argument().to_owned(),
        ),
    ] {
        if then != now {
            return Err(format!("{name} was {then}, and is {now}: give what it was"));
        }
    }
    if let Some(difference) = InputFile::difference(&now.files, &found.files) {
        return Err(format!(
            "{difference}; name the same files in the same order"
        ));
    }
    let bytes = output.bytes().map_err(|error| error.to_string())?;
    match (found.output_bytes, bytes) {
        (Some(then), Some(bytes)) if bytes < then => Err(format!(
            "the output has {bytes} bytes, and the run before had written it up to {then}: append \
             to that file (>>)"
        )),
        (Some(then), Some(bytes)) if bytes > then && found.sent.is_some() => Err(format!(
            "the output has {bytes} bytes, and the run before had written it up to {then}: \
             something else has been appended to it"
        )),
        _ => Ok(()),
    }
}

/// Checks whether the server still remembers the requests of the lines in doubt, by its settings.
fn check_memory(found: &Checkpoint, served: &v1::Filter) -> Result<(), String> {
    if found.doubtful_lines().is_none() || found.witness.is_some() {
        return Ok(());
    }
    let age = served
        .retry_age
        .and_then(|age| Duration::try_from(age).ok());
    // The server remembers the last half of its `retry_age` for sure, unless it forgets on a
    // restart.
    let is_sure = found.age() < age.unwrap_or_default() / 2
        && served.durability() != v1::Durability::Snapshot;
    if is_sure {
        Ok(())
    } else {
        Err(forgotten(found))
    }
}

/// Asks again for a key that an earlier request of the run added. The answer shows whether the
/// server remembers that request, and so all later ones.
async fn ask_witness(client: &Client, found: &Checkpoint) -> Result<Result<(), String>, Failure> {
    let (Some(_), Some(witness)) = (found.doubtful_lines(), &found.witness) else {
        return Ok(Ok(()));
    };
    let Ok(key) = from_hex(witness.key_hex.as_bytes()) else {
        return Ok(Err(format!(
            "the checkpoint is damaged: its key_hex is {:?}",
            witness.key_hex
        )));
    };
    let request_id = Checkpoint::request_id(&found.run, witness.batch);
    let seen = client.query_and_add_batch_as(&request_id, [&key]).await?;
    Ok(match seen.as_slice() {
        [false] => Ok(()),
        _ => Err(forgotten(found)),
    })
}

fn forgotten(found: &Checkpoint) -> String {
    format!(
        "the server may have forgotten the requests of that run (its --retry-age and \
         --retry-keys), and would report lines as seen that no run has written. In doubt are \
         {}: use them as new lines, or leave them out. To start again from the first line, remove \
         the file",
        found.doubtful_lines().unwrap_or_default()
    )
}

/// Cuts the output to the length in the checkpoint.
fn take_over(found: &Checkpoint, output: &OutputFile) -> Result<(), Failure> {
    let bytes = output.bytes()?;
    if let (Some(then), Some(bytes)) = (found.output_bytes, bytes)
        && bytes > then
    {
        output.cut(then)?;
        note(&format!(
            "seenset: removed {} bytes from the end of the output; they will be written again",
            bytes - then
        ));
    }
    note(&format!("seenset: continues after {}", found.end()));
    Ok(())
}
