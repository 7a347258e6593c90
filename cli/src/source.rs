//! The files of a command, read one after another on their own thread.
//!
//! Reading blocks, and must not delay sending and writing. The thread is never joined: at the end
//! of a run that was cut short it may still wait for input.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::PathBuf,
    sync::Arc,
    thread,
};

use same_file::Handle;
use tokio::sync::mpsc;
use xxhash_rust::xxh3::Xxh3;

use super::{
    failure::Failure,
    file_name::is_stdin,
    input::Input,
    lines::{Limits, LineBatch, LineReader, Observer, Position, RunProgress},
    report::Report,
    streams::{self, Outputs},
};

/// The number of batches that are read ahead of sending. It is enough to cover a slow read.
const READ_AHEAD: usize = 4;

/// The batches of the files, in order. If reading failed, the last item is the failure.
pub(super) type Batches = mpsc::Receiver<Result<LineBatch, Failure>>;

/// Starts to read `files`, or standard input if there are none.
pub(super) fn spawn(
    files: Vec<PathBuf>,
    limits: Limits,
    report: Arc<Report>,
) -> Result<Batches, Failure> {
    start(files, limits, report, None)
}

/// Starts to read `files` where another run has stopped, and tracks the [`RunProgress`].
///
/// It fails if the keys before that point are not the same. No batch has come then.
pub(super) fn spawn_from(
    from: RunProgress,
    files: Vec<PathBuf>,
    limits: Limits,
    report: Arc<Report>,
) -> Result<Batches, Failure> {
    start(files, limits, report, Some(Tracker::new(from)))
}

fn start(
    mut files: Vec<PathBuf>,
    limits: Limits,
    report: Arc<Report>,
    mut tracker: Option<Tracker>,
) -> Result<Batches, Failure> {
    if files.is_empty() {
        files.push("-".into());
    }
    let total = check(&files)?;
    report.start(total);
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    thread::Builder::new()
        .name("reader".to_owned())
        .spawn(move || {
            if let Err(failure) = read_all(&files, limits, &report, &sender, tracker.as_mut()) {
                // An error means that the run has already ended for another reason.
                let _ = sender.blocking_send(Err(failure));
            }
        })
        .map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))?;
    Ok(receiver)
}

/// Checks the files before a run of hours starts: finds mistyped names, and an input that is the
/// output. Returns the total size if all are regular files.
pub(super) fn check(files: &[PathBuf]) -> Result<Option<u64>, Failure> {
    let outputs = Outputs::new();
    let mut total = Some(0);
    for file in files {
        let metadata = match is_stdin(file) {
            true => Handle::stdin().and_then(|stdin| stdin.as_file().metadata()),
            false => fs::metadata(file),
        };
        let metadata = metadata.map_err(|error| Failure::cannot_open(file, &error))?;
        if metadata.is_dir() {
            let error = io::Error::from(io::ErrorKind::IsADirectory);
            return Err(Failure::cannot_open(file, &error));
        }
        outputs.refuse(file, &metadata, || match is_stdin(file) {
            true => Handle::stdin(),
            false => Handle::from_path(file),
        })?;
        total = total.filter(|_| metadata.is_file() && !is_stdin(file));
        total = total.map(|total| total + metadata.len());
    }
    if files.iter().any(|file| is_stdin(file)) {
        streams::check_stdin("lines")?;
    }
    Ok(total)
}

fn read_all(
    files: &[PathBuf],
    limits: Limits,
    report: &Report,
    sender: &mpsc::Sender<Result<LineBatch, Failure>>,
    mut tracker: Option<&mut Tracker>,
) -> Result<(), Failure> {
    for (number, file) in files.iter().enumerate() {
        let (name, input): (_, Box<dyn Read>) = if is_stdin(file) {
            ("stdin".into(), Box::new(io::stdin().lock()))
        } else {
            let input = File::open(file).map_err(|error| Failure::cannot_open(file, &error))?;
            (file.to_string_lossy(), Box::new(input))
        };
        let input = Input::new(Watched { input, report });
        let mut reader = LineReader::new(&name, input, limits);
        if let Some(tracker) = &mut tracker {
            tracker.skip(&mut reader, number)?;
        }
        loop {
            match reader.next_batch(report) {
                Ok(Some(mut batch)) => {
                    if let Some(tracker) = &mut tracker {
                        batch.progress = tracker.after(&batch, number);
                    }
                    if sender.blocking_send(Ok(batch)).is_err() {
                        return Ok(());
                    }
                }
                Ok(None) => break,
                Err(error) => return Err(cannot_read_on(&reader, &error)),
            }
        }
    }
    Ok(())
}

fn cannot_read_on<R: Read>(reader: &LineReader<R>, error: &io::Error) -> Failure {
    let position = reader.position();
    Failure::Failed(format!("cannot read on after {position}: {error}"))
}

/// Tracks the progress of reading.
struct Tracker {
    hasher: Xxh3,
    progress: RunProgress,
    /// The point where another run has stopped. No batch before it is returned.
    from: RunProgress,
}

impl Tracker {
    fn new(from: RunProgress) -> Self {
        Self {
            hasher: Xxh3::new(),
            progress: from,
            from,
        }
    }

    /// Skips the part of a file that the other run has read.
    fn skip<R: Read>(&mut self, reader: &mut LineReader<R>, file: usize) -> Result<(), Failure> {
        let from = self.from;
        if from.batches == 0 || file > from.file {
            return Ok(());
        }
        let is_last = file == from.file;
        reader.cut_at(is_last.then_some(from.line));
        while let Some(batch) = reader
            .next_batch(&Unobserved)
            .map_err(|error| cannot_read_on(reader, &error))?
        {
            self.hasher.update(batch.keys.encoded());
        }
        reader.cut_at(None);
        let is_same = reader.position().line == from.line && self.hasher.digest() == from.keys_hash;
        if is_last && !is_same {
            return Err(Failure::Failed(format!(
                "cannot continue: the lines up to {}:{} are not those that were read before; \
                 nothing was sent",
                reader.position().file,
                from.line
            )));
        }
        Ok(())
    }

    fn after(&mut self, batch: &LineBatch, file: usize) -> RunProgress {
        self.hasher.update(batch.keys.encoded());
        self.progress = RunProgress {
            file,
            line: batch.end.line,
            batches: self.progress.batches + 1,
            keys_hash: self.hasher.digest(),
        };
        self.progress
    }
}

/// Ignores lines that are no keys, because another run has counted them.
struct Unobserved;

impl Observer for Unobserved {
    fn empty(&self) {}

    fn bad(&self, _: &Position, _: &str) {}
}

/// Reports the number of bytes read, before decompression, because the sizes of the files count
/// them.
struct Watched<'a> {
    input: Box<dyn Read>,
    report: &'a Report,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.report.read(read);
        Ok(read)
    }
}
