//! Settings as typed: the text of each and where it came from. Nothing is judged here; [`super::meant`] does that.
//!
//! Precedence: a flag, the environment, the file that `<NAME>_FILE` names, a systemd credential, the default. An empty text
//! is as good as none, since environment files often carry empty entries.

use super::problem::Problem;
use super::table::{self, GROUPS, Kind, LATER, PREFIX, SPELLINGS, Setting};
use clap::builder::ValueRange;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Every setting as it was given; those that were not given stand with their default.
#[derive(Clone)]
pub struct Typed {
    values: BTreeMap<&'static str, Given>,
}

/// One setting as it was given.
#[derive(Clone)]
pub struct Given {
    /// What was written.
    pub text: String,
    /// Where.
    pub from: From,
}

/// Where a setting came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    /// Nobody said anything.
    Default,
    /// A command-line flag.
    Flag,
    /// The environment variable of that name.
    Env(String),
    /// A file that an environment variable names.
    File(PathBuf),
    /// A systemd credential.
    Credential(PathBuf),
    /// The command that runs sets it so.
    Command(&'static str),
}

impl std::fmt::Display for From {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            From::Default => f.write_str("default"),
            From::Flag => f.write_str("flag"),
            From::Env(name) => write!(f, "environment {name}"),
            From::File(path) => write!(f, "file {}", path.display()),
            From::Credential(path) => write!(f, "credential {}", path.display()),
            From::Command(name) => write!(f, "command {name}"),
        }
    }
}

/// What surrounds the process: its environment, handed in so that tests can make one up.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Environment variables that are Unicode.
    pub variables: BTreeMap<String, String>,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self { variables: std::env::vars_os().filter_map(text).collect() }
    }

    /// A variable that is set to something.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|text| !text.trim().is_empty())
    }

    /// Where systemd put the credentials of the unit.
    pub fn credentials(&self) -> Option<&Path> {
        self.variable("CREDENTIALS_DIRECTORY").map(Path::new)
    }
}

impl Typed {
    /// Only defaults.
    pub fn defaults() -> Self {
        let given = |s: &'static Setting| (s.name, Given { text: s.default.to_owned(), from: From::Default });
        Self { values: table::settings().map(given).collect() }
    }

    /// Sets one as if it had been given there.
    pub fn set(&mut self, name: &'static str, text: impl Into<String>, from: From) {
        self.values.insert(name, Given { text: text.into(), from });
    }

    /// Sets one that nobody gave.
    pub fn set_default(&mut self, name: &'static str, text: impl Into<String>, from: From) {
        if self.get(name).is_none_or(|given| given.from == From::Default) {
            self.set(name, text, from);
        }
    }

    /// A setting as it was given.
    pub fn get(&self, name: &str) -> Option<&Given> {
        self.values.get(name)
    }

    /// Adds what neither flag nor variable gave: names without the prefix, files, systemd credentials.
    pub(super) fn complete(&mut self, around: &Surroundings, problems: &mut Vec<Problem>) {
        self.take_unprefixed_multi_tenant(around, problems);
        self.take_rust_log(around);
        for setting in table::settings().filter(|s| matches!(s.kind, Kind::Pem | Kind::Secret)) {
            self.take_file(setting, around, problems);
        }
    }

    // The hosted hub reads this name without a prefix, and its operators bring their environment file.
    fn take_unprefixed_multi_tenant(&mut self, around: &Surroundings, problems: &mut Vec<Problem>) {
        const NAME: &str = "MULTI_TENANT_ENABLED";
        let Some(bare) = around.variable(NAME) else { return };
        let Some(given) = self.values.get(NAME) else { return };
        match &given.from {
            From::Default => self.set(NAME, bare, From::Env(NAME.to_owned())),
            // A flag is said for this one start, over whatever the environment holds.
            From::Flag | From::Command(_) => {}
            From::Env(_) | From::File(_) | From::Credential(_) => {
                if super::value::switch(bare) != super::value::switch(&given.text) {
                    problems.push(Problem::new(
                        "MULTI_TENANT_ENABLED",
                        format!("{} and, without the prefix, {bare}", given.text),
                        "the same value under both names",
                    ));
                }
            }
        }
    }

    fn take_rust_log(&mut self, around: &Surroundings) {
        if let Some(filter) = around.variable("RUST_LOG") {
            self.set_default("LOG_LEVEL", filter, From::Env("RUST_LOG".to_owned()));
        }
    }

    fn take_file(&mut self, setting: &'static Setting, around: &Surroundings, problems: &mut Vec<Problem>) {
        let variable = format!("{PREFIX}{}_FILE", setting.name);
        let credential = match setting.kind {
            Kind::Secret => {
                around.credentials().map(|dir| dir.join(setting.name.to_lowercase())).filter(|p| p.exists())
            }
            Kind::Plain | Kind::Switch | Kind::Pem => None,
        };
        let given = self.values.get(setting.name).is_some_and(|given| given.from != From::Default);
        let (path, from) = match (around.variable(&variable), credential) {
            (Some(path), _) if given => {
                let allowed = format!("either {PREFIX}{} or {variable}, not both", setting.name);
                return problems.push(Problem::new(setting.name, format!("given twice, also as file {path}"), allowed));
            }
            (Some(path), _) => (PathBuf::from(path), From::File(PathBuf::from(path))),
            (None, Some(path)) if !given => (path.clone(), From::Credential(path)),
            (None, _) => return,
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => self.set(setting.name, text.trim_end_matches(['\r', '\n']), from),
            Err(error) => problems.push(Problem::new(
                setting.name,
                format!("file {}", path.display()),
                format!("a file that can be read as text ({error})"),
            )),
        }
    }
}

