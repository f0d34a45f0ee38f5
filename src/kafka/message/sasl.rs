//! SaslHandshake (1) and SaslAuthenticate (0 to 1): the frames in which credentials are proven. From version 1 on the broker says
//! how long it will believe them (KIP-368).

use crate::kafka::codec::{Malformed, Reader, put_bytes, put_string};
use crate::kafka::message::ErrorCode;
use crate::kafka::wire::{Api, Request};
use bytes::Bytes;

/// Says which mechanism comes.
#[derive(Debug, Clone)]
pub(crate) struct SaslHandshake {
    pub(crate) mechanism: &'static str,
}

impl Request for SaslHandshake {
    /// Whether the mechanism is enabled there.
    type Answer = ErrorCode;
    const API: Api = Api::SaslHandshake;
    // With version 0 the frames of the exchange have no header of Kafka's.
    const VERSIONS: (i16, i16) = (1, 1);
    const FLEXIBLE_FROM: i16 = 2;

    fn write(&self, out: &mut Vec<u8>, _version: i16) {
        put_string(out, self.mechanism);
    }

    fn read(answer: &mut Reader, _version: i16) -> Result<ErrorCode, Malformed> {
        let error = ErrorCode(answer.i16()?);
        answer.list(Reader::string)?;
        Ok(error)
    }
}

/// A step of the exchange.
#[derive(Clone)]
pub(crate) struct SaslAuthenticate {
    /// Made from the password: never shown.
    pub(crate) token: Vec<u8>,
}

/// The broker's step.
#[derive(Debug)]
pub(crate) struct SaslAnswer {
    pub(crate) error: ErrorCode,
    pub(crate) token: Bytes,
    /// The session ends after so many milliseconds; 0: never.
    pub(crate) lifetime_ms: i64,
}

impl Request for SaslAuthenticate {
    type Answer = SaslAnswer;
    const API: Api = Api::SaslAuthenticate;
    const VERSIONS: (i16, i16) = (0, 1);
    const FLEXIBLE_FROM: i16 = 2;

    fn write(&self, out: &mut Vec<u8>, _version: i16) {
        put_bytes(out, &self.token);
    }

    fn read(answer: &mut Reader, version: i16) -> Result<SaslAnswer, Malformed> {
        let error = ErrorCode(answer.i16()?);
        // The broker's words: they may repeat what we sent.
        answer.nullable_string()?;
        let token = answer.nullable_bytes()?.unwrap_or_default();
        let lifetime_ms = if version >= 1 { answer.i64()? } else { 0 };
        Ok(SaslAnswer { error, token, lifetime_ms })
    }
}
