//! Record batches as they lie in Kafka's log (message format 2), read one record at a time.
//!
//! Invariants: no bytes make it panic; it never goes backwards and never passes a batch in silence; a batch is given whole or not
//! at all (it is walked to its end before its first record is given); records of aborted transactions, markers and control
//! batches are never given; `next` of a batch is its base offset plus its last offset delta plus one, never "last record + 1",
//! because compaction may have removed the last records.

use crate::kafka::codec::{Malformed, Reader};
use crate::kafka::compress::{Compression, Unexpandable, expand};
use crate::model::limits::{BATCH_EXPANDED_BYTES, RECORD_HEADERS};
use crate::model::record::RawRecord;
use bytes::Bytes;

/// Bytes before and with the length field: base offset and batch length.
const FRAME: usize = 12;
/// Bytes of a batch's head, the frame with it.
const HEAD: usize = 61;
/// Where the checksum begins to count.
const CHECKED_FROM: usize = 21;
/// Attribute: the batch belongs to a transaction.
const TRANSACTIONAL: i16 = 0x10;
/// Attribute: the batch holds markers, not records.
const CONTROL: i16 = 0x20;

/// A transaction that was aborted, as the broker names it beside the fetched bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aborted {
    /// Whose.
    pub producer_id: i64,
    /// Its first offset.
    pub first_offset: i64,
}

/// What a broker gave for one partition.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// Batches one after the other, the last one perhaps cut off.
    pub bytes: Bytes,
    /// The offset that was asked for.
    pub asked: i64,
    /// That offset is known to lie between two batches, so the first batch may not begin before it.
    pub between_batches: bool,
    /// The log's end for readers, as the broker said.
    pub high_watermark: i64,
    /// Aborted transactions that reach into these bytes.
    pub aborted: Vec<Aborted>,
}

/// What comes next.
#[derive(Debug)]
pub enum Next {
    /// A record.
    Record(Record),
    /// A batch ends here: go on at `next`.
    BatchEnd {
        /// The offset after the batch.
        next: i64,
    },
    /// No more whole batches. `half` are the bytes that the cut-off batch has in whole; 0 without one.
    End {
        /// Size of the cut-off batch.
        half: usize,
    },
}

/// A record with its place.
#[derive(Debug)]
pub struct Record {
    /// Its offset.
    pub offset: i64,
    /// What is in it.
    pub content: Content,
}

/// What is in a record.
#[derive(Debug)]
pub enum Content {
    /// Headers and value.
    Record(RawRecord),
    /// It has more headers than we take apart: its bytes.
    TooManyHeaders(Bytes),
}

/// A batch that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// What is wrong.
    pub why: Fault,
    /// Its bytes, as far as they are known to be its own.
    pub raw: Bytes,
    /// Where to go on without it: never beyond the next readable batch.
    pub skip_to: i64,
}

