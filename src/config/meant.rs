//! From settings as typed to [`Settings`] as meant. Every setting is read before anything is said, so that all wrong ones are
//! told at once; then what must hold between them is checked.

use super::problem::Problems;
use super::reader::{Reader, days, secs};
use super::settings::*;
use super::typed::{Surroundings, Typed};
use super::{kafka, table, value};
use crate::engine::{EngineSettings, ReplayPace};
use crate::model::limits;
use crate::net::tls::Roots;
use crate::rules::address::{AddressPolicy, AllowRule, parse_sink_allow};
use crate::rules::autodisable::{Acts, AutoDisablePolicy};
use crate::rules::breaker::BreakerPolicy;
use crate::rules::classify::Policy;
use crate::store::StoreSettings;
use crate::time::millis;
use std::path::Path;
use std::time::Duration;

/// Judges all settings; what files and credentials give is filled into `typed` on the way, so that it can be shown.
///
/// # Errors
/// All wrong ones at once.
pub fn mean(typed: &mut Typed, around: &Surroundings) -> Result<Settings, Problems> {
    let mut problems = Vec::new();
    typed.complete(around, &mut problems);
    let mut read = Reader { typed, problems, names: Vec::new() };
    let settings = all(&mut read, around);
    let unread = table::settings().find(|setting| !read.names.contains(&setting.name));
    assert!(unread.is_none(), "the table of settings has a row that nothing reads: {unread:?}");
    match settings {
        Some(settings) if read.problems.is_empty() => Ok(settings),
        Some(_) | None => Err(Problems(read.problems)),
    }
}

// Each group reads all of its settings before it gives up with `?`; so do the groups before the last line.
fn all(read: &mut Reader<'_>, around: &Surroundings) -> Option<Settings> {
    let env = read.one_of("ENV", &[("local", Env::Local), ("staging", Env::Staging), ("production", Env::Production)]);
    let log = log(read);
    let data_dir = read.path("DATA_DIR");
    let tenancy = tenancy(read);
    let http = http(read, env);
    let records = records(read);
    let topic_prefix = kafka::topic_prefix(read);
    let kafka = kafka::kafka(read, env);
    let sinks = sinks(read, env);
    let kek = kek(read, env, data_dir.as_deref(), around);
    let dispatch = dispatch(read);
    let engine = engine(read, dispatch);
    let store = store(read);
    let reserve =
        read.parse("STORE_RESERVE_BYTES", "a size like 10GiB, a part of the disk up to 50%, or 0", value::reserve);
    let secret_overlap = read.duration("SECRET_OVERLAP", Duration::ZERO..=days(30));
    let drain = read.duration("SHUTDOWN_TIMEOUT", Duration::from_millis(100)..=secs(600));
    let pre_stop = read.duration("PRE_STOP_DRAIN_TIMEOUT", Duration::ZERO..=secs(600));
    let (records, topic_prefix) = (records?, topic_prefix?);
    Some(Settings {
        env: env?,
        log: log?,
        data_dir: data_dir?,
        tenancy: tenancy?,
        http: http?,
        kafka: kafka?.map(|brokers| brokers.reading(&topic_prefix, records)),
        records,
        topic_prefix,
        sinks: sinks?,
        kek: kek?,
        dispatch: dispatch?,
        engine: engine?,
        store: store?,
        reserve: reserve?,
        secret_overlap: secret_overlap?,
        stop: StopSettings { drain: drain?, pre_stop: pre_stop? },
    })
}

fn log(read: &mut Reader<'_>) -> Option<LogSettings> {
    let allowed = "error, warn, info, debug, trace or off, or directives like info,streaming_hub::kafka=debug";
    let filter = read.parse("LOG_LEVEL", allowed, value::log_filter);
    let format = read.optional("LOG_FORMAT", |read, name| {
        read.one_of(name, &[("text", LogFormat::Text), ("json", LogFormat::Json)])
    });
    Some(LogSettings { filter: filter?, format: format? })
}

fn tenancy(read: &mut Reader<'_>) -> Option<Tenancy> {
    let multi = read.switch("MULTI_TENANT_ENABLED");
    let allowed = format!("1 to {} bytes without control characters", limits::TENANT_BYTES);
    let tenant = read.parse("TENANT_ID", &allowed, |text| {
        (text.len() <= limits::TENANT_BYTES && !text.chars().any(char::is_control)).then(|| text.to_owned())
    });
    let tenant = tenant?;
    Some(if multi? { Tenancy::Multi } else { Tenancy::Single(tenant) })
}

