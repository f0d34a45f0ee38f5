//! How many a replay would send, counted on snapshots beside the writer: page by page, up to a number that is still exact.
//!
//! Invariant: it decides by the same words as the replay itself, so that nothing is counted that would not be sent.

use super::wanted;
use crate::model::ids::{LogNo, Seq, SubNo, TenantNo};
use crate::model::limits::{REPLAY_COUNTED, REPLAY_ROWS_COUNTED, REPLAY_ROWS_PER_COMMIT};
use crate::model::replay::{DeadFilter, Filter};
use crate::model::subscription::{EventPattern, Skipped};
use crate::store::StoreError;
use crate::store::view::View;
use crate::time::HubTime;

/// A count under way. Short steps, so that no snapshot is held for long.
#[derive(Debug)]
pub struct Counting {
    through: Countable,
    only: Vec<EventPattern>,
    count: u64,
    examined: usize,
    exact_to: u64,
}

/// What can be counted.
#[derive(Debug)]
pub enum Countable {
    /// Stored events.
    Events {
        /// Whose.
        tenant: TenantNo,
        /// Rising stretches of seqs.
        stretches: Vec<Skipped>,
        /// The next to look at.
        next: Seq,
        /// What the subscription wants.
        filter: Filter,
    },
    /// Dead letters.
    DeadLetters {
        /// Of which subscription.
        sub: SubNo,
        /// Which of them.
        which: DeadFilter,
        /// Only those whose event the subscription still wants.
        filter: Option<Filter>,
        /// The last one looked at.
        after: Option<LogNo>,
    },
}

/// How many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// So many,
    pub count: u64,
    /// at least: there may be more.
    pub at_least: bool,
}

impl Counting {
    /// Begins to count, of one of these event types only; of none named, all.
    pub fn of(through: Countable, only: Vec<EventPattern>) -> Self {
        Self { through, only, count: 0, examined: 0, exact_to: REPLAY_COUNTED }
    }

    /// The same, exact up to another number.
    pub fn exact_to(self, count: u64) -> Self {
        Self { exact_to: count, ..self }
    }

    /// Counts on; the result once it has come to its end, or to the number that is still exact.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn go_on(&mut self, view: &View) -> Result<Option<Counted>, StoreError> {
        let (examined, is_last) = match &mut self.through {
            Countable::Events { tenant, stretches, next, filter } => {
                let Some(stretch) = stretches.iter().find(|stretch| stretch.to >= *next) else {
                    return Ok(Some(Counted { count: self.count, at_least: false }));
                };
                let from = stretch.from.max(*next);
                let rows = view.index_rows(*tenant, from, stretch.to, REPLAY_ROWS_PER_COMMIT)?;
                let examined = rows.len();
                let whole = examined < REPLAY_ROWS_PER_COMMIT;
                for (seq, index) in rows {
                    *next = Seq(seq.0 + 1);
                    if !wanted::may_be(filter, &index) || !wanted::may_be_one_of(&self.only, &index) {
                        continue;
                    }
                    let event = view.event_facts(index.log)?;
                    let is = |event| wanted::is(filter, event) && wanted::is_one_of(&self.only, event);
                    self.count += u64::from(event.as_ref().is_some_and(is));
                }
                if whole {
                    *next = (*next).max(Seq(stretch.to.0 + 1));
                }
                (examined, false)
            }
            Countable::DeadLetters { sub, which, filter, after } => {
                let from = (*sub, after.unwrap_or(LogNo(0)));
                let rows = view.dead_letters(Some(from), REPLAY_ROWS_PER_COMMIT)?;
                let examined = rows.len();
                let mut is_last = examined < REPLAY_ROWS_PER_COMMIT;
                for row in rows {
                    if row.sub != *sub {
                        is_last = true;
                        break;
                    }
                    *after = Some(row.log);
                    let is = which.is_met_by(&row.letter)
                        && ((filter.is_none() && self.only.is_empty())
                            || view.event_facts(row.log)?.is_some_and(|event| {
                                filter.as_ref().is_none_or(|filter| wanted::is(filter, &event))
                                    && wanted::is_one_of(&self.only, &event)
                            }));
                    self.count += u64::from(is);
                }
                (examined, is_last)
            }
        };
        self.examined += examined;
        let beyond = self.count > self.exact_to;
        let counted = |at_least| Counted { count: self.count.min(self.exact_to), at_least };
        if is_last {
            return Ok(Some(counted(beyond)));
        }
        let enough = beyond || self.examined >= REPLAY_ROWS_COUNTED;
        Ok(enough.then(|| counted(true)))
    }
}

/// The first and the last seq of a tenant's events that were stored between two times, both included; none where there are none.
///
/// # Errors
/// When the store cannot be read.
pub fn seqs_between(
    view: &View,
    tenant: TenantNo,
    since: HubTime,
    until: HubTime,
) -> Result<Option<(Seq, Seq)>, StoreError> {
    let first = first_stored(view, tenant, since)?;
    let after = first_stored(view, tenant, until.plus_ms(1))?;
    Ok((first < after).then(|| (first, Seq(after.0 - 1))))
}

