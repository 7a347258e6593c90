//! The checkpoint of a run: its progress, in a file, so that another run can continue it.
//!
//! The request id of a batch is made from the id of the run and the number of the batch, and the
//! same files make the same batches. A run that continues sends all batches after the checkpoint
//! again under the same ids. The server returns the first answers for the batches that it took
//! before. So the checkpoint can be old. It must be on stable storage before the first batch is
//! sent, and must not be ahead of the output.

mod file;
mod input;
mod output;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

pub(super) use self::{file::CheckpointFile, input::InputFile, output::OutputFile};
use super::lines::{Position, RecordFormat, RunProgress};

/// The version of the format of the file.
const VERSION: u32 = 1;

/// The progress of a run, and all data that another run needs to continue it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Checkpoint {
    /// The version of the format.
    pub(super) version: u32,
    /// The id of the run.
    pub(super) run: String,
    /// The filter.
    pub(super) filter: FilterIdentity,
    /// The arguments that the batches depend on.
    pub(super) settings: Settings,
    /// The files, in their order.
    pub(super) files: Vec<InputFile>,
    /// The progress up to which all lines are answered, and in the output if they were new.
    pub(super) done: RunProgress,
    /// The length of the output up to there, in bytes; absent if it is no regular file.
    pub(super) output_bytes: Option<u64>,
    /// The last new key, if there was one.
    pub(super) witness: Option<Witness>,
    /// The end of the lines that may be marked and are not in the output. There are none if it is
    /// equal to `done`. It is not known while the run continues.
    pub(super) sent: Option<Sent>,
    /// The time when it was saved, in seconds since 1970.
    pub(super) saved_at_s: u64,
}

/// The filter of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FilterIdentity {
    pub(super) name: String,
    /// The time when it was created, in seconds since 1970; absent if the run did not ask.
    pub(super) created_at: Option<String>,
}

/// The arguments that the batches or their answers depend on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    pub(super) max_key_bytes: u32,
    pub(super) batch_keys: u32,
    pub(super) max_age: Option<String>,
    /// The way in which the files are divided into keys.
    pub(super) format: RecordFormat,
}

/// A key that a request of the run has added. While the server repeats its first answer to that
/// request, it remembers all later requests too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Witness {
    pub(super) batch: u64,
    /// The key in hexadecimal digits.
    pub(super) key_hex: String,
}

/// The end of the lines that may be marked.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sent {
    pub(super) file: usize,
    pub(super) line: u64,
    pub(super) batches: u64,
}

impl From<RunProgress> for Sent {
    fn from(progress: RunProgress) -> Self {
        Self {
            file: progress.file,
            line: progress.line,
            batches: progress.batches,
        }
    }
}

impl Checkpoint {
    /// Creates the checkpoint of a run that begins.
    pub(super) fn new(
        run: String,
        filter: FilterIdentity,
        settings: Settings,
        files: Vec<InputFile>,
    ) -> Self {
        Self {
            version: VERSION,
            run,
            filter,
            settings,
            files,
            done: RunProgress::default(),
            output_bytes: None,
            witness: None,
            sent: None,
            saved_at_s: 0,
        }
    }

    /// Returns the request id of a batch.
    pub(super) fn request_id(run: &str, batch: u64) -> String {
        format!("{run}-{batch}")
    }

    /// Returns the last line that is done.
    pub(super) fn end(&self) -> Position {
        self.position(self.done.file, self.done.line)
    }

    /// Returns the lines that may be marked and are not in the output, as text; `None` if there are
    /// none.
    pub(super) fn doubtful_lines(&self) -> Option<String> {
        let end = self.end();
        match self.sent {
            Some(sent) if sent.batches <= self.done.batches => None,
            Some(sent) => {
                let last = self.position(sent.file, sent.line);
                Some(format!("those after {end} up to {last}"))
            }
            None => Some(format!("those that were sent after {end}")),
        }
    }

    /// Returns the time since it was saved.
    pub(super) fn age(&self) -> Duration {
        Duration::from_secs(now_s().saturating_sub(self.saved_at_s))
    }

    /// Returns the text of the file.
    pub(super) fn text(&self) -> String {
        // Serializing it cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses the text of a file.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let version = serde_json::from_str::<serde_json::Value>(text)
            .map_err(|error| format!("it is no checkpoint of dedup: {error}"))?
            .get("version")
            .and_then(serde_json::Value::as_u64);
        if version != Some(VERSION.into()) {
            let found = version.map_or("none".to_owned(), |version| version.to_string());
            return Err(format!(
                "its version is {found}, and this program reads {VERSION}"
            ));
        }
        serde_json::from_str(text).map_err(|error| format!("it is damaged: {error}"))
    }

    /// Sets the time when it was saved to now.
    pub(super) fn stamp(&mut self) {
        self.saved_at_s = now_s();
    }

    fn position(&self, file: usize, line: u64) -> Position {
        let name = self.files.get(file).map_or("", |file| &file.name);
        Position {
            file: name.into(),
            line,
        }
    }
}

fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn checkpoint() -> Checkpoint {
        let filter = FilterIdentity {
            name: "pages".to_owned(),
            created_at: Some("1.5".to_owned()),
        };
        let settings = Settings {
            max_key_bytes: 65_536,
            batch_keys: 1000,
            max_age: None,
            format: RecordFormat::Lines,
        };
        let file = InputFile {
            name: "urls.txt".to_owned(),
            size_bytes: 100,
            modified_at: "1.000000001".to_owned(),
        };
        Checkpoint {
            done: RunProgress {
                file: 0,
                line: 12,
                batches: 3,
                keys_hash: u64::MAX,
            },
            witness: Some(Witness {
                batch: 2,
                key_hex: "fffe".to_owned(),
            }),
            ..Checkpoint::new("run".to_owned(), filter, settings, vec![file])
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let checkpoint = checkpoint();
        assert_eq!(Checkpoint::parse(&checkpoint.text()), Ok(checkpoint));
    }

    #[test]
    fn what_is_no_checkpoint_is_refused_with_a_reason() {
        let text = checkpoint().text();
        let half = &text[..text.len() / 2];
        for (text, expected) in [
            ("", "no checkpoint"),
            ("https://example.com/\n", "no checkpoint"),
            (half, "no checkpoint"),
            ("{}", "version is none"),
            (
                &text.replace("\"version\":1", "\"version\":2"),
                "version is 2",
            ),
            (&text.replace("\"run\"", "\"ruin\""), "damaged"),
        ] {
            let reason = Checkpoint::parse(text).unwrap_err();
            assert!(reason.contains(expected), "{text}: {reason}");
        }
    }

    #[test]
    fn lines_are_in_doubt_unless_it_is_known_that_none_was_sent() {
        let mut checkpoint = checkpoint();
        let expected = "those that were sent after urls.txt:12";
        assert_eq!(checkpoint.doubtful_lines().as_deref(), Some(expected));
        let mut sent = Sent {
            file: 0,
            line: 20,
            batches: 5,
        };
        checkpoint.sent = Some(sent);
        let expected = "those after urls.txt:12 up to urls.txt:20";
        assert_eq!(checkpoint.doubtful_lines().as_deref(), Some(expected));
        sent.batches = 3;
        checkpoint.sent = Some(sent);
        assert_eq!(checkpoint.doubtful_lines(), None);
    }
}
