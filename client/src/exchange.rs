//! Import and export of filters as files of other programs.

use std::{
    io::{self, Read},
    sync::{Arc, Mutex, PoisonError},
};

use seenset_proto::v1::{self, ExportFilterResponse, ImportFilterRequest};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use crate::{
    client::{Client, timed},
    error::Error,
    retry::{Attempt, Repeat, Rpc},
    sent::Sent,
};

/// The number of bytes of the file in each message of an import.
const PIECE_BYTES: usize = 32 << 10;

/// The number of messages that are read ahead.
const AHEAD: usize = 8;

impl Client {
    /// Creates a filter from a file of another program, and returns it.
    ///
    /// `import` gives the name of the filter, the format and the length of the file and, if needed,
    /// the capacity. If its `data` is not empty, it is the start of the file. `file` is read on its
    /// own thread.
    ///
    /// Importing a file of many GiB takes longer than the default deadline: see
    /// [`with_deadline`](Self::with_deadline). The client never repeats this call.
    ///
    /// # Errors
    ///
    /// See [`Client`]; `ALREADY_EXISTS` if the name is taken, and `INVALID_ARGUMENT` if the file is
    /// not what `import` says. [`Error::File`] if the file cannot be read; then nothing is
    /// imported.
    pub async fn import_filter(
        &self,
        import: ImportFilterRequest,
        file: impl Read + Send + 'static,
    ) -> Result<v1::Filter, Error> {
        const NAME: &str = "ImportFilter";
        let (call, deadline, attempt) = self.begin(NAME);
        let (sender, receiver) = mpsc::channel(AHEAD);
        let unreadable = Arc::new(Mutex::new(None));
        let failed = unreadable.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = send(import, file, &sender) {
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                *failed = Some(error.to_string());
            }
        });
        let request = timed(ReceiverStream::new(receiver), attempt.left);
        let mut filters = self.filters(&attempt);
        let imported = timeout_at(deadline, filters.import_filter(request)).await;
        let unreadable = unreadable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // The server got a file that is too short, and refused it. This error is the cause.
        if let Some(reason) = unreadable {
            return Err(Error::File { reason });
        }
        let response = self.answered(&call, imported, &attempt)?;
        response.into_inner().filter.ok_or(Error::Mismatch {
            call: NAME,
            expected: 1,
            actual: 0,
        })
    }

    /// Begins to export the filter `name`, which must have a layout of Guava. An empty name means
    /// the filter named `default`. The caller has to read the whole export within the deadline.
    ///
    /// # Errors
    ///
    /// See [`Client`]; `FAILED_PRECONDITION` if the filter has another layout.
    pub async fn export_filter(&self, name: &str) -> Result<Export, Error> {
        let (call, deadline, attempt) = self.begin("ExportFilter");
        let name = name.to_owned();
        let request = timed(v1::ExportFilterRequest { name }, attempt.left);
        let mut filters = self.filters(&attempt);
        let exported = timeout_at(deadline, filters.export_filter(request)).await;
        let pieces = self.answered(&call, exported, &attempt)?.into_inner();
        Ok(Export {
            client: self.clone(),
            call,
            deadline,
            attempt,
            pieces,
            size_bytes: None,
            taken_bytes: 0,
        })
    }

    fn begin(&self, name: &'static str) -> (Rpc, Instant, Attempt) {
        let deadline = self.options.deadline_from_now();
        let attempt = Attempt {
            left: deadline.saturating_duration_since(Instant::now()),
            sent: Sent::default(),
        };
        (self.call(name, Repeat::UnlessSent), deadline, attempt)
    }

    fn answered<T>(
        &self,
        call: &Rpc,
        answer: Result<Result<T, Status>, tokio::time::error::Elapsed>,
        attempt: &Attempt,
    ) -> Result<T, Error> {
        match answer {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(status)) => Err(call.failed(&self.options, status, attempt.sent.close())),
            Err(_) => Err(call.expired(&self.options, attempt.sent.close())),
        }
    }
}

/// A running export of a filter.
#[derive(Debug)]
pub struct Export {
    client: Client,
    call: Rpc,
    deadline: Instant,
    attempt: Attempt,
    pieces: Streaming<ExportFilterResponse>,
    /// The length of the file, from the first message.
    size_bytes: Option<u64>,
    taken_bytes: u64,
}

impl Export {
    /// Returns the next bytes of the file; `None` when the file is complete.
    ///
    /// # Errors
    ///
    /// See [`Client`]; [`Error::Incomplete`] if the server sends fewer or more bytes than it
    /// announced. The bytes that were read before are then of no use.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let piece = timeout_at(self.deadline, self.pieces.message()).await;
        let piece = self.client.answered(&self.call, piece, &self.attempt)?;
        let (data, first) = match piece {
            None => (None, 0),
            Some(ExportFilterResponse { size_bytes, data }) => (Some(data), size_bytes),
        };
        let size_bytes = *self.size_bytes.get_or_insert(first);
        self.taken_bytes += data.as_ref().map_or(0, |data| data.len() as u64);
        if self.taken_bytes > size_bytes || (data.is_none() && self.taken_bytes < size_bytes) {
            return Err(Error::Incomplete {
                expected_bytes: size_bytes,
                actual_bytes: self.taken_bytes,
            });
        }
        Ok(data)
    }
}

/// Sends a file, one piece in each message, until the file ends or the receiver is gone.
fn send(
    mut message: ImportFilterRequest,
    mut file: impl Read,
    to: &mpsc::Sender<ImportFilterRequest>,
) -> io::Result<()> {
    loop {
        if to.blocking_send(message).is_err() {
            return Ok(());
        }
        let mut data = Vec::with_capacity(PIECE_BYTES);
        file.by_ref()
            .take(PIECE_BYTES as u64)
            .read_to_end(&mut data)?;
        if data.is_empty() {
            return Ok(());
        }
        message = ImportFilterRequest {
            data,
            ..ImportFilterRequest::default()
        };
    }
}
