//! Reading Kafka.

pub mod codec;
pub mod compress;
pub mod decode;
