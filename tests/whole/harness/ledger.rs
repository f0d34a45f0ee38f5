//! What was produced against what was received: the same judgement for every test of the whole daemon
//! (invariants 1, 5, 6, 7, 8 and 9 of the design).

use super::kafka::{Manifest, Row};
use super::receiver::{Arrival, Receiver, Signature};
use std::collections::{BTreeMap, HashMap, HashSet};

/// How many examples of each fault are shown.
const SHOWN: usize = 5;

/// What is wrong with what was received; nothing, when all is well.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    counts: BTreeMap<&'static str, (usize, Vec<String>)>,
}

impl Faults {
    fn add(&mut self, what: &'static str, example: impl FnOnce() -> String) {
        let (count, examples) = self.counts.entry(what).or_default();
        *count += 1;
        if examples.len() < SHOWN {
            examples.push(example());
        }
    }

    /// Fails the test when there is any.
    pub(crate) fn none(&self, when: &str) {
        let lines: Vec<String> = self
            .counts
            .iter()
            .map(|(what, (count, examples))| format!("{count} x {what}: {}", examples.join("; ")))
            .collect();
        assert!(lines.is_empty(), "{when}:\n{}", lines.join("\n"));
    }
}

/// Judges all that was received: every committed event, each at its own tenant, in its order, signed, byte for byte; nothing else.
///
/// `crashes` says how many deliveries had come at each crash, when the last one before it was in. After each of them a lane may begin
/// with the event that it ended with: that is the only repeat there may be. How many there were is handed back.
pub(crate) fn judge(manifest: &Manifest, receiver: &Receiver, crashes: &[usize]) -> (Faults, usize) {
    judge_arrivals(manifest, &receiver.arrivals(), &receiver.tenants(), crashes)
}

fn judge_arrivals(
    manifest: &Manifest,
    arrivals: &[Arrival],
    tenants: &HashMap<String, u32>,
    crashes: &[usize],
) -> (Faults, usize) {
    let mut faults = Faults::default();
    let aborted: HashSet<u128> = manifest.aborted.iter().map(|row| row.event).collect();
    let known: HashSet<u128> = manifest.committed.iter().map(|row| row.event).collect();
    let mut deliveries = HashSet::with_capacity(arrivals.len());
    let mut lanes: HashMap<u32, Vec<(usize, &Arrival)>> = HashMap::new();
    for (at, arrival) in arrivals.iter().enumerate() {
        let show = || format!("event {:032x}, seq {}, n {}", arrival.event, arrival.seq, arrival.n);
        if aborted.contains(&arrival.event) {
            faults.add("aborted and delivered", show);
        } else if !known.contains(&arrival.event) {
            faults.add("never produced", show);
        }
        if !arrival.is_own {
            faults.add("at a wrong tenant", show);
        }
        if arrival.signature == Signature::Wrong {
            faults.add("wrong signature", show);
        }
        if !deliveries.insert(arrival.delivery) {
            faults.add("delivery id used twice", show);
        }
        let crashes_before = crashes.partition_point(|crash| *crash <= at);
        lanes.entry(arrival.tenant).or_default().push((crashes_before, arrival));
    }
    let mut repeats = 0;
    for (tenant, rows) in expected(&manifest.committed) {
        let lane = tenants.get(tenant).and_then(|number| lanes.get(number)).map_or(&[][..], Vec::as_slice);
        let came = without_repeats(tenant, lane, &mut faults);
        repeats += lane.len() - came.len();
        judge_lane(tenant, &rows, &came, &mut faults);
    }
    (faults, repeats)
}

/// The deliveries of a lane without those that a crash explains.
fn without_repeats<'a>(tenant: &str, lane: &[(usize, &'a Arrival)], faults: &mut Faults) -> Vec<&'a Arrival> {
    let mut came: Vec<&Arrival> = Vec::with_capacity(lane.len());
    let mut crashes_seen = 0;
    for (crashes, arrival) in lane {
        let show = || format!("{tenant} n {} after crash {crashes}", arrival.n);
        match came.last() {
            Some(last) if last.event == arrival.event => {
                if *crashes == crashes_seen {
                    faults.add("came again without a crash", show);
                }
                if (last.checksum, last.seq) != (arrival.checksum, arrival.seq) {
                    faults.add("came again and was another", show);
                }
            }
            Some(_) | None => came.push(arrival),
        }
        crashes_seen = *crashes;
    }
    came
}

