//! What a service manager is told, where there is one (`NOTIFY_SOCKET`): ready, stopping, and that a long start is not a hang.

use sd_notify::NotifyState;
use std::time::Duration;

/// How often a start that takes long asks for more time, and for how much.
pub(super) const EXTEND_EVERY: Duration = Duration::from_secs(5);
const EXTENDED_BY_US: u32 = 30_000_000;

/// The hub serves.
pub(super) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// The hub drains.
pub(super) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// The store is being opened, which takes as long as it is large.
pub(super) fn still_opening() {
    notify(&[NotifyState::ExtendTimeoutUsec(EXTENDED_BY_US), NotifyState::Status("opening the store")]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager could not be told");
    }
}
