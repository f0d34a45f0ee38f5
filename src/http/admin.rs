//! What only operators and viewers see of ingest: quarantined records, gaps, and each partition.

use crate::http::answer::Answer;
use crate::http::call::Call;
use crate::http::form::Faults;
use crate::http::outside::PartitionFacts;
use crate::http::page::{List, Listed, Page, cursor};
use crate::http::problem::Problem;
use crate::model::gap::Gap;
use crate::model::limits::PAGE_BYTES;
use crate::model::record::Origin;
use crate::store::view::{PoisonRow, PositionRow};
use crate::time::Timestamp;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

/// A quarantined record.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PoisonRecord)]
pub(crate) struct PoisonShown {
    /// Its rising number.
    no: u64,
    /// When it was quarantined.
    #[schema(value_type = String, format = DateTime)]
    time: Timestamp,
    /// `kafka` or `http`.
    origin: &'static str,
    /// Topic, of one from Kafka.
    topic: Option<String>,
    /// Partition, of one from Kafka.
    partition: Option<i32>,
    /// Offset, of one from Kafka.
    offset: Option<i64>,
    /// Why.
    #[schema(example = "missing_tenant")]
    reason: &'static str,
    /// Its headers in their order, cut to 32 KiB.
    headers: Vec<HeaderShown>,
    /// The first 64 KiB of its body, when they are UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// The first 64 KiB of its body, when they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    /// How long the body was in whole.
    body_bytes: u64,
}