fn judge_lane(tenant: &str, rows: &[&Row], came: &[&Arrival], faults: &mut Faults) {
    let seen: HashSet<u128> = came.iter().map(|arrival| arrival.event).collect();
    for row in rows.iter().filter(|row| !seen.contains(&row.event)) {
        faults.add("missing", || format!("{tenant} n {} event {:032x}", row.n, row.event));
    }
    let mut last_seq = 0;
    let mut order = rows.iter().filter(|row| seen.contains(&row.event));
    for arrival in came {
        if arrival.seq <= last_seq {
            faults.add("seq not rising", || format!("{tenant} seq {} after {last_seq}", arrival.seq));
        }
        last_seq = arrival.seq;
        match order.next() {
            None => faults.add("more than was produced", || format!("{tenant} n {}", arrival.n)),
            Some(row) if row.event != arrival.event => {
                faults.add("out of order", || format!("{tenant} n {} where {} was due", arrival.n, row.n));
            }
            Some(row) if row.checksum != arrival.checksum => {
                faults.add("another body", || format!("{tenant} n {}", arrival.n));
            }
            Some(_) => {}
        }
    }
}

/// The events of each tenant in the order in which they were produced.
fn expected(committed: &[Row]) -> BTreeMap<&str, Vec<&Row>> {
    let mut tenants: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in committed {
        tenants.entry(&row.tenant).or_default().push(row);
    }
    for rows in tenants.values_mut() {
        rows.sort_by_key(|row| row.n);
        let numbers = rows.iter().map(|row| row.n).eq(1..=rows.len() as u64);
        assert!(numbers, "the manifest itself has holes");
    }
    tenants
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three events of each of two tenants; event ids are 10 x tenant + n.
    fn manifest() -> Manifest {
        let row = |tenant: u64, n: u64| Row {
            event: u128::from(10 * tenant + n),
            tenant: format!("t{tenant}"),
            n,
            checksum: u32::try_from(n).unwrap(),
        };
        let committed = [1, 2].into_iter().flat_map(|tenant| (1..=3).map(move |n| row(tenant, n))).collect();
        Manifest { committed, aborted: vec![row(9, 9)], told: serde_json::Value::Null }
    }

    fn arrival(event: u128) -> Arrival {
        let n = u64::try_from(event % 10).unwrap();
        Arrival {
            tenant: u32::try_from(event / 10).unwrap(),
            is_own: true,
            event,
            delivery: 0,
            attempt: 1,
            seq: n,
            n,
            checksum: u32::try_from(n).unwrap(),
            produced_us: 0,
            received_us: 0,
            signature: Signature::Right,
        }
    }

    fn found(events: &[u128], crashes: &[usize], change: impl Fn(&mut Vec<Arrival>)) -> Vec<&'static str> {
        let mut arrivals: Vec<Arrival> = events.iter().map(|event| arrival(*event)).collect();
        for (delivery, arrival) in (0..).zip(&mut arrivals) {
            arrival.delivery = delivery;
        }
        change(&mut arrivals);
        let tenants = [("t1".to_owned(), 1), ("t2".to_owned(), 2)].into();
        judge_arrivals(&manifest(), &arrivals, &tenants, crashes).0.counts.into_keys().collect()
    }

    #[test]
    fn each_fault_is_found_and_nothing_else() {
        let good = [11, 21, 12, 22, 13, 23];
        for (events, crashes, faults) in [
            (&good[..], &[][..], &[][..]),
            (&good, &[3], &[]),
            (&[11, 12, 13, 21, 22, 23], &[], &[]),
            (&[11, 12, 13, 21, 22], &[], &["missing"]),
            (&[11, 12, 21, 22, 23], &[], &["missing"]),
            (&[11, 13, 12, 21, 22, 23], &[], &["out of order", "seq not rising"]),
            (&[11, 12, 12, 13, 21, 22, 23], &[], &["came again without a crash"]),
            (&[11, 12, 12, 13, 21, 22, 23], &[2], &[]),
            (&[11, 12, 12, 12, 13, 21, 22, 23], &[2], &["came again without a crash"]),
            (&[11, 12, 12, 12, 13, 21, 22, 23], &[2, 3], &[]),
            (&[11, 12, 11, 13, 21, 22, 23], &[2], &["more than was produced", "out of order", "seq not rising"]),
            (&[11, 12, 13, 21, 22, 23, 99], &[], &["aborted and delivered"]),
            (&[11, 12, 13, 21, 22, 23, 77], &[], &["never produced"]),
        ] {
            assert_eq!(found(events, crashes, |_| {}), faults, "{events:?} {crashes:?}");
        }
        let changed = |change: &dyn Fn(&mut Arrival)| found(&good, &[], |arrivals| change(&mut arrivals[2]));
        assert_eq!(changed(&|arrival| arrival.is_own = false), ["at a wrong tenant"]);
        assert_eq!(changed(&|arrival| arrival.signature = Signature::Wrong), ["wrong signature"]);
        assert_eq!(changed(&|arrival| arrival.delivery = 1), ["delivery id used twice"]);
        assert_eq!(changed(&|arrival| arrival.checksum = 7), ["another body"]);
        let again = found(&[11, 12, 12, 13, 21, 22, 23], &[2], |arrivals| arrivals[2].checksum = 7);
        assert_eq!(again, ["came again and was another"]);
    }
}
