//! What a look at the cluster says: which partitions to follow, and who leads them (C1.1, C1.3). No broker is asked here.

use crate::kafka::message::ErrorCode;
use crate::kafka::message::metadata::MetadataAnswer;
use crate::kafka::partition::Leadership;
use crate::rules::classify::topic_source;
use std::sync::Arc;

/// A partition of the follow set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) topic: Arc<str>,
    pub(super) topic_id: [u8; 16],
    pub(super) partition: i32,
    pub(super) leader: Leadership,
}

/// The partitions of fact topics, those of one topic together.
pub(super) fn follow_set(answer: &MetadataAnswer, prefix: &str) -> Vec<Found> {
    let mut found = Vec::new();
    for topic in &answer.topics {
        let readable = matches!(topic.error, ErrorCode::NONE | ErrorCode::LEADER_NOT_AVAILABLE);
        if topic.internal || !readable || topic_source(prefix, &topic.name).is_none() {
            continue;
        }
        let name: Arc<str> = topic.name.as_str().into();
        for leader in &topic.partitions {
            found.push(Found {
                topic: name.clone(),
                topic_id: topic.id,
                partition: leader.partition,
                leader: Leadership { broker: leader.broker, epoch: leader.epoch },
            });
        }
    }
    found.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::message::metadata::{Leader, Topic};

    // C1.1
    #[test]
    fn only_fact_topics_are_followed() {
        let topic = |name: &str, error| Topic {
            error,
            name: name.to_owned(),
            id: [3; 16],
            internal: name.starts_with("__"),
            partitions: [1, 0].map(|partition| Leader { partition, broker: 7, epoch: 2 }).into(),
        };
        let topics = [
            "lerian.streaming.midaz",
            "lerian.streaming.lender",
            "lerian.streaming.lender.dlq",
            "lerian.streaming.lender.commands",
            "lerian.streaming.a.b",
            "lerian.streaming.Upper",
            "other",
            "__consumer_offsets",
        ];
        let mut topics: Vec<_> = topics.iter().map(|name| topic(name, ErrorCode::NONE)).collect();
        topics.push(topic("lerian.streaming.forbidden", ErrorCode(29)));
        topics.push(topic("lerian.streaming.young", ErrorCode::LEADER_NOT_AVAILABLE));
        let found = follow_set(&MetadataAnswer { brokers: vec![], topics }, "lerian.streaming.");
        let names: Vec<_> = found.iter().map(|found| format!("{}/{}", found.topic, found.partition)).collect();
        let want = ["lender/0", "lender/1", "midaz/0", "midaz/1", "young/0", "young/1"];
        assert_eq!(names, want.map(|name| format!("lerian.streaming.{name}")));
        assert_eq!((found[0].topic_id, found[0].leader), ([3; 16], Leadership { broker: 7, epoch: 2 }));
    }
}
