//! What the service is to do, and who said so: flag over variable over file over default.

mod gateway;
mod lyft;
mod store;
mod table;
mod typed;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use tidegate::rules::{FlatEntry, read_flat};

pub(crate) use self::gateway::GatewayChoice;
pub(crate) use self::lyft::{MAPPED, UNUSED, is_lyft};
pub(crate) use self::store::StoreChoice;
pub(crate) use self::table::{Kind, SETTINGS, Setting};
pub(crate) use self::typed::Typed;

use crate::failure::Failure;
use crate::load::{paint, shown};

/// What was typed: the settings, and the file with the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    config: Option<PathBuf>,
    values: HashMap<&'static str, Vec<String>>,
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("A file with settings, as `name: value` [env: TIDEGATE_CONFIG]");
        SETTINGS.iter().fold(command.arg(config), |command, setting| {
            let default = match setting.default {
                "" => String::new(),
                default => format!(" [default: {default}]"),
            };
            let arg = Arg::new(setting.name)
                .long(setting.flag())
                .value_name(setting.value)
                .help(format!("{}{default}", setting.help));
            command.arg(match setting.kind {
                Kind::Flag => {
                    arg.num_args(0..=1).require_equals(true).default_missing_value("true")
                }
                Kind::List => arg.action(ArgAction::Append),
                Kind::One | Kind::Secret | Kind::Url => arg,
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.config = matches.get_one("config").cloned();
        for setting in SETTINGS {
            if let Some(values) = matches.get_many::<String>(setting.name) {
                self.values.insert(setting.name, values.cloned().collect());
            }
        }
        Ok(())
    }
}

/// The environment, so that tests can have their own.
#[derive(Debug)]
pub(crate) struct Environment(HashMap<String, String>);

impl Environment {
    /// That of the process. What is not text is not there.
    pub(crate) fn of_process() -> Self {
        let text = |value: std::ffi::OsString| value.into_string().ok();
        let all = std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?)));
        Self(all.collect())
    }

    /// A variable that is set to something.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| &**value).filter(|value| !value.is_empty())
    }

    fn owned(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|name| &**name)
    }
}

/// Who said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Default,
    File { path: String, line: u32 },
    Variable(String),
    Flag(String),
}

impl Source {
    /// The higher wins.
    fn rank(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::File { .. } => 1,
            Self::Variable(_) => 2,
            Self::Flag(_) => 3,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{path}:{line}"),
            Self::Variable(name) => write!(f, "{name}"),
            Self::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// A setting with its value.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) setting: &'static Setting,
    /// None, one, or those of a list.
    pub(crate) values: Vec<String>,
    pub(crate) source: Source,
}

impl Resolved {
    /// The value for people, who need not see secrets; `None` if there is none.
    pub(crate) fn shown(&self) -> Option<String> {
        match (self.setting.kind, &self.values[..]) {
            (_, []) => None,
            (Kind::Secret, _) => Some("(secret)".to_owned()),
            (Kind::Url, values) => Some(without_credentials(&values.join(","))),
            (_, values) => Some(values.join(",")),
        }
    }
}

/// A URL without user and password.
pub(crate) fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // Also of a password that should have been written in another way.
    let (place, more) = rest.split_once('?').map_or((rest, ""), |(place, _)| (place, "?(secret)"));
    match place.rsplit_once('@') {
        Some((_, place)) => format!("{scheme}://(secret)@{place}{more}"),
        None => format!("{scheme}://{place}{more}"),
    }
}

/// All settings with their values.
#[derive(Debug)]
pub(crate) struct Settings {
    all: Vec<Resolved>,
    /// What is worth telling about them.
    pub(crate) notes: Vec<String>,
}

impl Settings {
    /// Brings together what was typed, what the environment says and what the file says.
    pub(crate) fn resolve(flags: &Flags, environment: &Environment) -> Result<Self, Failure> {
        let file =
            flags.config.clone().or_else(|| environment.get("TIDEGATE_CONFIG").map(PathBuf::from));
        let (path, written) = match &file {
            Some(path) => (path.display().to_string(), read_file(path)?),
            None => (String::new(), Vec::new()),
        };
        let all = SETTINGS.iter().map(|setting| {
            let (values, source) = find(setting, flags, environment, &path, &written);
            Resolved { setting, values, source }
        });
        Ok(Self { all: all.collect(), notes: notes(environment) })
    }

    pub(crate) fn all(&self) -> &[Resolved] {
        &self.all
    }

    fn get(&self, name: &str) -> &Resolved {
        let found = self.all.iter().find(|resolved| resolved.setting.name == name);
        found.expect("every setting that is asked for is in the table")
    }
}

fn read_file(path: &Path) -> Result<Vec<FlatEntry>, Failure> {
    let shown_path = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::new(format!("cannot read the settings in `{shown_path}`: {error}"))
    })?;
    let known: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    read_flat(&shown_path, &text, &known).map_err(|report| {
        let text = shown(&report, paint());
        Failure::new(format!("the settings in `{shown_path}` cannot be used\n{}", text.trim_end()))
            .hint("`tidegate config` prints every setting there is")
    })
}

fn find(
    setting: &'static Setting,
    flags: &Flags,
    environment: &Environment,
    path: &str,
    written: &[FlatEntry],
) -> (Vec<String>, Source) {
    let split = |text: &str| match setting.kind {
        Kind::List => {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            parts.map(str::to_owned).collect()
        }
        _ => vec![text.to_owned()],
    };
    if let Some(values) = flags.values.get(setting.name) {
        let values = values.iter().flat_map(|value| split(value)).collect();
        return (values, Source::Flag(setting.flag()));
    }
    let variable = setting.variable();
    if let Some(value) = environment.get(&variable) {
        return (split(value), Source::Variable(variable));
    }
    let mapped = MAPPED.iter().filter(|mapped| mapped.setting == setting.name);
    for mapped in mapped {
        if let Some(value) = mapped.value(environment) {
            return (vec![value], Source::Variable(mapped.variables.to_owned()));
        }
    }
    if let Some(entry) = written.iter().find(|entry| entry.key == setting.name) {
        let source = Source::File { path: path.to_owned(), line: entry.place.line };
        return (entry.values.clone(), source);
    }
    let values = if setting.default.is_empty() { Vec::new() } else { split(setting.default) };
    (values, Source::Default)
}

/// Variables that are set and do nothing, which those who set them should know.
fn notes(environment: &Environment) -> Vec<String> {
    let known: Vec<String> = SETTINGS.iter().map(Setting::variable).collect();
    let is_unknown = |name: &&str| {
        name.starts_with("TIDEGATE_")
            && *name != "TIDEGATE_CONFIG"
            && !known.iter().any(|known| known == name)
    };
    let mut notes: Vec<String> = environment
        .names()
        .filter(is_unknown)
        .map(|name| format!("{name} is set, and there is no such setting"))
        .collect();
    notes.sort();
    if is_lyft(environment) {
        let unused = UNUSED.iter().filter(|(name, _)| environment.get(name).is_some());
        notes.extend(unused.map(|(name, why)| format!("{name} is not used: {why}")));
    }
    notes
}
