//! The sample events of `data/samples/`, played in order and round after round: in later rounds with new ids and times, so that
//! duplicates stay duplicates and what is malformed stays malformed.

use super::super::Failure;
use crate::entropy::Entropy;
use crate::model::event::Event;
use crate::model::ids::EventId;
use crate::model::record::Verdict;
use crate::rules::classify::{Policy, classify};
use crate::rules::explain::{LineRecord, read_record};
use crate::time::Timestamp;
use bytes::Bytes;
use std::collections::HashMap;

/// The files, in the order in which they are played.
const FILES: [(&str, &str); 5] = [
    ("01-payroll-loan.jsonl", include_str!("../../../data/samples/01-payroll-loan.jsonl")),
    ("02-ledger-day.jsonl", include_str!("../../../data/samples/02-ledger-day.jsonl")),
    ("03-reconciliation.jsonl", include_str!("../../../data/samples/03-reconciliation.jsonl")),
    ("04-fraud-review.jsonl", include_str!("../../../data/samples/04-fraud-review.jsonl")),
    ("05-repayments.jsonl", include_str!("../../../data/samples/05-repayments.jsonl")),
];

/// The samples, to be played one after the other without end.
pub(super) struct Samples {
    lines: Vec<LineRecord>,
    next: usize,
    fresh: bool,
    renamed: HashMap<EventId, EventId>,
}

impl Samples {
    /// Reads them. With `fresh` also the first round gets new ids: the store may know the others from an earlier run.
    pub(super) fn read(fresh: bool) -> Result<Self, Failure> {
        let mut lines = Vec::new();
        for (file, text) in FILES {
            for (number, line) in text.lines().enumerate() {
                let wrong = |error| Failure::Line { file: file.to_owned(), line: number + 1, error };
                lines.push(read_record(line).map_err(wrong)?);
            }
        }
        Ok(Self { lines, next: 0, fresh, renamed: HashMap::new() })
    }

    /// How many there are in one round.
    pub(super) fn round(&self) -> u64 {
        self.lines.len() as u64
    }

    /// The tenants whose events would be accepted, in order of appearance.
    pub(super) fn tenants(&self, policy: &Policy) -> Vec<String> {
        let mut tenants: Vec<String> = Vec::new();
        for line in &self.lines {
            if let Some(event) = accepted(policy, line)
                && !tenants.iter().any(|known| **known == *event.tenant)
            {
                tenants.push(event.tenant.into_string());
            }
        }
        tenants
    }

    /// The next one to play.
    pub(super) fn next(&mut self, now: Timestamp, entropy: &mut Entropy) -> Option<LineRecord> {
        if self.next == self.lines.len() {
            (self.next, self.fresh) = (0, true);
            self.renamed.clear();
        }
        let mut line = self.lines.get(self.next)?.clone();
        self.next += 1;
        if self.fresh {
            self.renew(&mut line, now, entropy);
        }
        Some(line)
    }

    // Only what is right is renewed: a wrong id or time is the point of its sample.
    fn renew(&mut self, line: &mut LineRecord, now: Timestamp, entropy: &mut Entropy) {
        for (name, value) in &mut line.record.headers {
            let Some(text) = value.as_deref().and_then(|bytes| std::str::from_utf8(bytes).ok()) else { continue };
            match name.as_ref() {
                b"ce-id" => {
                    if let Ok(id) = text.parse::<EventId>() {
                        let new = self.renamed.entry(id).or_insert_with(|| EventId(entropy.uuid_v7(now)));
                        *value = Some(Bytes::from(new.to_string()));
                    }
                }
                b"ce-time" if Timestamp::parse(text).is_some() => *value = Some(Bytes::from(now.to_string())),
                _ => {}
            }
        }
    }
}

fn accepted(policy: &Policy, line: &LineRecord) -> Option<Event> {
    match classify(policy, None, &line.record) {
        Verdict::Accept(event) => Some(*event),
        Verdict::Drop | Verdict::Quarantine(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const POLICY: Policy = Policy { max_body_bytes: 1 << 20, accept_ce_underscore: false };

    fn verdict(line: &LineRecord) -> String {
        match classify(&POLICY, None, &line.record) {
            Verdict::Accept(_) => "accept".to_owned(),
            Verdict::Drop => "drop".to_owned(),
            Verdict::Quarantine(reason) => reason.code().to_owned(),
        }
    }

    fn header(line: &LineRecord, name: &str) -> Option<Bytes> {
        line.record.headers.iter().find(|(n, _)| n == name.as_bytes())?.1.clone()
    }

    #[test]
    fn the_samples_show_everything_that_can_happen_to_a_record() {
        let samples = Samples::read(false).unwrap();
        let verdicts: BTreeSet<String> = samples.lines.iter().map(verdict).collect();
        assert!(verdicts.len() >= 10, "{verdicts:?}");
        let events: Vec<Event> = samples.lines.iter().filter_map(|line| accepted(&POLICY, line)).collect();
        let sources: BTreeSet<&str> = events.iter().map(|event| &*event.source).collect();
        assert_eq!(sources.into_iter().collect::<Vec<_>>(), ["consignado", "lender", "matcher", "midaz", "tracer"]);
        let ids: BTreeSet<EventId> = events.iter().map(|event| event.id).collect();
        assert!(ids.len() + 3 <= events.len(), "some are duplicates");
        assert!(samples.tenants(&POLICY).len() >= 4);
    }

    #[test]
    fn later_rounds_have_new_ids_and_the_same_verdicts_and_duplicates() {
        let mut samples = Samples::read(false).unwrap();
        let mut entropy = Entropy::from_seed(1);
        let now = Timestamp(1_800_000_000_000);
        let mut round =
            || -> Vec<LineRecord> { (0..samples.round()).filter_map(|_| samples.next(now, &mut entropy)).collect() };
        let (first, second) = (round(), round());
        assert_eq!(first.iter().map(verdict).collect::<Vec<_>>(), second.iter().map(verdict).collect::<Vec<_>>());
        let groups = |lines: &[LineRecord]| -> Vec<usize> {
            let ids: Vec<_> = lines.iter().map(|line| header(line, "ce-id")).collect();
            ids.iter().filter_map(|id| ids.iter().position(|other| other == id)).collect()
        };
        assert_eq!(groups(&first), groups(&second), "who repeats whom");
        for (old, new) in first.iter().zip(&second).filter(|(old, _)| verdict(old) == "accept") {
            assert_ne!(header(old, "ce-id"), header(new, "ce-id"));
        }
    }
}
