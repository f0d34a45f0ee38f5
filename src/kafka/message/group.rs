//! FindCoordinator (1 to 2) and OffsetCommit (2 to 7): positions shown to ordinary tools. We are no member of the group.

use crate::kafka::codec::{Malformed, Reader, put_list, put_string};
use crate::kafka::message::ErrorCode;
use crate::kafka::message::metadata::BrokerAddress;
use crate::kafka::wire::{Api, Request};
use bytes::BufMut;
use std::sync::Arc;

/// Asks which broker keeps a group's offsets.
#[derive(Debug, Clone)]
pub(crate) struct FindCoordinator {
    pub(crate) group: Arc<str>,
}

/// The broker, or why there is none yet.
#[derive(Debug)]
pub(crate) struct CoordinatorAnswer {
    pub(crate) error: ErrorCode,
    pub(crate) broker: BrokerAddress,
}

impl Request for FindCoordinator {
    type Answer = CoordinatorAnswer;
    const API: Api = Api::FindCoordinator;
    const VERSIONS: (i16, i16) = (1, 2);
    const FLEXIBLE_FROM: i16 = 3;

    fn write(&self, out: &mut Vec<u8>, _version: i16) {
        put_string(out, &self.group);
        out.put_i8(0);
    }

    fn read(answer: &mut Reader, _version: i16) -> Result<CoordinatorAnswer, Malformed> {
        answer.skip(4)?;
        let error = ErrorCode(answer.i16()?);
        answer.nullable_string()?;
        let (id, host, port) = (answer.i32()?, answer.string()?, answer.i32()?);
        Ok(CoordinatorAnswer { error, broker: BrokerAddress { id, host, port } })
    }
}

/// Shows positions.
#[derive(Debug, Clone)]
pub(crate) struct OffsetCommit {
    pub(crate) group: Arc<str>,
    /// Those of one topic stand together.
    pub(crate) positions: Vec<CommittedPosition>,
}

/// One partition's position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommittedPosition {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    pub(crate) next: i64,
    pub(crate) leader_epoch: i32,
}

impl Request for OffsetCommit {
    /// The first error, or none.
    type Answer = ErrorCode;
    const API: Api = Api::OffsetCommit;
    const VERSIONS: (i16, i16) = (2, 7);
    const FLEXIBLE_FROM: i16 = 8;

    fn write(&self, out: &mut Vec<u8>, version: i16) {
        put_string(out, &self.group);
        // No generation and no member: a commit from outside of the group.
        out.put_i32(-1);
        put_string(out, "");
        if version >= 7 {
            out.put_i16(-1);
        }
        if version <= 4 {
            out.put_i64(-1);
        }
        let topics: Vec<_> = self.positions.chunk_by(|a, b| a.topic == b.topic).collect();
        put_list(out, &topics, |out, partitions| {
            put_string(out, partitions.first().map_or("", |first| &first.topic));
            put_list(out, partitions, |out, position| {
                out.put_i32(position.partition);
                out.put_i64(position.next);
                if version >= 6 {
                    out.put_i32(position.leader_epoch);
                }
                put_string(out, "");
            });
        });
    }

    fn read(answer: &mut Reader, version: i16) -> Result<ErrorCode, Malformed> {
        if version >= 3 {
            answer.skip(4)?;
        }
        let topics = answer.list(|answer| {
            answer.string()?;
            answer.list(|answer| {
                answer.skip(4)?;
                answer.i16()
            })
        })?;
        let first = topics.into_iter().flatten().find(|error| *error != 0);
        Ok(ErrorCode(first.unwrap_or(0)))
    }
}
