//! Start and stop of the hub in written order.

use crate::config::Settings;
use crate::store::StoreError;

/// Why the hub did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl DaemonError {
    /// A newer program wrote the store: exit code 78, so that no supervisor tries again.
    pub fn is_newer_store(&self) -> bool {
        matches!(self, DaemonError::Store(StoreError::Newer { .. }))
    }
}

/// Runs the hub until it is told to stop.
///
/// # Errors
/// See [`DaemonError`].
pub async fn run(settings: Settings) -> Result<(), DaemonError> {
    let _ = settings;
    Ok(())
}