fn http(read: &mut Reader<'_>, env: Option<Env>) -> Option<HttpSettings> {
    let listen = read.parse(
        "HTTP_LISTEN_ADDR",
        "an IP address and a port like 127.0.0.1:8080 or [::1]:8080, or :8080",
        value::listen,
    );
    let tls = tls(read);
    let behind_proxy = read.switch("HTTP_BEHIND_PROXY");
    let ingest = read.switch("HTTP_INGEST_ENABLED");
    let idempotency_ttl = read.duration("IDEMPOTENCY_TTL", secs(1)..=days(30));
    let metrics = read.switch("METRICS_ENABLED");
    let metrics_public = read.switch("METRICS_PUBLIC");
    let ready_requires_kafka = read.switch("READY_REQUIRES_KAFKA");
    if let (Some(Env::Production), Some(listen), Some(None), Some(false)) = (env, listen, &tls, behind_proxy)
        && !listen.ip().is_loopback()
    {
        read.complain(
            "HTTP_LISTEN_ADDR",
            "in production a loopback address, or HTTP_TLS_CERT and HTTP_TLS_KEY, or HTTP_BEHIND_PROXY",
        );
    }
    Some(HttpSettings {
        listen: listen?,
        tls: tls?,
        behind_proxy: behind_proxy?,
        ingest: ingest?,
        idempotency_ttl: idempotency_ttl?,
        metrics: metrics?,
        metrics_public: metrics_public?,
        ready_requires_kafka: ready_requires_kafka?,
    })
}

fn tls(read: &mut Reader<'_>) -> Option<Option<TlsFiles>> {
    let cert = read.optional("HTTP_TLS_CERT", Reader::file);
    let key = read.optional("HTTP_TLS_KEY", Reader::file);
    match (cert?, key?) {
        (Some(cert), Some(key)) => Some(Some(TlsFiles { cert, key })),
        (None, None) => Some(None),
        (Some(_), None) => read.wrong("HTTP_TLS_KEY", "a file with the key of HTTP_TLS_CERT"),
        (None, Some(_)) => read.wrong("HTTP_TLS_CERT", "a file with the certificate of HTTP_TLS_KEY"),
    }
}

fn records(read: &mut Reader<'_>) -> Option<Policy> {
    let accept_ce_underscore = read.switch("ACCEPT_CE_UNDERSCORE");
    let max_body = read.size("MAX_BODY_BYTES", 1, limits::BODY_BYTES_MAX as u64);
    Some(Policy { max_body_bytes: usize::try_from(max_body?).ok()?, accept_ce_underscore: accept_ce_underscore? })
}

fn sinks(read: &mut Reader<'_>, env: Option<Env>) -> Option<SinkSettings> {
    let allow_private = read.switch("ALLOW_PRIVATE_SINKS");
    let allow_http = read.switch("ALLOW_HTTP_SINKS");
    let rules = sink_rules(read);
    let ca_pem = sink_roots(read);
    let ports = read.optional("SINK_PORTS", |read, name| {
        read.parse(name, "ports from 1 to 65535, or ranges of them like 8000-8080, comma separated", value::ports)
    });
    let attempt_timeout = read.duration("ATTEMPT_TIMEOUT", secs(1)..=LONGEST_ATTEMPT);
    read.refuse_in_production(env, "ALLOW_PRIVATE_SINKS", allow_private);
    read.refuse_in_production(env, "ALLOW_HTTP_SINKS", allow_http);
    let usual = if allow_http? { vec![443, 8443, 5671, 80, 8080, 5672] } else { vec![443, 8443, 5671] };
    let policy = AddressPolicy {
        allow_private: allow_private?,
        allow_http: allow_http?,
        rules: rules?,
        ports: ports?.unwrap_or(usual),
        own_listeners: Vec::new(),
    };
    Some(SinkSettings { policy, ca_pem: ca_pem?, attempt_timeout: attempt_timeout? })
}

fn sink_roots(read: &mut Reader<'_>) -> Option<Option<String>> {
    let pem = read.optional("SINK_CA_CERT", Reader::pem)?;
    match pem.as_ref().map_or(Ok(()), |pem| Roots::none().add_pem(pem.as_bytes())) {
        Ok(()) => Some(pem),
        Err(refusal) => read.wrong("SINK_CA_CERT", &format!("certificates of authorities; {refusal}")),
    }
}