/// What is wrong with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The checksum is not that of the bytes.
    #[error("checksum mismatch")]
    Checksum,
    /// A message format before Kafka 0.11.
    #[error("message format {0} is not supported")]
    Format(i8),
    /// A compression that no Kafka knows.
    #[error("unknown compression {0}")]
    UnknownCompression(i16),
    /// It cannot be expanded.
    #[error(transparent)]
    Unexpandable(#[from] Unexpandable),
    /// Its structure is broken.
    #[error("malformed: {0}")]
    Malformed(#[from] Malformed),
    /// Its offsets go backwards.
    #[error("its offsets lie before those already read")]
    Backwards,
    /// Its offsets lie beyond the log's end.
    #[error("its offsets lie beyond the end of the log")]
    BeyondEnd,
    /// The broker gives only a part of it, however much is asked for.
    #[error("only a part of it can be fetched")]
    CutOff,
    /// The broker says that it is damaged, and gives nothing of it.
    #[error("the broker finds it damaged")]
    Withheld,
    /// The decoder crashed on it.
    #[error("the decoder crashed")]
    Crashed,
}

/// Reads the batches of one fetch.
#[derive(Debug)]
pub struct Batches {
    rest: Bytes,
    /// No batch may end before or at this offset.
    expected: i64,
    between_batches: bool,
    /// Records before this one are known already.
    position: i64,
    high_watermark: i64,
    /// By first offset, descending: the next one is the last.
    aborted: Vec<Aborted>,
    /// Producers inside an aborted transaction.
    aborting: Vec<i64>,
    open: Option<Open>,
    leader_epoch: i32,
    newest: Option<u64>,
}

#[derive(Debug)]
struct Open {
    records: Reader,
    left: i32,
    base_offset: i64,
    next: i64,
}

impl Batches {
    /// Reads `fetched`; records before `position` are passed over.
    pub fn new(fetched: Fetched, position: i64) -> Self {
        let Fetched { bytes, asked, between_batches, high_watermark, mut aborted } = fetched;
        aborted.sort_unstable_by_key(|each| std::cmp::Reverse(each.first_offset));
        Self {
            rest: bytes,
            expected: asked,
            between_batches,
            position,
            high_watermark,
            aborted,
            aborting: Vec::new(),
            open: None,
            leader_epoch: -1,
            newest: None,
        }
    }

    /// Leader epoch of the batch that was read last; -1 before the first.
    pub fn leader_epoch(&self) -> i32 {
        self.leader_epoch
    }

    /// Timestamp of the newest batch with records, in milliseconds, as its producer or broker set it.
    pub fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// The next record or the end of something.
    ///
    /// # Errors
    /// When the next batch cannot be read. Nothing of it was given, and nothing after it is.
    pub fn step(&mut self) -> Result<Next, Unreadable> {
        loop {
            if let Some(open) = &mut self.open {
                if open.left == 0 {
                    let next = open.next;
                    self.open = None;
                    return Ok(Next::BatchEnd { next });
                }
                let record = read_record(open).map_err(|why| self.unreadable(why.into(), None, None))?;
                if record.offset >= self.position {
                    return Ok(Next::Record(record));
                }
                continue;
            }
            let frame = match Frame::peek(&self.rest) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(Next::End { half: Frame::size(&self.rest).unwrap_or(0) }),
                Err(why) => return Err(self.unreadable(why.into(), None, None)),
            };
            let batch = self.rest.slice(..frame.size);
            let head = Head::read(&batch).map_err(|why| self.unreadable(why, Some(&frame), None))?;
            let open = self.open(&head, &batch).map_err(|why| self.unreadable(why, Some(&frame), Some(&head)))?;
            self.rest = self.rest.slice(frame.size..);
            (self.expected, self.between_batches, self.leader_epoch) = (head.next, true, head.leader_epoch);
            self.open = open;
            if self.open.is_none() && head.next > self.position {
                return Ok(Next::BatchEnd { next: head.next });
            }
        }
    }

    /// Checks and expands a batch; none when nothing of it is to be given.
    fn open(&mut self, head: &Head, batch: &Bytes) -> Result<Option<Open>, Fault> {
        if head.next <= self.expected || (self.between_batches && head.base_offset < self.expected) {
            return Err(Fault::Backwards);
        }
        if head.next > self.high_watermark {
            return Err(Fault::BeyondEnd);
        }
        if head.magic != 2 {
            return Err(Fault::Format(head.magic));
        }
        let known = head.next <= self.position;
        if !known && crc32c::crc32c(batch.get(CHECKED_FROM..).unwrap_or_default()) != head.checksum {
            return Err(Fault::Checksum);
        }
        let records = batch.slice(HEAD..);
        if self.is_aborted(head, &records)? || known || head.attributes & CONTROL != 0 {
            return Ok(None);
        }
        let compression = Compression::of(head.attributes).ok_or(Fault::UnknownCompression(head.attributes & 0b111))?;
        let records = match compression {
            Compression::None => records,
            Compression::Gzip | Compression::Snappy | Compression::Lz4 | Compression::Zstd => {
                expand(compression, &records, BATCH_EXPANDED_BYTES)?.into()
            }
        };
        let records = Reader::new(records);
        walk(records.clone(), head)?;
        self.newest = u64::try_from(head.max_timestamp).ok().max(self.newest);
        Ok(Some(Open { records, left: head.records, base_offset: head.base_offset, next: head.next }))
    }

    /// Follows the transactions: whether this batch's records were aborted.
    fn is_aborted(&mut self, head: &Head, records: &Bytes) -> Result<bool, Fault> {
        while let Some(aborted) = self.aborted.pop_if(|next| next.first_offset < head.next) {
            self.aborting.push(aborted.producer_id);
        }
        if head.attributes & TRANSACTIONAL == 0 {
            return Ok(false);
        }
        let aborted = self.aborting.iter().position(|id| *id == head.producer_id);
        if let (Some(index), true) = (aborted, head.attributes & CONTROL != 0)
            && is_abort_marker(records.clone())?
        {
            self.aborting.swap_remove(index);
        }
        Ok(aborted.is_some())
    }

    fn unreadable(&self, why: Fault, frame: Option<&Frame>, head: Option<&Head>) -> Unreadable {
        let from = self.expected.max(self.position);
        let plausible = |offset: &i64| *offset > from && *offset <= self.high_watermark;
        // The next batch's base is the surest: this one's own offsets may be what is damaged.
        let following = frame.and_then(|frame| Frame::peek(&self.rest.slice(frame.size..)).ok().flatten());
        let following = following.map(|next| next.base_offset).filter(plausible);
        // A batch of an old format names its last offset, a new one its first.
        let own = head.filter(|head| head.base_offset <= from || head.magic != 2).map(|head| head.next);
        let skip_to = following.or(own.filter(plausible)).unwrap_or(from.saturating_add(1));
        let raw = frame.map_or_else(|| self.rest.clone(), |frame| self.rest.slice(..frame.size));
        Unreadable { why, raw, skip_to }
    }
}

