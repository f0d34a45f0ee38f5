//! A small Kafka broker in the test's own process: one topic with one partition, and faults on command. It speaks just the calls
//! and versions that the hub makes.
#![allow(dead_code)]

pub(crate) mod batch;

use batch::Batch;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A running broker.
pub(crate) struct Broker {
    pub(crate) endpoint: String,
    state: Arc<Mutex<State>>,
}

/// What the broker holds and has seen.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) topic: String,
    /// Batches with the offset after each.
    pub(crate) log: Vec<(i64, Vec<u8>)>,
    pub(crate) high_watermark: i64,
    /// For the next fetches that have something to give, one each.
    pub(crate) faults: VecDeque<Fault>,
    /// Offset and limit of each fetch.
    pub(crate) fetches: Vec<(i64, i32)>,
    pub(crate) connections: usize,
    port: u16,
}

/// What a broker may do wrong.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// An error for the partition.
    Code(i16),
    /// Only so many bytes of the records.
    Cut(usize),
    /// The high watermark of a moment ago.
    Watermark(i64),
    /// The connection ends in the middle of the answer.
    HangUp,
    /// An answer of so many zeros.
    Zeros(i32),
    /// The broker wants to be left alone for so many milliseconds.
    Throttle(i32),
}

impl Broker {
    /// Listens, with an empty log.
    pub(crate) async fn start(topic: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State { topic: topic.to_owned(), port, ..State::default() }));
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.lock().unwrap().connections += 1;
                let shared = shared.clone();
                tokio::spawn(async move {
                    // Ends with the connection.
                    let _ = serve(stream, &shared).await;
                });
            }
        });
        Self { endpoint: format!("127.0.0.1:{port}"), state }
    }

    /// A look at, or a change of, what it holds.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap())
    }

    /// Appends these bytes as they are, up to offset `next`.
    pub(crate) fn append_bytes(&self, next: i64, bytes: Vec<u8>) {
        self.with(|state| {
            state.log.push((next, bytes));
            state.high_watermark = next;
        });
    }

    /// The log is the one of a while ago: nothing at or after that offset.
    pub(crate) fn jump_back(&self, end: i64) {
        self.with(|state| {
            state.log.retain(|(next, _)| *next <= end);
            state.high_watermark = end;
        });
    }

    /// Appends a batch.
    pub(crate) fn append(&self, batch: &Batch) {
        let last = batch.last_delta.or(batch.records.last().map(|record| record.delta)).unwrap_or(0);
        self.append_bytes(batch.base_offset + i64::from(last) + 1, batch.bytes());
    }
}

/// Answers the calls of one connection, one after the other.
async fn serve(mut stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    loop {
        let length = stream.read_i32().await?;
        let mut request = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut request).await?;
        let mut asked = Asked { bytes: &request };
        let (api, version, correlation) = (asked.i16(), asked.i16(), asked.i32());
        asked.string();
        let mut out = Vec::new();
        out.extend_from_slice(&correlation.to_be_bytes());
        match api {
            18 => api_versions(&mut out),
            3 => metadata(&mut out, &state.lock().unwrap()),
            2 => list_offsets(&mut out, &mut asked, &state.lock().unwrap()),
            23 => out.extend(one_partition(
                &state.lock().unwrap().topic,
                &[&[0; 2][..], &[0; 4], &[0xff; 12]].concat(),
                true,
            )),
            1 => {
                assert_eq!(version, 11);
                let fault = fetch(&mut out, &mut asked, state).await;
                match fault {
                    Some(Fault::HangUp) => {
                        stream.write_i32(i32::try_from(out.len()).unwrap()).await?;
                        return stream.write_all(&out[..out.len() / 2]).await;
                    }
                    Some(Fault::Zeros(count)) => out = vec![0; usize::try_from(count).unwrap()],
                    Some(Fault::Code(_) | Fault::Cut(_) | Fault::Watermark(_) | Fault::Throttle(_)) | None => {}
                }
            }
            other => panic!("the scripted broker does not know call {other}"),
        }
        stream.write_i32(i32::try_from(out.len()).unwrap()).await?;
        stream.write_all(&out).await?;
    }
}

/// Version 3.
fn api_versions(out: &mut Vec<u8>) {
    let calls: [(i16, i16, i16); 5] = [(1, 4, 11), (2, 1, 5), (3, 10, 10), (18, 0, 3), (23, 2, 3)];
    out.extend_from_slice(&[0, 0, u8::try_from(calls.len() + 1).unwrap()]);
    for (api, min, max) in calls {
        [api, min, max].iter().for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
        out.push(0);
    }
    out.extend_from_slice(&[0, 0, 0, 0, 0]);
}

