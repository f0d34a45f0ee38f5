//! One connection to one broker: dialled, authenticated, its API versions known. Every call has a limit.
//!
//! This file and `wire` are the only ones that name rskafka. Invariants: after a call that failed in any way but a refusal by
//! version the connection is not used again; the caller drops it and dials anew. Where the broker believes credentials for a
//! time only (KIP-368), a new connection takes over well before that has passed, so that no call meets the end of it.

use crate::kafka::credentials;
use crate::kafka::settings::SaslSettings;
use crate::kafka::wire::{Call, Request};
use crate::net::Deadline;
use crate::net::broker::{BrokerStream, BrokerTls, DialError, dial};
use crate::time::Clock;
use rskafka::messenger::{Messenger, RequestError, SyncVersionsError};
use rskafka::protocol::frame::ReadError as FrameError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Version and credentials exchange after the dial.
pub(super) const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// Calls other than fetches.
pub(crate) const CALL_LIMIT: Duration = Duration::from_secs(30);

/// How to reach brokers.
#[derive(Clone)]
pub(crate) struct Access {
    /// Tells when a session nears its end.
    pub(crate) clock: Arc<dyn Clock>,
    /// TLS, or none.
    pub(crate) tls: Option<BrokerTls>,
    /// Credentials, or none.
    pub(crate) sasl: Option<SaslSettings>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("tls", &self.tls).field("sasl", &self.sasl).finish_non_exhaustive()
    }
}

/// Why a connection or a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// No connection.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The broker refuses the credentials, or the way they are proven.
    #[error("the broker refuses the credentials: {0}")]
    Authentication(String),
    /// No answer in time.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The connection broke, or what came makes no sense.
    #[error("{0}")]
    Broken(String),
    /// The answer is larger than what is taken.
    #[error("an answer of {0} bytes")]
    TooLarge(usize),
    /// The broker does not know a version of this call that we know.
    #[error("the broker is too old or too new: {0}")]
    Version(String),
}

impl CallError {
    /// A stable word for the kind, as states and logs show it.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Dial(DialError::Endpoint(_)) => "bad_endpoint",
            Self::Dial(DialError::Lookup { .. }) => "dns",
            Self::Dial(DialError::Connect(_)) => "connect",
            Self::Dial(DialError::Timeout) => "connect_timeout",
            Self::Dial(DialError::Certificate(_)) => "certificate",
            Self::Dial(DialError::Tls(_)) => "tls",
            Self::Authentication(_) => "authentication",
            Self::Timeout(_) => "timeout",
            Self::Broken(_) => "broken",
            Self::TooLarge(_) => "too_large",
            Self::Version(_) => "version",
        }
    }

    /// Whether waiting will not mend it: somebody has to change a setting, here or at the brokers.
    pub(crate) fn needs_a_person(&self) -> bool {
        match self {
            Self::Dial(DialError::Endpoint(_) | DialError::Certificate(_) | DialError::Tls(_))
            | Self::Authentication(_)
            | Self::TooLarge(_)
            | Self::Version(_) => true,
            Self::Dial(DialError::Lookup { .. } | DialError::Connect(_) | DialError::Timeout)
            | Self::Timeout(_)
            | Self::Broken(_) => false,
        }
    }
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    messenger: Messenger<BrokerStream>,
    /// At that monotonic time another connection shall take over; none when this one lasts.
    renew_at: Option<Duration>,
}

impl Connection {
    /// Connects to `host:port`; no answer above `answer_max` bytes is taken.
    pub(crate) async fn open(endpoint: &str, access: &Access, answer_max: usize) -> Result<Self, CallError> {
        let stream = dial(endpoint, access.tls.as_ref()).await?;
        let messenger = Messenger::new(stream, answer_max, Arc::from("streaming-hub"));
        let mut connection = Self { messenger, renew_at: None };
        let greeted = timeout(GREETING_LIMIT, connection.greet(access)).await;
        greeted.map_err(|_| CallError::Timeout(GREETING_LIMIT))??;
        Ok(connection)
    }

    async fn greet(&mut self, access: &Access) -> Result<(), CallError> {
        self.messenger.sync_versions().await.map_err(|why| match why {
            SyncVersionsError::RequestError(why) => failed(&why),
            other => CallError::Version(other.to_string()),
        })?;
        let Some(sasl) = &access.sasl else { return Ok(()) };
        let begun = access.clock.monotonic();
        let lifetime = credentials::prove(self, sasl).await?;
        self.renew_at = lifetime.map(|lifetime| begun + renew_after(lifetime));
        Ok(())
    }

    /// Whether another connection shall take over now: soon the broker will not believe the credentials any more.
    pub(crate) fn is_to_be_renewed(&self, access: &Access) -> bool {
        self.renew_at.is_some_and(|at| access.clock.monotonic() >= at)
    }

    /// Asks and waits for the answer, `limit` at most.
    pub(crate) async fn call<R: Request>(&self, request: R, limit: Duration) -> Result<R::Answer, CallError> {
        // A hub that stood still finds the answer waiting, and must not say that the broker is silent.
        let answer = Deadline::after(limit).bound(self.messenger.request(Call(request))).await;
        let answer = answer.ok_or(CallError::Timeout(limit))?;
        answer.map(|answer| answer.0).map_err(|why| failed(&why))
    }
}

/// Four fifths of the session: the rest is for what is under way, and for opening the next one.
fn renew_after(lifetime: Duration) -> Duration {
    lifetime / 5 * 4
}

fn failed(why: &RequestError) -> CallError {
    match why {
        RequestError::Poisoned(inner) => failed(inner),
        RequestError::ReadFramedMessageError(FrameError::MessageTooLarge { actual, .. }) => {
            CallError::TooLarge(*actual)
        }
        RequestError::NoVersionMatch { .. } => CallError::Version(why.to_string()),
        other => CallError::Broken(other.to_string()),
    }
}
