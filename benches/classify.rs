//! What the verdict on one record costs: the hot path of ingest, to be about a microsecond.

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use streaming_hub::model::record::RawRecord;
use streaming_hub::rules::classify::{Policy, classify, topic_source};

const POLICY: Policy = Policy { max_body_bytes: 1 << 20, accept_ce_underscore: false };
const BODY_BYTES: usize = 600;

fn record(more: &[(&str, &str)]) -> RawRecord {
    let usual = [
        ("ce-specversion", "1.0"),
        ("ce-id", "0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d01"),
        ("ce-source", "lender"),
        ("ce-type", "studio.lerian.lender.loan_application.approved"),
        ("ce-time", "2026-11-30T12:00:00.123456789Z"),
        ("ce-schemaversion", "1.0.0"),
        ("ce-resourcetype", "loan_application"),
        ("ce-eventtype", "approved"),
        ("ce-tenantid", "0198b0c2-7c1e-7d3a-9f10-000000000001"),
        ("ce-datacontenttype", "application/json"),
    ];
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let headers = usual.iter().chain(more).map(|(name, value)| (bytes(name), Some(bytes(value)))).collect();
    RawRecord { headers, body: Bytes::from(vec![b'x'; BODY_BYTES]) }
}

fn verdicts(criterion: &mut Criterion) {
    let traced = [
        ("ce-subject", "0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d02"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("tracestate", "congo=t61rcWkgMzE"),
    ];
    let names: Vec<String> = (0..16).map(|n| format!("ce-extension{n}")).collect();
    let extended: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "some value")).collect();
    let flood: Vec<String> = (0..10_000).map(|n| format!("ce-x{n}")).collect();
    let flood: Vec<(&str, &str)> = flood.iter().map(|name| (name.as_str(), "")).collect();

    let mut group = criterion.benchmark_group("classify");
    group.throughput(Throughput::Elements(1));
    for (name, record) in [
        ("accept", record(&[])),
        ("accept_traced", record(&traced)),
        ("accept_16_extensions", record(&extended)),
        ("drop_system_event", record(&[("ce-systemevent", "true")])),
        ("quarantine_type_mismatch", record(&[("ce-type", "studio.lerian.lender.loan_application.refused")])),
        ("hostile_10000_headers", record(&flood)),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| classify(black_box(&POLICY), Some("lender"), black_box(&record)));
        });
    }
    group.bench_function("topic_source", |bencher| {
        bencher.iter(|| topic_source(black_box("lerian.streaming."), black_box("lerian.streaming.lender")));
    });
    group.finish();
}

criterion_group!(benches, verdicts);
criterion_main!(benches);
