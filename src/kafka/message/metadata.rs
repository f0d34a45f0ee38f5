//! Metadata (versions 4 to 12): topics, their ids, and who leads each partition. It never creates a topic.

use crate::kafka::codec::{Malformed, Reader, put_compact_count, put_compact_string, put_list, put_string};
use crate::kafka::message::ErrorCode;
use crate::kafka::wire::{Api, Request};
use bytes::BufMut;
use std::sync::Arc;

/// Asks for topics.
#[derive(Debug, Clone)]
pub(crate) enum Metadata {
    /// All that we may see.
    All,
    /// These: one that we may not see comes with an error, one that is not there with another.
    Of(Vec<Arc<str>>),
}

/// The cluster as a broker knows it.
#[derive(Debug)]
pub(crate) struct MetadataAnswer {
    pub(crate) brokers: Vec<BrokerAddress>,
    pub(crate) topics: Vec<Topic>,
}

/// A broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrokerAddress {
    pub(crate) id: i32,
    pub(crate) host: String,
    pub(crate) port: i32,
}

/// A topic.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) error: ErrorCode,
    pub(crate) name: String,
    /// Zero where the broker is too old to tell it.
    pub(crate) id: [u8; 16],
    pub(crate) internal: bool,
    pub(crate) partitions: Vec<Leader>,
}

/// Who leads a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leader {
    pub(crate) partition: i32,
    /// -1: nobody.
    pub(crate) broker: i32,
    /// -1: not known.
    pub(crate) epoch: i32,
}

impl Request for Metadata {
    type Answer = MetadataAnswer;
    const API: Api = Api::Metadata;
    const VERSIONS: (i16, i16) = (4, 12);
    const FLEXIBLE_FROM: i16 = 9;

    fn write(&self, out: &mut Vec<u8>, version: i16) {
        match self {
            // Null: all topics.
            Self::All if version >= 9 => out.put_u8(0),
            Self::All => out.put_i32(-1),
            Self::Of(topics) if version >= 9 => {
                put_compact_count(out, topics.len());
                for topic in topics {
                    if version >= 10 {
                        // By its name, not by its id.
                        out.put_slice(&[0; 16]);
                    }
                    put_compact_string(out, topic);
                    out.put_u8(0);
                }
            }
            Self::Of(topics) => put_list(out, topics, |out, topic| put_string(out, topic)),
        }
        // Never create a topic.
        out.put_u8(0);
        if (8..=10).contains(&version) {
            out.put_u8(0);
        }
        if version >= 8 {
            out.put_u8(0);
        }
        if version >= 9 {
            out.put_u8(0);
        }
    }

    fn read(answer: &mut Reader, version: i16) -> Result<MetadataAnswer, Malformed> {
        let flexible = version >= 9;
        answer.skip(4)?;
        let brokers = list(answer, flexible, |answer| {
            let id = answer.i32()?;
            let host = text(answer, flexible)?.ok_or(Malformed::Length(-1))?;
            let port = answer.i32()?;
            text(answer, flexible)?;
            Ok(BrokerAddress { id, host, port })
        })?;
        // Cluster id and controller.
        text(answer, flexible)?;
        answer.skip(4)?;
        let topics = list(answer, flexible, |answer| topic(answer, version))?;
        if (8..=10).contains(&version) {
            answer.skip(4)?;
        }
        if flexible {
            answer.skip_tags()?;
        }
        Ok(MetadataAnswer { brokers, topics })
    }
}

fn topic(answer: &mut Reader, version: i16) -> Result<Topic, Malformed> {
    let flexible = version >= 9;
    let error = ErrorCode(answer.i16()?);
    let name = text(answer, flexible)?.unwrap_or_default();
    let mut id = [0; 16];
    if version >= 10 {
        id.copy_from_slice(&answer.take(16)?);
    }
    let internal = answer.i8()? != 0;
    let partitions = list(answer, flexible, |answer| {
        // What is wrong with the partition shows in its leader: -1.
        answer.skip(2)?;
        let partition = answer.i32()?;
        let broker = answer.i32()?;
        let epoch = if version >= 7 { answer.i32()? } else { -1 };
        // Replicas, those in sync, and (from 5) those offline.
        for _ in 0..if version >= 5 { 3 } else { 2 } {
            numbers(answer, flexible)?;
        }
        Ok(Leader { partition, broker, epoch })
    })?;
    if version >= 8 {
        answer.skip(4)?;
    }
    Ok(Topic { error, name, id, internal, partitions })
}

/// A list whose elements end with tagged fields in flexible versions.
fn list<T>(
    answer: &mut Reader,
    flexible: bool,
    element: impl Fn(&mut Reader) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    if !flexible {
        return answer.list(element);
    }
    answer.compact_list(|answer| {
        let read = element(answer)?;
        answer.skip_tags()?;
        Ok(read)
    })
}

fn numbers(answer: &mut Reader, flexible: bool) -> Result<Vec<i32>, Malformed> {
    if flexible { answer.compact_list(Reader::i32) } else { answer.list(Reader::i32) }
}

fn text(answer: &mut Reader, flexible: bool) -> Result<Option<String>, Malformed> {
    if flexible { answer.compact_nullable_string() } else { answer.nullable_string() }
}
