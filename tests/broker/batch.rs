//! Writes record batches of message format 2, well formed unless told otherwise. Shared by the decoder's tests and the scripted
//! broker.
#![allow(dead_code, unreachable_pub)]

use std::io::Write as _;

/// A batch to be written.
#[derive(Debug, Clone)]
pub struct Batch {
    pub base_offset: i64,
    pub leader_epoch: i32,
    /// Compression in the low bits; 0x10 transactional, 0x20 control.
    pub attributes: i16,
    pub producer_id: i64,
    /// What the head says; the last record's delta unless set (compaction leaves it larger).
    pub last_delta: Option<i32>,
    pub records: Vec<Record>,
}

/// A record to be written.
#[derive(Debug, Clone, Default)]
pub struct Record {
    pub delta: i32,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

pub const NONE: i16 = 0;
pub const GZIP: i16 = 1;
pub const SNAPPY: i16 = 2;
pub const LZ4: i16 = 3;
pub const ZSTD: i16 = 4;
pub const TRANSACTIONAL: i16 = 0x10;
pub const CONTROL: i16 = 0x20;

impl Batch {
    /// Records with these values, one after the other.
    pub fn of(base_offset: i64, values: &[&str]) -> Self {
        let records = (0..).zip(values).map(|(delta, value)| Record::of(delta, value)).collect();
        Self { base_offset, leader_epoch: 0, attributes: 0, producer_id: -1, last_delta: None, records }
    }

    /// The marker that ends a producer's transaction.
    pub fn marker(base_offset: i64, producer_id: i64, commit: bool) -> Self {
        let key = vec![0, 0, 0, u8::from(commit)];
        let record = Record { key: Some(key), value: Some(vec![0, 0, 0, 0, 0, 7]), ..Record::default() };
        let attributes = TRANSACTIONAL | CONTROL;
        Self { base_offset, leader_epoch: 0, attributes, producer_id, last_delta: None, records: vec![record] }
    }

    /// The same one with these attributes.
    pub fn with(mut self, attributes: i16) -> Self {
        self.attributes = attributes;
        self
    }

    /// The same one of that producer's transaction.
    pub fn by(mut self, producer_id: i64) -> Self {
        self.producer_id = producer_id;
        self.attributes |= TRANSACTIONAL;
        self
    }

    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut records = Vec::new();
        for record in &self.records {
            record.write(&mut records);
        }
        self.bytes_around(&records)
    }

    /// Its bytes around these bytes of records, which may be anything.
    pub fn bytes_around(&self, records: &[u8]) -> Vec<u8> {
        let last = self.last_delta.unwrap_or_else(|| self.records.last().map_or(0, |record| record.delta));
        let mut checked = Vec::new();
        checked.extend_from_slice(&self.attributes.to_be_bytes());
        checked.extend_from_slice(&last.to_be_bytes());
        checked.extend_from_slice(&1_700_000_000_000i64.to_be_bytes());
        checked.extend_from_slice(&1_700_000_000_000i64.to_be_bytes());
        checked.extend_from_slice(&self.producer_id.to_be_bytes());
        checked.extend_from_slice(&0i16.to_be_bytes());
        checked.extend_from_slice(&0i32.to_be_bytes());
        checked.extend_from_slice(&i32::try_from(self.records.len()).unwrap().to_be_bytes());
        checked.extend_from_slice(&compress(self.attributes & 7, records));
        let mut out = Vec::new();
        out.extend_from_slice(&self.base_offset.to_be_bytes());
        out.extend_from_slice(&i32::try_from(checked.len() + 9).unwrap().to_be_bytes());
        out.extend_from_slice(&self.leader_epoch.to_be_bytes());
        out.push(2);
        out.extend_from_slice(&crc32c::crc32c(&checked).to_be_bytes());
        out.extend_from_slice(&checked);
        out
    }
}

impl Record {
    /// A record with that value.
    pub fn of(delta: i32, value: &str) -> Self {
        Self { delta, value: Some(value.as_bytes().to_vec()), ..Self::default() }
    }

    /// A record with these headers.
    pub fn with_headers(delta: i32, headers: &[(&[u8], Option<&[u8]>)]) -> Self {
        let headers = headers.iter().map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec))).collect();
        Self { delta, headers, ..Self::default() }
    }

    /// Writes it behind its length.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut body = vec![0];
        put_varlong(&mut body, 5);
        put_varlong(&mut body, self.delta.into());
        put_nullable(&mut body, self.key.as_deref());
        put_nullable(&mut body, self.value.as_deref());
        put_varlong(&mut body, i64::try_from(self.headers.len()).unwrap());
        for (name, value) in &self.headers {
            put_nullable(&mut body, Some(name));
            put_nullable(&mut body, value.as_deref());
        }
        put_varlong(out, i64::try_from(body.len()).unwrap());
        out.extend_from_slice(&body);
    }
}

/// A zigzag number of variable length.
pub fn put_varlong(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest > 0x7f {
        out.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
        rest >>= 7;
    }
    out.push(u8::try_from(rest).unwrap());
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    put_varlong(out, bytes.map_or(-1, |bytes| i64::try_from(bytes.len()).unwrap()));
    out.extend_from_slice(bytes.unwrap_or_default());
}

fn compress(compression: i16, data: &[u8]) -> Vec<u8> {
    match compression {
        GZIP => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
        SNAPPY => snap::raw::Encoder::new().compress_vec(data).unwrap(),
        LZ4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
        ZSTD => zstd::encode_all(data, 3).unwrap(),
        _ => data.to_vec(),
    }
}
