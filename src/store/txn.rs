//! The one write transaction, as verbs about the hub's things.
//!
//! Below the verbs are three plain operations on bytes (get, put, remove) and ranges: a redo journal could take their place without
//! anything above noticing.

use super::StoreError;
use super::rows::{
    BodyRow, ClaimRow, FillRow, HubRow, IndexRow, LogRow, MarkRow, PoisonStored, PositionValue, TenantRow,
};
use super::tables::{NAMES, TABLES, Table, definition};
use super::{codec, key};
use crate::model::api_key::ApiKey;
use crate::model::event::Event;
use crate::model::gap::Gap;
use crate::model::idempotency::IdempotencyRow;
use crate::model::ids::{ClaimNo, EventId, KeyId, LogNo, Seq, SubNo, TenantNo};
use crate::model::job::{DeadLetter, Job, JobKey};
use crate::model::record::PoisonRecord;
use crate::model::subscription::Subscription;
use crate::time::{HubTime, Timestamp};
use bincode::{Decode, Encode};
use redb::{ReadableTable as _, WriteTransaction};
use std::ops::Bound;

/// Key of the meta table's one row.
pub(super) const HUB_ROW_KEY: &[u8] = &[0];

/// Bodies above this go to the blob table: values a little over a power of two waste half their page.
const BODY_HERE_BYTES: usize = 4000;
/// A piece of a long body.
const CHUNK_BYTES: usize = 65_000;

type RawTable<'t> = redb::Table<'t, &'static [u8], &'static [u8]>;

/// A write transaction under way.
pub struct Txn<'t> {
    write: &'t WriteTransaction,
    tables: [Option<RawTable<'t>>; TABLES],
    changed: bool,
}

impl<'t> Txn<'t> {
    pub(super) fn new(write: &'t WriteTransaction) -> Self {
        Self { write, tables: [const { None }; TABLES], changed: false }
    }

    /// Whether anything was written.
    pub fn changed(&self) -> bool {
        self.changed
    }

    /// Makes every table, so that readers find them.
    pub(super) fn create_tables(&mut self) -> Result<(), StoreError> {
        for (table, _) in NAMES {
            self.table(table)?;
        }
        self.changed = true;
        Ok(())
    }

    /// Writes the counters and identity.
    pub fn put_hub_row(&mut self, row: &HubRow) -> Result<(), StoreError> {
        self.put(Table::Meta, HUB_ROW_KEY, row)
    }

    /// Stores an event with its index row and dedup mark (C3.1, C3.2).
    pub fn put_event(
        &mut self,
        event: &Event,
        at: EventPlace,
        stored_at: HubTime,
        matched: Vec<SubNo>,
    ) -> Result<(), StoreError> {
        let EventPlace { log, tenant, seq } = at;
        let mut row = LogRow::of(event, tenant, seq, stored_at, matched);
        if event.body.len() > BODY_HERE_BYTES {
            row.body = BodyRow::Blob(event.body.len() as u64);
            for (number, chunk) in (0u32..).zip(event.body.chunks(CHUNK_BYTES)) {
                self.put_raw(Table::Blob, &key::blob(log, number), chunk)?;
            }
        }
        self.put(Table::Log, &key::log(log), &row)?;
        self.put(Table::Index, &key::index(tenant, seq), &IndexRow::of(event, log))?;
        self.put(Table::Dedup, &key::dedup(event.id, tenant), &MarkRow { log, stored_at })
    }

    /// The dedup mark of an event.
    pub fn mark(&mut self, tenant: TenantNo, id: EventId) -> Result<Option<MarkRow>, StoreError> {
        self.get(Table::Dedup, &key::dedup(id, tenant))
    }

    /// Seq of a stored event, and whether its body is that one.
    pub fn compare_stored(&mut self, log: LogNo, body: &[u8]) -> Result<Option<(Seq, bool)>, StoreError> {
        let Some(bytes) = self.get_raw(Table::Log, &key::log(log))? else { return Ok(None) };
        let row: LogRow<'_> = codec::borrow(&bytes)?;
        let same = match row.body {
            BodyRow::Here(stored) => stored == body,
            BodyRow::Blob(length) => length == body.len() as u64 && self.same_chunks(log, body)?,
        };
        Ok(Some((row.seq, same)))
    }

