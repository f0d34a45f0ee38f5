//! What the store holds, read through the product's own code from a copy of the disk: the checker's view.

use crate::disk::SimDisk;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use streaming_hub::model::ids::{ClaimNo, KeyId, LogNo, ReplayId, Seq, SubNo, TenantNo};
use streaming_hub::model::job::{DeadLetter, Job, JobKey};
use streaming_hub::model::notice::Notice;
use streaming_hub::model::replay::Replay;
use streaming_hub::model::subscription::{Skipped, Subscription};
use streaming_hub::rules::autodisable::Health;
use streaming_hub::rules::breaker::Breaker;
use streaming_hub::store::rows::{ClaimRow, HubRow};
use streaming_hub::store::view::{PositionRow, StoredEvent};
use streaming_hub::store::{Birth, Store, StoreError, StoreSettings};
use streaming_hub::time::HubTime;

/// Everything the store says.
#[derive(Debug, Clone, PartialEq)]
pub struct Dump {
    pub hub: HubRow,
    /// Names and newest seqs, by number.
    pub tenants: Vec<(String, Seq)>,
    pub events: BTreeMap<(TenantNo, Seq), Stored>,
    pub jobs: BTreeMap<JobKey, Job>,
    pub claims: BTreeMap<ClaimNo, ClaimRow>,
    pub dead: BTreeMap<(SubNo, LogNo), DeadLetter>,
    pub positions: Vec<PositionRow>,
    pub subscriptions: BTreeMap<SubNo, Subscription>,
    pub tombstones: BTreeSet<SubNo>,
    pub fills: BTreeSet<SubNo>,
    /// Bulk work under way.
    pub replays: BTreeMap<(SubNo, ReplayId), Replay>,
    pub skipped: BTreeMap<SubNo, Vec<Skipped>>,
    pub holds: BTreeMap<SubNo, HubTime>,
    pub breakers: BTreeMap<(TenantNo, String), Breaker>,
    pub health: BTreeMap<SubNo, Health>,
    pub notices: BTreeMap<u64, Notice>,
    pub keys: BTreeSet<KeyId>,
    pub poison: usize,
    pub gaps: usize,
}

/// A stored event with its log number.
#[derive(Debug, Clone)]
pub struct Stored(pub StoredEvent);

impl PartialEq for Stored {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (&self.0, &other.0);
        (a.log, a.seq, a.stored_at, &a.matched, &a.event) == (b.log, b.seq, b.stored_at, &b.matched, &b.event)
    }
}

impl Dump {
    /// Reads a copy of the disk, as a process would that starts now.
    pub fn of(disk: &SimDisk) -> Result<Dump, StoreError> {
        let settings = StoreSettings { cache_bytes: 4 << 20, quick_repair_above: u64::MAX };
        let birth = Birth { store_id: [0; 16], delivery_key: [0; 32] };
        let store = Store::open(Arc::new(disk.copy()), settings, &birth)?;
        let hub = store.hub_row()?;
        let mut dump = store.write(|txn| {
            let mut jobs = BTreeMap::new();
            txn.each_job(|key, job| {
                jobs.insert(key, job);
            })?;
            let subscriptions: BTreeMap<SubNo, Subscription> = txn.subscriptions()?.into_iter().collect();
            let mut skipped = BTreeMap::new();
            for sub in subscriptions.keys() {
                skipped.insert(*sub, txn.skipped(*sub)?.unwrap_or_default());
            }
            Ok(Dump {
                hub,
                tenants: txn.tenants()?.into_iter().map(|(_, row)| (row.name, row.last_seq)).collect(),
                events: BTreeMap::new(),
                jobs,
                claims: txn.claims()?.into_iter().collect(),
                dead: BTreeMap::new(),
                positions: Vec::new(),
                subscriptions,
                skipped,
                replays: txn.replays_running()?.into_iter().map(|row| ((row.sub, row.id), row)).collect(),
                tombstones: txn.tombstones()?.into_iter().map(|(sub, ())| sub).collect(),
                fills: txn.fills()?.into_iter().map(|(sub, _)| sub).collect(),
                holds: txn.holds()?.into_iter().collect(),
                breakers: txn.breakers()?.into_iter().collect(),
                health: txn.health()?.into_iter().collect(),
                notices: txn.notices()?.into_iter().collect(),
                keys: txn.api_keys()?.into_iter().map(|(id, _)| id).collect(),
                poison: 0,
                gaps: 0,
            })
        })?;
        let mut logs = Vec::new();
        store.write(|txn| {
            for no in 0..dump.tenants.len() {
                let tenant = TenantNo(u32::try_from(no).unwrap());
                for (seq, row) in txn.index_rows(tenant, Seq(0), Seq(u64::MAX), usize::MAX)? {
                    logs.push((tenant, seq, row.log));
                }
            }
            Ok(())
        })?;
        let view = store.reader().view()?;
        for (tenant, seq, log) in logs {
            let stored = view.event_at(log)?;
            let stored = stored.ok_or_else(|| StoreError::Damaged(format!("index row without event {log}")))?;
            dump.events.insert((tenant, seq), Stored(stored));
        }
        dump.dead =
            view.dead_letters(None, usize::MAX)?.into_iter().map(|row| ((row.sub, row.log), row.letter)).collect();
        dump.positions = view.positions()?;
        dump.poison = view.poison(None, usize::MAX)?.len();
        dump.gaps = view.gaps(None, usize::MAX)?.len();
        Ok(dump)
    }

    /// The same but for what may differ between two starts: nothing was done in between.
    pub fn is_same_state(&self, other: &Dump) -> bool {
        let timeless = |dump: &Dump| {
            let mut dump = dump.clone();
            dump.hub.hub_time = HubTime(0);
            dump
        };
        timeless(self) == timeless(other)
    }
}