/// Halves the tenant's seqs until the first event stored at that time or later is found; behind its newest where there is none.
fn first_stored(view: &View, tenant: TenantNo, at: HubTime) -> Result<Seq, StoreError> {
    let oldest = view.index_rows(tenant, Seq(0), Seq(u64::MAX), 1)?.first().map_or(1, |(seq, _)| seq.0);
    let (mut low, mut high) = (oldest, view.last_seq(tenant)?.0 + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let row = view.index_rows(tenant, Seq(middle), Seq(u64::MAX), 1)?;
        let stored_at = match row.first() {
            Some((_, row)) => view.stored_at(row.log)?,
            None => None,
        };
        match stored_at {
            Some(stored) if stored < at => low = middle + 1,
            Some(_) | None => high = middle,
        }
    }
    Ok(Seq(low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::Event;
    use crate::model::ids::EventId;
    use crate::store::disk::FileDisk;
    use crate::store::rows::TenantRow;
    use crate::store::txn::EventPlace;
    use crate::store::{Birth, Store, StoreSettings};
    use std::sync::Arc;

    const TENANT: TenantNo = TenantNo(0);

    /// Ten events of a tenant, one each second; every second one is `loan.paid`.
    fn store(folder: &std::path::Path) -> Store {
        let settings = StoreSettings { cache_bytes: 1 << 20, quick_repair_above: u64::MAX };
        let birth = Birth { store_id: [1; 16], delivery_key: [2; 32] };
        let store = Store::open(Arc::new(FileDisk::take(folder).unwrap()), settings, &birth).unwrap();
        let event = |seq: u64| Event {
            id: EventId([u8::try_from(seq).unwrap(); 16]),
            tenant: "t".into(),
            source: "lender".into(),
            resource: "loan".into(),
            event: if seq.is_multiple_of(2) { "paid" } else { "opened" }.into(),
            time: "2026-11-30T12:00:00Z".into(),
            schema_version: "1".into(),
            schema_major: 1,
            subject: None,
            content_type: "application/json".into(),
            data_schema: None,
            traceparent: None,
            tracestate: None,
            extensions: Vec::new(),
            body: "{}".into(),
        };
        let fill = |txn: &mut crate::store::txn::Txn<'_>| {
            txn.put_tenant(TENANT, &TenantRow { name: "t".to_owned(), last_seq: Seq(10) })?;
            (1..=10).try_for_each(|seq| {
                let place = EventPlace { log: LogNo(100 + seq), tenant: TENANT, seq: Seq(seq) };
                txn.put_event(&event(seq), place, HubTime(1000 * seq), Vec::new())
            })
        };
        store.write(fill).unwrap();
        store
    }

    fn counted(store: &Store, stretches: &[(u64, u64)], types: &[&str], only: &[&str], exact_to: u64) -> (u64, bool) {
        let patterns = |texts: &[&str]| {
            texts.iter().map(|text| crate::rules::matching::parse_pattern(text).unwrap()).collect::<Vec<_>>()
        };
        let stretches = stretches.iter().map(|(from, to)| Skipped { from: Seq(*from), to: Seq(*to) }).collect();
        let filter = Filter { event_types: patterns(types), origin: None, schema_major: None };
        let through = Countable::Events { tenant: TENANT, stretches, next: Seq(0), filter };
        let mut counting = Counting::of(through, patterns(only)).exact_to(exact_to);
        loop {
            if let Some(counted) = counting.go_on(&store.reader().view().unwrap()).unwrap() {
                return (counted.count, counted.at_least);
            }
        }
    }

    // A2: the count of a replay
    #[test]
    fn counts_are_exact_up_to_a_number_and_at_least_beyond() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        for (stretches, types, only, exact_to, expected) in [
            (&[(1, 10)][..], &["*"][..], &[][..], 100, (10, false)),
            (&[(1, 10)], &["*"], &[], 10, (10, false)),
            (&[(1, 10)], &["*"], &[], 9, (9, true)),
            (&[(1, 10)], &["loan.paid"], &[], 100, (5, false)),
            (&[(1, 10)], &["loan.*"], &["*.opened"], 100, (5, false)),
            (&[(1, 10)], &["loan.paid"], &["loan.opened"], 100, (0, false)),
            (&[(1, 2), (5, 6), (10, 40)], &["*"], &[], 100, (5, false)),
            (&[], &["*"], &[], 100, (0, false)),
        ] {
            let found = counted(&store, stretches, types, only, exact_to);
            assert_eq!(found, expected, "{stretches:?} {types:?} {only:?} up to {exact_to}");
        }
    }

    // C6.6: a range of time, both ends included
    #[test]
    fn a_range_of_time_is_one_of_seqs() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let view = store.reader().view().unwrap();
        for (since, until, expected) in [
            (0, u64::MAX, Some((1, 10))),
            (1000, 1000, Some((1, 1))),
            (1001, 4999, Some((2, 4))),
            (1001, 1999, None),
            (10_001, u64::MAX, None),
            (0, 999, None),
        ] {
            let found = seqs_between(&view, TENANT, HubTime(since), HubTime(until)).unwrap();
            assert_eq!(found.map(|(from, to)| (from.0, to.0)), expected, "{since} to {until}");
        }
        assert_eq!(seqs_between(&view, TenantNo(7), HubTime(0), HubTime(u64::MAX)).unwrap(), None);
    }
}
