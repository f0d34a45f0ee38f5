//! Keys as bytes that sort in the order we read them in: numbers big-endian, texts behind their length.
//!
//! Invariant: no key is a prefix of another one of its table, so the range of one tenant never yields another's rows.

use crate::model::ids::{ClaimNo, EventId, KeyId, LogNo, ReplayId, Seq, SubNo, TenantNo};
use crate::model::job::JobKey;
use ring::digest::{SHA256, digest};

pub(super) fn log(no: LogNo) -> [u8; 8] {
    no.0.to_be_bytes()
}

pub(super) fn read_log(key: &[u8]) -> Option<LogNo> {
    Some(LogNo(u64::from_be_bytes(key.try_into().ok()?)))
}

pub(super) fn number(no: u64) -> [u8; 8] {
    no.to_be_bytes()
}

pub(super) fn read_number(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.try_into().ok()?))
}

pub(super) fn claim(no: ClaimNo) -> [u8; 8] {
    no.0.to_be_bytes()
}

pub(super) fn blob(no: LogNo, chunk: u32) -> [u8; 12] {
    join(no.0.to_be_bytes(), chunk.to_be_bytes())
}

pub(super) fn index(tenant: TenantNo, seq: Seq) -> [u8; 12] {
    join(tenant.0.to_be_bytes(), seq.0.to_be_bytes())
}

pub(super) fn read_index(key: &[u8]) -> Option<(TenantNo, Seq)> {
    let (tenant, seq) = key.split_at_checked(4)?;
    Some((TenantNo(u32::from_be_bytes(tenant.try_into().ok()?)), Seq(u64::from_be_bytes(seq.try_into().ok()?))))
}

/// The id comes first: a UUIDv7's order then makes nearby inserts land on one page.
pub(super) fn dedup(id: EventId, tenant: TenantNo) -> [u8; 20] {
    join(id.0, tenant.0.to_be_bytes())
}

pub(super) fn tenant(no: TenantNo) -> [u8; 4] {
    no.0.to_be_bytes()
}

pub(super) fn sub(no: SubNo) -> [u8; 4] {
    no.0.to_be_bytes()
}

pub(super) fn read_u32(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(key.try_into().ok()?))
}

pub(super) fn job(key: JobKey) -> [u8; 12] {
    join(key.log.0.to_be_bytes(), key.sub.0.to_be_bytes())
}

pub(super) fn read_job(key: &[u8]) -> Option<JobKey> {
    let (log, sub) = key.split_at_checked(8)?;
    Some(JobKey { log: read_log(log)?, sub: SubNo(read_u32(sub)?) })
}

pub(super) fn dead(sub: SubNo, log: LogNo) -> [u8; 12] {
    join(sub.0.to_be_bytes(), log.0.to_be_bytes())
}

pub(super) fn read_dead(key: &[u8]) -> Option<(SubNo, LogNo)> {
    let (sub, log) = key.split_at_checked(4)?;
    Some((SubNo(read_u32(sub)?), read_log(log)?))
}

/// Whether it has ended comes first, so that those under way are found without the others.
pub(super) fn replay(ended: bool, sub: SubNo, id: ReplayId) -> [u8; 21] {
    let of_sub: [u8; 20] = join(sub.0.to_be_bytes(), id.0);
    join([u8::from(ended)], of_sub)
}

pub(super) fn position(topic: &str, topic_id: &[u8; 16], partition: i32) -> Vec<u8> {
    let mut key = with_length(topic.as_bytes());
    key.extend_from_slice(topic_id);
    key.extend_from_slice(&partition.to_be_bytes());
    key
}

/// Before the first position of a topic.
pub(super) fn positions(topic: &str) -> Vec<u8> {
    with_length(topic.as_bytes())
}

pub(super) fn read_position(key: &[u8]) -> Option<(String, [u8; 16], i32)> {
    let (length, rest) = key.split_at_checked(2)?;
    let length = usize::from(u16::from_be_bytes(length.try_into().ok()?));
    let (topic, rest) = rest.split_at_checked(length)?;
    let (id, partition) = rest.split_at_checked(16)?;
    Some((String::from_utf8(topic.to_vec()).ok()?, id.try_into().ok()?, i32::from_be_bytes(partition.try_into().ok()?)))
}

pub(super) fn breaker(tenant: TenantNo, destination: &str) -> Vec<u8> {
    let mut key = tenant.0.to_be_bytes().to_vec();
    key.extend_from_slice(destination.as_bytes());
    key
}

pub(super) fn read_breaker(key: &[u8]) -> Option<(TenantNo, String)> {
    let (tenant, destination) = key.split_at_checked(4)?;
    Some((TenantNo(read_u32(tenant)?), String::from_utf8(destination.to_vec()).ok()?))
}

pub(super) fn api_key(id: KeyId) -> [u8; 16] {
    id.0
}

/// The client's text is hashed, so that its length does not matter.
pub(super) fn idempotency(id: KeyId, client_key: &str) -> [u8; 48] {
    let mut hash = [0u8; 32];
    hash.copy_from_slice(digest(&SHA256, client_key.as_bytes()).as_ref());
    join(id.0, hash)
}

pub(super) fn idempotency_end(expires_ms: u64, key: &[u8; 48]) -> [u8; 56] {
    join(expires_ms.to_be_bytes(), *key)
}

fn with_length(text: &[u8]) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    let mut key = length.to_be_bytes().to_vec();
    key.extend_from_slice(&text[..usize::from(length)]);
    key
}

fn join<const A: usize, const B: usize, const C: usize>(a: [u8; A], b: [u8; B]) -> [u8; C] {
    const { assert!(A + B == C) };
    let mut out = [0u8; C];
    out[..A].copy_from_slice(&a);
    out[A..].copy_from_slice(&b);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    // C4.4
    #[test]
    fn the_range_of_one_tenant_ends_before_the_next() {
        assert!(index(TenantNo(1), Seq(u64::MAX)) < index(TenantNo(2), Seq(0)));
        assert!(dead(SubNo(1), LogNo(u64::MAX)) < dead(SubNo(2), LogNo(0)));
    }

    #[test]
    fn keys_read_back() {
        let job_key = JobKey { log: LogNo(7), sub: SubNo(9) };
        assert_eq!(read_job(&job(job_key)), Some(job_key));
        assert_eq!(read_dead(&dead(SubNo(1), LogNo(2))), Some((SubNo(1), LogNo(2))));
        assert_eq!(read_index(&index(TenantNo(3), Seq(4))), Some((TenantNo(3), Seq(4))));
        assert_eq!(read_position(&position("a.b", &[5; 16], 3)), Some(("a.b".to_owned(), [5; 16], 3)));
        assert_eq!(read_breaker(&breaker(TenantNo(1), "https://x/")), Some((TenantNo(1), "https://x/".to_owned())));
        assert_eq!(read_job(&[1, 2, 3]), None);
    }
}