fn sink_rules(read: &mut Reader<'_>) -> Option<Vec<AllowRule>> {
    match parse_sink_allow(&read.text("SINK_ALLOW")) {
        Ok(rules) => Some(rules),
        Err(error) => read.wrong(
            "SINK_ALLOW",
            &format!("network-or-name[:ports][+plain][@tenant], separated by semicolons; {error}"),
        ),
    }
}

#[derive(Clone, Copy)]
enum KekSource {
    Variable,
    File,
    Credential,
}

fn kek(read: &mut Reader<'_>, env: Option<Env>, data_dir: Option<&Path>, around: &Surroundings) -> Option<KekFrom> {
    let names = [("env", KekSource::Variable), ("file", KekSource::File), ("credential", KekSource::Credential)];
    let source = read.one_of("KEK_SOURCE", &names);
    let reference = read.text("KEK_REF");
    match (source?, reference.as_str()) {
        (KekSource::Variable, "") => match env? {
            Env::Local => Some(KekFrom::MadeWithStore(data_dir?.join("kek"))),
            Env::Staging | Env::Production => read.wrong(
                "KEK_REF",
                "outside local the name of the variable that holds the KEK, or KEK_SOURCE file or credential",
            ),
        },
        (KekSource::Variable, name) if around.variable(name).is_none() => {
            read.wrong("KEK_REF", "the name of an environment variable that is set")
        }
        (KekSource::Variable, name) => Some(KekFrom::Variable(name.to_owned())),
        (KekSource::File, "") => read.wrong("KEK_REF", "the path of the file that holds the KEK"),
        (KekSource::File, _) => read.file("KEK_REF").map(KekFrom::File),
        (KekSource::Credential, name) => {
            let name = if name.is_empty() { "kek" } else { name };
            match around.credentials().map(|dir| dir.join(name)).filter(|path| path.is_file()) {
                Some(path) => Some(KekFrom::File(path)),
                None => read.wrong(
                    "KEK_REF",
                    &format!("the name of a systemd credential; {name} is not in $CREDENTIALS_DIRECTORY"),
                ),
            }
        }
    }
}

fn dispatch(read: &mut Reader<'_>) -> Option<DispatchSettings> {
    let workers = read.number("DISPATCH_WORKERS", 1, 256);
    let slots = read.number("DISPATCH_SLOTS", 1, 65_536);
    let lease = read.duration("LEASE", LONGEST_ATTEMPT + LEASE_MARGIN..=secs(3600));
    Some(DispatchSettings { workers: workers?, slots: slots?, lease: lease? })
}

fn engine(read: &mut Reader<'_>, dispatch: Option<DispatchSettings>) -> Option<EngineSettings> {
    let claim_batch = read.number("DISPATCH_CLAIM_BATCH", 1, 1024);
    let poison_threshold = read.number("POISON_THRESHOLD", 1u8, 100);
    let breaker = breaker(read);
    let autodisable = autodisable(read);
    let schedule = read.parse("RETRY_SCHEDULE", "1 to 12 durations of at most 10h, comma separated", value::schedule);
    let pending_max = read.number("PENDING_IN_MEMORY_MAX", 1_000, 100_000_000);
    let poison_max_bytes = read.size("POISON_MAX_BYTES", 0, 1 << 40);
    let poison_retention = read.duration("POISON_RETENTION", secs(60)..=days(3650));
    Some(EngineSettings {
        slots: u32::try_from(dispatch?.slots).ok()?,
        claim_batch: claim_batch?,
        poison_threshold: poison_threshold?,
        breaker: breaker?,
        autodisable: autodisable?,
        schedule: schedule?,
        pending_max: pending_max?,
        poison_max_bytes: poison_max_bytes?,
        poison_retention_ms: millis(poison_retention?),
        only_tenant: None,
        recent_bytes: limits::RECENT_BODY_BYTES,
        replay: ReplayPace::default(),
        #[cfg(feature = "planted-bugs")]
        planted: None,
    })
}

