//! The last operations and calls. They show the cause of a violation.

use std::collections::VecDeque;

use super::{Event, Key, Model};

/// The number of operations and calls that are kept.
const ENTRIES: usize = 20_000;

/// The last operations and calls, oldest first.
#[derive(Debug, Default)]
pub(super) struct History(VecDeque<Entry>);

#[derive(Debug)]
struct Entry {
    event: Event,
    text: String,
    /// The keys of a call. Empty for an operation.
    keys: Vec<Key>,
}

impl Model {
    /// Returns the last operations, and the last calls for a key, one per line.
    pub fn history(&self, key: Option<Key>) -> String {
        let History(entries) = &self.history;
        let is_shown = |entry: &&Entry| {
            entry.keys.is_empty() || key.is_some_and(|key| entry.keys.contains(&key))
        };
        let shown = entries.iter().filter(is_shown);
        let lines: Vec<String> = shown
            .map(|Entry { event, text, .. }| format!("{event}: {text}"))
            .collect();
        lines.join("\n")
    }

    /// Adds an operation or a start to the history.
    pub fn note(&mut self, text: String) {
        self.note_call(text, Vec::new());
    }

    pub(super) fn note_call(&mut self, text: String, keys: Vec<Key>) {
        let History(entries) = &mut self.history;
        let event = self.now;
        entries.push_back(Entry { event, text, keys });
        if entries.len() > ENTRIES {
            entries.pop_front();
        }
    }
}
