//! Proves our credentials to a broker, and learns until when it believes them (C1.7).
//!
//! The mechanisms are rsasl's, which rskafka brings along; the frames are ours, because only they tell when the session ends
//! (KIP-368). This file is the only one that names rsasl. Invariant: nothing that was made from a password is shown.

use crate::kafka::connection::{CallError, Connection, GREETING_LIMIT};
use crate::kafka::message::ErrorCode;
use crate::kafka::message::sasl::{SaslAnswer, SaslAuthenticate, SaslHandshake};
use crate::kafka::settings::{SaslMechanism, SaslSettings};
use rsasl::prelude::{Mechname, SASLClient, SASLConfig};
use std::time::Duration;

/// Frames of one exchange at most: SCRAM takes two.
const STEPS_MAX: usize = 8;

/// Proves the credentials; how long the broker believes them, none for ever.
pub(super) async fn prove(connection: &Connection, sasl: &SaslSettings) -> Result<Option<Duration>, CallError> {
    let mechanism = name(sasl.mechanism);
    accepted(connection.call(SaslHandshake { mechanism }, GREETING_LIMIT).await?)?;
    let mut session = {
        let unusable = |why: &dyn std::fmt::Display| CallError::Authentication(format!("unusable credentials: {why}"));
        let (user, password) = (sasl.username.clone(), sasl.password.reveal().to_owned());
        let config = SASLConfig::with_credentials(None, user, password).map_err(|why| unusable(&why))?;
        let offered = Mechname::parse(mechanism.as_bytes()).map_err(|why| unusable(&why))?;
        SASLClient::new(config).start_suggested(&[offered]).map_err(|why| unusable(&why))?
    };
    let mut said: Option<SaslAnswer> = None;
    for _ in 0..STEPS_MAX {
        let mut token = Vec::new();
        let before = said.as_ref().map(|said| &*said.token);
        let state = session.step(before, &mut token).map_err(|why| failed(&why))?;
        if state.has_sent_message() {
            let answer = connection.call(SaslAuthenticate { token }, GREETING_LIMIT).await?;
            accepted(answer.error)?;
            said = Some(answer);
        }
        if state.is_finished() {
            return Ok(said.and_then(|said| lifetime(said.lifetime_ms)));
        }
    }
    Err(CallError::Authentication("the exchange does not end".to_owned()))
}

fn name(mechanism: SaslMechanism) -> &'static str {
    match mechanism {
        SaslMechanism::Plain => "PLAIN",
        SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
        SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
    }
}

fn accepted(code: ErrorCode) -> Result<(), CallError> {
    let why = match code {
        ErrorCode::NONE => return Ok(()),
        ErrorCode::SASL_AUTHENTICATION_FAILED => "wrong user name or password".to_owned(),
        ErrorCode::UNSUPPORTED_SASL_MECHANISM => "this SASL mechanism is not enabled there".to_owned(),
        other => other.name(),
    };
    Err(CallError::Authentication(why))
}

/// The other side does not prove that it knows the password too, or the exchange makes no sense.
fn failed(why: &rsasl::prelude::SessionError) -> CallError {
    CallError::Authentication(format!("the broker's side of the exchange: {why}"))
}

fn lifetime(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
}
