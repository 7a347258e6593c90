//! The sources of the configuration: arguments, the environment and the file that these name.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use clap::{
    ArgMatches, Args, CommandFactory, FromArgMatches, Parser,
    error::{ContextKind, ContextValue},
    parser::ValueSource,
};

use super::{Config, default_filter};
use crate::filter::spec::SpecError;

/// seenset-server: a networked deduplication service.
///
/// Every setting can also stand in the environment (--data-dir as SEENSET_DATA_DIR) and in a
/// TOML file (data_dir); flags win over the environment, the environment over the file.
#[derive(Debug, Parser)]
#[command(name = "seenset-server", version, max_term_width = 100)]
struct Arguments {
    /// TOML file with settings
    #[arg(long, env = "SEENSET_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print the settings in effect, as a file that --config reads, and exit
    #[arg(long)]
    print_config: bool,

    #[command(flatten)]
    settings: Config,

    #[command(subcommand)]
    command: Option<Subcommand>,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    Verify(Verify),
}

/// Say what is wrong with the data directory of a server that does not run, and change nothing.
///
/// Reads all of it, as a start does, and tells all that is damaged, where a start ends with the
/// first. The exit code is 0 if a server starts on it.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct Verify {
    /// Directory of the snapshots and the log
    #[arg(env = "SEENSET_DATA_DIR", value_name = "DIR")]
    pub data_dir: PathBuf,

    /// Write anew what is damaged, without what cannot be read, so that a server starts on it. It
    /// forgets the keys that were there, which are new once more. Damaged files are kept under
    /// other names (.damaged)
    #[arg(long)]
    pub salvage: bool,
}

/// What the command line asks for.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// Run a server.
    Run(Box<Config>),
    /// Look at the data directory of one that does not run.
    Verify(Verify),
    /// Print this text and exit: help, the version, the configuration.
    Print(String),
}

/// A usage error: one line that names the setting, its value and what it must be.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl Config {
    /// Reads the configuration from arguments (the program's name first), the environment
    /// and the file that these name.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for a setting that is unknown, malformed or out of range.
    pub fn load(
        arguments: impl IntoIterator<Item = OsString>,
        variables: impl IntoIterator<Item = OsString>,
    ) -> Result<Command, ConfigError> {
        let matches = match Arguments::command().try_get_matches_from(arguments) {
            Ok(matches) => matches,
            Err(error) if !error.use_stderr() => return Ok(Command::Print(error.to_string())),
            Err(error) => return Err(ConfigError(one_line(&error))),
        };
        refuse_unknown(variables)?;
        let arguments =
            Arguments::from_arg_matches(&matches).map_err(|error| ConfigError(one_line(&error)))?;
        if let Some(Subcommand::Verify(verify)) = arguments.command {
            refuse_settings(&matches)?;
            return Ok(Command::Verify(verify));
        }
        arguments.settings.check().map_err(ConfigError)?;

        let mut config = match &arguments.config {
            Some(path) => overlay(path, &arguments.settings, &matches)?,
            None => arguments.settings,
        };
        config.check().map_err(ConfigError)?;
        if config.false_positive_rate.is_none() && config.bit_count.is_none() {
            config.false_positive_rate = Some(default_filter::FALSE_POSITIVE_RATE);
        }
        config
            .default_filter()
            .and_then(|request| match request.resolve() {
                // One that is there may have been made when fewer bits kept the rate; if there is
                // none, the start ends with this.
                Err(SpecError::RateOutOfReach { .. }) if request.kind.has_cells() => Ok(()),
                resolved => resolved.map(|_| ()),
            })
            .map_err(|error| ConfigError(format!("the default filter cannot be made: {error}")))?;
        if arguments.print_config {
            let text = toml::to_string(&config).map_err(|error| ConfigError(error.to_string()))?;
            return Ok(Command::Print(text));
        }
        Ok(Command::Run(Box::new(config)))
    }
}

