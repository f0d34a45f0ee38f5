//! The tables of the store: their names, and what their keys and values are. All keys sort as bytes.

/// A table. Keys are made in [`super::key`], values by [`super::codec`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Table {
    /// one row -> format, identity and the writer's counters
    Meta,
    /// log number -> event
    Log,
    /// log number, chunk -> a piece of a long body
    Blob,
    /// tenant, seq -> log number and what filters ask for
    Index,
    /// event id, tenant -> log number
    Dedup,
    /// tenant number -> name, last seq
    Tenant,
    /// topic, topic id, partition -> next offset
    Position,
    /// subscription number -> subscription
    Subscription,
    /// log number, subscription number -> job
    Job,
    /// claim number -> the jobs taken
    Claim,
    /// subscription number, log number -> dead letter
    Dead,
    /// subscription number -> how far `start_from` has been filled
    Fill,
    /// subscription number -> a deleted subscription whose rows are still being removed
    Tombstone,
    /// subscription number -> hold
    Hold,
    /// tenant, destination -> breaker
    Breaker,
    /// number -> poison record
    Poison,
    /// number -> gap
    Gap,
    /// key id -> API key
    ApiKey,
    /// key id, client key -> remembered answer
    Idempotency,
    /// expiry, key id, client key -> nothing
    IdempotencyEnd,
    /// subscription number -> failures since its last success, and that it was switched off by them
    Health,
    /// number -> notice
    Notice,
    /// ended or not, subscription number, replay id -> bulk work
    Replay,
    /// subscription number -> stretches of seqs that were skipped
    Skipped,
}

pub(super) const TABLES: usize = 24;

/// Every table with its name in the file, in the order of their numbers.
pub(super) const NAMES: [(Table, &str); TABLES] = [
    (Table::Meta, "meta"),
    (Table::Log, "log"),
    (Table::Blob, "blob"),
    (Table::Index, "index"),
    (Table::Dedup, "dedup"),
    (Table::Tenant, "tenant"),
    (Table::Position, "position"),
    (Table::Subscription, "subscription"),
    (Table::Job, "job"),
    (Table::Claim, "claim"),
    (Table::Dead, "dead"),
    (Table::Fill, "fill"),
    (Table::Tombstone, "tombstone"),
    (Table::Hold, "hold"),
    (Table::Breaker, "breaker"),
    (Table::Poison, "poison"),
    (Table::Gap, "gap"),
    (Table::ApiKey, "api_key"),
    (Table::Idempotency, "idempotency"),
    (Table::IdempotencyEnd, "idempotency_end"),
    (Table::Health, "health"),
    (Table::Notice, "notice"),
    (Table::Replay, "replay"),
    (Table::Skipped, "skipped"),
];

/// The definition that redb wants.
pub(super) fn definition(table: Table) -> redb::TableDefinition<'static, &'static [u8], &'static [u8]> {
    redb::TableDefinition::new(NAMES[table as usize].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_stands_at_its_number() {
        for (at, (table, _)) in NAMES.iter().enumerate() {
            assert_eq!(*table as usize, at);
        }
    }
}
