//! How many files and connections the process may have open, and what the hub does with so many.
//!
//! Connections that cannot be opened would look like receivers that fail: so there are never more attempts than can be had.

use crate::model::limits::{CONNECTIONS, IDLE_CONNECTIONS, SOCKET_CONNECTIONS};
use rustix::process::{Resource, Rlimit, setrlimit};

/// The store, the log, listeners, brokers, and what the runtime has.
const OWN: u64 = 128;

/// Raises the soft limit to the hard one, as far as that goes; the limit that holds then. None where it cannot be told.
fn raise() -> Option<u64> {
    let (soft, hard) = limits(&std::fs::read_to_string("/proc/self/limits").ok()?)?;
    if soft >= hard {
        return Some(soft);
    }
    // A sandbox may forbid it; then the soft limit is what there is.
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(hard), maximum: Some(hard) });
    Some(if raised.is_ok() { hard } else { soft })
}

/// What there may be of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CanOpen {
    /// Attempts at once.
    pub(super) slots: u32,
    /// Connections that rest open between attempts.
    pub(super) resting_max: usize,
}

/// Raises the limit, and says what goes under it where so many attempts are wanted.
pub(super) fn allowed(wanted: u32) -> CanOpen {
    let Some(limit) = raise() else { return under(wanted, u64::MAX) };
    let can_open = under(wanted, limit);
    if can_open.slots < wanted {
        tracing::warn!(
            limit,
            wanted,
            slots = can_open.slots,
            "the limit of open files is too low for DISPATCH_SLOTS: fewer attempts are made at once; raise it (LimitNOFILE, ulimit -Hn)"
        );
    }
    can_open
}

/// All that is wanted; or a quarter of the limit for attempts, a quarter for connections at rest, and the others for the API and the hub
/// itself.
fn under(wanted: u32, limit: u64) -> CanOpen {
    let all = u64::from(wanted) + (IDLE_CONNECTIONS + CONNECTIONS + SOCKET_CONNECTIONS) as u64 + OWN;
    if limit >= all {
        return CanOpen { slots: wanted, resting_max: IDLE_CONNECTIONS };
    }
    let quarter = limit / 4;
    CanOpen {
        slots: u32::try_from(quarter).unwrap_or(u32::MAX).clamp(1, wanted),
        resting_max: usize::try_from(quarter).unwrap_or(usize::MAX).min(IDLE_CONNECTIONS),
    }
}

// A line like `Max open files            1024                 524288               files`.
fn limits(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut numbers = line.split_whitespace().map(|word| match word {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    });
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    // C5.5
    #[test]
    fn limits_are_read_from_the_kernels_table() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \nMax file size             unlimited            unlimited            bytes     \nMax open files            1024                 524288               files     \n";
        assert_eq!(limits(text), Some((1024, 524_288)));
        assert_eq!(limits(&text.replace("524288", "unlimited")), Some((1024, u64::MAX)));
        assert_eq!(limits("nothing"), None);
        assert!(raise().is_some_and(|limit| limit > 0));
    }

    // C5.5
    #[test]
    fn there_are_never_more_attempts_than_connections_can_be_had() {
        for (wanted, limit, slots, resting_max) in [
            (1024, 65_536, 1024, 2048),
            (1024, 4288, 1024, 2048),
            (1024, 4287, 1024, 1071),
            (1024, 1024, 256, 256),
            (1024, 64, 16, 16),
            (8, 64, 8, 16),
            (8, 0, 1, 0),
        ] {
            assert_eq!(under(wanted, limit), CanOpen { slots, resting_max }, "{wanted} {limit}");
        }
    }
}
