//! Whether a stored event is wanted: first by the hashes of the index, which only suggest it, then by its words, which decide.

use crate::model::replay::Filter;
use crate::model::subscription::EventPattern;
use crate::rules::matching::pattern_matches;
use crate::store::rows::{EventFacts, IndexRow, hash};

/// Whether an event may be wanted, by what the index holds of it.
pub(super) fn may_be(filter: &Filter, index: &IndexRow) -> bool {
    filter.schema_major.is_none_or(|major| major == index.schema_major)
        && filter.origin.as_ref().is_none_or(|origin| hash(origin) == index.source)
        && filter.event_types.iter().any(|pattern| may_be_of(pattern, index))
}

/// Whether an event may be of one of these types; of none named, all are.
pub(super) fn may_be_one_of(only: &[EventPattern], index: &IndexRow) -> bool {
    only.is_empty() || only.iter().any(|pattern| may_be_of(pattern, index))
}

/// Whether an event is wanted.
pub(super) fn is(filter: &Filter, event: &EventFacts) -> bool {
    filter.schema_major.is_none_or(|major| major == event.schema_major)
        && filter.origin.as_ref().is_none_or(|origin| *origin == event.source)
        && filter.event_types.iter().any(|pattern| pattern_matches(pattern, &event.resource, &event.event))
}

/// Whether an event is of one of these types; of none named, all are.
pub(super) fn is_one_of(only: &[EventPattern], event: &EventFacts) -> bool {
    only.is_empty() || only.iter().any(|pattern| pattern_matches(pattern, &event.resource, &event.event))
}

fn may_be_of(pattern: &EventPattern, index: &IndexRow) -> bool {
    match pattern {
        EventPattern::Exact(resource, event) => hash(resource) == index.resource && hash(event) == index.event,
        EventPattern::Resource(resource) => hash(resource) == index.resource,
        EventPattern::Event(event) => hash(event) == index.event,
        EventPattern::All => true,
    }
}
