//! A scripted partition and its reader.
//!
//! The script grows while the world runs: events of tenants that ride one partition or several, duplicates (here, elsewhere, or with another
//! body), dropped and poison records, holes. The reader never trusts its memory: after a refusal or a restart it reads its position again.

use crate::chance::Chance;
use crate::model::{AskAdmit, Record};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use streaming_hub::engine::command::PartitionStep;
use streaming_hub::model::event::Event;
use streaming_hub::model::gap::{Gap, GapReason};
use streaming_hub::model::ids::EventId;
use streaming_hub::time::Timestamp;

/// Makes events.
pub struct Producer {
    chance: Chance,
    tenants: Vec<String>,
    made: Vec<Arc<Event>>,
    crashers: u64,
    killers: u64,
    /// Events that crash whoever attempts them.
    pub crashing: BTreeSet<EventId>,
    /// Events that crash the process that attempts them.
    pub killing: BTreeSet<EventId>,
}

impl Producer {
    /// One for all partitions.
    pub fn new(chance: Chance, tenants: Vec<String>, crashers: u64, killers: u64) -> Self {
        Self {
            chance,
            tenants,
            made: Vec::new(),
            crashers,
            killers,
            crashing: BTreeSet::new(),
            killing: BTreeSet::new(),
        }
    }

    /// The next record.
    pub fn record(&mut self, wall: u64, offset: i64) -> Record {
        match self.chance.below(100) {
            0..=3 => Record::Dropped,
            4..=6 => Record::Poison { offset },
            7..=16 if !self.made.is_empty() => Record::Event(self.again()),
            _ => Record::Event(self.event(wall)),
        }
    }

    /// An event for HTTP ingest: a new one, or one that was sent before.
    pub fn over_http(&mut self, wall: u64) -> Record {
        if !self.made.is_empty() && self.chance.permille(250) {
            return Record::Event(self.again());
        }
        Record::Event(self.event(wall))
    }

    fn again(&mut self) -> Arc<Event> {
        let recent = self.made.len().saturating_sub(20);
        let at = self.chance.within(recent as u64, self.made.len() as u64 - 1);
        let event = self.made[usize::try_from(at).unwrap()].clone();
        if self.chance.permille(200) {
            // The same id with another body.
            return Arc::new(Event { body: Bytes::from_static(b"{\"other\":true}"), ..(*event).clone() });
        }
        event
    }

    fn event(&mut self, wall: u64) -> Arc<Event> {
        let tenant = self.chance.pick(&self.tenants);
        let id = EventId(self.chance.uuid(wall));
        // Now and then one that does not fit a page, or the blob table's first chunk.
        let size = if self.chance.permille(20) { self.chance.pick(&[4_500, 70_000]) } else { self.chance.below(600) };
        let body: Vec<u8> = (0..size).map(|at| id.0[at % 16]).collect();
        let major = self.chance.pick(&[1, 1, 2]);
        let event = Arc::new(Event {
            id,
            tenant: tenant.into(),
            source: self.chance.pick(&["ledger", "lender"]).into(),
            resource: self.chance.pick(&["loan", "account"]).into(),
            event: self.chance.pick(&["paid", "opened", "closed"]).into(),
            time: Timestamp(wall).to_string().into(),
            schema_version: format!("{major}.0").into(),
            schema_major: major,
            subject: self.chance.permille(300).then(|| "subject".into()),
            content_type: "application/json".into(),
            data_schema: None,
            traceparent: None,
            tracestate: None,
            extensions: vec![("shard".into(), "7".into())],
            body: body.into(),
        });
        if self.chance.permille(self.crashers) {
            self.crashing.insert(id);
        } else if self.chance.permille(self.killers) {
            self.killing.insert(id);
        }
        self.made.push(event.clone());
        event
    }
}

/// One partition of a topic.
pub struct Source {
    chance: Chance,
    pub topic: Arc<str>,
    pub topic_id: [u8; 16],
    pub partition: i32,
    log: BTreeMap<i64, Record>,
    end: i64,
    /// What was lost to the topic's own retention.
    start: i64,
    /// Where the reader is; none when it has to look.
    at: Option<Option<i64>>,
    /// Its end went back, and the stored position may be beyond it.
    truncated: bool,
    /// The topic was made again since its position was stored.
    recreated: bool,
    /// Steps handed to the writer and not yet answered.
    pub asked: usize,
}

impl Source {
    /// An empty partition.
    pub fn new(mut chance: Chance, number: usize) -> Self {
        let start = i64::try_from(chance.within(0, 3)).unwrap();
        Self {
            topic: format!("lerian.streaming.{}", if number.is_multiple_of(2) { "ledger" } else { "lender" }).into(),
            topic_id: [u8::try_from(number % 2).unwrap() + 1; 16],
            partition: i32::try_from(number).unwrap(),
            log: BTreeMap::new(),
            end: start,
            start,
            at: None,
            truncated: false,
            recreated: false,
            asked: 0,
            chance,
        }
    }

