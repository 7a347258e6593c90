//! The files of a command, read one after another on a thread of their own.
//!
//! Reading blocks and must not hold up what is sent and written meanwhile. The thread is
//! never joined: at the end of a run that was cut short it may still wait for input.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::PathBuf,
    sync::Arc,
    thread,
};

use same_file::Handle;
use tokio::sync::mpsc;

use super::{
    failure::Failure,
    input::Input,
    lines::{Batch, Limits, LineReader},
    report::Report,
    streams::{self, Outputs, is_stdin},
};

/// Batches read ahead of what is sent: enough to bridge a slow read.
const READ_AHEAD: usize = 4;

/// Starts to read `files`, or standard input if there is none. The last item is the
/// failure, if reading ended with one.
pub(super) fn spawn(
    mut files: Vec<PathBuf>,
    limits: Limits,
    report: Arc<Report>,
) -> Result<mpsc::Receiver<Result<Batch, Failure>>, Failure> {
    if files.is_empty() {
        files.push("-".into());
    }
    let total = check(&files)?;
    report.start(total);
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    thread::Builder::new()
        .name("reader".to_owned())
        .spawn(move || {
            if let Err(failure) = read_all(&files, limits, &report, &sender) {
                // If nobody listens any more the run is over, for another reason.
                let _ = sender.blocking_send(Err(failure));
            }
        })
        .map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))?;
    Ok(receiver)
}

/// Finds a name that was mistyped before a run of hours starts, not in its midst, and an input that
/// is the output. The total size, if all are regular files.
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
    sender: &mpsc::Sender<Result<Batch, Failure>>,
) -> Result<(), Failure> {
    for file in files {
        let (name, input): (_, Box<dyn Read>) = if is_stdin(file) {
            ("stdin".into(), Box::new(io::stdin().lock()))
        } else {
            let input = File::open(file).map_err(|error| Failure::cannot_open(file, &error))?;
            (file.to_string_lossy(), Box::new(input))
        };
        let input = Input::new(Watched { input, report });
        let mut reader = LineReader::new(&name, input, limits);
        loop {
            match reader.next_batch(report) {
                Ok(Some(batch)) => {
                    if sender.blocking_send(Ok(batch)).is_err() {
                        return Ok(());
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    return Err(Failure::Failed(format!(
                        "cannot read on after {}: {error}",
                        reader.position()
                    )));
                }
            }
        }
    }
    Ok(())
}

/// Tells how much is read, before it is decompressed: that goes with the sizes of files.
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
