//! `filter import` and `filter export`: files of other programs.

use std::{
    fs::File,
    io::{self, Write, stdout},
    path::Path,
};

use tempfile::NamedTempFile;

use crate::{
    Client,
    cli::{
        args::{FormatArg, Import},
        failure::Failure,
    },
    v1,
};

pub(super) async fn import(client: &Client, arguments: &Import) -> Result<v1::Filter, Failure> {
    let Import {
        name,
        file: path,
        format,
        capacity,
    } = arguments;
    let unreadable = |error| Failure::Failed(format!("cannot read {}: {error}", path.display()));
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    // The server is told the length before it has seen all of it.
    if !metadata.is_file() {
        let text = format!("{} is no file of a known length", path.display());
        return Err(Failure::Usage(text));
    }
    let format = match format {
        FormatArg::Guava => v1::FileFormat::Guava,
        FormatArg::Redisbloom => v1::FileFormat::Redisbloom,
    };
    let import = v1::ImportFilterRequest {
        name: name.clone(),
        format: format.into(),
        size_bytes: metadata.len(),
        capacity: capacity.unwrap_or_default(),
        data: Vec::new(),
    };
    Ok(client.import_filter(import, file).await?)
}

/// Writes a filter to a file, and returns its length. A file that is there is replaced when all of the
/// filter has come.
pub(super) async fn export(client: &Client, name: &str, path: &Path) -> Result<u64, Failure> {
    if path.as_os_str() == "-" {
        return write(client, name, &mut stdout().lock()).await;
    }
    let unwritable = |error| Failure::Failed(format!("cannot write {}: {error}", path.display()));
    let mut file = file_beside(path).map_err(unwritable)?;
    let bytes = write(client, name, &mut file).await?;
    file.as_file().sync_all().map_err(unwritable)?;
    file.persist(path)
        .map_err(|error| unwritable(error.error))?;
    Ok(bytes)
}

/// A file of a name of its own that is removed if it does not get another.
fn file_beside(path: &Path) -> io::Result<NamedTempFile> {
    let directory = path.parent().filter(|parent| *parent != Path::new(""));
    let mut file = tempfile::Builder::new();
    file.prefix(".seenset-").suffix(".partial");
    // Less what the user's mask takes, as of any file.
    #[cfg(unix)]
    file.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    file.tempfile_in(directory.unwrap_or(Path::new(".")))
}

async fn write(client: &Client, name: &str, to: &mut impl Write) -> Result<u64, Failure> {
    let (mut export, mut bytes) = (client.export_filter(name).await?, 0);
    while let Some(data) = export.next().await? {
        to.write_all(&data)?;
        bytes += data.len() as u64;
    }
    to.flush()?;
    Ok(bytes)
}
