//! The configuration, from all its sources at once: flags, the environment and a file.
//!
//! An input is text in three sections, with a line `---` after the first and after the second:
//! arguments, one per line; variables as `NAME=VALUE`, one per line; and the file. Without the
//! second `---` there is no file.

#![no_main]

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt,
    sync::LazyLock,
};

use libfuzzer_sys::fuzz_target;
use seenset_server::config::{Command, Config};
use tempfile::NamedTempFile;

static FILE: LazyLock<NamedTempFile> =
    LazyLock::new(|| NamedTempFile::new().expect("a temporary file"));

fuzz_target!(|input: &[u8]| {
    let (arguments, rest) = section(input);
    let (variables, file) = match rest {
        Some(rest) => section(rest),
        None => (&[][..], None),
    };
    let arguments: Vec<&OsStr> = lines(arguments)
        .filter(|line| names_no_file(line))
        .collect();
    let variables = Variables::set(variables);
    let alone = load(&arguments, &variables, None);
    let together = load(&arguments, &variables, file);
    if file.is_none_or(|file| file.iter().all(u8::is_ascii_whitespace)) {
        assert_eq!(alone, together, "a file that says nothing");
    }
    drop(variables);

    let Ok(Command::Run(config)) = together else {
        return;
    };
    let request = config.default_filter().expect("what was checked");
    request.resolve().expect("what was checked");
    // The configuration that `--print-config` prints is read back unchanged.
    if config.data_dir.to_str().is_some() {
        let printed = toml::to_string(&config).expect("a configuration");
        let again = load(&[], &Variables::default(), Some(printed.as_bytes()));
        assert_eq!(again, Ok(Command::Run(config)), "{printed}");
    }
});

/// Returns the input before a line `---`, and the input after it.
fn section(input: &[u8]) -> (&[u8], Option<&[u8]>) {
    let end = input.windows(5).position(|bytes| bytes == b"\n---\n");
    match (input.strip_prefix(b"---\n"), end) {
        (Some(rest), _) => (&[], Some(rest)),
        (None, Some(end)) => (&input[..end], Some(&input[end + 5..])),
        (None, None) => (input, None),
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &OsStr> {
    let lines = text.split(|&byte| byte == b'\n');
    lines.filter(|line| !line.is_empty()).map(OsStr::from_bytes)
}

/// Returns whether an argument names no file. An input must not use files of this machine.
fn names_no_file(argument: &OsStr) -> bool {
    !argument.as_bytes().starts_with(b"--config")
}

/// Environment variables that exist as long as this value.
#[derive(Default)]
struct Variables(Vec<OsString>);

impl Variables {
    fn set(text: &[u8]) -> Self {
        let mut names = Vec::new();
        for line in lines(text) {
            let mut parts = line.as_bytes().splitn(2, |&byte| byte == b'=');
            let [name, value] = [parts.next(), parts.next()].map(Option::unwrap_or_default);
            let is_possible = !line.as_bytes().contains(&0);
            if !is_possible || !name.starts_with(b"SEENSET_") || name == b"SEENSET_CONFIG" {
                continue;
            }
            let name = OsStr::from_bytes(name).to_owned();
            // SAFETY: no other thread looks at the environment.
            unsafe { env::set_var(&name, OsStr::from_bytes(value)) };
            names.push(name);
        }
        Self(names)
    }
}

impl Drop for Variables {
    fn drop(&mut self) {
        for name in &self.0 {
            // SAFETY: as in `set`.
            unsafe { env::remove_var(name) };
        }
    }
}

fn load(
    arguments: &[&OsStr],
    variables: &Variables,
    file: Option<&[u8]>,
) -> Result<Command, String> {
    let mut all = vec![OsString::from("seenset-server")];
    if let Some(file) = file {
        fs::write(FILE.path(), file).expect("a temporary file can be written");
        all.extend(["--config".into(), FILE.path().into()]);
    }
    all.extend(arguments.iter().map(OsString::from));
    let loaded = Config::load(all, variables.0.iter().cloned()).map_err(|error| error.to_string());
    if let Err(error) = &loaded {
        assert!(
            !error.trim().is_empty() && !error.contains('\n'),
            "{error:?}"
        );
    }
    loaded
}
