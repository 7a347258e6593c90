//! `ExportFilter`: a file, with one piece in each message.
//!
//! A piece is made when the connection has room for it. So a client that does not read blocks
//! nobody, and holds only the pieces already made for it.

use futures_util::stream::{self, BoxStream, StreamExt};
use seenset_proto::v1::ExportFilterResponse;
use tokio::sync::watch;
use tonic::Status;

use crate::engine::Export;
use crate::grpc::{status::status, wire::calls::Drain};

/// Returns the messages of an export, up to its end or until the time to drain is up.
pub fn pieces(
    export: Export,
    drain: watch::Receiver<Drain>,
) -> BoxStream<'static, Result<ExportFilterResponse, Status>> {
    let session = Session {
        size_bytes: export.file_bytes(),
        export,
        drain,
        is_over: false,
    };
    stream::unfold(session, |mut session| async {
        let piece = session.next().transpose()?;
        Some((piece, session))
    })
    .boxed()
}

struct Session {
    /// The size of the file; 0 once the first message has reported it.
    size_bytes: u64,
    export: Export,
    drain: watch::Receiver<Drain>,
    is_over: bool,
}

impl Session {
    fn next(&mut self) -> Result<Option<ExportFilterResponse>, Status> {
        if self.is_over {
            return Ok(None);
        }
        // So that no message follows an error.
        self.is_over = true;
        if *self.drain.borrow() >= Drain::Over {
            return Err(Status::unavailable(
                "the server is stopping, and not all of the filter was exported; try again",
            ));
        }
        let Some(data) = self.export.next_piece().map_err(status)? else {
            return Ok(None);
        };
        self.is_over = false;
        let size_bytes = std::mem::take(&mut self.size_bytes);
        Ok(Some(ExportFilterResponse { size_bytes, data }))
    }
}
