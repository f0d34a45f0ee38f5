//! What a broker sends: record batches (C1.6, C2.7), and its answers.
//!
//! The input: a byte of switches, a byte for the offset that is asked for, and the bytes of one partition.

use super::take;
use bytes::Bytes;
use streaming_hub::kafka::decode::{Aborted, Batches, Content, Fetched, Next, next_fetch};
use streaming_hub::kafka::doors::read_answers;
use streaming_hub::model::limits::{BATCH_EXPANDED_BYTES, RECORD_HEADERS};

/// The checksums are made right, so that what lies behind them is reached.
const RESUM: u8 = 1;
/// The fetch is known to begin between two batches.
const BETWEEN: u8 = 2;
/// The log ends soon.
const SHORT_LOG: u8 = 4;
/// Producers 0 to 3 have aborted transactions.
const ABORTED: u8 = 8;

pub(super) fn run(mut data: &[u8]) {
    let [switches, asked] = take(&mut data);
    let mut bytes = data.to_vec();
    if switches & RESUM != 0 {
        resum(&mut bytes);
    }
    let bytes = Bytes::from(bytes);
    read_answers(&bytes);
    let asked = i64::from(asked);
    assert!(next_fetch(&bytes, asked) >= asked);
    let aborted = (0..4).filter(|_| switches & ABORTED != 0);
    let fetched = Fetched {
        asked,
        between_batches: switches & BETWEEN != 0,
        high_watermark: if switches & SHORT_LOG != 0 { asked + 20 } else { i64::MAX },
        aborted: aborted.map(|producer_id| Aborted { producer_id, first_offset: asked + 2 * producer_id }).collect(),
        bytes: bytes.clone(),
    };
    let high_watermark = fetched.high_watermark;
    let whole = steps(Batches::new(fetched.clone(), asked), &bytes, asked, high_watermark);
    // Read again from the middle: the same records, without those before it.
    if let Some(middle) = whole.get(whole.len() / 2).copied() {
        let again = steps(Batches::new(fetched, middle), &bytes, middle, high_watermark);
        let rest: Vec<i64> = whole.iter().copied().filter(|offset| *offset >= middle).collect();
        assert_eq!(again, rest, "from {middle}");
    }
}

/// Reads to the end; the offsets of the records that were given. No step goes back, and there is an end.
fn steps(mut batches: Batches, bytes: &Bytes, from: i64, high_watermark: i64) -> Vec<i64> {
    let (mut position, mut given) = (from, Vec::new());
    // Every record has seven bytes at least, before it is compressed.
    let most = bytes.len() + BATCH_EXPANDED_BYTES;
    for _ in 0..most {
        match batches.step() {
            Ok(Next::Record(record)) => {
                assert!(record.offset >= position && record.offset < high_watermark, "{} {position}", record.offset);
                position = record.offset + 1;
                given.push(record.offset);
                match record.content {
                    Content::Record(raw) => assert!(raw.headers.len() <= RECORD_HEADERS),
                    Content::TooManyHeaders(raw) => assert!(!raw.is_empty()),
                }
            }
            Ok(Next::BatchEnd { next }) => {
                assert!(next >= position && next <= high_watermark, "{next} {position}");
                position = next;
            }
            Ok(Next::End { .. }) => return given,
            Err(unreadable) => {
                assert!(unreadable.skip_to > from, "{unreadable:?}");
                assert!(unreadable.skip_to >= position, "{unreadable:?} at {position}");
                return given;
            }
        }
    }
    panic!("no end");
}

/// Makes the checksum of every batch that is there in whole the right one.
fn resum(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(frame) = bytes.get(at..).filter(|rest| rest.len() > 61) {
        let length = i32::from_be_bytes(frame[8..12].try_into().unwrap());
        let Some(size) = usize::try_from(length).ok().and_then(|length| length.checked_add(12)) else { return };
        let Some(batch) = bytes.get_mut(at..at + size).filter(|batch| batch.len() > 21) else { return };
        let sum = crc32c::crc32c(&batch[21..]);
        batch[17..21].copy_from_slice(&sum.to_be_bytes());
        at += size;
    }
}
