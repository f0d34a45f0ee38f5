//! Doors for the fuzz targets: every kind of stored key and value, read as the store reads it.
//!
//! Built with the feature `fuzz-doors` only. A new table is a new arm here, so that none is left out.

use super::rows::{ClaimRow, FillRow, HubRow, IndexRow, LogRow, MarkRow, PoisonStored, PositionValue, TenantRow};
use super::tables::{NAMES, TABLES, Table};
use super::{StoreError, codec, key};
use crate::model::api_key::ApiKey;
use crate::model::gap::Gap;
use crate::model::idempotency::IdempotencyRow;
use crate::model::job::{DeadLetter, Job};
use crate::model::notice::Notice;
use crate::model::replay::Replay;
use crate::model::subscription::{Skipped, Subscription};
use crate::time::HubTime;
use bincode::{Decode, Encode};
use bytes::Bytes;

/// How many tables there are.
pub const COUNT: usize = TABLES;

/// The name of a table.
pub fn name(table: usize) -> &'static str {
    NAMES[table % TABLES].1
}

/// Reads a value of that table and writes it again. `B` is what is kept of a breaker and `H` of a subscription that fails, which the
/// store does not know.
///
/// # Errors
/// When it is damaged.
pub fn rewrite<B, H>(table: usize, value: &[u8]) -> Result<Vec<u8>, StoreError>
where
    B: Encode + Decode<()>,
    H: Encode + Decode<()>,
{
    match NAMES[table % TABLES].0 {
        Table::Meta => again::<HubRow>(value),
        Table::Log => {
            let row: LogRow<'_> = codec::borrow(value)?;
            drop(row.event("tenant", Bytes::new()));
            codec::encode(&row)
        }
        Table::Blob => Ok(value.to_vec()),
        Table::Index => again::<IndexRow>(value),
        Table::Dedup => again::<MarkRow>(value),
        Table::Tenant => again::<TenantRow>(value),
        Table::Position => again::<PositionValue>(value),
        Table::Subscription => again::<Subscription>(value),
        Table::Job => again::<Job>(value),
        Table::Claim => again::<ClaimRow>(value),
        Table::Dead => again::<DeadLetter>(value),
        Table::Fill => again::<FillRow>(value),
        Table::Tombstone | Table::IdempotencyEnd => again::<()>(value),
        Table::Hold => again::<HubTime>(value),
        Table::Breaker => again::<B>(value),
        Table::Poison => {
            let row: PoisonStored = codec::decode(value)?;
            let written = codec::encode(&row)?;
            drop(row.record());
            Ok(written)
        }
        Table::Gap => again::<Gap>(value),
        Table::ApiKey => again::<ApiKey>(value),
        Table::Idempotency => again::<IdempotencyRow>(value),
        Table::Health => again::<H>(value),
        Table::Notice => again::<Notice>(value),
        Table::Replay => again::<Replay>(value),
        Table::Skipped => again::<Vec<Skipped>>(value),
    }
}

/// Reads a stored subscription.
///
/// # Errors
/// When it is damaged.
pub fn subscription(value: &[u8]) -> Result<Subscription, StoreError> {
    codec::decode(value)
}

/// Reads a key as every table's and makes it again: those that could be read, all of them the same bytes as given.
pub fn rekey(bytes: &[u8]) -> Vec<Vec<u8>> {
    let made = [
        key::read_log(bytes).map(|log| key::log(log).to_vec()),
        key::read_number(bytes).map(|number| key::number(number).to_vec()),
        key::read_index(bytes).map(|(tenant, seq)| key::index(tenant, seq).to_vec()),
        key::read_job(bytes).map(|job| key::job(job).to_vec()),
        key::read_dead(bytes).map(|(sub, log)| key::dead(sub, log).to_vec()),
        key::read_position(bytes).map(|(topic, id, partition)| key::position(&topic, &id, partition)),
        key::read_breaker(bytes).map(|(tenant, destination)| key::breaker(tenant, &destination)),
    ];
    made.into_iter().flatten().collect()
}

fn again<T: Encode + Decode<()>>(value: &[u8]) -> Result<Vec<u8>, StoreError> {
    codec::encode(&codec::decode::<T>(value)?)
}
