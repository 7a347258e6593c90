//! The writer: the thread that writes the log for all filters. While it writes a group of records,
//! and syncs it if need be, the next group gathers.

use std::{
    collections::{HashMap, VecDeque},
    mem,
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{
    Durability,
    disk_watch::{Caller, Calling},
    failure::{Doubts, Failure},
    log_state::{Flush, LogState},
    queues::{End, Filled},
    segment_worker::{Done, SegmentWorker},
};
use crate::{
    engine::error::EngineError,
    planted::Bug,
    store::{Batch, FilterId, LogWriter, RecordHead, Segment, StoreError},
};

/// The interval of [`Writer::check_files`]. Records that are acknowledged between the removal of a
/// file and the next check may be lost.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The pause before the thread retries a failed operation. It is shorter in tests, because many of
/// them wait for it.
const RETRY: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 100 });

/// The number of unsynced bytes at which a sync begins: a disk takes one large piece at a fraction
/// of the cost of many small ones.
const SYNC_BYTES: u64 = 4 << 20;

/// The writer thread.
pub struct Writer {
    shared: Arc<LogState>,
    log: LogWriter,
    segment_worker: SegmentWorker,
    segment_bytes: u64,
    /// The time for which written records may stay unsynced; `None` if they may not.
    interval: Option<Duration>,
    /// The batches that are to be written.
    filled: VecDeque<Filled>,
    /// The versions in those batches, and in written batches whose calls have not been woken yet.
    ends: Vec<End>,
    /// The calls that wait until written records are on stable storage.
    flushes: Vec<Flush>,
    /// The time at which the first of the records that are being synced was written. In
    /// `unsynced_since`: the first of those that are not being synced yet.
    syncing_since: Option<Instant>,
    unsynced_since: Option<Instant>,
    /// The segment after the one that is written to.
    spare: Option<Segment>,
    /// The time to retry making the next segment.
    make_at: Option<Instant>,
    /// The time of the last [`Self::check_files`] that succeeded.
    checked: Option<Instant>,
    /// The space that the queues know of.
    room_bytes: i64,
    /// Whether the log has failed or has no segment. It must be recovered before the next write.
    is_broken: bool,
}

impl Drop for Writer {
    /// Ends all waits for this thread.
    fn drop(&mut self) {
        if thread::panicking() {
            self.shared.set_failure(Some(Failure::ended()));
        }
        self.shared.has_ended.store(true, Ordering::Release);
        self.shared.flushes.lock().clear();
    }
}

impl Writer {
    /// Creates the work of the thread, to be [run](Self::run).
    ///
    /// # Errors
    ///
    /// [`EngineError::Internal`] if the operating system cannot start the segment worker thread.
    pub fn new(
        shared: Arc<LogState>,
        log: LogWriter,
        durability: Durability,
        segment_bytes: u64,
    ) -> Result<Self, EngineError> {
        let state = shared.clone();
        let segment_worker = SegmentWorker::start(
            log.disk().clone(),
            segment_bytes,
            shared.watch.clone(),
            move || state.note_result(),
        );
        let is_broken = !log.has_segment();
        let mut writer = Self {
            shared,
            log,
            segment_worker: segment_worker
                .map_err(|error| EngineError::internal("the system gives no thread", error))?,
            segment_bytes,
            interval: match durability {
                Durability::Interval(interval) => Some(interval),
                Durability::Always | Durability::Snapshot => None,
            },
            filled: VecDeque::new(),
            ends: Vec::new(),
            flushes: Vec::new(),
            syncing_since: None,
            unsynced_since: None,
            spare: None,
            make_at: None,
            checked: None,
            room_bytes: 0,
            is_broken,
        };
        writer.publish_space(0);
        if !writer.is_broken {
            writer.segment_worker.make(writer.log.sequence() + 1);
            writer.begin_tail();
        }
        Ok(writer)
    }

    /// Writes the records that are handed over, until the log is stopped.
    pub fn run(mut self) {
        loop {
            // This is read before the records are taken: if the log is stopping, they are the last
            // ones.
            let is_stopping = self.shared.is_stopping();
            // The threads that have woken this one may append more. Without the yield, this thread
            // would interrupt them for each call on a machine with few cores.
            thread::yield_now();
            self.flushes.append(&mut self.shared.flushes.lock());
            self.take();
            let shared = self.shared.clone();
            let calling = shared.watch.call(Caller::Writer);
            let done = self.commit(is_stopping, &calling);
            self.report(done.as_ref().err());
            self.answer_flushes();
            drop(calling);
            if is_stopping {
                return;
            }
            self.sleep(done.is_err());
        }
    }

