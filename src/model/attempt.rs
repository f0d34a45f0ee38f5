//! What is remembered of one attempt.

use crate::model::ids::DeliveryId;
use crate::time::Timestamp;
use bincode::{Decode, Encode};

/// One attempt as it is kept and shown.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct AttemptRecord {
    /// Its delivery id (C9.3).
    pub delivery: DeliveryId,
    /// When it began (wall time).
    pub at: Timestamp,
    /// How long it took.
    pub duration_ms: u32,
    /// HTTP status, where an answer's head came.
    pub status: Option<u16>,
    /// What went wrong; none for a success.
    pub error: Option<ErrorClass>,
    /// The first [`crate::model::limits::ANSWER_KEPT_BYTES`] of the answer's body, of failures only.
    pub answer: Vec<u8>,
}

macro_rules! classes {
    ($($(#[$doc:meta])* $name:ident $text:literal,)*) => {
        /// What went wrong in an attempt: a closed list, used in the API and as a metric label.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
        pub enum ErrorClass { $($(#[$doc])* $name,)* }

        impl ErrorClass {
            /// Every class.
            pub const ALL: &'static [ErrorClass] = &[$(ErrorClass::$name,)*];

            /// The stable code.
            pub fn code(self) -> &'static str {
                match self { $(ErrorClass::$name => $text,)* }
            }
        }
    };
}

classes! {
    /// The address policy forbids the destination (C9.8).
    DestinationBlocked "destination_blocked",
    /// The name has no address, or the lookup failed.
    Dns "dns",
    /// The lookup took too long.
    DnsTimeout "dns_timeout",
    /// Nobody listens there, or no route.
    Connect "connect",
    /// The connection took too long.
    ConnectTimeout "connect_timeout",
    /// The TLS handshake failed.
    Tls "tls",
    /// The certificate is not trusted, expired, or names another host.
    Certificate "certificate",
    /// The attempt's deadline passed.
    Timeout "timeout",
    /// The connection broke before the answer's head was whole.
    Reset "reset",
    /// What came back is not HTTP, or its head is over a limit.
    Protocol "protocol",
    /// An informational answer that ends the exchange (101).
    UnexpectedUpgrade "unexpected_upgrade",
    /// A redirect; they are not followed.
    Redirect "redirect",
    /// 410.
    Gone "gone",
    /// 429.
    RateLimited "rate_limited",
    /// Any other 4xx.
    ClientError "client_error",
    /// 5xx and statuses beyond.
    ServerError "server_error",
    /// A probe's answer did not repeat the challenge (C4.7).
    Challenge "challenge_mismatch",
    /// The body is larger than the sink takes (C6.4).
    TooLarge "too_large",
    /// The event cannot be represented at that sink (C6.4).
    NotRepresentable "not_representable",
    /// The destination's secret cannot be opened.
    SecretUnreadable "secret_unreadable",
    /// The worker crashed.
    Crashed "crashed",
}
