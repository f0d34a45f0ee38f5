//! Where log lines go: stderr, as text on a terminal, else as JSON.

use crate::config::{LogFormat, LogSettings};
use std::io::IsTerminal as _;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts logging for the rest of the process. A second start changes nothing.
pub(super) fn start(settings: &LogSettings) {
    // The settings were judged by the same parser; whatever else it said then, nothing is lost by logging the usual.
    let filter =
        settings.filter.parse::<Targets>().unwrap_or_else(|_| Targets::new().with_default(tracing::Level::INFO));
    let format = settings.format.unwrap_or(match std::io::stderr().is_terminal() {
        true => LogFormat::Text,
        false => LogFormat::Json,
    });
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let layer = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
    };
    let _ = tracing_subscriber::registry().with(layer.with_filter(filter)).try_init();
}
