//! The limit on frames that carry no request.
//!
//! PING, SETTINGS, PRIORITY, WINDOW_UPDATE and frames of unknown types cost their sender a few
//! bytes, but the server has to parse each of them. Clients need some of them, and more when more
//! data is sent in either direction. The connection of a client that sends little else is closed.

use super::frames::{self, Frame};

/// The number of frames that a client may send at once, beyond those that its data entitles it to.
const MOST: u64 = 10_000;

/// The number of frames that each frame of a request entitles a client to.
const FOR_REQUEST: u64 = 4;

/// The number of response bytes that entitle a client to one more frame: it has to give windows
/// back.
const RESPONSE_BYTES: u64 = 2 << 10;

/// The number of frames that a client may send in each second, whatever else it does.
const A_SECOND: u64 = 100;

/// The number of frames without a request that one client may still send.
#[derive(Debug)]
pub struct Allowance {
    frames: u64,
    /// The bytes of responses that are too few to count for a frame yet.
    bytes: u64,
}

impl Allowance {
    pub fn new() -> Self {
        Self {
            frames: MOST,
            bytes: 0,
        }
    }

    fn add(&mut self, frames: u64) {
        self.frames = (self.frames + frames).min(MOST);
    }

    /// Counts a frame of the client. Returns whether it may be sent.
    pub fn take(&mut self, frame: Frame) -> bool {
        match frame.kind {
            frames::HEADERS => self.add(FOR_REQUEST),
            frames::DATA if frame.bytes > 0 => self.add(FOR_REQUEST),
            _ => match self.frames.checked_sub(1) {
                Some(left) => self.frames = left,
                None => return false,
            },
        }
        true
    }

    /// Counts bytes that were sent to the client.
    pub fn written(&mut self, bytes: usize) {
        let bytes = self.bytes + bytes as u64;
        self.bytes = bytes % RESPONSE_BYTES;
        self.add(bytes / RESPONSE_BYTES);
    }

    /// Adds the frames that a client may send for the time that has passed.
    pub fn passed(&mut self, seconds: u64) {
        self.add(seconds.saturating_mul(A_SECOND));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: Frame = Frame {
        kind: 6,
        flags: 0,
        bytes: 8,
    };
    const DATA: Frame = Frame {
        kind: frames::DATA,
        flags: 0,
        bytes: 70,
    };

    /// Returns the number of pings in a row that are allowed.
    fn pings(allowance: &mut Allowance) -> u64 {
        (0..).find(|_| !allowance.take(PING)).unwrap()
    }

    #[test]
    fn frames_without_a_request_are_limited() {
        let mut allowance = Allowance::new();
        assert_eq!(pings(&mut allowance), MOST);
        assert!(allowance.take(DATA));
        assert_eq!(pings(&mut allowance), FOR_REQUEST);
        assert!(!allowance.take(Frame { bytes: 0, ..DATA }));
        allowance.passed(2);
        assert_eq!(pings(&mut allowance), 2 * A_SECOND);
        allowance.passed(u64::MAX);
        assert_eq!(pings(&mut allowance), MOST);
    }

    /// A client that only reads gives windows back with each frame of 16 KiB that it reads.
    #[test]
    fn a_client_that_reads_is_no_flood() {
        let mut allowance = Allowance::new();
        for _ in 0..10 * MOST {
            for byte in [1, 16_383] {
                allowance.written(byte);
            }
            for _ in 0..4 {
                assert!(allowance.take(PING));
            }
        }
    }
}