/// A header of a record.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RecordHeader)]
pub(crate) struct HeaderShown {
    /// Its name; bytes that are no UTF-8 are replaced.
    name: String,
    /// Its value, when it is UTF-8; null of an absent value.
    value: Option<String>,
    /// Its value, when it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

/// A stretch of offsets that was never read.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Gap)]
pub(crate) struct GapShown {
    /// Topic.
    topic: String,
    /// Partition.
    partition: i32,
    /// First offset not read.
    from: i64,
    /// First offset read again.
    to: i64,
    /// When it was found.
    #[schema(value_type = String, format = DateTime)]
    time: Timestamp,
    /// `below_start`, `truncated` or `recreated`.
    reason: &'static str,
}

/// The Kafka source and its partitions.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Ingest)]
pub(crate) struct IngestShown {
    /// The source as a whole, in one word.
    source: &'static str,
    /// Each partition.
    partitions: Vec<PartitionShown>,
}

/// A partition.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Partition)]
pub(crate) struct PartitionShown {
    /// Topic.
    topic: String,
    /// Partition.
    partition: i32,
    /// In one word; `stored` where it has a position and is not followed now.
    state: &'static str,
    /// The next offset to read.
    position: Option<i64>,
    /// End of the log.
    high_watermark: Option<i64>,
    /// End of what is decided by transactions.
    last_stable_offset: Option<i64>,
    /// Records between position and end.
    lag: Option<i64>,
    /// When the last fetch was answered.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_fetch: Option<Timestamp>,
    /// Time of the last record read, as its producer set it.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_record: Option<Timestamp>,
    /// The last error.
    last_error: Option<String>,
}

/// Quarantined records, newest first.
pub(crate) async fn poison(call: &Call) -> Result<Answer, Problem> {
    let page = numbered_page(call, List::Poison)?;
    let (before, limit) = (page.after.map(u64::from_be_bytes), page.limit);
    let mut rows = call.read(move |view| view.poison(before, limit + 1)).await?;
    let fitting = fitting(&rows).min(limit);
    let more = rows.len() > fitting;
    rows.truncate(fitting);
    let next_cursor = rows.last().filter(|_| more).map(|row| cursor(List::Poison, &row.no.to_be_bytes()));
    Ok(Answer::ok(&Listed { items: rows.into_iter().map(PoisonShown::of).collect(), next_cursor }))
}

/// Gaps, newest first.
pub(crate) async fn gaps(call: &Call) -> Result<Answer, Problem> {
    let page = numbered_page(call, List::Gaps)?;
    let (before, limit) = (page.after.map(u64::from_be_bytes), page.limit);
    let mut rows = call.read(move |view| view.gaps(before, limit + 1)).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next_cursor = rows.last().filter(|_| more).map(|(no, _)| cursor(List::Gaps, &no.to_be_bytes()));
    Ok(Answer::ok(&Listed { items: rows.into_iter().map(|(_, gap)| GapShown::of(gap)).collect(), next_cursor }))
}

/// Each partition: what is followed now, and what has a stored position beside it.
pub(crate) async fn ingest(call: &Call) -> Result<Answer, Problem> {
    let mut faults = Faults::default();
    call.query.only(&[], &mut faults);
    faults.check()?;
    let stored = call.read(|view| view.positions()).await?;
    let followed = call.parts().facts.partitions();
    let mut partitions: Vec<PartitionShown> = stored
        .into_iter()
        .filter(|row| !followed.iter().any(|facts| facts.topic == row.topic && facts.partition == row.partition))
        .map(PartitionShown::stored)
        .collect();
    partitions.extend(followed.into_iter().map(PartitionShown::followed));
    partitions.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    Ok(Answer::ok(&IngestShown { source: call.parts().facts.source(), partitions }))
}

/// How many of the rows fit on a page: at least one, and as many as keep it within its bytes.
fn fitting(rows: &[PoisonRow]) -> usize {
    let mut bytes = 0;
    let within = rows.iter().take_while(|row| {
        bytes += row.record.body.len();
        bytes <= PAGE_BYTES
    });
    within.count().max(1)
}

fn numbered_page(call: &Call, list: List) -> Result<Page<8>, Problem> {
    let mut faults = Faults::default();
    call.query.only(&["limit", "cursor"], &mut faults);
    let page = call.query.page(list, &mut faults)?;
    faults.check().map(|()| page)
}

impl PoisonShown {
    fn of(row: PoisonRow) -> Self {
        let (origin, topic, partition, offset) = match row.record.origin {
            Origin::Kafka { topic, partition, offset } => ("kafka", Some(topic.into()), Some(partition), Some(offset)),
            Origin::Http => ("http", None, None, None),
        };
        let (body, body_base64) = text_or_base64(&row.record.body);
        Self {
            no: row.no,
            time: row.at,
            origin,
            topic,
            partition,
            offset,
            reason: row.record.reason.code(),
            headers: row.record.headers.iter().map(|(name, value)| HeaderShown::of(name, value.as_ref())).collect(),
            body,
            body_base64,
            body_bytes: row.record.body_bytes,
        }
    }
}

impl HeaderShown {
    fn of(name: &Bytes, value: Option<&Bytes>) -> Self {
        let (value, value_base64) = value.map_or((None, None), text_or_base64);
        Self { name: String::from_utf8_lossy(name).into_owned(), value, value_base64 }
    }
}

impl GapShown {
    fn of(gap: Gap) -> Self {
        let Gap { topic, partition, from, to, at, why } = gap;
        Self { topic, partition, from, to, time: at, reason: why.code() }
    }
}

impl PartitionShown {
    fn stored(row: PositionRow) -> Self {
        Self {
            topic: row.topic,
            partition: row.partition,
            state: "stored",
            position: Some(row.next),
            high_watermark: None,
            last_stable_offset: None,
            lag: None,
            last_fetch: None,
            last_record: None,
            last_error: None,
        }
    }

    fn followed(facts: PartitionFacts) -> Self {
        let lag = facts.high_watermark.zip(facts.position).map(|(end, position)| end.saturating_sub(position).max(0));
        Self {
            topic: facts.topic,
            partition: facts.partition,
            state: facts.state,
            position: facts.position,
            high_watermark: facts.high_watermark,
            last_stable_offset: facts.last_stable,
            lag,
            last_fetch: facts.last_fetch,
            last_record: facts.last_record,
            last_error: facts.last_error,
        }
    }
}

fn text_or_base64(bytes: &Bytes) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}
