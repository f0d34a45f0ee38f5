//! The settings of the Kafka source, and what must hold between them.

use super::reader::{Reader, secs};
use super::settings::Env;
use super::value;
use crate::kafka::{KafkaSettings, Password, SaslMechanism, SaslSettings, Start};
use crate::net::broker::BrokerTls;
use crate::rules::classify::Policy;
use std::time::Duration;

// The outer `None` is a wrong setting, the inner one a hub without Kafka.
pub(super) fn kafka(read: &mut Reader<'_>, env: Option<Env>) -> Option<Option<Brokers>> {
    let brokers = read.optional("KAFKA_BROKERS", |read, name| {
        read.parse(name, "host:port, comma separated", |text| value::list(text, value::broker))
    });
    let tls_on = read.switch("KAFKA_TLS_ENABLED");
    let ca_pem = read.optional("KAFKA_CA_CERT", Reader::pem);
    let sasl = sasl(read);
    let group = read.parse("KAFKA_GROUP", "1 to 249 letters, digits, dots, dashes and underscores", |text| {
        (text.len() <= 249 && text.bytes().all(topic_byte)).then(|| text.to_owned())
    });
    let start = read.one_of("KAFKA_START", &[("earliest", Start::Earliest), ("latest", Start::Latest)]);
    let insecure = read.switch("ALLOW_INSECURE_KAFKA");
    let discovery_interval = read.duration("TOPIC_DISCOVERY_INTERVAL", secs(1)..=secs(30));
    read.refuse_in_production(env, "ALLOW_INSECURE_KAFKA", insecure);
    if let (Some(Some(_)), Some(false)) = (&ca_pem, tls_on) {
        read.complain("KAFKA_CA_CERT", "a certificate only together with KAFKA_TLS_ENABLED");
    }
    let Some(brokers) = brokers? else { return Some(None) };
    let far = brokers.iter().any(|broker| !value::is_loopback(broker));
    if let (true, Some(false), Some(false), Some(Env::Staging | Env::Production)) = (far, tls_on, insecure, env) {
        read.complain(
            "KAFKA_BROKERS",
            "outside local only with KAFKA_TLS_ENABLED (or ALLOW_INSECURE_KAFKA, in staging)",
        );
    }
    let tls = if tls_on? { Some(tls(read, ca_pem?.as_deref())?) } else { None };
    let (sasl, group, start, discovery_interval) = (sasl?, group?, start?, discovery_interval?);
    Some(Some(Brokers { brokers, tls, sasl, group, start, discovery_interval }))
}

/// The Kafka source, before it is known how records are judged.
pub(super) struct Brokers {
    brokers: Vec<String>,
    tls: Option<BrokerTls>,
    sasl: Option<SaslSettings>,
    group: String,
    start: Start,
    discovery_interval: Duration,
}

impl Brokers {
    /// With the rest that the source needs.
    pub(super) fn reading(self, topic_prefix: &str, classify: Policy) -> KafkaSettings {
        let Self { brokers, tls, sasl, group, start, discovery_interval } = self;
        KafkaSettings {
            brokers,
            tls,
            sasl,
            group,
            topic_prefix: topic_prefix.to_owned(),
            discovery_interval,
            start,
            classify,
        }
    }
}

fn tls(read: &mut Reader<'_>, ca_pem: Option<&str>) -> Option<BrokerTls> {
    match BrokerTls::new(ca_pem) {
        Ok(tls) => Some(tls),
        Err(error) => read.wrong("KAFKA_CA_CERT", &format!("certificates of authorities; {error}")),
    }
}

fn sasl(read: &mut Reader<'_>) -> Option<Option<SaslSettings>> {
    let mechanism = read.optional("KAFKA_SCRAM_MECHANISM", |read, name| {
        read.one_of(
            name,
            &[
                ("PLAIN", SaslMechanism::Plain),
                ("SCRAM-SHA-256", SaslMechanism::ScramSha256),
                ("SCRAM-SHA-512", SaslMechanism::ScramSha512),
            ],
        )
    });
    let username =
        read.optional("KAFKA_SCRAM_USERNAME", |read, name| read.parse(name, "a name", |t| Some(t.to_owned())));
    let password = read.optional("KAFKA_SCRAM_PASSWORD", |read, name| {
        read.parse(name, "a password", |text| Some(Password::new(text.to_owned())))
    });
    match (mechanism?, username?, password?) {
        (None, None, None) => Some(None),
        (Some(mechanism), Some(username), Some(password)) => Some(Some(SaslSettings { mechanism, username, password })),
        (None, _, _) => read
            .wrong("KAFKA_SCRAM_MECHANISM", "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, where a user or password is given"),
        (Some(_), username, password) => {
            if username.is_none() {
                read.complain("KAFKA_SCRAM_USERNAME", "a user name, where KAFKA_SCRAM_MECHANISM is given");
            }
            if password.is_none() {
                read.complain("KAFKA_SCRAM_PASSWORD", "a password, where KAFKA_SCRAM_MECHANISM is given");
            }
            None
        }
    }
}

/// The prefix of followed topics, which HTTP ingest and explaining read too.
pub(super) fn topic_prefix(read: &mut Reader<'_>) -> Option<String> {
    let allowed = "up to 100 letters, digits, dots, dashes and underscores, with a dot at the end";
    read.parse("TOPIC_PREFIX", allowed, |text| {
        let good = text.ends_with('.') && text.len() <= 100 && text.bytes().all(topic_byte);
        good.then(|| text.to_owned())
    })
}

/// What a topic's or group's name may be made of.
pub(super) fn topic_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}