/// Reads a configuration file and lays over it what flags and the environment give.
fn overlay(path: &Path, given: &Config, matches: &ArgMatches) -> Result<Config, ConfigError> {
    let in_file = |message: String| ConfigError(format!("{}: {message}", path.display()));
    let text = fs::read_to_string(path)
        .map_err(|error| in_file(format!("cannot read the configuration file: {error}")))?;
    let file: Config = toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.unwrap_or_default().matches('\n').count() + 1;
        in_file(format!(
            "line {line}: {}",
            error.message().replace('\n', " ")
        ))
    })?;
    file.check().map_err(in_file)?;

    // As maps from names to values, so that a field added to `Config` needs no line here.
    let impossible = |error: serde_json::Error| in_file(error.to_string());
    let is_given = |name: &str| {
        use ValueSource::{CommandLine, EnvVariable};
        matches!(matches.value_source(name), Some(CommandLine | EnvVariable))
    };
    // A path need not be text, as those values are.
    let mut textual = given.clone();
    textual.data_dir.clone_from(&file.data_dir);
    let mut settings = serde_json::to_value(&file).map_err(impossible)?;
    let textual = serde_json::to_value(textual).map_err(impossible)?;
    for (name, value) in textual.as_object().into_iter().flatten() {
        if is_given(name)
            && let Some(settings) = settings.as_object_mut()
        {
            settings.insert(name.clone(), value.clone());
        }
    }
    let mut config: Config = serde_json::from_value(settings).map_err(impossible)?;
    if is_given("data_dir") {
        config.data_dir.clone_from(&given.data_dir);
    }
    Ok(config)
}

/// A command has no use for the settings of a server; to pass over them would leave those who
/// give them in the dark.
fn refuse_settings(matches: &ArgMatches) -> Result<(), ConfigError> {
    let is_given = |id: &&clap::Id| {
        matches.value_source(id.as_str()) == Some(ValueSource::CommandLine)
            // The group of all settings counts as given with any of them.
            && matches.try_contains_id(id.as_str()).is_ok_and(|given| given)
    };
    match matches.ids().find(is_given) {
        None => Ok(()),
        Some(id) => Err(ConfigError(format!(
            "{id} is a setting of a server, which verify does not start; see verify --help"
        ))),
    }
}

/// A misspelt variable would leave its setting at the default without a word.
fn refuse_unknown(variables: impl IntoIterator<Item = OsString>) -> Result<(), ConfigError> {
    let command = Arguments::command();
    let known: Vec<&str> = command
        .get_arguments()
        .filter_map(|argument| argument.get_env()?.to_str())
        // What the command line reads: both programs may share an environment.
        .chain([
            "SEENSET_SERVER",
            "SEENSET_FILTER",
            "SEENSET_OUTPUT",
            "SEENSET_TIMEOUT",
        ])
        .collect();
    for name in variables {
        let Some(name) = name.to_str().filter(|name| name.starts_with("SEENSET_")) else {
            continue;
        };
        // Kubernetes sets these in every container beside a service named seenset.
        let of_kubernetes =
            name.contains("_SERVICE_") || name.contains("_PORT_") || name.ends_with("_PORT");
        if !of_kubernetes && !known.contains(&name) {
            return Err(ConfigError(format!(
                "the environment variable {name} is unknown; --help lists those there are"
            )));
        }
    }
    Ok(())
}

/// What clap has to say, without its usage lines.
fn one_line(error: &clap::Error) -> String {
    let mut text = error.to_string();
    // It repeats what was given, and what was given may be more than one line.
    for kind in [ContextKind::InvalidArg, ContextKind::InvalidValue] {
        if let Some(ContextValue::String(given)) = error.get(kind)
            && given.contains('\n')
        {
            text = text.replace(given, &given.escape_debug().to_string());
        }
    }
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    // What is missing stands in lines of its own.
    let missing = lines.clone().next().filter(|_| first.ends_with(':'));
    let first = [Some(first), missing].into_iter().flatten();
    let first = first.collect::<Vec<_>>().join(" ");
    let tip = lines.find_map(|line| line.strip_prefix("tip: "));
    match tip {
        Some(tip) => format!("{first}: {tip}; --help lists all settings"),
        None => format!("{first}; --help lists all settings"),
    }
}
