//! The messages that we exchange with brokers, as Kafka's protocol guide lays them out: only the fields that are used are kept.

pub(crate) mod fetch;
pub(crate) mod group;
pub(crate) mod metadata;
pub(crate) mod offsets;

/// An error number of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ErrorCode(pub(crate) i16);

macro_rules! error_codes {
    ($($constant:ident = $number:literal $name:literal,)*) => {
        impl ErrorCode {
            $(pub(crate) const $constant: Self = Self($number);)*

            /// Kafka's name of it, in small letters.
            pub(crate) fn name(self) -> String {
                match self.0 {
                    $($number => $name.to_owned(),)*
                    other => format!("error_{other}"),
                }
            }
        }
    };
}

error_codes! {
    NONE = 0 "none",
    OFFSET_OUT_OF_RANGE = 1 "offset_out_of_range",
    CORRUPT_MESSAGE = 2 "corrupt_message",
    UNKNOWN_TOPIC_OR_PARTITION = 3 "unknown_topic_or_partition",
    LEADER_NOT_AVAILABLE = 5 "leader_not_available",
    NOT_LEADER_OR_FOLLOWER = 6 "not_leader_or_follower",
    REPLICA_NOT_AVAILABLE = 9 "replica_not_available",
    TOPIC_AUTHORIZATION_FAILED = 29 "topic_authorization_failed",
    GROUP_AUTHORIZATION_FAILED = 30 "group_authorization_failed",
    CLUSTER_AUTHORIZATION_FAILED = 31 "cluster_authorization_failed",
    KAFKA_STORAGE_ERROR = 56 "kafka_storage_error",
    FENCED_LEADER_EPOCH = 74 "fenced_leader_epoch",
    UNSUPPORTED_COMPRESSION = 76 "unsupported_compression_type",
    UNKNOWN_TOPIC_ID = 100 "unknown_topic_id",
    INCONSISTENT_TOPIC_ID = 103 "inconsistent_topic_id",
}

impl ErrorCode {
    /// Whether it is about rights: somebody has to grant them.
    pub(crate) fn needs_a_person(self) -> bool {
        matches!(
            self,
            Self::TOPIC_AUTHORIZATION_FAILED
                | Self::GROUP_AUTHORIZATION_FAILED
                | Self::CLUSTER_AUTHORIZATION_FAILED
                | Self::UNSUPPORTED_COMPRESSION
        )
    }

    /// Whether the broker says that somebody else leads the partition, or that it is gone: look again who does.
    pub(crate) fn asks_for_discovery(self) -> bool {
        matches!(
            self,
            Self::UNKNOWN_TOPIC_OR_PARTITION
                | Self::LEADER_NOT_AVAILABLE
                | Self::NOT_LEADER_OR_FOLLOWER
                | Self::REPLICA_NOT_AVAILABLE
                | Self::KAFKA_STORAGE_ERROR
                | Self::FENCED_LEADER_EPOCH
                | Self::UNKNOWN_TOPIC_ID
                | Self::INCONSISTENT_TOPIC_ID
        )
    }
}
