//! Doors for the fuzz targets: the answers of a broker, whatever its bytes are.
//!
//! Built with the feature `fuzz-doors` only.

use crate::kafka::codec::Reader;
use crate::kafka::message::fetch::Fetch;
use crate::kafka::message::group::{FindCoordinator, OffsetCommit};
use crate::kafka::message::metadata::Metadata;
use crate::kafka::message::offsets::{ListOffsets, OffsetForLeaderEpoch};
use crate::kafka::wire::Request;
use bytes::Bytes;

/// Reads those bytes as the answer to every request of ours, in every version that we speak; how many of them could be read.
pub fn read_answers(bytes: &Bytes) -> usize {
    read::<Fetch>(bytes)
        + read::<ListOffsets>(bytes)
        + read::<OffsetForLeaderEpoch>(bytes)
        + read::<Metadata>(bytes)
        + read::<FindCoordinator>(bytes)
        + read::<OffsetCommit>(bytes)
}

fn read<R: Request>(bytes: &Bytes) -> usize {
    let (lowest, highest) = R::VERSIONS;
    let readable = |version: &i16| {
        let mut reader = Reader::new(bytes.clone());
        R::read(&mut reader, *version).and_then(|_| reader.end()).is_ok()
    };
    (lowest..=highest).filter(readable).count()
}