fn breaker(read: &mut Reader<'_>) -> Option<BreakerPolicy> {
    let failures = read.number("BREAKER_FAILURES", 1u32, 1000);
    let cooling = read.duration("BREAKER_COOLING", Duration::from_millis(1)..=secs(3600));
    let most = read.duration("BREAKER_COOLING_MAX", Duration::from_millis(1)..=days(1));
    let (cooling, most) = (cooling?, most?);
    if cooling > most {
        return read.wrong("BREAKER_COOLING", "at most BREAKER_COOLING_MAX");
    }
    Some(BreakerPolicy { failures: failures?, cooling_ms: millis(cooling), cooling_max_ms: millis(most) })
}

fn autodisable(read: &mut Reader<'_>) -> Option<AutoDisablePolicy> {
    let acts = read.switch("AUTODISABLE_ENABLED");
    let window = read.duration("AUTODISABLE_FAILURE_WINDOW", secs(1)..=days(365));
    let spread = read.duration("AUTODISABLE_FAILURE_SPREAD", Duration::ZERO..=days(365));
    Some(AutoDisablePolicy {
        acts: if acts? { Acts::On } else { Acts::Off },
        window_ms: millis(window?),
        spread_ms: millis(spread?),
        ..AutoDisablePolicy::default()
    })
}

fn store(read: &mut Reader<'_>) -> Option<StoreSettings> {
    let cache = read.size("STORE_CACHE_BYTES", 1 << 20, 1 << 40);
    let quick_repair_above = read.size("STORE_QUICK_REPAIR_ABOVE", 0, u64::MAX);
    Some(StoreSettings { cache_bytes: usize::try_from(cache?).ok()?, quick_repair_above: quick_repair_above? })
}

#[cfg(test)]
mod tests {
    use super::super::typed::From;
    use super::*;

