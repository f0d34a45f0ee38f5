//! Reading Kafka.