    /// Takes the records that were handed over.
    fn take(&mut self) {
        let before = self.ends.len();
        self.shared.queues.take(&mut self.filled, &mut self.ends);
        let taken = self.ends.get(before..).expect("`take` only appends");
        // This is done now and not after the write. A version that is used until then is written
        // with the next turn, and calls that wait for this turn would wait for the next one too.
        if !taken.is_empty() {
            self.shared.trackers.lock().note_unused(taken);
        }
    }

    /// Writes the batches, and syncs if a sync is due.
    fn commit(&mut self, is_stopping: bool, calling: &Calling<'_>) -> Result<(), StoreError> {
        self.shared.has_result.store(false, Ordering::Release);
        self.check_files()?;
        while let Some(done) = self.segment_worker.done() {
            self.note_done(done)?;
        }
        if self.make_at.is_some_and(|at| at <= Instant::now()) && !self.segment_worker.is_making() {
            self.make_at = None;
            self.segment_worker.make(self.log.sequence() + 1);
        }
        if self.is_broken {
            self.recover()?;
        }
        while let Some(filled) = self.filled.front() {
            let bytes = filled.batch.bytes();
            self.hold_back(bytes)?;
            if self.log.room_bytes() < bytes {
                self.roll()?;
            }
            self.write_first();
            self.sync_behind();
            calling.answered();
        }
        match self.interval {
            Some(_) if !is_stopping && self.log.has_tail() => {
                self.sync_behind();
                Ok(())
            }
            _ => {
                if Bug::AnswerBeforeSync.is_planted() {
                    self.report(None);
                }
                self.sync()
            }
        }
    }

    /// Checks that no other program has removed or replaced the files, at most once per interval.
    fn check_files(&mut self) -> Result<(), StoreError> {
        let now = Instant::now();
        if self.checked.is_some_and(|at| now < at + CHECK_INTERVAL) {
            return Ok(());
        }
        self.log.check_files()?;
        self.checked = Some(now);
        Ok(())
    }

    /// Writes the first of the batches.
    fn write_first(&mut self) {
        let Some(mut filled) = self.filled.pop_front() else {
            return;
        };
        self.unsynced_since.get_or_insert_with(Instant::now);
        if let Err(error) = self.log.write(&mut filled.batch) {
            tracing::warn!(%error, "until there is another segment, each answer waits for the disk");
        }
        filled.batch.clear();
        self.shared.queues.reuse(filled.batch);
        self.publish_space(filled.reserved_bytes);
    }

    /// Begins a [tail](LogWriter::begin_tail) in interval mode, so that a killed process loses no
    /// unsynced records.
    fn begin_tail(&mut self) {
        if self.interval.is_some()
            && !self.log.has_tail()
            && let Err(error) = self.log.begin_tail(self.segment_bytes)
        {
            tracing::warn!(%error, "until there is another segment, each answer waits for the disk");
        }
    }

    /// Continues in the next segment.
    fn roll(&mut self) -> Result<(), StoreError> {
        self.finish_sync()?;
        let next = self.next_segment()?;
        let rolled = self.log.roll(next);
        self.broken_by(rolled)?;
        self.begin_segment();
        Ok(())
    }

    /// Recovers from an error: writes the records that may be lost to another segment.
    fn recover(&mut self) -> Result<(), StoreError> {
        // This also makes sure that the segment worker does not make the segment that is made here.
        while let Some(done) = self.segment_worker.wait() {
            // The result does not matter any more: all unsynced records are written again.
            let _ = self.note_done(done);
        }
        let needed = self.log.unsynced_bytes();
        let number = self.log.sequence_to_recover();
        let is_it = |spare: &Segment| spare.number() == number && spare.room_bytes() >= needed;
        let next = match self.spare.take() {
            Some(spare) if is_it(&spare) => spare,
            other => {
                // The spare can still be the segment after that one.
                self.spare = other.filter(|spare| spare.number() > number);
                let bytes = (Segment::OVERHEAD_BYTES + needed).max(self.segment_bytes);
                self.log.segment_to_recover(bytes)?
            }
        };
        self.log.recover(next)?;
        self.is_broken = false;
        (self.syncing_since, self.unsynced_since) = (None, None);
        self.begin_segment();
        Ok(())
    }

