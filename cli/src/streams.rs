//! Standard input, output and error, as the caller of the program gave them.
//!
//! Rust's runtime opens /dev/null in place of a closed stream before `main` begins. If a stream is
//! not open in the right direction, the standard library treats it as one that is at its end, or
//! that accepts everything. So a program would read nothing, or write to nowhere, and report
//! success. [`inspect`] checks the streams before the runtime does this.

use std::{
    fs::Metadata,
    io::{self, IsTerminal},
    path::Path,
    sync::atomic::{AtomicU8, Ordering::Relaxed},
};

use same_file::Handle;

use super::{failure::Failure, notes::note};

/// The defects that [`inspect`] found, as bits.
static DEFECTS: AtomicU8 = AtomicU8::new(0);

const STDIN_CLOSED: u8 = 1;
const STDIN_UNREADABLE: u8 = 2;
const STDOUT_CLOSED: u8 = 4;
const STDOUT_UNWRITABLE: u8 = 8;

/// Checks whether standard input and output are open. It runs before Rust's runtime, so it calls
/// nothing of the standard library but an atomic store: no allocation, no panic.
#[cfg(unix)]
pub fn inspect() {
    use rustix::{
        fs::{OFlags, fcntl_getfl},
        stdio,
    };

    let mut defects = 0;
    match fcntl_getfl(stdio::stdin()) {
        Err(_) => defects |= STDIN_CLOSED,
        Ok(flags) if flags & OFlags::RWMODE == OFlags::WRONLY => defects |= STDIN_UNREADABLE,
        Ok(_) => {}
    }
    match fcntl_getfl(stdio::stdout()) {
        Err(_) => defects |= STDOUT_CLOSED,
        Ok(flags) if flags & OFlags::RWMODE == OFlags::RDONLY => defects |= STDOUT_UNWRITABLE,
        Ok(_) => {}
    }
    DEFECTS.store(defects, Relaxed);
}

/// Fails if standard output cannot be written. Called before a command does anything.
pub(super) fn check_stdout() -> Result<(), Failure> {
    let defects = DEFECTS.load(Relaxed);
    let state = if defects & STDOUT_CLOSED != 0 {
        "closed"
    } else if defects & STDOUT_UNWRITABLE != 0 {
        "not open for writing"
    } else {
        return Ok(());
    };
    Err(Failure::Failed(format!(
        "standard output is {state}: nothing was done (>/dev/null throws the output away)"
    )))
}

/// Fails if standard input cannot be read. On a terminal, prints that the command waits.
pub(super) fn check_stdin(what: &str) -> Result<(), Failure> {
    let defects = DEFECTS.load(Relaxed);
    let state = if defects & STDIN_CLOSED != 0 {
        "closed"
    } else if defects & STDIN_UNREADABLE != 0 {
        "not open for reading"
    } else {
        if io::stdin().is_terminal() {
            let end = if cfg!(windows) {
                "Ctrl-Z and Enter"
            } else {
                "Ctrl-D"
            };
            note(&format!(
                "seenset: reading {what} from the terminal, up to {end}"
            ));
        }
        return Ok(());
    };
    Err(Failure::Failed(format!(
        "standard input is {state}: name a file, or redirect one (</dev/null for no {what})"
    )))
}

/// The regular files that standard output and standard error go to.
pub(super) struct Outputs(Vec<(Handle, &'static str)>);

impl Outputs {
    pub(super) fn new() -> Self {
        let streams = [
            (Handle::stdout(), "standard output"),
            (Handle::stderr(), "standard error"),
        ];
        let is_file =
            |handle: &Handle| handle.as_file().metadata().is_ok_and(|data| data.is_file());
        let files = streams
            .into_iter()
            .filter_map(|(handle, name)| Some((handle.ok()?, name)))
            .filter(|(handle, _)| is_file(handle));
        Self(files.collect())
    }

    /// Fails if an input is one of these files, under any name. The command would read its own
    /// output, and a file that it appends to would grow until the disk is full.
    pub(super) fn refuse(
        &self,
        name: &Path,
        metadata: &Metadata,
        input: impl FnOnce() -> io::Result<Handle>,
    ) -> Result<(), Failure> {
        // Opening a pipe would block until another process opens it for writing.
        if self.0.is_empty() || !metadata.is_file() {
            return Ok(());
        }
        let input = input().map_err(|error| Failure::cannot_open(name, &error))?;
        match self.0.iter().find(|(output, _)| *output == input) {
            None => Ok(()),
            Some((_, stream)) => Err(Failure::Usage(format!(
                "{} is the input and {stream} as well: what is written would be read again. Write \
                 to another file, and rename it afterwards",
                name.display()
            ))),
        }
    }
}

/// Returns true if `file` is the file that standard output goes to.
pub(super) fn is_stdout(file: &std::fs::File) -> bool {
    let same = || Ok::<_, io::Error>(Handle::from_file(file.try_clone()?)? == Handle::stdout()?);
    same().unwrap_or(false)
}
