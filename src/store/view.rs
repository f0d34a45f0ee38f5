//! Reading: short snapshots of what was last committed. One a page, never held across an answer.

use super::rows::{BodyRow, IndexRow, LogRow, MarkRow, PoisonStored, PositionValue, TenantRow};
use super::tables::{Table, definition};
use super::{Handle, StoreError, codec, key};
use crate::model::event::Event;
use crate::model::gap::Gap;
use crate::model::idempotency::IdempotencyRow;
use crate::model::ids::{EventId, KeyId, LogNo, Seq, SubNo, TenantNo};
use crate::model::job::{DeadLetter, Job, JobKey};
use crate::model::notice::Notice;
use crate::model::record::PoisonRecord;
use crate::time::{HubTime, Timestamp};
use bincode::Decode;
use bytes::Bytes;
use redb::{ReadableDatabase as _, ReadableTable as _};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};

/// The store, for readers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Reader {
    open: Arc<RwLock<Handle>>,
}

/// One snapshot.
pub struct View {
    read: redb::ReadTransaction,
}

/// A stored event.
#[derive(Debug, Clone)]
pub struct StoredEvent {
    /// Log number.
    pub log: LogNo,
    /// Seq in its tenant.
    pub seq: Seq,
    /// When it was stored (wall time of the commit's batch).
    pub stored_at: HubTime,
    /// Subscriptions that matched it when it was stored (C4.5).
    pub matched: Vec<SubNo>,
    /// The event.
    pub event: Event,
}

/// Where a job of an event stands.
#[derive(Debug, Clone)]
pub enum JobState {
    /// Unfinished.
    Waiting(Job),
    /// Ended undelivered.
    Dead(DeadLetter),
    /// No row is left: delivered, or removed with its subscription.
    Done,
}

/// A dead letter with its key.
#[derive(Debug, Clone)]
pub struct DeadRow {
    /// Whose.
    pub sub: SubNo,
    /// Which event.
    pub log: LogNo,
    /// The dead letter.
    pub letter: DeadLetter,
}

/// A stored poison record.
#[derive(Debug, Clone)]
pub struct PoisonRow {
    /// Rising number.
    pub no: u64,
    /// When it was stored (wall).
    pub at: Timestamp,
    /// The record.
    pub record: PoisonRecord,
}

/// Whose breaker, and of which destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerKey {
    /// The store's number of the tenant.
    pub tenant: TenantNo,
    /// The tenant.
    pub tenant_name: String,
    /// The destination.
    pub destination: String,
}

/// A partition's stored position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionRow {
    /// Topic name.
    pub topic: String,
    /// Topic UUID.
    pub topic_id: [u8; 16],
    /// Partition.
    pub partition: i32,
    /// The next offset to read.
    pub next: i64,
    /// Leader epoch of the last record read; -1 unknown.
    pub leader_epoch: i32,
}

impl Reader {
    pub(super) fn new(open: Arc<RwLock<Handle>>) -> Self {
        Self { open }
    }

    /// A snapshot of the last commit. Blocking: call from a blocking thread, drop soon.
    ///
    /// # Errors
    /// See [`StoreError`]; while the store takes no writes the last commit can still be read, where the disk can.
    pub fn view(&self) -> Result<View, StoreError> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        Ok(View { read: open.readable()?.begin_read()? })
    }
}

impl View {
    /// A tenant's event by its `ce-id`.
    pub fn event(&self, tenant: &str, id: EventId) -> Result<Option<StoredEvent>, StoreError> {
        // The id comes first in the key: the few tenants that share one are looked through.
        let low = key::dedup(id, TenantNo(0));
        let high = key::dedup(id, TenantNo(u32::MAX));
        for row in self.table(Table::Dedup)?.range::<&[u8]>(low.as_slice()..=high.as_slice())? {
            let (_, value) = row?;
            let mark: MarkRow = codec::decode(value.value())?;
            match self.event_at(mark.log)? {
                Some(stored) if *stored.event.tenant == *tenant => return Ok(Some(stored)),
                Some(_) | None => {}
            }
        }
        Ok(None)
    }

    /// The log number of a tenant's seq.
    pub fn log_of(&self, tenant: TenantNo, seq: Seq) -> Result<Option<LogNo>, StoreError> {
        let row: Option<IndexRow> = self.get(Table::Index, &key::index(tenant, seq))?;
        Ok(row.map(|row| row.log))
    }

    /// The event of a log number without its body, which is left empty: for lists.
    pub fn head_at(&self, log: LogNo) -> Result<Option<StoredEvent>, StoreError> {
        self.stored(log, |_| Ok(Bytes::new()))
    }

    /// The event of a log number.
    pub fn event_at(&self, log: LogNo) -> Result<Option<StoredEvent>, StoreError> {
        self.stored(log, |body| match body {
            BodyRow::Here(body) => Ok(Bytes::copy_from_slice(body)),
            BodyRow::Blob(length) => self.blob(log, *length),
        })
    }

