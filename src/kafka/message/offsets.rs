//! ListOffsets (1 to 5) and OffsetForLeaderEpoch (2 to 3), for one partition each: asked only when a partition starts, moves, or
//! is in trouble.

use crate::kafka::codec::{Malformed, Reader, put_list, put_string};
use crate::kafka::message::ErrorCode;
use crate::kafka::wire::{Api, Request};
use bytes::BufMut;
use std::sync::Arc;

/// Asks for an end of the log.
#[derive(Debug, Clone)]
pub(crate) struct ListOffsets {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    pub(crate) leader_epoch: i32,
    pub(crate) end: LogEnd,
}

/// Which end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogEnd {
    /// The first offset that is still there.
    Start,
    /// The offset after the last one that readers may have: the high watermark.
    HighWatermark,
    /// The offset after the last one whose transaction is decided.
    LastStable,
}

/// An offset, or why there is none.
#[derive(Debug)]
pub(crate) struct OffsetAnswer {
    pub(crate) error: ErrorCode,
    pub(crate) offset: i64,
    /// Leader epoch at that offset; -1 not known.
    pub(crate) leader_epoch: i32,
}

impl Request for ListOffsets {
    type Answer = OffsetAnswer;
    const API: Api = Api::ListOffsets;
    const VERSIONS: (i16, i16) = (1, 5);
    const FLEXIBLE_FROM: i16 = 6;

    fn write(&self, out: &mut Vec<u8>, version: i16) {
        let (timestamp, isolation) = match self.end {
            LogEnd::Start => (-2, 0),
            LogEnd::HighWatermark => (-1, 0),
            LogEnd::LastStable => (-1, 1),
        };
        out.put_i32(-1);
        if version >= 2 {
            out.put_i8(isolation);
        }
        put_list(out, &[self], |out, asked| {
            put_string(out, &asked.topic);
            put_list(out, &[asked], |out, asked| {
                out.put_i32(asked.partition);
                if version >= 4 {
                    out.put_i32(asked.leader_epoch);
                }
                out.put_i64(timestamp);
            });
        });
    }

    fn read(answer: &mut Reader, version: i16) -> Result<OffsetAnswer, Malformed> {
        if version >= 2 {
            answer.skip(4)?;
        }
        only(answer, |answer| {
            answer.skip(4)?;
            let error = ErrorCode(answer.i16()?);
            answer.skip(8)?;
            let offset = answer.i64()?;
            let leader_epoch = if version >= 4 { answer.i32()? } else { -1 };
            Ok(OffsetAnswer { error, offset, leader_epoch })
        })
    }
}

/// Asks where an epoch ends in the leader's log.
#[derive(Debug, Clone)]
pub(crate) struct OffsetForLeaderEpoch {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    /// The leader epoch as we know it.
    pub(crate) current_epoch: i32,
    /// The epoch asked about.
    pub(crate) epoch: i32,
}

impl Request for OffsetForLeaderEpoch {
    /// The largest epoch not above the one asked about, and the offset after its last record; -1 each when not known.
    type Answer = OffsetAnswer;
    const API: Api = Api::OffsetForLeaderEpoch;
    const VERSIONS: (i16, i16) = (2, 3);
    const FLEXIBLE_FROM: i16 = 4;

    fn write(&self, out: &mut Vec<u8>, version: i16) {
        if version >= 3 {
            out.put_i32(-1);
        }
        put_list(out, &[self], |out, asked| {
            put_string(out, &asked.topic);
            put_list(out, &[asked], |out, asked| {
                out.put_i32(asked.partition);
                out.put_i32(asked.current_epoch);
                out.put_i32(asked.epoch);
            });
        });
    }

    fn read(answer: &mut Reader, _version: i16) -> Result<OffsetAnswer, Malformed> {
        answer.skip(4)?;
        only(answer, |answer| {
            let error = ErrorCode(answer.i16()?);
            answer.skip(4)?;
            let leader_epoch = answer.i32()?;
            let offset = answer.i64()?;
            Ok(OffsetAnswer { error, offset, leader_epoch })
        })
    }
}

/// The one partition of the one topic that was asked about.
fn only(
    answer: &mut Reader,
    partition: impl Fn(&mut Reader) -> Result<OffsetAnswer, Malformed>,
) -> Result<OffsetAnswer, Malformed> {
    let topics = answer.list(|answer| {
        answer.string()?;
        answer.list(&partition)
    })?;
    topics.into_iter().flatten().next().ok_or(Malformed::Length(0))
}
