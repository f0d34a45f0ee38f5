//! What signing one delivery costs, and what checking it costs the receiver.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use streaming_hub::rules::signature::{lerian, new_secret, standard, verify_lerian};

const TIMESTAMP: u64 = 1_700_000_000;
const EVENT_ID: &str = "0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d01";

fn signing(criterion: &mut Criterion) {
    let secret = new_secret(&std::array::from_fn(|at| u8::try_from(at).unwrap_or(0)));
    let mut group = criterion.benchmark_group("signature");
    for bytes in [600, 64 << 10, 1 << 20] {
        let body = vec![b'x'; bytes];
        let signature = lerian(&secret, TIMESTAMP, &body);
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_with_input(BenchmarkId::new("lerian", bytes), &body, |bencher, body| {
            bencher.iter(|| lerian(black_box(&secret), TIMESTAMP, black_box(body)));
        });
        group.bench_with_input(BenchmarkId::new("standard", bytes), &body, |bencher, body| {
            bencher.iter(|| standard(black_box(&secret), EVENT_ID, TIMESTAMP, black_box(body)));
        });
        group.bench_with_input(BenchmarkId::new("verify_lerian", bytes), &body, |bencher, body| {
            let timestamp = TIMESTAMP.to_string();
            bencher.iter(|| {
                verify_lerian(black_box(&secret), [signature.as_str()], &timestamp, TIMESTAMP, black_box(body))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, signing);
criterion_main!(benches);
