//! Produces batches that no client library would write, by a bare connection to a broker.

use crate::kafka_broker::batch::Batch;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Produce, version 3, to the leader at that endpoint; panics unless the broker takes it.
#[expect(clippy::disallowed_methods, reason = "a test speaks to a broker behind the hub's back")]
pub(crate) async fn produce(endpoint: &str, topic: &str, partition: i32, batch: &Batch) {
    let records = batch.bytes();
    let mut request = vec![0, 0, 0, 3, 0, 0, 0, 1];
    put_string(&mut request, "raw");
    request.extend_from_slice(&[0xff, 0xff]);
    request.extend_from_slice(&(-1i16).to_be_bytes());
    request.extend_from_slice(&10_000i32.to_be_bytes());
    request.extend_from_slice(&1i32.to_be_bytes());
    put_string(&mut request, topic);
    request.extend_from_slice(&1i32.to_be_bytes());
    request.extend_from_slice(&partition.to_be_bytes());
    request.extend_from_slice(&i32::try_from(records.len()).unwrap().to_be_bytes());
    request.extend_from_slice(&records);

    let mut stream = TcpStream::connect(endpoint).await.unwrap();
    stream.write_i32(i32::try_from(request.len()).unwrap()).await.unwrap();
    stream.write_all(&request).await.unwrap();
    let length = stream.read_i32().await.unwrap();
    let mut answer = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut answer).await.unwrap();
    // Correlation, one topic, its name, one partition, its number, the error.
    let error_at = 4 + 4 + 2 + topic.len() + 4 + 4;
    assert_eq!(answer[error_at..error_at + 2], [0, 0], "the broker refuses the batch: {answer:?}");
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&i16::try_from(text.len()).unwrap().to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}
