//! Our own requests over rskafka's messenger: the adapter between its traits and our messages.
//!
//! This file and `connection` are the only ones that name rskafka, so that it can be replaced in a day.

use crate::kafka::codec::{Malformed, Reader};
use rskafka::protocol::api_key::ApiKey;
use rskafka::protocol::api_version::{ApiVersion, ApiVersionRange};
use rskafka::protocol::messages::{
    ReadVersionedError, ReadVersionedType, RequestBody, WriteVersionedError, WriteVersionedType,
};
use rskafka::protocol::primitives::Int16;
use rskafka::protocol::traits::ReadError;
use std::io::Cursor;

/// A request of ours.
pub(crate) trait Request: Send {
    /// What the broker answers.
    type Answer: Send;
    /// Which of Kafka's calls it is.
    const API: Api;
    /// The lowest and the highest version that we write and read.
    const VERSIONS: (i16, i16);
    /// The first version with compact lengths and tagged fields.
    const FLEXIBLE_FROM: i16;

    /// Writes the body.
    fn write(&self, out: &mut Vec<u8>, version: i16);

    /// Reads the answer's body, to its end.
    fn read(answer: &mut Reader, version: i16) -> Result<Self::Answer, Malformed>;
}

/// Kafka's calls that we make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Fetch,
    ListOffsets,
    Metadata,
    OffsetCommit,
    FindCoordinator,
    OffsetForLeaderEpoch,
    SaslHandshake,
    SaslAuthenticate,
}

const fn api_key(api: Api) -> ApiKey {
    match api {
        Api::Fetch => ApiKey::Fetch,
        Api::ListOffsets => ApiKey::ListOffsets,
        Api::Metadata => ApiKey::Metadata,
        Api::OffsetCommit => ApiKey::OffsetCommit,
        Api::FindCoordinator => ApiKey::FindCoordinator,
        Api::OffsetForLeaderEpoch => ApiKey::OffsetForLeaderEpoch,
        Api::SaslHandshake => ApiKey::SaslHandshake,
        Api::SaslAuthenticate => ApiKey::SaslAuthenticate,
    }
}

/// A request as the messenger takes it.
#[derive(Debug)]
pub(super) struct Call<R>(pub(super) R);

/// An answer as the messenger gives it.
#[derive(Debug)]
pub(super) struct Answer<R: Request>(pub(super) R::Answer);

impl<R: Request> RequestBody for Call<R> {
    type ResponseBody = Answer<R>;
    const API_KEY: ApiKey = api_key(R::API);
    const API_VERSION_RANGE: ApiVersionRange =
        ApiVersionRange::new(ApiVersion(Int16(R::VERSIONS.0)), ApiVersion(Int16(R::VERSIONS.1)));
    const FIRST_TAGGED_FIELD_IN_REQUEST_VERSION: ApiVersion = ApiVersion(Int16(R::FLEXIBLE_FROM));
}

impl<R: Request> WriteVersionedType<Vec<u8>> for Call<R> {
    fn write_versioned(&self, out: &mut Vec<u8>, version: ApiVersion) -> Result<(), WriteVersionedError> {
        self.0.write(out, version.0.0);
        Ok(())
    }
}

impl<R: Request> ReadVersionedType<Cursor<Vec<u8>>> for Answer<R> {
    fn read_versioned(answer: &mut Cursor<Vec<u8>>, version: ApiVersion) -> Result<Self, ReadVersionedError> {
        let malformed = |why: Malformed| ReadVersionedError::ReadError(ReadError::Malformed(Box::new(why)));
        // The bytes are taken out whole, so that what is read shares them instead of copying; the messenger then finds an
        // empty message, read to its end.
        let skip = usize::try_from(answer.position()).unwrap_or(usize::MAX);
        let mut reader = Reader::new(std::mem::take(answer.get_mut()).into());
        answer.set_position(0);
        reader.skip(skip).map_err(malformed)?;
        let read = R::read(&mut reader, version.0.0).map_err(malformed)?;
        reader.end().map_err(malformed)?;
        Ok(Self(read))
    }
}
