//! The command `verify`: reports the damage of the data directory of a server that does not run,
//! and on demand saves all data that can still be read.

use std::fmt::Write;

use crate::{
    config::Verify,
    engine::Settings,
    store::{Damage, FilterFindings, Inspection, LogFindings, Salvaged, StoreError},
};

/// The findings, for an operator.
#[derive(Debug)]
pub struct Verdict {
    /// Lines to be printed.
    pub text: String,
    /// Whether a server starts on the directory now.
    pub is_whole: bool,
}

/// Reads all of a data directory, and salvages it if the command asks for that.
///
/// # Errors
///
/// [`StoreError`] if the directory cannot be read, or the salvaged data cannot be written.
pub fn run(command: &Verify) -> Result<Verdict, StoreError> {
    let inspection = Inspection::of(&command.data_dir)?;
    let mut text = String::new();
    for (name, filter) in inspection.filters() {
        let FilterFindings {
            files, keys_added, ..
        } = filter;
        let is = state(&filter.damage);
        line(
            &mut text,
            format_args!("filter {name}: {keys_added} keys, {files} files: {is}"),
        );
    }
    let LogFindings {
        segments,
        keys,
        torn,
        damage,
    } = inspection.log();
    let is = state(damage);
    line(
        &mut text,
        format_args!("log: {keys} keys, {segments} segments: {is}"),
    );
    if let Some(torn) = torn {
        let (file, at, bytes) = (torn.path.display(), torn.at, torn.bytes);
        line(
            &mut text,
            format_args!(
                "note: {file} ends at byte {at} with {bytes} bytes that were being written when the \
                 server ended; the next start cuts them off, and keeps a copy"
            ),
        );
    }
    for name in &inspection.startup_warnings().missing {
        line(
            &mut text,
            format_args!("note: no file of the filter {name} is there: it is not served"),
        );
    }
    for file in &inspection.startup_warnings().unknown {
        let file = file.display();
        line(
            &mut text,
            format_args!("note: the manifest does not name {file}: it is not read"),
        );
    }
    let mut count = 0;
    for damage in inspection.damage() {
        count += damage.count;
        for error in &damage.first {
            line(
                &mut text,
                format_args!("damage: {}", error.without_advice()),
            );
        }
        let untold = damage.count - damage.first.len() as u64;
        if untold > 0 {
            line(
                &mut text,
                format_args!("damage: and {untold} more of this kind"),
            );
        }
    }
    let is_whole = count == 0;
    if is_whole {
        line(&mut text, format_args!("whole: a server starts on it"));
    } else if command.salvage {
        write_salvaged(&mut text, &inspection.salvage(Settings::SEGMENT_BYTES)?);
    } else {
        line(
            &mut text,
            format_args!(
                "damaged in {count} places: no server starts on it. Put back good copies of the files, \
                 or keep what can still be read: seenset-server verify --salvage {}",
                command.data_dir.display()
            ),
        );
    }
    Ok(Verdict {
        text,
        is_whole: is_whole || command.salvage,
    })
}

fn write_salvaged(text: &mut String, salvaged: &Salvaged) {
    for name in &salvaged.filters {
        line(
            text,
            format_args!(
                "salvaged: filter {name}, without what is damaged; it may forget keys, which are then \
                 new once more"
            ),
        );
    }
    for name in &salvaged.lost {
        line(
            text,
            format_args!("lost: filter {name}, of which no file can be read"),
        );
    }
    if salvaged.log {
        line(
            text,
            format_args!("salvaged: the log, without what is damaged"),
        );
    }
    for file in &salvaged.kept {
        line(
            text,
            format_args!("kept: {file}, to be looked at or removed"),
        );
    }
    line(text, format_args!("a server starts on it now"));
}

fn state(damage: &Damage) -> &'static str {
    if damage.is_none() { "whole" } else { "damaged" }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{line}");
}