/// The offset after the last whole batch, by the heads alone: where to fetch next while these bytes are still being read. It is a
/// guess until they are.
pub fn next_fetch(bytes: &Bytes, asked: i64) -> i64 {
    let (mut rest, mut next) = (bytes.clone(), asked);
    while let Ok(Some(frame)) = Frame::peek(&rest) {
        let Ok(head) = Head::read(&rest) else { break };
        next = next.max(head.next);
        rest = rest.slice(frame.size..);
    }
    next
}

/// Where a batch begins and ends: outside of its checksum.
#[derive(Debug)]
struct Frame {
    base_offset: i64,
    size: usize,
}

impl Frame {
    /// What the length field says about the whole size of the first batch.
    fn size(bytes: &Bytes) -> Option<usize> {
        let length = bytes.get(8..FRAME)?.first_chunk::<4>()?;
        usize::try_from(i32::from_be_bytes(*length)).ok()?.checked_add(FRAME)
    }

    /// The first batch; none when it is not there in whole.
    fn peek(bytes: &Bytes) -> Result<Option<Self>, Malformed> {
        let mut reader = Reader::new(bytes.clone());
        if reader.left() < FRAME {
            return Ok(None);
        }
        let base_offset = reader.i64()?;
        let length = i64::from(reader.i32()?);
        // The shortest thing that can be in a log: a message of format 0 without key and value.
        let length = usize::try_from(length).ok().filter(|length| *length >= 14).ok_or(Malformed::Length(length))?;
        Ok((reader.left() >= length).then_some(Self { base_offset, size: FRAME + length }))
    }
}

/// A batch's head.
#[derive(Debug, Default)]
struct Head {
    base_offset: i64,
    next: i64,
    leader_epoch: i32,
    magic: i8,
    checksum: u32,
    attributes: i16,
    last_delta: i32,
    max_timestamp: i64,
    producer_id: i64,
    records: i32,
}