/// Version 10: one broker, one topic, one partition.
fn metadata(out: &mut Vec<u8>, state: &State) {
    let compact = |out: &mut Vec<u8>, text: &str| {
        out.push(u8::try_from(text.len() + 1).unwrap());
        out.extend_from_slice(text.as_bytes());
    };
    out.extend_from_slice(&[0, 0, 0, 0, 0, 2]);
    out.extend_from_slice(&7i32.to_be_bytes());
    compact(out, "127.0.0.1");
    out.extend_from_slice(&i32::from(state.port).to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    compact(out, "scripted");
    out.extend_from_slice(&7i32.to_be_bytes());
    out.extend_from_slice(&[2, 0, 0]);
    compact(out, &state.topic);
    out.extend_from_slice(&[5; 16]);
    out.extend_from_slice(&[0, 2, 0, 0]);
    [0i32, 7, 0].iter().for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
    // No replicas, none in sync, none offline, no tags; then the ends of topic and answer: allowed operations and tags.
    out.extend_from_slice(&[1, 1, 1, 0]);
    out.extend_from_slice(&[0; 5 + 5]);
}

/// Version 5.
fn list_offsets(out: &mut Vec<u8>, asked: &mut Asked<'_>, state: &State) {
    asked.skip(4 + 1 + 4);
    asked.string();
    asked.skip(4 + 4 + 4);
    let offset = if asked.i64() == -2 { 0 } else { state.high_watermark };
    let partition = [&[0; 4][..], &[0; 2], &[0xff; 8], &offset.to_be_bytes(), &[0; 4]].concat();
    out.extend(one_partition(&state.topic, &partition, true));
}

/// Version 11.
async fn fetch(out: &mut Vec<u8>, asked: &mut Asked<'_>, state: &Mutex<State>) -> Option<Fault> {
    asked.skip(4);
    let max_wait = asked.i32();
    asked.skip(4 + 4 + 1 + 8 + 4);
    asked.string();
    asked.skip(4 + 4 + 4);
    let offset = asked.i64();
    asked.skip(8);
    let max_bytes = asked.i32();
    let is_empty = {
        let mut state = state.lock().unwrap();
        state.fetches.push((offset, max_bytes));
        state.log.last().is_none_or(|(next, _)| *next <= offset)
    };
    if is_empty {
        tokio::time::sleep(Duration::from_millis(max_wait.min(50).try_into().unwrap())).await;
    }
    let mut state = state.lock().unwrap();
    let mut records: Vec<u8> =
        state.log.iter().filter(|(next, _)| *next > offset).flat_map(|(_, bytes)| bytes.clone()).collect();
    let fault = if records.is_empty() { None } else { state.faults.pop_front() };
    let (mut error, mut high_watermark, mut throttle) = (0i16, state.high_watermark, 0);
    if offset > high_watermark {
        // Offset out of range.
        error = 1;
    }
    match fault {
        Some(Fault::Code(code)) => (error, records) = (code, vec![]),
        Some(Fault::Cut(bytes)) => records.truncate(bytes),
        Some(Fault::Watermark(offset)) => high_watermark = offset,
        Some(Fault::Throttle(ms)) => throttle = ms,
        Some(Fault::HangUp | Fault::Zeros(_)) | None => {}
    }
    out.extend_from_slice(&i32::to_be_bytes(throttle));
    out.extend_from_slice(&[0; 6]);
    let ends = [high_watermark, high_watermark, 0].map(i64::to_be_bytes).concat();
    let size = i32::try_from(records.len()).unwrap().to_be_bytes();
    let partition = [&[0; 4][..], &error.to_be_bytes(), &ends, &[0; 4], &[0xff; 4], &size, &records].concat();
    out.extend(one_partition(&state.topic, &partition, false));
    fault
}

/// One topic with one partition in an answer, behind a throttle time where the caller has not written one.
fn one_partition(topic: &str, partition: &[u8], throttled: bool) -> Vec<u8> {
    let name = [&u16::try_from(topic.len()).unwrap().to_be_bytes()[..], topic.as_bytes()].concat();
    let throttle: &[u8] = if throttled { &[0; 4] } else { &[] };
    [throttle, &1i32.to_be_bytes(), &name, &1i32.to_be_bytes(), partition].concat()
}

struct Asked<'a> {
    bytes: &'a [u8],
}

impl Asked<'_> {
    fn skip(&mut self, count: usize) {
        self.bytes = &self.bytes[count..];
    }

    fn i16(&mut self) -> i16 {
        let (number, rest) = self.bytes.split_first_chunk().unwrap();
        self.bytes = rest;
        i16::from_be_bytes(*number)
    }

    fn i32(&mut self) -> i32 {
        let (number, rest) = self.bytes.split_first_chunk().unwrap();
        self.bytes = rest;
        i32::from_be_bytes(*number)
    }

    fn i64(&mut self) -> i64 {
        let (number, rest) = self.bytes.split_first_chunk().unwrap();
        self.bytes = rest;
        i64::from_be_bytes(*number)
    }

    fn string(&mut self) {
        let length = self.i16();
        self.skip(usize::try_from(length).unwrap_or(0));
    }
}