    /// Returns the next segment: the spare, the one that the segment worker is making, or a new
    /// one.
    fn next_segment(&mut self) -> Result<Segment, StoreError> {
        while self.spare.is_none()
            && self.segment_worker.is_making()
            && let Some(done) = self.segment_worker.wait()
        {
            self.note_done(done)?;
        }
        match self.spare.take() {
            Some(spare) => Ok(spare),
            None => Segment::create(
                &**self.log.disk(),
                self.log.sequence() + 1,
                self.segment_bytes,
            ),
        }
    }

    /// Publishes the number of the new segment, and has the segment worker make the next one.
    fn begin_segment(&mut self) {
        self.shared
            .segment
            .store(self.log.sequence(), Ordering::Release);
        if self.spare.is_none() {
            self.make_at = None;
            self.segment_worker.make(self.log.sequence() + 1);
        }
        self.publish_space(0);
        self.begin_tail();
    }

    fn note_done(&mut self, done: Done) -> Result<(), StoreError> {
        match done {
            Done::Sync(sync, synced) => {
                self.broken_by(synced)?;
                self.log.end_sync(sync);
                self.syncing_since = None;
            }
            Done::Segment(Ok(segment)) => {
                self.spare = Some(segment);
                self.shared.set_shortage(None);
                self.publish_space(0);
            }
            Done::Segment(Err(error)) => {
                self.make_at = Some(Instant::now() + RETRY);
                self.shared.set_shortage(Some(&error));
            }
        }
        Ok(())
    }

    /// Updates the space that the queues know of, after a write released `released_bytes` of
    /// reserved space.
    fn publish_space(&mut self, released_bytes: u64) {
        // The last batch of a segment can leave space that was too small for the next batch.
        let slack = self.shared.queues.max_batch_bytes() as i64;
        let spare = self.spare.as_ref();
        let spare = spare.map_or(0, |spare| spare.room_bytes() as i64 - slack);
        let room_bytes = self.log.room_bytes() as i64 - slack + spare;
        let more = room_bytes - self.room_bytes + released_bytes as i64;
        self.room_bytes = room_bytes;
        if more != 0 {
            self.shared.queues.add_space(more);
            self.shared.queues.more_space.notify_waiters();
        }
    }

    /// Waits for a sync if the oldest unsynced record has reached the interval, because answers
    /// that are given meanwhile would be lost with it. Also waits if a batch of `bytes` bytes would
    /// make too many unsynced bytes.
    fn hold_back(&mut self, bytes: u64) -> Result<(), StoreError> {
        let is_too_much = |log: &LogWriter| log.unsynced_bytes() + bytes > log.max_unsynced_bytes();
        if is_too_much(&self.log) {
            self.finish_sync()?;
            if is_too_much(&self.log) {
                self.sync()?;
            }
        }
        let oldest = self.syncing_since.or(self.unsynced_since);
        if let (Some(interval), Some(oldest)) = (self.interval, oldest)
            && oldest.elapsed() >= interval
            && !Bug::NotHeldBack.is_planted()
        {
            self.finish_sync()?;
            let oldest = self.unsynced_since;
            if oldest.is_some_and(|oldest| oldest.elapsed() >= interval) {
                self.sync()?;
            }
        }
        Ok(())
    }

    /// Begins a sync, if one is due and none is in progress.
    fn sync_behind(&mut self) {
        if self.segment_worker.is_syncing() {
            return;
        }
        let is_due = self.sync_in().is_some_and(|time| time.is_zero());
        if (is_due || self.log.unsynced_bytes() >= SYNC_BYTES)
            && let Some(sync) = self.log.begin_sync()
        {
            self.syncing_since = self.unsynced_since.take();
            self.segment_worker.sync(sync);
        }
    }

    /// Returns the time until the next sync is due. A sync begins after half the interval, so that
    /// it has the other half to complete.
    fn sync_in(&self) -> Option<Duration> {
        let since = self.unsynced_since?;
        Some((self.interval? / 2).saturating_sub(since.elapsed()))
    }

