//! What the operator says about Kafka.

use crate::net::broker::BrokerTls;
use crate::rules::classify::Policy;
use std::fmt;
use std::time::Duration;
use zeroize::Zeroizing;

/// Everything that the Kafka source needs to know.
#[derive(Debug, Clone)]
pub struct KafkaSettings {
    /// `host:port` of some brokers; the rest is learnt from them.
    pub brokers: Vec<String>,
    /// TLS, or none for plain TCP.
    pub tls: Option<BrokerTls>,
    /// Credentials, where the brokers want some.
    pub sasl: Option<SaslSettings>,
    /// The group under which ordinary tools see the positions.
    pub group: String,
    /// What stands before the source in a topic's name (C1.2).
    pub topic_prefix: String,
    /// How often new topics and partitions are looked for (C1.3).
    pub discovery_interval: Duration,
    /// Where partitions start that exist at the store's very first start (C1.4).
    pub start: Start,
    /// How records are judged.
    pub classify: Policy,
}

/// Where partitions start that exist at the store's very first start (C1.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At the earliest record.
    Earliest,
    /// Behind what is there already.
    Latest,
}

/// Credentials for the brokers.
#[derive(Debug, Clone)]
pub struct SaslSettings {
    /// How they are proven.
    pub mechanism: SaslMechanism,
    /// Who.
    pub username: String,
    /// The proof.
    pub password: Password,
}

/// How credentials are proven to a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaslMechanism {
    /// `PLAIN`
    Plain,
    /// `SCRAM-SHA-256`
    ScramSha256,
    /// `SCRAM-SHA-512`
    ScramSha512,
}

impl SaslMechanism {
    /// The mechanism of that name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "PLAIN" => Some(Self::Plain),
            "SCRAM-SHA-256" => Some(Self::ScramSha256),
            "SCRAM-SHA-512" => Some(Self::ScramSha512),
            _ => None,
        }
    }
}

/// A password: never shown, wiped when dropped.
#[derive(Clone)]
pub struct Password(Zeroizing<String>);

impl Password {
    /// Keeps it.
    pub fn new(password: String) -> Self {
        Self(Zeroizing::new(password))
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let sasl = SaslSettings {
            mechanism: SaslMechanism::Plain,
            username: "hub".to_owned(),
            password: Password::new("tr0ub4dor".to_owned()),
        };
        assert!(!format!("{sasl:?} {sasl:#?}").contains("tr0ub4dor"));
    }
}
