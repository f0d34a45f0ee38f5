//! `streaming-hub serve`: settings, logging, the runtime, and the daemon until it has stopped.

use super::settings::{complain_of_strange_names, meant, warn_of_strange_names};
use super::{Ended, Failure, logging};
use crate::config::Typed;
use crate::daemon;

pub(super) fn run(mut typed: Typed) -> Result<Ended, Failure> {
    let settings = meant(&mut typed).inspect_err(|_| complain_of_strange_names())?;
    logging::start(&settings.log);
    warn_of_strange_names();
    let runtime = runtime()?;
    let ended = runtime.block_on(daemon::run(settings));
    // What still works on a blocking thread now was broken off on purpose; it is not waited for.
    runtime.shutdown_background();
    ended.map(|()| Ended::Fine).map_err(Failure::from)
}

/// The runtime of the daemon.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::io("the runtime"))
}
