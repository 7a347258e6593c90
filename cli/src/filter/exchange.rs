//! `filter import` and `filter export`: files of other programs.

use std::{
    fs::File,
    io::{self, Seek},
    path::Path,
};

use same_file::Handle;
use tokio::task::block_in_place;

use super::destination::Destination;
use seenset_client::{Client, v1};

use crate::{
    args::{FormatArg, Import},
    failure::Failure,
    file_name::is_stdin,
    interrupt::interrupted,
    streams::{self, Outputs},
};

pub(super) async fn import(client: &Client, arguments: &Import) -> Result<v1::Filter, Failure> {
    let Import {
        name,
        file: path,
        format,
        capacity,
    } = arguments;
    let (file, size_bytes) = block_in_place(|| open(path))?;
    let format = match format {
        FormatArg::Guava => v1::FileFormat::Guava,
        FormatArg::Redisbloom => v1::FileFormat::Redisbloom,
    };
    let import = v1::ImportFilterRequest {
        name: name.clone(),
        format: format.into(),
        size_bytes,
        capacity: capacity.unwrap_or_default(),
        data: Vec::new(),
    };
    Ok(client.import_filter(import, file).await?)
}

/// Returns the file to import and its length, which the server needs before the data. A file
/// without a length, for instance a pipe, is copied to a temporary file first.
fn open(path: &Path) -> Result<(File, u64), Failure> {
    let unreadable = |error: io::Error| {
        let path = path.display();
        Failure::Failed(format!("cannot read {path}: {error}"))
    };
    if is_stdin(path) {
        let metadata = Handle::stdin().and_then(|stdin| stdin.as_file().metadata());
        let metadata = metadata.map_err(unreadable)?;
        Outputs::new().refuse(path, &metadata, Handle::stdin)?;
        streams::check_stdin("a filter")?;
        return spooled(io::stdin().lock()).map_err(unreadable);
    }
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return spooled(file).map_err(unreadable);
    }
    Outputs::new().refuse(path, &metadata, || Handle::from_path(path))?;
    Ok((file, metadata.len()))
}

/// Copies `from` to a temporary file, and returns the file and its length. The file is removed when
/// its last user is gone.
fn spooled(mut from: impl io::Read) -> io::Result<(File, u64)> {
    let mut file = tempfile::tempfile()?;
    let size_bytes = io::copy(&mut from, &mut file)?;
    file.rewind()?;
    Ok((file, size_bytes))
}

/// The result of an export.
pub(super) struct Exported {
    pub(super) bytes: u64,
    /// The filter went to standard output, so nothing else can be printed there.
    pub(super) to_stdout: bool,
}

/// Writes a filter to a file.
pub(super) async fn export(client: &Client, name: &str, path: &Path) -> Result<Exported, Failure> {
    let unwritable = |error: io::Error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
        _ => Failure::Failed(format!("cannot write {}: {error}", path.display())),
    };
    let mut destination = block_in_place(|| Destination::open(path)).map_err(unwritable)?;
    let mut signal = interrupted();
    let mut export = client.export_filter(name).await?;
    let mut bytes = 0;
    loop {
        let piece = tokio::select! {
            piece = export.next() => piece?,
            _ = &mut signal => {
                let text = format!("interrupted after {bytes} bytes");
                return Err(Failure::Interrupted(text));
            }
        };
        let Some(data) = piece else { break };
        if bytes == 0 {
            destination.begin().map_err(unwritable)?;
        }
        bytes += data.len() as u64;
        block_in_place(|| destination.write(&data)).map_err(unwritable)?;
    }
    let to_stdout = destination.is_stdout();
    block_in_place(|| destination.finish()).map_err(unwritable)?;
    Ok(Exported { bytes, to_stdout })
}
