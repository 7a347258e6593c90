//! Writes lines unchanged, on its own thread. Writing blocks, and must not delay the answers that
//! come in meanwhile.

use std::{
    io::{self, BufWriter, ErrorKind, Write},
    ops::Range,
    thread::{self, JoinHandle},
};

use tokio::sync::mpsc;

use super::{
    failure::Failure,
    lines::{LineBatch, Position},
};

/// The number of bytes that are gathered for one write.
const WRITE_BYTES: usize = 256 * 1024;
/// The number of batches that wait to be written.
const QUEUE: usize = 4;

/// The maximum number of batches that are written before they are flushed.
const FLUSH_BATCHES: usize = 64;

/// Follows the writing of batches.
pub(super) trait Follow: Send {
    /// The lines of a batch are about to be flushed.
    fn written(&mut self, batch: &LineBatch);
    /// All of these lines are flushed: `bytes` bytes since the start.
    fn flushed(&mut self, bytes: u64) -> io::Result<()>;
}

impl Follow for () {
    fn written(&mut self, _: &LineBatch) {}

    fn flushed(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// The writing thread, and its queue.
pub(super) struct Writer {
    /// The queue of the thread. It writes the lines that a batch still names.
    pub(super) batches: mpsc::Sender<LineBatch>,
    thread: JoinHandle<(io::Result<()>, Option<Position>)>,
}

/// The progress of writing.
pub(super) struct Written {
    pub(super) result: io::Result<()>,
    /// The last line up to which everything is written; `None` if there is none.
    pub(super) end: Option<Position>,
}

impl Writer {
    /// Starts a thread that writes to standard output.
    pub(super) fn spawn(mut follow: impl Follow + 'static) -> Result<Self, Failure> {
        let (batches, receiver) = mpsc::channel(QUEUE);
        let thread = thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || {
                let mut end = None;
                let mut output = io::stdout().lock();
                let result = write_all(receiver, &mut output, &mut follow, &mut end);
                (result, end)
            })
            .map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))?;
        Ok(Self { batches, thread })
    }

    /// Waits until all batches that were sent are written.
    pub(super) fn finish(self) -> Written {
        drop(self.batches);
        let (result, end) = self
            .thread
            .join()
            .unwrap_or_else(|_| (Err(io::Error::from(ErrorKind::Other)), None));
        Written { result, end }
    }
}

/// Writes until the queue ends. It flushes whenever the queue is empty, so that the lines of a slow
/// pipe come out as they come in. `end` is only ever a line that was flushed.
fn write_all(
    mut batches: mpsc::Receiver<LineBatch>,
    output: &mut impl Write,
    follow: &mut impl Follow,
    end: &mut Option<Position>,
) -> io::Result<()> {
    let mut output = BufWriter::with_capacity(WRITE_BYTES, output);
    let mut bytes = 0;
    while let Some(mut batch) = batches.blocking_recv() {
        for written in 1.. {
            bytes += write_lines(&mut output, &batch)?;
            follow.written(&batch);
            if written == FLUSH_BATCHES {
                break;
            }
            match batches.try_recv() {
                Ok(next) => batch = next,
                Err(_) => break,
            }
        }
        output.flush()?;
        *end = Some(batch.end);
        follow.flushed(bytes)?;
    }
    Ok(())
}

/// Writes the lines of a batch unchanged, adjacent lines in one piece. Returns the number of bytes
/// written.
#[expect(
    clippy::indexing_slicing,
    reason = "the lines of a batch are ranges of its bytes"
)]
fn write_lines(output: &mut impl Write, batch: &LineBatch) -> io::Result<u64> {
    let mut bytes = 0;
    let mut run: Range<usize> = 0..0;
    for line in &batch.lines {
        if line.start != run.end {
            output.write_all(&batch.bytes[run.clone()])?;
            bytes += run.len();
            run = line.start..line.start;
        }
        run.end = line.end;
    }
    let last = &batch.bytes[run];
    output.write_all(last)?;
    bytes += last.len();
    // Only the last line of a file can lack its ending, and then it is the last line here.
    if let Some(end) = batch.format.end()
        && !last.is_empty()
        && !last.ends_with(&[end])
    {
        output.write_all(&[end])?;
        bytes += 1;
    }
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use seenset_client::KeyBatch;

    use crate::lines::{RecordFormat, RunProgress};

    fn batch(bytes: &'static [u8]) -> LineBatch {
        let mut lines = Vec::new();
        let mut start = 0;
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            lines.push(start..start + line.len());
            start += line.len();
        }
        LineBatch {
            bytes: bytes.into(),
            lines,
            keys: KeyBatch::new(),
            format: RecordFormat::Lines,
            end: Position {
                file: "f".into(),
                line: 1,
            },
            progress: RunProgress::default(),
        }
    }

    fn written(bytes: &'static [u8], kept: &[bool]) -> String {
        let mut output = Vec::new();
        let mut batch = batch(bytes);
        batch.keep(kept);
        let bytes = write_lines(&mut output, &batch).unwrap();
        assert_eq!(bytes, output.len() as u64);
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn exactly_the_lines_that_are_kept_are_written() {
        let input = b"a\nb\r\nc\nd";
        for mask in 0..16_u32 {
            let kept: Vec<bool> = (0..4).map(|line| mask >> line & 1 == 1).collect();
            let expected: String = ["a\n", "b\r\n", "c\n", "d\n"]
                .iter()
                .zip(&kept)
                .filter(|(_, kept)| **kept)
                .map(|(line, _)| *line)
                .collect();
            assert_eq!(written(input, &kept), expected, "{kept:?}");
        }
    }

    #[test]
    fn a_last_record_gets_the_end_of_its_format() {
        for (format, written) in [
            (RecordFormat::HexLines, &b"a\n"[..]),
            (RecordFormat::Null, b"a\0"),
            (RecordFormat::Binary, b"a"),
        ] {
            let batch = LineBatch {
                format,
                ..batch(b"a")
            };
            let mut output = Vec::new();
            write_lines(&mut output, &batch).unwrap();
            assert_eq!(output, written);
        }
    }

    #[test]
    fn what_was_left_out_between_lines_is_not_written() {
        let batch = LineBatch {
            lines: vec![0..2, 6..8],
            ..batch(b"a\nbad\nc\n")
        };
        let mut output = Vec::new();
        write_lines(&mut output, &batch).unwrap();
        assert_eq!(output, b"a\nc\n");
    }
}
