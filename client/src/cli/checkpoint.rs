//! The checkpoint of a run: how far it has come, in a file, so that another run continues it.
//!
//! A batch is sent as the request of an id that the run's id and the number of the batch make, and
//! the same files make the same batches. A run that continues sends again all batches after the
//! checkpoint under the same ids, and the server gives the first answers to those that it took
//! before. So the checkpoint may be old; it must be on stable storage before the first batch is
//! sent, and must not be ahead of the output.

mod file;
mod input;
mod output;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

pub(super) use self::{file::CheckpointFile, input::InputFile, output::OutputFile};
use super::lines::{Position, Progress, RecordFormat};

/// The format of the file.
const VERSION: u32 = 1;

/// How far a run has come, and all that another one needs to continue it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Checkpoint {
    /// The format.
    pub(super) version: u32,
    /// The id of the run.
    pub(super) run: String,
    /// The filter.
    pub(super) filter: FilterIdentity,
    /// The arguments on which the batches depend.
    pub(super) settings: Settings,
    /// The files, in their order.
    pub(super) files: Vec<InputFile>,
    /// All lines up to here are answered, and in the output if they were new.
    pub(super) done: Progress,
    /// The length of the output up to here; absent if it is no regular file.
    pub(super) output_bytes: Option<u64>,
    /// The last key that was new, if any was.
    pub(super) witness: Option<Witness>,
    /// Where the lines end that may be marked and are not in the output: none if that is `done`;
    /// not known while the run goes on.
    pub(super) sent: Option<Sent>,
    /// When it was saved, in seconds since 1970.
    pub(super) saved_at_s: u64,
}

/// The filter of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FilterIdentity {
    pub(super) name: String,
    /// When it was made, in seconds since 1970; absent if the run did not ask.
    pub(super) created_at: Option<String>,
}

/// The arguments on which the batches, or their answers, depend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    pub(super) max_key_bytes: u32,
    pub(super) batch_keys: u32,
    pub(super) max_age: Option<String>,
    /// How the files are divided into keys.
    pub(super) format: RecordFormat,
}

/// A key that a request of the run has added: while the server answers that request again as it did
/// then, it remembers all that came after it.
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

impl From<Progress> for Sent {
    fn from(progress: Progress) -> Self {
        Self {
            file: progress.file,
            line: progress.line,
            batches: progress.batches,
        }
    }
}

impl Checkpoint {
    /// The checkpoint of a run that begins.
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
            done: Progress::default(),
            output_bytes: None,
            witness: None,
            sent: None,
            saved_at_s: 0,
        }
    }

    /// The request id of a batch.
    pub(super) fn request_id(run: &str, batch: u64) -> String {
        format!("{run}-{batch}")
    }

    /// The last line that is done.
    pub(super) fn end(&self) -> Position {
        self.position(self.done.file, self.done.line)
    }

    /// The lines that may be marked and are not in the output, in words; `None` if there are none.
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

    /// How long ago it was saved.
    pub(super) fn age(&self) -> Duration {
        Duration::from_secs(now_s().saturating_sub(self.saved_at_s))
    }

    /// The text of the file.
    pub(super) fn text(&self) -> String {
        // Nothing in it can fail to be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the text of a file.
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

    /// Notes the time.
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
            done: Progress {
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
