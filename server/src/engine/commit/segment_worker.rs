//! The segment worker: the thread that does the slow work of the log. It syncs written records
//! while more are written, and makes the next segment before it is needed.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
};

use super::disk_watch::{Caller, DiskWatch};
use crate::store::{Disk, PendingSync, Segment, StoreError};

/// The handle of the segment worker thread.
#[derive(Debug)]
pub struct SegmentWorker {
    /// The channel to the thread; `None` once the thread is to end.
    jobs: Option<Sender<Job>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
    /// The jobs that it has not done yet.
    is_syncing: bool,
    is_making: bool,
}

#[derive(Debug)]
enum Job {
    Sync(PendingSync),
    /// Make the segment with this number.
    Make(u64),
}

/// The result of a job.
#[derive(Debug)]
pub enum Done {
    /// A sync was run.
    Sync(PendingSync, Result<(), StoreError>),
    /// A segment was made.
    Segment(Result<Segment, StoreError>),
}

impl SegmentWorker {
    /// Starts the thread. It calls `notify` after each job.
    ///
    /// # Errors
    ///
    /// If the operating system cannot start a thread.
    pub fn start(
        disk: Arc<dyn Disk>,
        segment_bytes: u64,
        watch: Arc<DiskWatch>,
        notify: impl Fn() + Send + 'static,
    ) -> std::io::Result<Self> {
        let (jobs, to_do) = channel::<Job>();
        let (result, done) = channel();
        let work = move || {
            for job in to_do {
                let calling = watch.call(Caller::SegmentWorker);
                let done = match job {
                    Job::Sync(sync) => {
                        let synced = sync.run();
                        Done::Sync(sync, synced)
                    }
                    Job::Make(number) => {
                        Done::Segment(Segment::create(&*disk, number, segment_bytes))
                    }
                };
                drop(calling);
                if result.send(done).is_err() {
                    return;
                }
                notify();
            }
        };
        let thread = thread::Builder::new()
            .name("wal-segments".to_owned())
            .spawn(work)?;
        Ok(Self {
            jobs: Some(jobs),
            done,
            thread: Some(thread),
            is_syncing: false,
            is_making: false,
        })
    }

    /// Returns whether a sync has begun and has not ended.
    pub fn is_syncing(&self) -> bool {
        self.is_syncing
    }

    /// Returns whether a segment is being made.
    pub fn is_making(&self) -> bool {
        self.is_making
    }

    /// Begins a sync.
    pub fn sync(&mut self, sync: PendingSync) {
        self.is_syncing = self.send(Job::Sync(sync));
    }

    /// Begins to make a segment.
    pub fn make(&mut self, number: u64) {
        self.is_making = self.send(Job::Make(number));
    }

    fn send(&self, job: Job) -> bool {
        let jobs = self.jobs.as_ref();
        jobs.is_some_and(|jobs| jobs.send(job).is_ok())
    }

    /// Returns the result of a job, if one has ended.
    pub fn done(&mut self) -> Option<Done> {
        let done = self.done.try_recv().ok();
        self.note(done)
    }

    /// Waits for the result of the next job; `None` if no job is in progress.
    pub fn wait(&mut self) -> Option<Done> {
        if !self.is_syncing && !self.is_making {
            return None;
        }
        let done = self.done.recv().ok();
        if done.is_none() {
            // The thread has ended. Only a panic can cause this.
            (self.is_syncing, self.is_making) = (false, false);
        }
        self.note(done)
    }

    fn note(&mut self, done: Option<Done>) -> Option<Done> {
        match done {
            Some(Done::Sync(..)) => self.is_syncing = false,
            Some(Done::Segment(_)) => self.is_making = false,
            None => {}
        }
        done
    }
}

impl Drop for SegmentWorker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // The panic message has been printed already.
            let _ = thread.join();
        }
    }
}
