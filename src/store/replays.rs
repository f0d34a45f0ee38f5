//! The verbs of bulk work: replays under way and ended, what was skipped, and what they read of events and dead letters.
//!
//! Invariant: a replay stands under exactly one key, that of those under way or that of the ended ones.

use super::rows::{EventFacts, IndexRow, LogRow, TenantRow};
use super::tables::Table;
use super::txn::{Txn, bad_key};
use super::view::View;
use super::{StoreError, codec, key};
use crate::model::ids::{LogNo, ReplayId, Seq, SubNo, TenantNo};
use crate::model::job::DeadLetter;
use crate::model::replay::{Replay, ReplayState};
use crate::model::subscription::Skipped;
use crate::time::HubTime;
use std::ops::Bound;

impl Txn<'_> {
    /// Writes bulk work, under way or ended.
    pub fn put_replay(&mut self, replay: &Replay) -> Result<(), StoreError> {
        let ended = replay.state != ReplayState::Running;
        if ended {
            self.remove(Table::Replay, &key::replay(false, replay.sub, replay.id))?;
        }
        self.put(Table::Replay, &key::replay(ended, replay.sub, replay.id), replay)
    }

    /// All that is under way.
    pub fn replays_running(&mut self) -> Result<Vec<Replay>, StoreError> {
        self.replays(key::replay(false, SubNo(0), FIRST), key::replay(false, SubNo(u32::MAX), LAST))
    }

    /// Ended bulk work of a subscription, oldest first.
    pub fn replays_ended(&mut self, sub: SubNo) -> Result<Vec<Replay>, StoreError> {
        self.replays(key::replay(true, sub, FIRST), key::replay(true, sub, LAST))
    }

    /// One that has ended.
    pub fn ended_replay(&mut self, sub: SubNo, id: ReplayId) -> Result<Option<Replay>, StoreError> {
        self.get(Table::Replay, &key::replay(true, sub, id))
    }

    /// Forgets ended bulk work.
    pub fn remove_ended_replay(&mut self, sub: SubNo, id: ReplayId) -> Result<(), StoreError> {
        self.remove(Table::Replay, &key::replay(true, sub, id)).map(drop)
    }

    /// Removes all bulk work of a deleted subscription: as many rows as limits allow a subscription to have.
    pub fn remove_replays_of(&mut self, sub: SubNo) -> Result<(), StoreError> {
        let mut keys = Vec::new();
        for ended in [false, true] {
            let (low, high) = (key::replay(ended, sub, FIRST), key::replay(ended, sub, LAST));
            self.each(Table::Replay, Bound::Included(&low), Bound::Included(&high), usize::MAX, |key, _| {
                keys.push(key.to_vec());
                Ok(())
            })?;
        }
        for key in &keys {
            self.remove(Table::Replay, key)?;
        }
        Ok(())
    }

    /// Stretches of seqs that a subscription skipped and that were not replayed since, rising; none before the first was noted.
    pub fn skipped(&mut self, sub: SubNo) -> Result<Option<Vec<Skipped>>, StoreError> {
        self.get(Table::Skipped, &key::sub(sub))
    }

    /// Writes them.
    pub fn set_skipped(&mut self, sub: SubNo, stretches: &Vec<Skipped>) -> Result<(), StoreError> {
        self.put(Table::Skipped, &key::sub(sub), stretches)
    }

    /// What a filter asks of a stored event.
    pub fn event_facts(&mut self, log: LogNo) -> Result<Option<EventFacts>, StoreError> {
        self.get_raw(Table::Log, &key::log(log))?.map(|bytes| facts(&bytes)).transpose()
    }

    /// Takes a subscription out of those an event was matched for: its job ended with nothing to tell of it.
    pub fn remove_matched(&mut self, log: LogNo, sub: SubNo) -> Result<(), StoreError> {
        let Some(bytes) = self.get_raw(Table::Log, &key::log(log))? else { return Ok(()) };
        let mut row: LogRow<'_> = codec::borrow(&bytes)?;
        row.matched.retain(|matched| *matched != sub);
        self.put(Table::Log, &key::log(log), &row)
    }

    /// Dead letters of a subscription in the order of their events, those after `after`, at most `limit`.
    pub fn dead_after(
        &mut self,
        sub: SubNo,
        after: Option<LogNo>,
        limit: usize,
    ) -> Result<Vec<(LogNo, DeadLetter)>, StoreError> {
        let low = key::dead(sub, after.map_or(LogNo(0), |log| LogNo(log.0.saturating_add(1))));
        let high = key::dead(sub, LogNo(u64::MAX));
        let mut rows = Vec::new();
        self.each(Table::Dead, Bound::Included(&low), Bound::Included(&high), limit, |key, value| {
            let (_, log) = key::read_dead(key).ok_or_else(bad_key)?;
            rows.push((log, codec::decode(value)?));
            Ok(())
        })?;
        Ok(rows)
    }

    fn replays(&mut self, low: [u8; 21], high: [u8; 21]) -> Result<Vec<Replay>, StoreError> {
        let mut rows = Vec::new();
        self.each(Table::Replay, Bound::Included(&low), Bound::Included(&high), usize::MAX, |_, value| {
            rows.push(codec::decode(value)?);
            Ok(())
        })?;
        Ok(rows)
    }
}