    fn typed(given: &[(&'static str, &str)]) -> Typed {
        let mut typed = Typed::defaults();
        given.iter().for_each(|(name, text)| typed.set(name, *text, From::Flag));
        typed
    }

    fn wrong(given: &[(&'static str, &str)], around: &Surroundings) -> Vec<String> {
        match mean(&mut typed(given), around) {
            Ok(_) => Vec::new(),
            Err(Problems(problems)) => problems.into_iter().map(|problem| problem.setting).collect(),
        }
    }

    #[test]
    fn the_defaults_are_right() {
        assert_eq!(wrong(&[], &Surroundings::default()), [""; 0]);
    }

    #[test]
    fn all_wrong_settings_are_told_at_once() {
        let given = [
            ("LEASE", "5s"),
            ("ENV", "prod"),
            ("MAX_BODY_BYTES", "17MiB"),
            ("DISPATCH_SLOTS", "0"),
            ("SINK_PORTS", "443,0"),
        ];
        let mut settings = wrong(&given, &Surroundings::default());
        settings.sort();
        assert_eq!(settings, ["DISPATCH_SLOTS", "ENV", "LEASE", "MAX_BODY_BYTES", "SINK_PORTS"]);
    }

    #[test]
    fn settings_that_do_not_fit_each_other_are_refused() {
        const PRODUCTION: (&str, &str) = ("ENV", "production");
        type Row<'a> = (&'a [(&'static str, &'a str)], &'a [&'a str]);
        let rows: &[Row<'_>] = &[
            (&[PRODUCTION], &["KEK_REF"]),
            (&[("ENV", "staging")], &["KEK_REF"]),
            (&[PRODUCTION, ("KEK_REF", "NO_SUCH_VARIABLE")], &["KEK_REF"]),
            (
                &[
                    PRODUCTION,
                    ("KEK_REF", "KEK"),
                    ("ALLOW_PRIVATE_SINKS", "true"),
                    ("ALLOW_HTTP_SINKS", "1"),
                    ("ALLOW_INSECURE_KAFKA", "yes"),
                ],
                &["ALLOW_INSECURE_KAFKA", "ALLOW_PRIVATE_SINKS", "ALLOW_HTTP_SINKS"],
            ),
            (&[PRODUCTION, ("KEK_REF", "KEK"), ("HTTP_LISTEN_ADDR", ":8080")], &["HTTP_LISTEN_ADDR"]),
            (&[PRODUCTION, ("KEK_REF", "KEK"), ("HTTP_LISTEN_ADDR", ":8080"), ("HTTP_BEHIND_PROXY", "true")], &[]),
            (&[PRODUCTION, ("KEK_REF", "KEK"), ("KAFKA_BROKERS", "kafka:9092")], &["KAFKA_BROKERS"]),
            (&[PRODUCTION, ("KEK_REF", "KEK"), ("KAFKA_BROKERS", "kafka:9092"), ("KAFKA_TLS_ENABLED", "true")], &[]),
            (&[PRODUCTION, ("KEK_REF", "KEK"), ("KAFKA_BROKERS", "127.0.0.1:9092,localhost:9093")], &[]),
            (
                &[
                    ("ENV", "staging"),
                    ("KEK_REF", "KEK"),
                    ("KAFKA_BROKERS", "kafka:9092"),
                    ("ALLOW_INSECURE_KAFKA", "true"),
                ],
                &[],
            ),
            (&[("KAFKA_BROKERS", "kafka:9092")], &[]),
            (&[("KAFKA_SCRAM_MECHANISM", "SCRAM-SHA-512")], &["KAFKA_SCRAM_USERNAME", "KAFKA_SCRAM_PASSWORD"]),
            (&[("KAFKA_SCRAM_USERNAME", "hub")], &["KAFKA_SCRAM_MECHANISM"]),
            (&[("HTTP_TLS_CERT", "/dev/null")], &["HTTP_TLS_KEY"]),
            (&[("BREAKER_COOLING", "11m")], &["BREAKER_COOLING"]),
            (&[("KEK_SOURCE", "file")], &["KEK_REF"]),
            (&[("KEK_SOURCE", "credential")], &["KEK_REF"]),
            (&[("LEASE", "70s")], &[]),
            (&[("LEASE", "69s")], &["LEASE"]),
        ];
        let around = Surroundings { variables: [("KEK".to_owned(), "00".repeat(32))].into() };
        for (given, expected) in rows {
            assert_eq!(&wrong(given, &around), expected, "{given:?}");
        }
    }

    #[test]
    fn the_two_spellings_of_multi_tenant_may_not_disagree() {
        for (prefixed, bare, multi) in
            [(None, "true", Some(true)), (Some("true"), "1", Some(true)), (Some("false"), "true", None)]
        {
            let mut typed = Typed::defaults();
            if let Some(text) = prefixed {
                typed.set("MULTI_TENANT_ENABLED", text, From::Env("STREAMING_HUB_MULTI_TENANT_ENABLED".to_owned()));
            }
            let around = Surroundings { variables: [("MULTI_TENANT_ENABLED".to_owned(), bare.to_owned())].into() };
            let meant = mean(&mut typed, &around).ok().map(|settings| settings.tenancy == Tenancy::Multi);
            assert_eq!(meant, multi, "{prefixed:?} {bare}");
        }
    }

    #[test]
    fn secrets_come_from_files_and_credentials_and_are_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kafka_scram_password");
        std::fs::write(&file, "pass-canary\n").unwrap();
        let base =
            [("KAFKA_BROKERS", "localhost:9092"), ("KAFKA_SCRAM_MECHANISM", "PLAIN"), ("KAFKA_SCRAM_USERNAME", "hub")];
        let variables = [
            ("STREAMING_HUB_KAFKA_SCRAM_PASSWORD_FILE", file.to_str().unwrap()),
            ("CREDENTIALS_DIRECTORY", dir.path().to_str().unwrap()),
        ];
        for (name, value) in variables {
            let around = Surroundings { variables: [(name.to_owned(), value.to_owned())].into() };
            let mut typed = typed(&base);
            let settings = mean(&mut typed, &around).unwrap();
            assert!(settings.kafka.as_ref().is_some_and(|kafka| kafka.sasl.is_some()), "{name}");
            assert_eq!(typed.get("KAFKA_SCRAM_PASSWORD").unwrap().text, "pass-canary", "{name}");
            let shown = format!("{settings:?} {} {}", super::super::as_text(&typed), super::super::as_json(&typed));
            assert!(!shown.contains("pass-canary"), "{name}");
        }
        let mut both = typed(&base);
        both.set("KAFKA_SCRAM_PASSWORD", "pass-canary", From::Flag);
        let (name, value) = variables[0];
        let around = Surroundings { variables: [(name.to_owned(), value.to_owned())].into() };
        let problems = mean(&mut both, &around).unwrap_err();
        assert!(problems.to_string().contains("KAFKA_SCRAM_PASSWORD") && !problems.to_string().contains("pass-canary"));
    }
}