/// An environment name that starts with our prefix and changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Strange {
    /// A setting of a later version, or of the hosted hub.
    WithoutEffect(String),
    /// No setting at all.
    Unknown {
        /// The name, without the prefix.
        name: String,
        /// The setting that is spelt most like it.
        nearest: &'static str,
    },
}

impl std::fmt::Display for Strange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Strange::WithoutEffect(name) => write!(f, "{PREFIX}{name} is known, but has no effect in this version"),
            Strange::Unknown { name, nearest } => {
                write!(f, "{PREFIX}{name} is not a setting; the nearest is {PREFIX}{nearest}")
            }
        }
    }
}

/// Environment names that start with our prefix and change nothing.
pub fn strange_names(around: &Surroundings) -> Vec<Strange> {
    let ours = around.variables.keys().filter_map(|name| name.strip_prefix(PREFIX));
    ours.filter_map(|name| {
        let by_file = name.strip_suffix("_FILE").unwrap_or(name);
        let known = |s: &Setting| s.name == name || (s.name == by_file && matches!(s.kind, Kind::Pem | Kind::Secret));
        if table::settings().any(known) {
            None
        } else if LATER.contains(&name) {
            Some(Strange::WithoutEffect(name.to_owned()))
        } else {
            Some(Strange::Unknown { name: name.to_owned(), nearest: nearest(name) })
        }
    })
    .collect()
}

fn nearest(name: &str) -> &'static str {
    let all = table::settings().map(|s| s.name).chain(LATER.iter().copied());
    all.min_by_key(|known| edits(name.as_bytes(), known.as_bytes())).unwrap_or("ENV")
}

// Levenshtein's distance: `row` holds the distances of what was read of `a` to every beginning of `b`.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        for ((y, above), diagonal) in b.iter().zip(row.iter().skip(1)).zip(&row) {
            let left = next.last().copied().unwrap_or(i + 1);
            next.push((diagonal + usize::from(x != y)).min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

impl clap::Args for Typed {
    fn augment_args(mut command: Command) -> Command {
        let mut spellings = SPELLINGS.iter();
        for group in GROUPS {
            for setting in group.settings {
                let Some(spelling) = spellings.next() else { continue };
                let values = if setting.kind == Kind::Switch { ValueRange::new(0..=1) } else { ValueRange::new(1) };
                let mut arg = Arg::new(setting.name)
                    .long(spelling.flag.as_str())
                    .env(spelling.env.as_str())
                    .hide_env_values(true)
                    .help_heading(group.heading)
                    .help(setting.help)
                    .value_name("VALUE")
                    .num_args(values)
                    .default_value(setting.default)
                    .hide_default_value(setting.default.is_empty());
                if setting.kind == Kind::Switch {
                    arg = arg.default_missing_value("true");
                }
                command = command.arg(arg);
            }
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Typed {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut typed = Self::defaults();
        typed.update_from_arg_matches(matches)?;
        Ok(typed)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for (setting, spelling) in table::settings().zip(SPELLINGS.iter()) {
            let from = match matches.value_source(setting.name) {
                Some(ValueSource::CommandLine) => From::Flag,
                Some(ValueSource::EnvVariable) => From::Env(spelling.env.clone()),
                _ => continue,
            };
            if let Some(text) = matches.get_one::<String>(setting.name).filter(|text| !text.trim().is_empty()) {
                self.set(setting.name, text.trim(), from);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, FromArgMatches as _};

    fn parse(args: &[&str]) -> Typed {
        let matches = Typed::augment_args(Command::new("hub")).try_get_matches_from(args).unwrap();
        Typed::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn flags_are_the_names_in_lower_case_and_a_bare_switch_is_on() {
        let typed = parse(&[
            "hub",
            "--http-listen-addr",
            ":9",
            "--http-ingest-enabled",
            "--multi-tenant-enabled=false",
            "--kafka-group",
            "",
        ]);
        let given = |name| typed.get(name).map(|g| (g.text.clone(), g.from.clone())).unwrap();
        assert_eq!(given("HTTP_LISTEN_ADDR"), (":9".to_owned(), From::Flag));
        assert_eq!(given("HTTP_INGEST_ENABLED"), ("true".to_owned(), From::Flag));
        assert_eq!(given("MULTI_TENANT_ENABLED"), ("false".to_owned(), From::Flag));
        assert_eq!(
            given("KAFKA_GROUP"),
            ("streaming-hub".to_owned(), From::Default),
            "an empty text is as good as none"
        );
    }

    #[test]
    fn strange_names_are_told_with_the_nearest_name() {
        let names = [
            "STREAMING_HUB_KAFKA_BROKER",
            "STREAMING_HUB_RETENTION",
            "STREAMING_HUB_LEASE",
            "HOME",
            "STREAMING_HUB_KAFKA_CA_CERT_FILE",
        ];
        let around = Surroundings { variables: names.iter().map(|n| ((*n).to_owned(), "1".to_owned())).collect() };
        let unknown = Strange::Unknown { name: "KAFKA_BROKER".to_owned(), nearest: "KAFKA_BROKERS" };
        assert_eq!(strange_names(&around), [unknown, Strange::WithoutEffect("RETENTION".to_owned())]);
    }
}
