//! Reads one setting after the other out of the typed ones, and remembers everything that was wrong.
//!
//! `None` always means: wrong, and already told.

use super::problem::Problem;
use super::settings::Env;
use super::typed::Typed;
use super::value;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

/// Reads settings, and remembers what was wrong.
pub(super) struct Reader<'a> {
    pub(super) typed: &'a Typed,
    pub(super) problems: Vec<Problem>,
    pub(super) names: Vec<&'static str>,
}

impl Reader<'_> {
    pub(super) fn text(&mut self, name: &'static str) -> String {
        self.names.push(name);
        self.typed.get(name).map(|given| given.text.clone()).unwrap_or_default()
    }

    // `Some(None)`: not given.
    pub(super) fn optional<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Self, &'static str) -> Option<T>,
    ) -> Option<Option<T>> {
        if self.text(name).is_empty() { Some(None) } else { read(self, name).map(Some) }
    }

    pub(super) fn parse<T>(
        &mut self,
        name: &'static str,
        allowed: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        parse(&self.text(name)).or_else(|| self.wrong(name, allowed))
    }

    pub(super) fn wrong<T>(&mut self, name: &'static str, allowed: &str) -> Option<T> {
        self.complain(name, allowed);
        None
    }

    pub(super) fn complain(&mut self, name: &'static str, allowed: &str) {
        // Where its file could not be read all else would be said of a text that nobody gave.
        if self.problems.iter().any(|problem| problem.setting == name) {
            return;
        }
        self.problems.push(Problem::new(name, super::show::shown(self.typed, name), allowed));
    }

    pub(super) fn switch(&mut self, name: &'static str) -> Option<bool> {
        self.parse(name, "true or false", value::switch)
    }

    pub(super) fn one_of<T: Copy>(&mut self, name: &'static str, all: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        self.parse(name, &names.join(" or "), |text| {
            all.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, meant)| *meant)
        })
    }

    pub(super) fn duration(
        &mut self,
        name: &'static str,
        range: std::ops::RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let shown = |d: &Duration| humantime::format_duration(*d).to_string();
        let allowed = format!("a duration from {} to {}, like 10s or 5m", shown(range.start()), shown(range.end()));
        self.parse(name, &allowed, |text| value::duration(text).filter(|d| range.contains(d)))
    }

    pub(super) fn size(&mut self, name: &'static str, least: u64, most: u64) -> Option<u64> {
        let allowed = format!("a size from {least} to {most} bytes, like 64KiB or 1MiB");
        self.parse(name, &allowed, |text| value::size(text).filter(|size| (least..=most).contains(size)))
    }

    pub(super) fn number<T: std::str::FromStr + PartialOrd + Display + Copy>(
        &mut self,
        name: &'static str,
        least: T,
        most: T,
    ) -> Option<T> {
        self.parse(name, &format!("a number from {least} to {most}"), |text| {
            text.replace('_', "").parse().ok().filter(|number| (least..=most).contains(number))
        })
    }

    pub(super) fn path(&mut self, name: &'static str) -> Option<PathBuf> {
        self.parse(name, "a path", |text| (!text.contains('\0')).then(|| PathBuf::from(text)))
    }

    pub(super) fn file(&mut self, name: &'static str) -> Option<PathBuf> {
        self.parse(name, "the path of a file that can be read", |text| {
            std::fs::File::open(text).ok().map(|_| text.into())
        })
    }

    pub(super) fn pem(&mut self, name: &'static str) -> Option<String> {
        self.parse(name, "certificates as PEM, base64 of PEM, or the path of a file of PEM", value::pem)
    }

    pub(super) fn refuse_in_production(&mut self, env: Option<Env>, name: &'static str, on: Option<bool>) {
        if let (Some(Env::Production), Some(true)) = (env, on) {
            self.complain(name, "false in production");
        }
    }
}

pub(super) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) const fn days(days: u64) -> Duration {
    Duration::from_secs(days * 86_400)
}