    /// A record is written to it.
    pub fn append(&mut self, producer: &mut Producer, wall: u64) {
        if self.truncated {
            return;
        }
        let record = producer.record(wall, self.end);
        self.log.insert(self.end, record);
        // Control batches and compaction leave holes.
        self.end += if self.chance.permille(100) { 3 } else { 1 };
    }

    /// Old records are removed by the topic's own retention.
    pub fn expire(&mut self) {
        self.start = self.end.min(self.start + i64::try_from(self.chance.within(1, 10)).unwrap());
    }

    /// An unclean leader election: the newest records are gone, others will stand at their offsets.
    pub fn truncate(&mut self) {
        self.end = (self.end - i64::try_from(self.chance.within(1, 5)).unwrap()).max(self.start);
        self.log.split_off(&self.end);
        // The reader meets it before anything new is written there; with leader epochs it would see it afterwards too.
        self.truncated = true;
        self.at = None;
    }

    /// The topic is deleted and made again.
    pub fn recreate(&mut self) {
        self.topic_id[1] += 1;
        self.log.clear();
        self.start = 0;
        self.end = 0;
        self.at = None;
        self.recreated = true;
        self.truncated = false;
    }

    /// A step was answered; after a refusal what the reader believed is void.
    pub fn answered(&mut self, stored: bool) {
        self.asked = self.asked.saturating_sub(1);
        if !stored {
            self.at = None;
        }
    }

    /// The process that read it is gone.
    pub fn lose_reader(&mut self) {
        self.at = None;
        self.asked = 0;
    }

    /// Whether it must look up its position, once all that it asked is answered.
    pub fn is_lost(&self) -> bool {
        self.at.is_none()
    }

    /// The stored position, looked up.
    pub fn found(&mut self, stored: Option<i64>) {
        self.at = Some(stored);
        self.truncated &= stored.unwrap_or(0) > self.end;
    }

    /// Whether all that was written was read, as the stored position says.
    pub fn is_read(&self, stored: Option<i64>) -> bool {
        self.log.is_empty() || stored == Some(self.end)
    }

    /// The next step, and the reader goes on as if it were done.
    pub fn step(&mut self, wall: u64) -> Option<AskAdmit> {
        let from = self.at?;
        let mut at = from.unwrap_or(self.start);
        let mut gaps = Vec::new();
        let gap = |from, to, why| Gap {
            topic: self.topic.to_string(),
            partition: self.partition,
            from,
            to,
            at: Timestamp(wall),
            why,
        };
        if at > self.end {
            gaps.push(gap(at, self.end, GapReason::Truncated));
            at = self.end;
        } else if at < self.start {
            gaps.push(gap(at, self.start, GapReason::BelowStart));
            at = self.start;
        }
        if from.is_none() && self.recreated {
            gaps.push(gap(0, 0, GapReason::Recreated));
        }
        // A rewind: the reader is behind what is stored, and says so in `from`, or reads records again that were stored.
        let rewound = self.chance.permille(40);
        let claimed = if rewound && self.chance.permille(500) { from.map(|from| from - 1) } else { from };
        let first = if rewound { (at - 4).max(self.start) } else { at };
        let most = usize::try_from(self.chance.within(1, 12)).unwrap();
        let taken: Vec<(i64, Record)> = self.log.range(first..).take(most).map(|(o, r)| (*o, r.clone())).collect();
        let next = match taken.last() {
            Some((offset, _)) => (offset + 1).max(at),
            None => self.end,
        };
        if (Some(next) == from && gaps.is_empty()) || (from.is_none() && self.log.is_empty()) {
            return None;
        }
        let step = PartitionStep {
            topic: self.topic.clone(),
            topic_id: self.topic_id,
            partition: self.partition,
            from: claimed,
            next,
            leader_epoch: 1,
            gaps,
        };
        // After a truncation it looks where that has left it.
        self.at = if self.truncated { None } else { Some(Some(next)) };
        self.asked += 1;
        Some(AskAdmit { from: Some(step), records: taken.into_iter().map(|(_, record)| record).collect() })
    }

    /// Every event below a position that the reader had to bring: what the topic's own retention took before is lost and known to be.
    pub fn brought_below(&self, position: i64) -> impl Iterator<Item = &Arc<Event>> {
        self.log.range(self.start..position.max(self.start)).filter_map(|(_, record)| match record {
            Record::Event(event) => Some(event),
            Record::Dropped | Record::Poison { .. } => None,
        })
    }
}