    /// Where the job of an event for a subscription stands.
    pub fn job_state(&self, log: LogNo, sub: SubNo) -> Result<JobState, StoreError> {
        if let Some(job) = self.get(Table::Job, &key::job(JobKey { log, sub }))? {
            return Ok(JobState::Waiting(job));
        }
        Ok(self.get(Table::Dead, &key::dead(sub, log))?.map_or(JobState::Done, JobState::Dead))
    }

    /// Poison records, newest first, older than number `before`.
    pub fn poison(&self, before: Option<u64>, limit: usize) -> Result<Vec<PoisonRow>, StoreError> {
        let rows = self.newest(Table::Poison, before, limit, codec::decode::<PoisonStored>)?;
        let read = |(no, stored): (u64, PoisonStored)| {
            let at = stored.at;
            let record = stored.record().ok_or_else(|| StoreError::Damaged(format!("poison record {no}")))?;
            Ok(PoisonRow { no, at, record })
        };
        rows.into_iter().map(read).collect()
    }

    /// Gaps, newest first, older than number `before`.
    pub fn gaps(&self, before: Option<u64>, limit: usize) -> Result<Vec<(u64, Gap)>, StoreError> {
        self.newest(Table::Gap, before, limit, codec::decode)
    }

    /// Notices, newest first, older than number `before`.
    pub fn notices(&self, before: Option<u64>, limit: usize) -> Result<Vec<(u64, Notice)>, StoreError> {
        self.newest(Table::Notice, before, limit, codec::decode)
    }

    /// Tenants and destinations whose breakers are not closed, in the order of the table, after that one; with the tenant's name.
    pub fn breakers(&self, after: Option<(TenantNo, &str)>, limit: usize) -> Result<Vec<BreakerKey>, StoreError> {
        let low = after.map(|(tenant, destination)| key::breaker(tenant, destination));
        let low = low.as_ref().map_or(Bound::Unbounded, |low| Bound::Excluded(low.as_slice()));
        let mut rows = Vec::new();
        for row in self.table(Table::Breaker)?.range::<&[u8]>((low, Bound::Unbounded))?.take(limit) {
            let (tenant, destination) = key::read_breaker(row?.0.value()).ok_or_else(bad_key)?;
            rows.push(BreakerKey { tenant, tenant_name: self.tenant_name(tenant)?, destination });
        }
        Ok(rows)
    }

    /// Dead letters of one subscription, newest event first, older than `before`.
    pub fn dead_letters_of(&self, sub: SubNo, before: Option<LogNo>, limit: usize) -> Result<Vec<DeadRow>, StoreError> {
        let low = key::dead(sub, LogNo(0));
        let high = key::dead(sub, before.unwrap_or(LogNo(u64::MAX)));
        let table = self.table(Table::Dead)?;
        let rows = table.range::<&[u8]>(low.as_slice()..high.as_slice())?.rev().take(limit);
        rows.map(|row| row.map_err(StoreError::from).and_then(|(key, value)| dead_row(key.value(), value.value())))
            .collect()
    }

    /// Dead letters of all, subscription by subscription, after that key.
    pub fn dead_letters(&self, after: Option<(SubNo, LogNo)>, limit: usize) -> Result<Vec<DeadRow>, StoreError> {
        let low = after.map(|(sub, log)| key::dead(sub, log));
        let low = low.as_ref().map_or(Bound::Unbounded, |low| Bound::Excluded(low.as_slice()));
        let table = self.table(Table::Dead)?;
        let rows = table.range::<&[u8]>((low, Bound::Unbounded))?.take(limit);
        rows.map(|row| row.map_err(StoreError::from).and_then(|(key, value)| dead_row(key.value(), value.value())))
            .collect()
    }

    /// Every stored position.
    pub fn positions(&self) -> Result<Vec<PositionRow>, StoreError> {
        let mut rows = Vec::new();
        for row in self.table(Table::Position)?.iter()? {
            let (key, value) = row?;
            let (topic, topic_id, partition) = key::read_position(key.value()).ok_or_else(bad_key)?;
            let value: PositionValue = codec::decode(value.value())?;
            let PositionValue { next, leader_epoch } = value;
            rows.push(PositionRow { topic, topic_id, partition, next, leader_epoch });
        }
        Ok(rows)
    }

    /// The stored positions of one partition: one for each topic id that was read under that name. Looks at two rows for each id,
    /// however many partitions there are.
    pub fn positions_of(&self, topic: &str, partition: i32) -> Result<Vec<PositionRow>, StoreError> {
        let table = self.table(Table::Position)?;
        let mut rows = Vec::new();
        let mut behind = key::positions(topic);
        loop {
            let mut rest = table.range::<&[u8]>((Bound::Excluded(behind.as_slice()), Bound::Unbounded))?;
            let Some(row) = rest.next() else { return Ok(rows) };
            let (name, topic_id, _) = key::read_position(row?.0.value()).ok_or_else(bad_key)?;
            if name != topic {
                return Ok(rows);
            }
            let stored: Option<PositionValue> =
                self.get(Table::Position, &key::position(topic, &topic_id, partition))?;
            if let Some(PositionValue { next, leader_epoch }) = stored {
                rows.push(PositionRow { topic: name, topic_id, partition, next, leader_epoch });
            }
            behind = key::position(topic, &topic_id, i32::MAX);
        }
    }

