//! Bodies that calls take and that are no shown object: written out by hand, for the OpenAPI document.

use crate::http::dead_letters::REASONS;
use serde_json::{Value, json};

/// Operator's redrive of dead letters.
pub(crate) fn redrive_input() -> Value {
    json!({
        "type": "object",
        "description": "One dead letter by subscription_id and seq, or all that pass a filter; `all` stands for no filter.",
        "properties": {
            "subscription_id": {"type": "string"},
            "seq": {"type": "integer", "minimum": 1},
            "tenant_id": {"type": "string"},
            "reason": {"type": "string", "enum": REASONS.map(|(name, _)| name)},
            "all": {"type": "boolean"},
        },
        "additionalProperties": false,
    })
}

/// Many dead letters of one subscription.
pub(crate) fn letters_input() -> Value {
    json!({
        "type": "object",
        "description": "Which dead letters; `all` stands for no filter, and a purge without one needs it.",
        "properties": {
            "event_types": {"type": "array", "items": {"type": "string"}, "example": ["repayment.*"]},
            "reason": {"type": "string", "enum": REASONS.map(|(name, _)| name)},
            "since": {"type": "string", "format": "date-time", "description": "Died then or later."},
            "until": {"type": "string", "format": "date-time", "description": "Died then or earlier."},
            "all": {"type": "boolean"},
            "dry_run": {"type": "boolean", "description": "Only count."},
        },
        "additionalProperties": false,
    })
}

/// A replay.
pub(crate) fn replay_input() -> Value {
    json!({
        "type": "object",
        "description": "One of: from_seq with to_seq, since with until, dead_letters, skipped. What the subscription wants now is sent.",
        "properties": {
            "from_seq": {"type": "integer", "minimum": 1},
            "to_seq": {"type": "integer", "minimum": 1, "description": "Absent: the newest."},
            "since": {"type": "string", "format": "date-time", "description": "Stored then or later."},
            "until": {"type": "string", "format": "date-time", "description": "Stored then or earlier; absent: now."},
            "dead_letters": {"type": "boolean", "description": "Its dead letters; each is gone once it is delivered."},
            "skipped": {"type": "boolean", "description": "What was stored while it was off or not proven."},
            "event_types": {"type": "array", "items": {"type": "string"}, "description": "Only these."},
            "dry_run": {"type": "boolean", "description": "Only count."},
        },
        "additionalProperties": false,
    })
}

/// A new API key.
pub(crate) fn key_input() -> Value {
    json!({
        "type": "object",
        "required": ["name", "role"],
        "properties": {
            "name": {"type": "string"},
            "role": {"type": "string", "enum": ["tenant", "operator", "ingest", "viewer"]},
            "tenant_id": {"type": "string", "description": "Of role `tenant`; a single-tenant hub needs none."},
            "tenants": {"type": "array", "items": {"type": "string"}, "description": "Of role `ingest`; absent: all."},
            "sources": {"type": "array", "items": {"type": "string"}, "description": "Of role `ingest`; absent: all."},
            "expires_at": {"type": "string", "format": "date-time"},
        },
        "additionalProperties": false,
    })
}