    fn same_chunks(&mut self, log: LogNo, body: &[u8]) -> Result<bool, StoreError> {
        for (number, chunk) in (0u32..).zip(body.chunks(CHUNK_BYTES)) {
            if self.get_raw(Table::Blob, &key::blob(log, number))?.as_deref() != Some(chunk) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// When an event was stored.
    pub fn stored_at(&mut self, log: LogNo) -> Result<Option<HubTime>, StoreError> {
        let Some(bytes) = self.get_raw(Table::Log, &key::log(log))? else { return Ok(None) };
        let row: LogRow<'_> = codec::borrow(&bytes)?;
        Ok(Some(row.stored_at))
    }

    /// A stored event's source, resource type and event type, to confirm what the index's hashes suggest.
    pub fn event_words(&mut self, log: LogNo) -> Result<Option<[String; 3]>, StoreError> {
        let Some(bytes) = self.get_raw(Table::Log, &key::log(log))? else { return Ok(None) };
        let row: LogRow<'_> = codec::borrow(&bytes)?;
        Ok(Some([row.source.to_owned(), row.resource.to_owned(), row.event.to_owned()]))
    }

    /// Adds a subscription to those an event was matched for, when `start_from` or a replay matched it later (C4.8, C6.6).
    pub fn add_matched(&mut self, log: LogNo, sub: SubNo) -> Result<(), StoreError> {
        let Some(bytes) = self.get_raw(Table::Log, &key::log(log))? else { return Ok(()) };
        let mut row: LogRow<'_> = codec::borrow(&bytes)?;
        if row.matched.contains(&sub) {
            return Ok(());
        }
        row.matched.push(sub);
        self.put(Table::Log, &key::log(log), &row)
    }

    /// Index rows of a tenant from `from` to `to`, at most `limit`.
    pub fn index_rows(
        &mut self,
        tenant: TenantNo,
        from: Seq,
        to: Seq,
        limit: usize,
    ) -> Result<Vec<(Seq, IndexRow)>, StoreError> {
        let (low, high) = (key::index(tenant, from), key::index(tenant, to));
        let mut rows = Vec::new();
        self.each(Table::Index, Bound::Included(&low), Bound::Included(&high), limit, |key, value| {
            let (_, seq) = key::read_index(key).ok_or_else(bad_key)?;
            rows.push((seq, codec::decode(value)?));
            Ok(())
        })?;
        Ok(rows)
    }

    /// The oldest seq of a tenant that is still stored.
    pub fn first_seq(&mut self, tenant: TenantNo) -> Result<Option<Seq>, StoreError> {
        Ok(self.index_rows(tenant, Seq(0), Seq(u64::MAX), 1)?.first().map(|(seq, _)| *seq))
    }

    /// Writes a tenant.
    pub fn put_tenant(&mut self, no: TenantNo, row: &TenantRow) -> Result<(), StoreError> {
        self.put(Table::Tenant, &key::tenant(no), row)
    }

    /// Every tenant.
    pub fn tenants(&mut self) -> Result<Vec<(TenantNo, TenantRow)>, StoreError> {
        self.all(Table::Tenant, |key| key::read_u32(key).map(TenantNo))
    }

    /// A partition's position.
    pub fn position(
        &mut self,
        topic: &str,
        id: &[u8; 16],
        partition: i32,
    ) -> Result<Option<PositionValue>, StoreError> {
        self.get(Table::Position, &key::position(topic, id, partition))
    }

    /// Moves a partition's position.
    pub fn put_position(
        &mut self,
        topic: &str,
        id: &[u8; 16],
        partition: i32,
        value: PositionValue,
    ) -> Result<(), StoreError> {
        self.put(Table::Position, &key::position(topic, id, partition), &value)
    }

    /// Writes a subscription.
    pub fn put_subscription(&mut self, subscription: &Subscription) -> Result<(), StoreError> {
        self.put(Table::Subscription, &key::sub(subscription.no), subscription)
    }

    /// Removes a subscription and leaves a tombstone, until its rows are gone.
    pub fn bury_subscription(&mut self, no: SubNo) -> Result<(), StoreError> {
        self.remove(Table::Subscription, &key::sub(no))?;
        self.remove(Table::Fill, &key::sub(no))?;
        self.remove(Table::Hold, &key::sub(no))?;
        self.remove(Table::Health, &key::sub(no))?;
        self.remove(Table::Skipped, &key::sub(no))?;
        self.put(Table::Tombstone, &key::sub(no), &())
    }

    /// Every subscription.
    pub fn subscriptions(&mut self) -> Result<Vec<(SubNo, Subscription)>, StoreError> {
        self.all(Table::Subscription, |key| key::read_u32(key).map(SubNo))
    }

    /// Subscriptions whose rows are still being removed.
    pub fn tombstones(&mut self) -> Result<Vec<(SubNo, ())>, StoreError> {
        self.all(Table::Tombstone, |key| key::read_u32(key).map(SubNo))
    }

    /// All rows of a deleted subscription are gone.
    pub fn remove_tombstone(&mut self, no: SubNo) -> Result<(), StoreError> {
        self.remove(Table::Tombstone, &key::sub(no)).map(drop)
    }

    /// A job.
    pub fn job(&mut self, job: JobKey) -> Result<Option<Job>, StoreError> {
        self.get(Table::Job, &key::job(job))
    }

    /// Writes a job.
    pub fn put_job(&mut self, job: JobKey, row: &Job) -> Result<(), StoreError> {
        self.put(Table::Job, &key::job(job), row)
    }

    /// Ends a job.
    pub fn remove_job(&mut self, job: JobKey) -> Result<bool, StoreError> {
        self.remove(Table::Job, &key::job(job))
    }

    /// Every job, in the order of the log.
    pub fn each_job(&mut self, mut each: impl FnMut(JobKey, Job)) -> Result<(), StoreError> {
        self.each(Table::Job, Bound::Unbounded, Bound::Unbounded, usize::MAX, |key, value| {
            each(key::read_job(key).ok_or_else(bad_key)?, codec::decode(value)?);
            Ok(())
        })
    }

    /// Jobs from a log number on, in the order of the log: `rows` of them, and all of the last number. Where to go on; none where those
    /// were all there are.
    pub fn jobs_from(
        &mut self,
        from: LogNo,
        rows: usize,
        mut each: impl FnMut(JobKey, Job),
    ) -> Result<Option<LogNo>, StoreError> {
        let low = key::job(JobKey { log: from, sub: SubNo(0) });
        let (mut seen, mut last) = (0, from);
        for row in self.table(Table::Job)?.range::<&[u8]>(low.as_slice()..)? {
            let (key, value) = row?;
            let key = key::read_job(key.value()).ok_or_else(bad_key)?;
            if seen >= rows && key.log > last {
                return Ok(Some(key.log));
            }
            (seen, last) = (seen + 1, key.log);
            each(key, codec::decode(value.value())?);
        }
        Ok(None)
    }

    /// Writes a claim.
    pub fn put_claim(&mut self, no: ClaimNo, row: &ClaimRow) -> Result<(), StoreError> {
        self.put(Table::Claim, &key::claim(no), row)
    }

    /// Ends a claim.
    pub fn remove_claim(&mut self, no: ClaimNo) -> Result<(), StoreError> {
        self.remove(Table::Claim, &key::claim(no)).map(drop)
    }

    /// Every claim.
    pub fn claims(&mut self) -> Result<Vec<(ClaimNo, ClaimRow)>, StoreError> {
        self.all(Table::Claim, |key| key::read_number(key).map(ClaimNo))
    }

    /// Writes a dead letter.
    pub fn put_dead(&mut self, sub: SubNo, log: LogNo, letter: &DeadLetter) -> Result<(), StoreError> {
        self.put(Table::Dead, &key::dead(sub, log), letter)
    }

    /// A dead letter.
    pub fn dead(&mut self, sub: SubNo, log: LogNo) -> Result<Option<DeadLetter>, StoreError> {
        self.get(Table::Dead, &key::dead(sub, log))
    }

    /// Removes a dead letter.
    pub fn remove_dead(&mut self, sub: SubNo, log: LogNo) -> Result<bool, StoreError> {
        self.remove(Table::Dead, &key::dead(sub, log))
    }

    /// Removes dead letters of a subscription, at most `limit`; how many they were.
    pub fn remove_dead_of(&mut self, sub: SubNo, limit: usize) -> Result<usize, StoreError> {
        let (low, high) = (key::dead(sub, LogNo(0)), key::dead(sub, LogNo(u64::MAX)));
        let mut keys = Vec::new();
        self.each(Table::Dead, Bound::Included(&low), Bound::Included(&high), limit, |key, _| {
            keys.push(key.to_vec());
            Ok(())
        })?;
        for key in &keys {
            self.remove(Table::Dead, key)?;
        }
        Ok(keys.len())
    }

    /// Writes how far a `start_from` is filled; none ends it.
    pub fn set_fill(&mut self, sub: SubNo, row: Option<&FillRow>) -> Result<(), StoreError> {
        match row {
            Some(row) => self.put(Table::Fill, &key::sub(sub), row),
            None => self.remove(Table::Fill, &key::sub(sub)).map(drop),
        }
    }

    /// Every fill under way.
    pub fn fills(&mut self) -> Result<Vec<(SubNo, FillRow)>, StoreError> {
        self.all(Table::Fill, |key| key::read_u32(key).map(SubNo))
    }

    /// Writes until when a subscription is held; none ends it.
    pub fn set_hold(&mut self, sub: SubNo, until: Option<HubTime>) -> Result<(), StoreError> {
        match until {
            Some(until) => self.put(Table::Hold, &key::sub(sub), &until),
            None => self.remove(Table::Hold, &key::sub(sub)).map(drop),
        }
    }

    /// Every hold.
    pub fn holds(&mut self) -> Result<Vec<(SubNo, HubTime)>, StoreError> {
        self.all(Table::Hold, |key| key::read_u32(key).map(SubNo))
    }

    /// Writes a breaker that is not closed; none where it closed.
    pub fn set_breaker<B: Encode>(&mut self, tenant: TenantNo, to: &str, row: Option<&B>) -> Result<(), StoreError> {
        match row {
            Some(row) => self.put(Table::Breaker, &key::breaker(tenant, to), row),
            None => self.remove(Table::Breaker, &key::breaker(tenant, to)).map(drop),
        }
    }

    /// Every breaker that is not closed.
    #[expect(clippy::type_complexity, reason = "key and row, as everywhere here")]
    pub fn breakers<B: Decode<()>>(&mut self) -> Result<Vec<((TenantNo, String), B)>, StoreError> {
        self.all(Table::Breaker, key::read_breaker)
    }

    /// Writes a poison record; its stored size.
    pub fn put_poison(
        &mut self,
        no: u64,
        record: &PoisonRecord,
        at: Timestamp,
        hub_at: HubTime,
    ) -> Result<u64, StoreError> {
        let bytes = codec::encode(&PoisonStored::of(record, at, hub_at))?;
        self.put_raw(Table::Poison, &key::number(no), &bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Removes poison records stored before `end`, at most `limit`; the bytes they held.
    pub fn remove_poison_before(&mut self, end: HubTime, limit: usize) -> Result<u64, StoreError> {
        let mut gone = Vec::new();
        let mut bytes = 0;
        self.each(Table::Poison, Bound::Unbounded, Bound::Unbounded, limit, |key, value| {
            let row: PoisonStored = codec::decode(value)?;
            if row.hub_at < end {
                bytes += value.len() as u64;
                gone.push(key.to_vec());
            }
            Ok(())
        })?;
        for key in &gone {
            self.remove(Table::Poison, key)?;
        }
        Ok(bytes)
    }

    /// Writes a gap.
    pub fn put_gap(&mut self, no: u64, gap: &Gap) -> Result<(), StoreError> {
        self.put(Table::Gap, &key::number(no), gap)
    }

    /// Writes an API key.
    pub fn put_api_key(&mut self, row: &ApiKey) -> Result<(), StoreError> {
        self.put(Table::ApiKey, &key::api_key(row.id), row)
    }

    /// Every API key.
    pub fn api_keys(&mut self) -> Result<Vec<(KeyId, ApiKey)>, StoreError> {
        self.all(Table::ApiKey, |key| key.try_into().ok().map(KeyId))
    }

    /// Remembers an answer (A1.7).
    pub fn put_idempotency(&mut self, row: &IdempotencyRow) -> Result<(), StoreError> {
        let key = key::idempotency(row.key, &row.client_key);
        self.put(Table::Idempotency, &key, row)?;
        self.put(Table::IdempotencyEnd, &key::idempotency_end(row.expires.0, &key), &())
    }

    /// Forgets answers that expired, at most `limit`.
    pub fn remove_idempotency_before(&mut self, end: HubTime, limit: usize) -> Result<(), StoreError> {
        let high = key::number(end.0);
        let mut gone = Vec::new();
        self.each(Table::IdempotencyEnd, Bound::Unbounded, Bound::Excluded(&high), limit, |key, _| {
            gone.push(key.to_vec());
            Ok(())
        })?;
        for key in &gone {
            self.remove(Table::Idempotency, &key[8..])?;
            self.remove(Table::IdempotencyEnd, key)?;
        }
        Ok(())
    }

    fn table(&mut self, table: Table) -> Result<&mut RawTable<'t>, StoreError> {
        let slot = &mut self.tables[table as usize];
        match slot {
            Some(open) => Ok(open),
            None => Ok(slot.insert(self.write.open_table(definition(table))?)),
        }
    }

    pub(super) fn get_raw(&mut self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.table(table)?.get(key)?.map(|value| value.value().to_vec()))
    }

    pub(super) fn get<T: Decode<()>>(&mut self, table: Table, key: &[u8]) -> Result<Option<T>, StoreError> {
        self.table(table)?.get(key)?.map(|value| codec::decode(value.value())).transpose()
    }

    pub(super) fn put<T: Encode>(&mut self, table: Table, key: &[u8], value: &T) -> Result<(), StoreError> {
        let bytes = codec::encode(value)?;
        self.put_raw(table, key, &bytes)
    }

    fn put_raw(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.changed = true;
        self.table(table)?.insert(key, value)?;
        Ok(())
    }

    pub(super) fn remove(&mut self, table: Table, key: &[u8]) -> Result<bool, StoreError> {
        let was = self.table(table)?.remove(key)?.is_some();
        self.changed |= was;
        Ok(was)
    }

    pub(super) fn each(
        &mut self,
        table: Table,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        limit: usize,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for row in self.table(table)?.range::<&[u8]>((low, high))?.take(limit) {
            let (key, value) = row?;
            each(key.value(), value.value())?;
        }
        Ok(())
    }

    pub(super) fn all<K, T: Decode<()>>(
        &mut self,
        table: Table,
        read: impl Fn(&[u8]) -> Option<K>,
    ) -> Result<Vec<(K, T)>, StoreError> {
        let mut rows = Vec::new();
        self.each(table, Bound::Unbounded, Bound::Unbounded, usize::MAX, |key, value| {
            rows.push((read(key).ok_or_else(bad_key)?, codec::decode(value)?));
            Ok(())
        })?;
        Ok(rows)
    }
}

/// Where an event stands: its log number, tenant and seq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventPlace {
    /// Log number.
    pub log: LogNo,
    /// Tenant.
    pub tenant: TenantNo,
    /// Seq in the tenant.
    pub seq: Seq,
}

pub(super) fn bad_key() -> StoreError {
    StoreError::Damaged("a key has the wrong length".to_owned())
}
