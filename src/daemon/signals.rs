//! SIGTERM and SIGINT: the first drains, the second ends at once (C13.2).

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// What the process was told.
#[derive(Debug, Clone)]
pub struct Signals {
    /// The first: finish what is in flight, then end.
    pub drain: CancellationToken,
    /// The second: end at once.
    pub now: CancellationToken,
}

impl Signals {
    /// Listens from now on, instead of the process just dying. Needs a running runtime.
    ///
    /// # Errors
    /// When the operating system does not let us.
    pub fn listen() -> std::io::Result<Self> {
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let signals = Self { drain: CancellationToken::new(), now: CancellationToken::new() };
        let told = signals.clone();
        // Ends with the process: it holds nothing that would have to be closed.
        tokio::spawn(async move {
            for token in [told.drain, told.now] {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                token.cancel();
            }
        });
        Ok(signals)
    }
}
