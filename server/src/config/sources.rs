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
/// Each setting is a flag (--data-dir), an environment variable (SEENSET_DATA_DIR) and a key of a
/// TOML file (data_dir). A flag overrides the environment variable, and both override the file.
#[derive(Debug, Parser)]
#[command(name = "seenset-server", version, max_term_width = 100)]
struct Arguments {
    /// Configuration file, in TOML
    #[arg(long, env = "SEENSET_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print the settings in effect, in the format of the --config file, and exit
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

/// Check the data directory of a server that is not running. Changes nothing without --salvage.
///
/// Reads all files, as a start does. A start fails at the first damaged file; this command prints
/// all damage. The exit code is 0 if a server would start on the directory, and 1 if not.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct Verify {
    /// Directory of the snapshots and the write-ahead log (WAL)
    #[arg(env = "SEENSET_DATA_DIR", value_name = "DIR")]
    pub data_dir: PathBuf,

    /// Write damaged files again, without the parts that cannot be read, so that a server can
    /// start. The filters forget the keys that were in these parts: they are new again. The damaged
    /// files are kept under other names (.damaged)
    #[arg(long)]
    pub salvage: bool,
}

/// The action that the arguments ask for.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// Run a server.
    Run(Box<Config>),
    /// Check the data directory of a server that is not running.
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
                // An existing filter may come from a version in which fewer bits kept the rate. If
                // there is no filter, the start fails with this error.
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

/// Reads a configuration file, and replaces its settings by those of flags and environment
/// variables.
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
    // A path does not have to be UTF-8, which those values must be.
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

/// Refuses settings of a server as arguments of another command. The command would ignore them, and
/// the user would not notice.
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

/// Refuses unknown variables. A misspelt variable would leave its setting at the default, and the
/// user would not notice.
fn refuse_unknown(variables: impl IntoIterator<Item = OsString>) -> Result<(), ConfigError> {
    let command = Arguments::command();
    let known: Vec<&str> = command
        .get_arguments()
        .filter_map(|argument| argument.get_env()?.to_str())
        // The variables of the program `seenset`: both programs can share one environment.
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
        // Kubernetes sets these variables in every container if a service is named seenset.
        let of_kubernetes =
            name.contains("_SERVICE_") || name.contains("_PORT_") || name.ends_with("_PORT");
        if !of_kubernetes && !known.contains(&name) {
            return Err(ConfigError(format!(
                "the environment variable {name} is unknown; --help lists all variables"
            )));
        }
    }
    Ok(())
}

/// Returns the message of an error of clap as one line, without the usage.
fn one_line(error: &clap::Error) -> String {
    let mut text = error.to_string();
    // The message repeats the argument, which can have more than one line.
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
    // A missing argument is on a line of its own.
    let missing = lines.clone().next().filter(|_| first.ends_with(':'));
    let first = [Some(first), missing].into_iter().flatten();
    let first = first.collect::<Vec<_>>().join(" ");
    let tip = lines.find_map(|line| line.strip_prefix("tip: "));
    match tip {
        Some(tip) => format!("{first}: {tip}; --help lists all settings"),
        None => format!("{first}; --help lists all settings"),
    }
}
