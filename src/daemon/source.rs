//! The Kafka source in the hub: started last, stopped first.

use super::DaemonError;
use crate::entropy::Entropy;
use crate::kafka::{self, KafkaSettings, KafkaStatus, WriterInbox};
use crate::metrics::Metrics;
use crate::store::view::Reader;
use crate::time::Clock;
use crate::writer::Writer;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How often the gauges of partitions are set.
const GAUGES_EVERY: Duration = Duration::from_secs(2);
/// How long its tasks may take to end; a fetch that waits for its broker is dropped before.
const FINISH: Duration = Duration::from_secs(5);

/// The running source.
pub(super) struct Source {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Source {
    /// Starts reading.
    pub(super) async fn start(
        settings: KafkaSettings,
        writer: Writer,
        reader: Reader,
        status: Arc<KafkaStatus>,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
        mut entropy: Entropy,
    ) -> Result<Self, DaemonError> {
        let opening = tokio::task::spawn_blocking(move || WriterInbox::new(writer, reader));
        let inbox = opening.await.unwrap_or(Err(crate::store::StoreError::Closed))?;
        let stop = CancellationToken::new();
        let reading = kafka::run(settings, Arc::new(inbox), status.clone(), clock, entropy.next_u64(), stop.clone());
        let task = tokio::spawn(async move {
            let mut gauges = tokio::time::interval(GAUGES_EVERY);
            let mut reading = std::pin::pin!(reading);
            loop {
                tokio::select! {
                    () = &mut reading => return,
                    _ = gauges.tick() => status.show_on(&metrics),
                }
            }
        });
        Ok(Self { stop, task })
    }

    /// It ended without being told to.
    pub(super) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Stops reading; what was handed to the writer is stored.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        if tokio::time::timeout(FINISH, self.task).await.is_err() {
            tracing::warn!("the Kafka source did not end in time and is cut off");
        }
    }
}