    /// Waits for the end of the sync that is in progress.
    fn finish_sync(&mut self) -> Result<(), StoreError> {
        while self.segment_worker.is_syncing()
            && let Some(done) = self.segment_worker.wait()
        {
            self.note_done(done)?;
        }
        Ok(())
    }

    /// Syncs all written records.
    fn sync(&mut self) -> Result<(), StoreError> {
        self.finish_sync()?;
        let synced = self.log.sync();
        self.broken_by(synced)?;
        self.unsynced_since = None;
        Ok(())
    }

    fn broken_by(&mut self, done: Result<(), StoreError>) -> Result<(), StoreError> {
        self.is_broken |= done.is_err();
        done
    }

    /// Wakes the calls whose records have been written, or reports the error to all that wait.
    fn report(&mut self, error: Option<&StoreError>) {
        if let Some(error) = error {
            let failure = Failure::new(error, self.doubts());
            self.shared.set_failure(Some(failure));
            return;
        }
        self.shared.set_failure(None);
        if !self.ends.is_empty() {
            self.shared.trackers.lock().note(&self.ends);
            self.ends.clear();
        }
    }

    /// Returns, for each filter, the keys that may be missing from the log and whose calls have not
    /// been answered.
    fn doubts(&self) -> HashMap<FilterId, Doubts> {
        let trackers = self.shared.trackers.lock();
        let after = trackers.after(&self.ends).into_iter();
        let mut doubts: HashMap<_, _> = after
            .map(|(filter, complete_to)| {
                let hashes = Default::default();
                (
                    filter,
                    Doubts {
                        complete_to,
                        hashes,
                    },
                )
            })
            .collect();
        let to_be_written = self.filled.iter().map(|filled| &filled.batch);
        let to_be_written = to_be_written.flat_map(Batch::records);
        for record in self.log.unsynced().chain(to_be_written) {
            let RecordHead {
                filter, version, ..
            } = record.head;
            if let Some(doubts) = doubts.get_mut(&filter)
                && !trackers.has_reached(filter, version)
            {
                let hashes = record.hashes.iter().map(|hash| (hash.low, hash.high));
                doubts.hashes.extend(hashes);
            }
        }
        doubts
    }

    /// Answers the calls that wait for stable storage and whose records have been written.
    fn answer_flushes(&mut self) {
        if self.flushes.is_empty() {
            return;
        }
        let (ready, waiting): (Vec<_>, Vec<_>) = {
            let trackers = self.shared.trackers.lock();
            let flushes = mem::take(&mut self.flushes).into_iter();
            let is_written = |(filter, version)| trackers.has_reached(filter, version);
            flushes.partition(|flush| flush.of.is_none_or(is_written))
        };
        if let Err(error) = self.shared.check() {
            let failure = Err(error.to_string());
            // A call whose records are all synced need not know that no more can be written.
            let is_synced = self.log.unsynced_bytes() == 0 && self.filled.is_empty();
            let of_ready = if is_synced { Ok(()) } else { failure.clone() };
            for (flushes, result) in [(ready, of_ready), (waiting, failure)] {
                for flush in flushes {
                    // The receiver may have stopped waiting.
                    let _ = flush.done.send(result.clone());
                }
            }
            return;
        }
        self.flushes = waiting;
        if !ready.is_empty() {
            let synced = self.sync().map_err(|error| error.to_string());
            for flush in ready {
                let _ = flush.done.send(synced.clone());
            }
        }
    }

    /// Sleeps until there is work or the time is up. Returns at once if there is work already.
    fn sleep(&self, has_failed: bool) {
        let sync_in = if self.segment_worker.is_syncing() {
            None
        } else {
            self.sync_in()
        };
        let make_in = self
            .make_at
            .map(|at| at.saturating_duration_since(Instant::now()));
        let retry_in = (has_failed || self.is_broken).then_some(RETRY);
        let time = [sync_in, make_in, retry_in].into_iter().flatten().min();
        let is_idle = || match has_failed {
            true => !self.shared.is_stopping(),
            false => self.shared.is_idle(),
        };
        self.shared.writer.sleep(is_idle, time);
    }
}
