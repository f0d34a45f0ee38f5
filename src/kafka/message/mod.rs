//! The messages that we exchange with brokers, as Kafka's protocol guide lays them out: only the fields that are used are kept.

pub(crate) mod fetch;
pub(crate) mod group;
pub(crate) mod metadata;
pub(crate) mod offsets;
pub(crate) mod sasl;

/// An error number of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ErrorCode(pub(crate) i16);

impl ErrorCode {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const OFFSET_OUT_OF_RANGE: Self = Self(1);
    pub(crate) const CORRUPT_MESSAGE: Self = Self(2);
    pub(crate) const LEADER_NOT_AVAILABLE: Self = Self(5);
    pub(crate) const UNSUPPORTED_SASL_MECHANISM: Self = Self(33);
    pub(crate) const SASL_AUTHENTICATION_FAILED: Self = Self(58);

    /// Kafka's name of it, in small letters.
    pub(crate) fn name(self) -> String {
        let known = NAMES.iter().find(|(number, _)| *number == self.0);
        known.map_or_else(|| format!("error_{}", self.0), |(_, name)| (*name).to_owned())
    }
    /// Whether it is about rights: somebody has to grant them.
    pub(crate) fn needs_a_person(self) -> bool {
        // Topic, group and cluster authorisation; a compression that this broker cannot give us.
        matches!(self.0, 29..=31 | 76)
    }

    /// Whether the broker says that somebody else leads the partition, or that it is gone: look again who does.
    pub(crate) fn asks_for_discovery(self) -> bool {
        // The numbers are named below.
        matches!(self.0, 3 | 5 | 6 | 9 | 56 | 74 | 100 | 103)
    }
}

const NAMES: &[(i16, &str)] = &[
    (-1, "unknown_server_error"),
    (1, "offset_out_of_range"),
    (2, "corrupt_message"),
    (3, "unknown_topic_or_partition"),
    (5, "leader_not_available"),
    (6, "not_leader_or_follower"),
    (7, "request_timed_out"),
    (9, "replica_not_available"),
    (14, "coordinator_load_in_progress"),
    (15, "coordinator_not_available"),
    (16, "not_coordinator"),
    (22, "illegal_generation"),
    (25, "unknown_member_id"),
    (29, "topic_authorization_failed"),
    (30, "group_authorization_failed"),
    (31, "cluster_authorization_failed"),
    (33, "unsupported_sasl_mechanism"),
    (34, "illegal_sasl_state"),
    (35, "unsupported_version"),
    (56, "kafka_storage_error"),
    (58, "sasl_authentication_failed"),
    (74, "fenced_leader_epoch"),
    (75, "unknown_leader_epoch"),
    (76, "unsupported_compression_type"),
    (78, "offset_not_available"),
    (100, "unknown_topic_id"),
    (103, "inconsistent_topic_id"),
];
