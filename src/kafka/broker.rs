//! A broker for questions beside fetching: one connection, made when it is first needed and made anew when it broke.
//!
//! Fetching has connections of its own: a broker answers in order, and a question behind a long poll would wait for it.

use crate::kafka::connection::{Access, CallError, Connection};
use crate::kafka::wire::Request;
use crate::model::limits::BROKER_ANSWER_BYTES;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// A broker.
#[derive(Debug)]
pub(super) struct Broker {
    /// Its number in the cluster; -1 for one that is only known by its address.
    pub(super) id: i32,
    /// `host:port`.
    pub(super) endpoint: String,
    pub(super) access: Access,
    // Held across the dial on purpose: who comes second waits for the first one's connection instead of making another.
    connection: Mutex<Option<Arc<Connection>>>,
}

impl Broker {
    pub(super) fn new(id: i32, endpoint: String, access: Access) -> Self {
        Self { id, endpoint, access, connection: Mutex::new(None) }
    }

    /// Asks, `limit` at most for the answer.
    pub(super) async fn ask<R: Request + Clone>(&self, request: R, limit: Duration) -> Result<R::Answer, CallError> {
        let (connection, reused) = self.connection().await?;
        match self.ask_over(&connection, request.clone(), limit).await {
            // Brokers close connections that were idle for some minutes.
            Err(CallError::Broken(_)) if reused => {
                let (connection, _) = self.connection().await?;
                self.ask_over(&connection, request, limit).await
            }
            answer => answer,
        }
    }

    async fn ask_over<R: Request>(
        &self,
        connection: &Arc<Connection>,
        request: R,
        limit: Duration,
    ) -> Result<R::Answer, CallError> {
        let answer = connection.call(request, limit).await;
        if answer.as_ref().is_err_and(|why| !matches!(why, CallError::Version(_))) {
            let mut kept = self.connection.lock().await;
            if kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, connection)) {
                *kept = None;
            }
        }
        answer
    }

    async fn connection(&self) -> Result<(Arc<Connection>, bool), CallError> {
        let mut kept = self.connection.lock().await;
        if let Some(connection) = kept.as_ref().filter(|kept| !kept.is_to_be_renewed(&self.access)) {
            return Ok((connection.clone(), true));
        }
        let made = Arc::new(Connection::open(&self.endpoint, &self.access, BROKER_ANSWER_BYTES).await?);
        *kept = Some(made.clone());
        Ok((made, false))
    }
}