    /// What is remembered under an `Idempotency-Key` of an API key (A1.7).
    pub fn idempotency(&self, key: KeyId, client_key: &str) -> Result<Option<IdempotencyRow>, StoreError> {
        self.get(Table::Idempotency, &key::idempotency(key, client_key))
    }

    fn stored(
        &self,
        log: LogNo,
        body: impl FnOnce(&BodyRow<'_>) -> Result<Bytes, StoreError>,
    ) -> Result<Option<StoredEvent>, StoreError> {
        let Some(value) = self.table(Table::Log)?.get(key::log(log).as_slice())? else { return Ok(None) };
        let row: LogRow<'_> = codec::borrow(value.value())?;
        let tenant = self.tenant_name(row.tenant)?;
        let event = row.event(&tenant, body(&row.body)?);
        Ok(Some(StoredEvent { log, seq: row.seq, stored_at: row.stored_at, matched: row.matched.clone(), event }))
    }

    fn tenant_name(&self, no: TenantNo) -> Result<String, StoreError> {
        let row: Option<TenantRow> = self.get(Table::Tenant, &key::tenant(no))?;
        Ok(row.ok_or_else(|| StoreError::Damaged(format!("tenant {no} has no name")))?.name)
    }

    fn blob(&self, log: LogNo, length: u64) -> Result<Bytes, StoreError> {
        let (low, high) = (key::blob(log, 0), key::blob(log, u32::MAX));
        let mut body = Vec::new();
        for row in self.table(Table::Blob)?.range::<&[u8]>(low.as_slice()..=high.as_slice())? {
            body.extend_from_slice(row?.1.value());
        }
        if body.len() as u64 != length {
            return Err(StoreError::Damaged(format!("body of event {log} has {} bytes of {length}", body.len())));
        }
        Ok(body.into())
    }

    fn newest<T>(
        &self,
        table: Table,
        before: Option<u64>,
        limit: usize,
        read: impl Fn(&[u8]) -> Result<T, StoreError>,
    ) -> Result<Vec<(u64, T)>, StoreError> {
        let high = key::number(before.unwrap_or(u64::MAX));
        let table = self.table(table)?;
        let mut rows = Vec::new();
        for row in table.range::<&[u8]>((Bound::Unbounded, Bound::Excluded(high.as_slice())))?.rev().take(limit) {
            let (key, value) = row?;
            rows.push((key::read_number(key.value()).ok_or_else(bad_key)?, read(value.value())?));
        }
        Ok(rows)
    }

    pub(super) fn get<T: Decode<()>>(&self, table: Table, key: &[u8]) -> Result<Option<T>, StoreError> {
        self.table(table)?.get(key)?.map(|value| codec::decode(value.value())).transpose()
    }

    pub(super) fn table(&self, table: Table) -> Result<redb::ReadOnlyTable<&'static [u8], &'static [u8]>, StoreError> {
        Ok(self.read.open_table(definition(table))?)
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("View")
    }
}

fn dead_row(key: &[u8], value: &[u8]) -> Result<DeadRow, StoreError> {
    let (sub, log) = key::read_dead(key).ok_or_else(bad_key)?;
    Ok(DeadRow { sub, log, letter: codec::decode(value)? })
}

fn bad_key() -> StoreError {
    StoreError::Damaged("a key has the wrong length".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::disk::FileDisk;
    use crate::store::{Birth, Store, StoreSettings};

    // C1.4
    #[test]
    fn the_positions_of_one_partition_are_found_under_every_topic_id() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(FileDisk::take(folder.path()).unwrap());
        let settings = StoreSettings { cache_bytes: 1 << 20, quick_repair_above: 1 << 30 };
        let store = Store::open(disk, settings, &Birth { store_id: [1; 16], delivery_key: [2; 32] }).unwrap();
        let rows = [
            ("lender", 0x00, 0, 5),
            ("lender", 0x00, 1, 6),
            ("lender", 0x07, 0, 7),
            ("lender", 0xff, 1, 8),
            ("lendes", 0x00, 1, 9),
            ("midaz", 0x01, 1, 10),
        ];
        let put = |(topic, id, partition, next)| {
            store.write(|txn| txn.put_position(topic, &[id; 16], partition, PositionValue { next, leader_epoch: 2 }))
        };
        rows.into_iter().for_each(|row| put(row).unwrap());
        let view = store.reader().view().unwrap();
        for (topic, partition, want) in [
            ("lender", 0, &[5, 7][..]),
            ("lender", 1, &[6, 8]),
            ("lender", 2, &[]),
            ("lende", 1, &[]),
            ("lendes", 1, &[9]),
            ("midaz", 1, &[10]),
            ("zebra", 0, &[]),
        ] {
            let found = view.positions_of(topic, partition).unwrap();
            assert!(found.iter().all(|row| row.topic == topic && row.partition == partition && row.leader_epoch == 2));
            assert_eq!(found.iter().map(|row| row.next).collect::<Vec<_>>(), want, "{topic}/{partition}");
        }
    }
}
