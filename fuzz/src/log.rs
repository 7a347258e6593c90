//! Logs, written by the server's own writer.

use arbitrary::Arbitrary;
use seenset_server::{
    filter::hash::KeyHash,
    store::{
        Batch, Counted, DataDirectory, Direction, FilterId, LogWriter, RecordHead, RecordKind,
        RequestId, Segment, StoreError,
    },
};

/// The most steps of one log.
const MOST_STEPS: usize = 32;
/// The size of a segment. It holds two pages, so that one can be given back.
const SEGMENT_BYTES: u64 = 4096 + 512;
/// The length of the tail. It is less than the length of a segment, as in a server with large
/// segments.
const TAIL_BYTES: u64 = 1024;
/// The largest size of a batch, so that each batch fits into a segment.
const MOST_BATCH_BYTES: u64 = 400;

/// The steps of a log, from a start of the server on.
#[derive(Debug, Arbitrary)]
pub struct Log {
    has_tail: bool,
    steps: Vec<Step>,
}

#[derive(Debug, Arbitrary)]
enum Step {
    /// A record is added to the batch.
    Push {
        filter: u8,
        version: u8,
        request: Option<u8>,
        /// If the keys are counted: whether they count down, and how many versions before.
        counted: Option<(bool, u8)>,
        hashes: u8,
        /// If the keys are not counted: an even number is twice the epoch in which they were added,
        /// an odd number is twice their layer plus one.
        origin: Option<u8>,
    },
    /// The batch is appended to the log.
    Write,
    /// The log is synced.
    Sync,
    /// The log continues in a new segment.
    Roll,
    /// The log continues in a new segment as after an error. The segment begins with the batches
    /// that were not synced.
    Recover,
    /// The server is killed and starts again.
    Restart,
}

impl Log {
    /// Writes the log to a directory that has no filters yet.
    ///
    /// # Errors
    ///
    /// [`StoreError`], which does not occur on a disk without faults.
    pub fn write(&self, directory: &DataDirectory) -> Result<(), StoreError> {
        let mut log = self.open(directory)?;
        let mut batch = Batch::default();
        for step in self.steps.iter().take(MOST_STEPS) {
            match step {
                Step::Push {
                    filter,
                    version,
                    request,
                    counted,
                    hashes,
                    origin,
                } => {
                    let hashes = (0..u64::from(hashes % 8)).map(|low| KeyHash { low, high: !low });
                    let hashes: Vec<KeyHash> = hashes.collect();
                    let version = u64::from(*version);
                    let head = RecordHead {
                        filter: FilterId((*filter).into()),
                        version,
                        request: request.map(|byte| RequestId([byte; 16])),
                        kind: match (counted, origin) {
                            (Some((is_down, before)), _) => RecordKind::Counted(Counted {
                                direction: match is_down {
                                    true => Direction::Down,
                                    false => Direction::Up,
                                },
                                since: version.saturating_sub(1 + u64::from(*before)),
                            }),
                            (None, None) => RecordKind::Added,
                            (None, Some(number)) if number % 2 == 0 => RecordKind::AddedAt {
                                epoch: u64::from(number / 2),
                            },
                            (None, Some(number)) => RecordKind::AddedTo {
                                layer: u64::from(number / 2),
                            },
                        },
                    };
                    if !batch.fits(hashes.len(), MOST_BATCH_BYTES) {
                        write(&mut log, &mut batch)?;
                    }
                    let count = hashes.len();
                    batch.push(&head, count, hashes.into_iter());
                }
                Step::Write => write(&mut log, &mut batch)?,
                Step::Sync => log.sync()?,
                // The log leaves only a segment that has batches.
                Step::Roll if log.room_bytes() < SEGMENT_BYTES - Segment::OVERHEAD_BYTES => {
                    roll(&mut log)?;
                }
                Step::Roll => {}
                Step::Recover => {
                    let bytes = Segment::OVERHEAD_BYTES + log.unsynced_bytes();
                    let next = log.segment_to_recover(bytes.max(SEGMENT_BYTES));
                    log.recover(next?)?;
                }
                Step::Restart => log = self.open(directory)?,
            }
        }
        write(&mut log, &mut batch)
    }

    /// Opens a log that continues the existing one.
    fn open(&self, directory: &DataDirectory) -> Result<LogWriter, StoreError> {
        let mut found = directory
            .log()?
            .read(|_| Ok::<_, StoreError>(()), &mut Err)?;
        let mut log = directory.open_log(&mut found, SEGMENT_BYTES)?;
        if self.has_tail {
            log.begin_tail(TAIL_BYTES)?;
        }
        Ok(log)
    }
}

/// Writes a batch. Continues in the next segment if this one has no room.
fn write(log: &mut LogWriter, batch: &mut Batch) -> Result<(), StoreError> {
    if log.room_bytes() < batch.bytes() {
        roll(log)?;
    }
    if log.unsynced_bytes() + batch.bytes() > log.max_unsynced_bytes() {
        log.sync()?;
    }
    log.write(batch)?;
    batch.clear();
    Ok(())
}

fn roll(log: &mut LogWriter) -> Result<(), StoreError> {
    let next = Segment::create(&**log.disk(), log.sequence() + 1, SEGMENT_BYTES)?;
    log.roll(next)
}
