//! The content of a file, decompressed if needed. gzip and zstd are recognised by their first
//! bytes, not by the name of the file. The data after one piece (a member, a frame) is the next
//! piece.
//!
//! Memory is bounded for every file. gzip looks back 32 KiB. A zstd frame that asks for
//! more than [`MAX_WINDOW_BYTES`] is refused before it is decoded. The bytes that were decoded
//! before an error are returned first, so that the lines before it are used.

mod format;
mod raw;
mod window;

use std::{
    io::{self, BufRead, ErrorKind, Read},
    mem,
};

use flate2::bufread::GzDecoder;

use self::{format::Format, raw::Raw, window::MAX_WINDOW_BYTES};

type ZstdDecoder<R> = zstd::Decoder<'static, Raw<R>>;

/// Reads the content of a file as it was before compression.
pub(super) struct Input<R> {
    state: State<R>,
    /// The error that follows the bytes that were returned last.
    failure: Option<io::Error>,
}

enum State<R> {
    /// Nothing is read yet.
    Start(Raw<R>),
    /// It is not compressed.
    Plain(Raw<R>),
    Gzip(Box<GzDecoder<Raw<R>>>),
    Zstd(ZstdDecoder<R>),
    /// A piece of compressed data is over.
    Between(Raw<R>),
    Ended,
}

impl<R: Read> Input<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            state: State::Start(Raw::new(input)),
            failure: None,
        }
    }

    /// Decodes some bytes, or makes one step towards them and returns 0.
    fn step(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.state {
            State::Plain(raw) => return raw.read(buffer),
            State::Gzip(decoder) => decoder
                .read(buffer)
                .map_err(|error| explained("gzip", error, decoder.get_ref()))?,
            State::Zstd(decoder) => decoder
                .read(buffer)
                .map_err(|error| explained("zstd", error, decoder.get_ref()))?,
            State::Start(_) | State::Between(_) | State::Ended => 0,
        };
        if read == 0 {
            self.state = match mem::replace(&mut self.state, State::Ended) {
                State::Start(raw) => start(raw)?,
                State::Between(raw) => go_on(raw)?,
                State::Gzip(decoder) => State::Between(decoder.into_inner()),
                State::Zstd(decoder) => State::Between(decoder.into_inner()),
                other @ (State::Plain(_) | State::Ended) => other,
            };
        }
        Ok(read)
    }

    /// Returns whether the next step may have to wait for more of the file.
    fn may_wait(&self) -> bool {
        match &self.state {
            State::Start(raw) | State::Plain(raw) | State::Between(raw) => raw.may_wait(),
            State::Gzip(decoder) => decoder.get_ref().may_wait(),
            State::Zstd(decoder) => decoder.get_ref().may_wait(),
            State::Ended => true,
        }
    }
}

impl<R: Read> Read for Input<R> {
    /// Returns less than there is room for only if the file does. So the reader can distinguish a
    /// file that has no data at the moment from one that has.
    #[expect(
        clippy::indexing_slicing,
        reason = "no more is decoded than there is room for"
    )]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        let mut filled = 0;
        while filled < buffer.len() {
            if let State::Plain(raw) = &mut self.state {
                return raw.read(buffer);
            }
            if matches!(self.state, State::Ended) || filled > 0 && self.may_wait() {
                break;
            }
            match self.step(&mut buffer[filled..]) {
                Ok(read) => filled += read,
                Err(error) => {
                    self.state = State::Ended;
                    if filled == 0 {
                        return Err(error);
                    }
                    self.failure = Some(error);
                }
            }
        }
        Ok(filled)
    }
}

/// Returns the state that the first bytes of a file lead to.
fn start<R: Read>(mut raw: Raw<R>) -> io::Result<State<R>> {
    match Format::of(&mut raw)? {
        Some(format) => decoder(format, raw),
        None => Ok(State::Plain(raw)),
    }
}

/// Returns the state after a piece of compressed data. Next comes padding of NULs, as on tapes,
/// another piece, or the end.
fn go_on<R: Read>(mut raw: Raw<R>) -> io::Result<State<R>> {
    let ahead = raw.peek(1)?;
    if ahead.is_empty() {
        return Ok(State::Ended);
    }
    let nuls = ahead.iter().take_while(|byte| **byte == 0).count();
    if nuls > 0 {
        raw.consume(nuls);
        return Ok(State::Between(raw));
    }
    match Format::of(&mut raw)? {
        Some(format) => decoder(format, raw),
        None => Err(io::Error::new(
            ErrorKind::InvalidData,
            "what follows the compressed data is neither gzip nor zstd",
        )),
    }
}

fn decoder<R: Read>(format: Format, mut raw: Raw<R>) -> io::Result<State<R>> {
    match format {
        Format::Gzip => Ok(State::Gzip(Box::new(GzDecoder::new(raw)))),
        Format::Zstd => {
            window::check(&mut raw)?;
            let mut decoder = zstd::Decoder::with_buffer(raw)?.single_frame();
            decoder.window_log_max(MAX_WINDOW_BYTES.ilog2())?;
            Ok(State::Zstd(decoder))
        }
        Format::Unsupported(name) => Err(io::Error::new(
            ErrorKind::Unsupported,
            format!("{name} is not supported: decompress it first"),
        )),
    }
}

/// Turns the error of a decoder into one in our words. An error of the file itself stays as it is.
fn explained<R>(format: &str, error: io::Error, raw: &Raw<R>) -> io::Error {
    if raw.has_failed() {
        return error;
    }
    let kind = error.kind();
    let text = match kind {
        ErrorKind::UnexpectedEof => format!("the {format} data end too early"),
        _ => format!("the {format} data are damaged ({error})"),
    };
    io::Error::new(kind, text)
}

#[cfg(test)]
mod tests;
