//! What a delivery to each kind of receiver comes to: `tests/cases/receivers.tsv` (C9.5, C9.6, C9.8).

use crate::receivers::https::Authority;
use crate::receivers::hub::{Hub, NOW, Script, Setup};
use crate::receivers::script::Scripted;
use std::sync::Arc;
use std::time::Duration;
use streaming_hub::model::attempt::ErrorClass;
use streaming_hub::net::resolve::ResolveError;
use streaming_hub::rules::outcome::{Judged, Told, judge};
use streaming_hub::sink::Met;
use streaming_hub::time::Clock as _;
use tokio::task::JoinSet;

struct Row {
    name: &'static str,
    scheme: &'static str,
    timeout: Duration,
    dns: Option<&'static str>,
    script: &'static str,
    expected: (&'static str, &'static str),
}

fn rows() -> Vec<Row> {
    let table = include_str!("../cases/receivers.tsv");
    let rows = table.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let [name, scheme, timeout, script, outcome, class] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let timeout = Duration::from_millis(timeout.parse().unwrap());
        let (dns, script) = match script.strip_prefix("dns ").and_then(|rest| rest.split_once(" | ")) {
            Some((dns, script)) => (Some(dns), script),
            None => (None, script),
        };
        Row { name, scheme, timeout, dns, script, expected: (outcome, class) }
    });
    rows.collect()
}

fn answer(dns: &str) -> Script {
    match dns {
        "unknown" => Script::Fails(ResolveError::Failed),
        "empty" => Script::Addresses(vec![]),
        "timeout" => Script::Fails(ResolveError::TimedOut),
        "hang" => Script::Hangs,
        addresses => Script::Addresses(addresses.split(' ').map(|ip| ip.parse().unwrap()).collect()),
    }
}

fn seen(met: &Met) -> (String, &'static str) {
    let told = Told { status: met.status, error: met.error, retry_after: met.retry_after.clone() };
    match judge(&told, NOW) {
        Judged::Delivered => ("delivered".to_owned(), "-"),
        Judged::Failed { error, .. } => ("failed".to_owned(), error.code()),
        Judged::Held { hold_ms } => (format!("held {hold_ms}"), ErrorClass::RateLimited.code()),
        Judged::Hopeless { error, .. } => ("hopeless".to_owned(), error.code()),
    }
}

// C9.5, C9.6, C9.8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_receiver_ends_as_the_table_says_and_in_time() {
    let authority = Arc::new(Authority::new());
    let pem = authority.pem();
    let hub = Arc::new(Hub::new(Setup { ca_pem: Some(&pem), ..Setup::default() }));
    let mut running = JoinSet::new();
    for (n, row) in rows().into_iter().enumerate() {
        let (hub, authority) = (hub.clone(), authority.clone());
        running.spawn(async move {
            let receiver = Scripted::start(row.script, &authority).await;
            let host = match row.dns {
                // A certificate is for one name; only rows about names need one of their own.
                None => "receiver.test".to_owned(),
                Some(dns) => {
                    let host = format!("name{n}.test");
                    hub.names.set(&host, answer(dns));
                    host
                }
            };
            let url = format!("{}://{host}:{}/hook", row.scheme, receiver.address.port());
            let mut delivery = hub.delivery(hub.subscription(&url));
            delivery.timeout = row.timeout;
            let began = hub.clock.monotonic();
            let met = hub.sinks.deliver(&delivery).await;
            let took = hub.clock.monotonic() - began;
            let (outcome, class) = seen(&met);
            let mut wrong = Vec::new();
            if (outcome.as_str(), class) != row.expected {
                wrong.push(format!("{}: {outcome} {class}, expected {:?} ({met:?})", row.name, row.expected));
            }
            if took > row.timeout + Duration::from_secs(1) {
                wrong.push(format!("{}: took {took:?} of {:?}", row.name, row.timeout));
            }
            if met.answer.len() > 1024 {
                wrong.push(format!("{}: kept {} bytes of the answer", row.name, met.answer.len()));
            }
            wrong
        });
    }
    let wrong: Vec<String> = running.join_all().await.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
