//! Fetch (versions 4 to 11): many partitions of one broker in one request. Version 10 and up is needed for zstd topics.

use crate::kafka::codec::{Malformed, Reader, put_list, put_string};
use crate::kafka::decode::Aborted;
use crate::kafka::message::ErrorCode;
use crate::kafka::wire::{Api, Request};
use bytes::{BufMut, Bytes};
use std::sync::Arc;

/// Asks for records.
#[derive(Debug)]
pub(crate) struct Fetch {
    /// The broker answers after so long at the latest.
    pub(crate) max_wait_ms: i32,
    /// Bytes in the answer; a first batch that is larger comes nonetheless.
    pub(crate) max_bytes: i32,
    /// Which ones; those of one topic stand together.
    pub(crate) partitions: Vec<FetchPartition>,
}

/// One partition of a fetch.
#[derive(Debug, Clone)]
pub(crate) struct FetchPartition {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    /// The leader epoch as we know it; -1 unknown. An older one than the broker's is refused.
    pub(crate) leader_epoch: i32,
    pub(crate) offset: i64,
    pub(crate) max_bytes: i32,
}

/// What a broker gave.
#[derive(Debug)]
pub(crate) struct FetchAnswer {
    /// The broker wants to be left alone for so long.
    pub(crate) throttle_ms: i32,
    /// An error of the whole request.
    pub(crate) error: ErrorCode,
    pub(crate) partitions: Vec<FetchedPartition>,
}

/// What it gave for one partition.
#[derive(Debug)]
pub(crate) struct FetchedPartition {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    pub(crate) error: ErrorCode,
    pub(crate) high_watermark: i64,
    pub(crate) last_stable_offset: i64,
    /// -1 where the version does not tell it.
    pub(crate) log_start: i64,
    pub(crate) aborted: Vec<Aborted>,
    pub(crate) records: Bytes,
}

/// Only what is committed; aborted transactions are named beside it.
const READ_COMMITTED: i8 = 1;

impl Request for Fetch {
    type Answer = FetchAnswer;
    const API: Api = Api::Fetch;
    const VERSIONS: (i16, i16) = (4, 11);
    const FLEXIBLE_FROM: i16 = 12;

    fn write(&self, out: &mut Vec<u8>, version: i16) {
        out.put_i32(-1);
        out.put_i32(self.max_wait_ms);
        out.put_i32(1);
        out.put_i32(self.max_bytes);
        out.put_i8(READ_COMMITTED);
        if version >= 7 {
            // No fetch session: every request names all its partitions.
            out.put_i32(0);
            out.put_i32(-1);
        }
        let topics: Vec<_> = self.partitions.chunk_by(|a, b| a.topic == b.topic).collect();
        put_list(out, &topics, |out, partitions| {
            put_string(out, partitions.first().map_or("", |first| &first.topic));
            put_list(out, partitions, |out, partition| {
                out.put_i32(partition.partition);
                if version >= 9 {
                    out.put_i32(partition.leader_epoch);
                }
                out.put_i64(partition.offset);
                if version >= 5 {
                    out.put_i64(-1);
                }
                out.put_i32(partition.max_bytes);
            });
        });
        if version >= 7 {
            out.put_i32(0);
        }
        if version >= 11 {
            put_string(out, "");
        }
    }

    fn read(answer: &mut Reader, version: i16) -> Result<FetchAnswer, Malformed> {
        let throttle_ms = answer.i32()?;
        let mut error = ErrorCode::NONE;
        if version >= 7 {
            error = ErrorCode(answer.i16()?);
            answer.skip(4)?;
        }
        let topics = answer.list(|answer| {
            let topic: Arc<str> = answer.string()?.into();
            answer.list(|answer| partition(answer, version, &topic))
        })?;
        Ok(FetchAnswer { throttle_ms, error, partitions: topics.into_iter().flatten().collect() })
    }
}

fn partition(answer: &mut Reader, version: i16, topic: &Arc<str>) -> Result<FetchedPartition, Malformed> {
    let partition = answer.i32()?;
    let error = ErrorCode(answer.i16()?);
    let high_watermark = answer.i64()?;
    let last_stable_offset = answer.i64()?;
    let log_start = if version >= 5 { answer.i64()? } else { -1 };
    let aborted = answer.list(|answer| Ok(Aborted { producer_id: answer.i64()?, first_offset: answer.i64()? }))?;
    if version >= 11 {
        // A replica that would be nearer: we named no rack.
        answer.skip(4)?;
    }
    let records = answer.nullable_bytes()?.unwrap_or_default();
    let topic = topic.clone();
    Ok(FetchedPartition { topic, partition, error, high_watermark, last_stable_offset, log_start, aborted, records })
}
