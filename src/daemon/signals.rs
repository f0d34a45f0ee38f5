//! SIGTERM and SIGINT: the first drains, the second ends at once (C13.2). SIGHUP is one of them where the hub runs on a terminal, which
//! is gone then; a service it would only ask to read its settings again, which no hub does: that is said, and it goes on.

use std::io::IsTerminal as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
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
        let mut heard = Heard {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            on_terminal: std::io::stdin().is_terminal() || std::io::stderr().is_terminal(),
        };
        let signals = Self { drain: CancellationToken::new(), now: CancellationToken::new() };
        let told = signals.clone();
        // Ends with the process: it holds nothing that would have to be closed.
        tokio::spawn(async move {
            for token in [told.drain, told.now] {
                heard.an_end().await;
                token.cancel();
            }
        });
        Ok(signals)
    }
}

struct Heard {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    on_terminal: bool,
}

impl Heard {
    /// Waits for a signal that ends the hub.
    async fn an_end(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => {
                    if self.on_terminal {
                        return;
                    }
                    tracing::info!("SIGHUP changes nothing: settings are read at the start; restart the hub to change them");
                }
            }
        }
    }
}