impl View {
    /// Bulk work of a subscription, newest first, that older than `before`, at most `limit`.
    pub fn replays_of(&self, sub: SubNo, before: Option<ReplayId>, limit: usize) -> Result<Vec<Replay>, StoreError> {
        let table = self.table(Table::Replay)?;
        let mut rows: Vec<Replay> = Vec::new();
        for ended in [false, true] {
            let low = key::replay(ended, sub, FIRST);
            let high = key::replay(ended, sub, before.unwrap_or(LAST));
            let high = match before {
                Some(_) => Bound::Excluded(high.as_slice()),
                None => Bound::Included(high.as_slice()),
            };
            for row in table.range::<&[u8]>((Bound::Included(low.as_slice()), high))?.rev().take(limit) {
                rows.push(codec::decode(row?.1.value())?);
            }
        }
        rows.sort_by_key(|replay| std::cmp::Reverse(replay.id));
        rows.truncate(limit);
        Ok(rows)
    }

    /// Stretches of seqs that a subscription skipped; see [`Txn::skipped`].
    pub fn skipped(&self, sub: SubNo) -> Result<Option<Vec<Skipped>>, StoreError> {
        self.get(Table::Skipped, &key::sub(sub))
    }

    /// Index rows of a tenant from `from` to `to`, at most `limit`.
    pub fn index_rows(
        &self,
        tenant: TenantNo,
        from: Seq,
        to: Seq,
        limit: usize,
    ) -> Result<Vec<(Seq, IndexRow)>, StoreError> {
        let (low, high) = (key::index(tenant, from), key::index(tenant, to));
        let table = self.table(Table::Index)?;
        let mut rows = Vec::new();
        if from > to {
            return Ok(rows);
        }
        for row in table.range::<&[u8]>(low.as_slice()..=high.as_slice())?.take(limit) {
            let (key, value) = row?;
            let (_, seq) = key::read_index(key.value()).ok_or_else(bad_key)?;
            rows.push((seq, codec::decode(value.value())?));
        }
        Ok(rows)
    }

    /// The seq of a tenant's newest event.
    pub fn last_seq(&self, tenant: TenantNo) -> Result<Seq, StoreError> {
        let row: Option<TenantRow> = self.get(Table::Tenant, &key::tenant(tenant))?;
        Ok(row.map_or(Seq(0), |row| row.last_seq))
    }

    /// When an event was stored.
    pub fn stored_at(&self, log: LogNo) -> Result<Option<HubTime>, StoreError> {
        let Some(value) = self.table(Table::Log)?.get(key::log(log).as_slice())? else { return Ok(None) };
        let row: LogRow<'_> = codec::borrow(value.value())?;
        Ok(Some(row.stored_at))
    }

    /// What a filter asks of a stored event.
    pub fn event_facts(&self, log: LogNo) -> Result<Option<EventFacts>, StoreError> {
        self.table(Table::Log)?.get(key::log(log).as_slice())?.map(|value| facts(value.value())).transpose()
    }

    /// A dead letter.
    pub fn dead_letter(&self, sub: SubNo, log: LogNo) -> Result<Option<DeadLetter>, StoreError> {
        self.get(Table::Dead, &key::dead(sub, log))
    }
}

const FIRST: ReplayId = ReplayId([0; 16]);
const LAST: ReplayId = ReplayId([0xff; 16]);

fn facts(bytes: &[u8]) -> Result<EventFacts, StoreError> {
    let row: LogRow<'_> = codec::borrow(bytes)?;
    Ok(EventFacts {
        source: row.source.to_owned(),
        resource: row.resource.to_owned(),
        event: row.event.to_owned(),
        schema_major: row.schema_major,
        matched: row.matched,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::disk::FileDisk;
    use crate::store::tables::definition;
    use crate::store::{Birth, Store, StoreSettings};
    use std::sync::Arc;

    // C13.6: a store of an older program has no such tables; they are made, and all that is in the others stays.
    #[test]
    fn a_store_without_the_newer_tables_opens_with_empty_ones() {
        let folder = tempfile::tempdir().unwrap();
        let settings = StoreSettings { cache_bytes: 1 << 20, quick_repair_above: u64::MAX };
        let open = || {
            let disk = Arc::new(FileDisk::take(folder.path()).unwrap());
            Store::open(disk, settings, &Birth { store_id: [1; 16], delivery_key: [2; 32] }).unwrap()
        };
        let store = open();
        store.write(|txn| txn.set_hold(SubNo(1), Some(HubTime(7)))).unwrap();
        store.close();
        drop(store);
        let file = redb::Database::open(folder.path().join("hub.redb")).unwrap();
        let write = file.begin_write().unwrap();
        for table in [Table::Replay, Table::Skipped] {
            assert!(write.delete_table(definition(table)).unwrap());
        }
        write.commit().unwrap();
        drop(file);

        let store = open();
        let view = store.reader().view().unwrap();
        assert_eq!(view.replays_of(SubNo(1), None, 10).unwrap(), []);
        assert_eq!(view.skipped(SubNo(1)).unwrap(), None);
        assert_eq!(store.write(|txn| txn.holds()).unwrap(), [(SubNo(1), HubTime(7))]);
    }
}
