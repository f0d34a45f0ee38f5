//! Settings in two steps: as typed ([`Typed`]: texts, and where each came from), and as meant ([`Settings`]: plain typed values).
//!
//! Invariant: a [`Settings`] exists only when every setting is right and fits the others; what is wrong is told all at once, each
//! with its name, its value and what is allowed, and the process ends with exit code 2.

mod kafka;
mod meant;
mod problem;
mod reader;
mod settings;
mod show;
mod table;
mod typed;
mod value;

pub use meant::mean;
pub use problem::{Problem, Problems};
pub use settings::{
    DispatchSettings, Env, HttpSettings, KekFrom, LogFormat, LogSettings, Settings, SinkSettings, StopSettings,
    Tenancy, TlsFiles,
};
pub use show::{as_json, as_text};
pub use typed::{From, Given, Strange, Surroundings, Typed, strange_names};
