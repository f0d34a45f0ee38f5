//! Values as bytes: a version byte, then bincode. The only place that names bincode's functions.
//!
//! Decoding is bounded and never panics: what is not readable is said to be damaged, never taken for empty.

use super::StoreError;
use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::{BorrowDecode, Decode, Encode};

const VERSION: u8 = 1;
const LIMIT: usize = 64 << 20;

type Config = Configuration<LittleEndian, Varint, Limit<LIMIT>>;
const CONFIG: Config = bincode::config::standard().with_limit::<LIMIT>();

pub(super) fn encode<T: Encode>(value: &T) -> Result<Vec<u8>, StoreError> {
    let mut out = Vec::with_capacity(64);
    out.push(VERSION);
    bincode::encode_into_std_write(value, &mut out, CONFIG)
        .map_err(|error| StoreError::Damaged(format!("a value cannot be written: {error}")))?;
    Ok(out)
}

pub(super) fn decode<T: Decode<()>>(bytes: &[u8]) -> Result<T, StoreError> {
    let body = body(bytes)?;
    whole(body, bincode::decode_from_slice(body, CONFIG).map_err(damaged)?)
}

pub(super) fn borrow<'a, T: BorrowDecode<'a, ()>>(bytes: &'a [u8]) -> Result<T, StoreError> {
    let body = body(bytes)?;
    whole(body, bincode::borrow_decode_from_slice(body, CONFIG).map_err(damaged)?)
}

fn body(bytes: &[u8]) -> Result<&[u8], StoreError> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => Ok(rest),
        Some((other, _)) => {
            Err(StoreError::Damaged(format!("a value has version {other}, this program knows {VERSION}")))
        }
        None => Err(StoreError::Damaged("an empty value".to_owned())),
    }
}

/// A value with bytes left over was not written by this format.
fn whole<T>(body: &[u8], (value, read): (T, usize)) -> Result<T, StoreError> {
    match body.len() - read {
        0 => Ok(value),
        left => Err(StoreError::Damaged(format!("a value has {left} bytes too many"))),
    }
}

fn damaged(error: bincode::error::DecodeError) -> StoreError {
    StoreError::Damaged(format!("a value cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::Seq;
    use crate::model::job::{Cause, Job};
    use crate::time::HubTime;

    fn job() -> Job {
        Job {
            seq: Seq(300),
            due: HubTime(1_700_000_000_000),
            steps_used: 2,
            first_attempt: Some(HubTime(5)),
            reclaims: 0,
            cause: Cause::Match,
            attempts: Vec::new(),
        }
    }

    // C13.6: these bytes are the format; another reading of them needs another version.
    #[test]
    fn golden_bytes_of_a_job() {
        let bytes = encode(&job()).unwrap();
        assert_eq!(bytes, [1, 251, 44, 1, 253, 0, 104, 229, 207, 139, 1, 0, 0, 2, 1, 5, 0, 0, 0]);
        assert_eq!(decode::<Job>(&bytes).unwrap(), job());
    }

    // C13.6: never taken for something else.
    #[test]
    fn damaged_values_are_errors() {
        let bytes = encode(&job()).unwrap();
        for cut in 0..bytes.len() {
            assert!(decode::<Job>(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let mut other = bytes.clone();
        other[0] = 9;
        assert!(decode::<Job>(&other).is_err());
        let longer = [bytes, vec![0]].concat();
        assert!(decode::<Job>(&longer).is_err(), "a byte too many");
    }
}