impl Head {
    fn read(batch: &Bytes) -> Result<Self, Fault> {
        let mut reader = Reader::new(batch.clone());
        let base_offset = reader.i64()?;
        reader.skip(4)?;
        let leader_epoch = reader.i32()?;
        let magic = reader.i8()?;
        if base_offset < 0 {
            return Err(Fault::Backwards);
        }
        let next = base_offset.checked_add(1).ok_or(Fault::BeyondEnd)?;
        if magic != 2 {
            return Ok(Self { base_offset, next, leader_epoch: -1, magic, ..Self::default() });
        }
        let checksum = reader.i32()?.cast_unsigned();
        let attributes = reader.i16()?;
        let last_delta = reader.i32()?;
        // The first timestamp: the event's own time is in its envelope.
        reader.skip(8)?;
        let max_timestamp = reader.i64()?;
        let producer_id = reader.i64()?;
        // Producer epoch and base sequence: the broker has used them.
        reader.skip(6)?;
        let records = reader.i32()?;
        if last_delta < 0 || records < 0 {
            return Err(Malformed::Length(i64::from(last_delta.min(records))).into());
        }
        let next = next.checked_add(i64::from(last_delta)).ok_or(Fault::BeyondEnd)?;
        Ok(Self {
            base_offset,
            next,
            leader_epoch,
            magic,
            checksum,
            attributes,
            last_delta,
            max_timestamp,
            producer_id,
            records,
        })
    }
}

/// Walks through all records of a batch without keeping any: whether it can be given whole.
fn walk(mut records: Reader, head: &Head) -> Result<(), Malformed> {
    let mut last_delta = -1;
    for _ in 0..head.records {
        let (end, delta) = begin_record(&mut records)?;
        if delta <= last_delta || delta > head.last_delta {
            return Err(Malformed::Length(i64::from(delta)));
        }
        last_delta = delta;
        records.skip_varint_bytes()?;
        records.skip_varint_bytes()?;
        for _ in 0..header_count(&mut records)? {
            let key = records.varint()?;
            records.skip(usize::try_from(key).map_err(|_| Malformed::Length(key.into()))?)?;
            records.skip_varint_bytes()?;
        }
        if records.at() != end {
            return Err(Malformed::Length(i64::try_from(records.at().abs_diff(end)).unwrap_or(i64::MAX)));
        }
    }
    records.end()
}

fn read_record(open: &mut Open) -> Result<Record, Malformed> {
    open.left -= 1;
    let records = &mut open.records;
    let (end, delta) = begin_record(records)?;
    let offset = open.base_offset.saturating_add(i64::from(delta));
    // The record's key: tenancy and identity are in the headers (C2.2).
    records.skip_varint_bytes()?;
    let whole = records.clone();
    let body = records.varint_bytes()?.unwrap_or_default();
    let count = header_count(records)?;
    if count > RECORD_HEADERS {
        let raw = whole.clone().take(end.saturating_sub(whole.at()))?;
        records.skip(end.saturating_sub(records.at()))?;
        return Ok(Record { offset, content: Content::TooManyHeaders(raw) });
    }
    let mut headers = Vec::with_capacity(count.min(records.left()));
    for _ in 0..count {
        let name = records.varint_bytes()?.unwrap_or_default();
        headers.push((name, records.varint_bytes()?));
    }
    Ok(Record { offset, content: Content::Record(RawRecord { headers, body }) })
}

/// Reads a record's start up to its key: where it ends, and its offset delta.
fn begin_record(records: &mut Reader) -> Result<(usize, i32), Malformed> {
    let length = records.varint()?;
    let size = usize::try_from(length).map_err(|_| Malformed::Length(length.into()))?;
    if size > records.left() {
        return Err(Malformed::Short { wanted: size, left: records.left() });
    }
    let end = records.at() + size;
    // Attributes (none are defined) and the timestamp.
    records.skip(1)?;
    records.varlong()?;
    Ok((end, records.varint()?))
}

fn header_count(records: &mut Reader) -> Result<usize, Malformed> {
    let count = records.varint()?;
    usize::try_from(count).map_err(|_| Malformed::Length(count.into()))
}

/// Whether a control batch ends its transaction by an abort. Its one record's key is a version and a type: 0 is abort.
fn is_abort_marker(records: Bytes) -> Result<bool, Fault> {
    let mut records = Reader::new(records);
    begin_record(&mut records)?;
    let key = records.varint_bytes()?.unwrap_or_default();
    let mut key = Reader::new(key);
    key.i16()?;
    Ok(key.i16()? == 0)
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
