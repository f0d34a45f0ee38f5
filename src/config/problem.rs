//! What is wrong with the settings: all of it at once, each naming the setting, its value and what is allowed.

use super::table::PREFIX;
use std::fmt;

/// One wrong setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Name without the prefix.
    pub setting: String,
    /// What was given, masked when secret.
    pub value: String,
    /// What is allowed.
    pub allowed: String,
}

impl Problem {
    /// A problem with that setting.
    pub fn new(setting: impl Into<String>, value: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { setting: setting.into(), value: value.into(), allowed: allowed.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = if self.value.is_empty() { "(nothing)" } else { &self.value };
        write!(f, "{PREFIX}{}: {value}: allowed is {}", self.setting, self.allowed)
    }
}

/// Everything that is wrong with the settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        write!(f, "{count} wrong setting{}", if count == 1 { "" } else { "s" })?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}
