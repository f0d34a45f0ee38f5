//! The closed list of public error codes: what clients and scripts may match on.

/// A public error code. The text is stable; a new failure gets a new one.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $status:literal $text:literal $title:literal,)*) => {
        /// A stable code of a problem answer (A1.4), with its HTTP status and title.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The code as clients see it.
            pub fn text(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }

            /// The HTTP status it comes with.
            pub fn status(self) -> u16 {
                match self { $(Code::$name => $status,)* }
            }

            /// A short title for people.
            pub fn title(self) -> &'static str {
                match self { $(Code::$name => $title,)* }
            }
        }
    };
}

codes! {
    /// The request is not what HTTP or JSON allow.
    BadRequest = 400 "bad_request" "The request cannot be read",
    /// A multi-tenant hub must be told which tenant (A1.2).
    TenantRequired = 400 "tenant_required" "Name the tenant in X-Tenant-Id",
    /// A tenant key may not name another tenant (A1.2).
    TenantMismatch = 400 "tenant_mismatch" "The key belongs to another tenant",
    /// No valid key.
    Unauthorized = 401 "unauthorized" "A valid API key is needed",
    /// The key's role may not do this.
    Forbidden = 403 "forbidden" "The key's role does not allow this",
    /// The ingest key does not allow this source or tenant (A1.9).
    SourceNotAllowed = 403 "source_not_allowed" "The key may not write for this source",
    /// No such thing, or another tenant's (A1.3).
    NotFound = 404 "not_found" "There is no such object",
    /// The path knows other methods (A1.11).
    MethodNotAllowed = 405 "method_not_allowed" "The path does not take this method",
    /// No wanted type can be had (A1.11).
    NotAcceptable = 406 "not_acceptable" "No wanted media type can be had",
    /// The request did not arrive in time (A1.9).
    RequestTimeout = 408 "request_timeout" "The request did not arrive whole in time",
    /// The idempotency key was used with another request (A1.7).
    IdempotencyConflict = 409 "idempotency_conflict" "The Idempotency-Key was used for another request",
    /// The same idempotency key is being worked on.
    IdempotencyInProgress = 409 "idempotency_in_progress" "The first request with this Idempotency-Key is not done",
    /// The former secret is still valid (C9.2).
    RotationInProgress = 409 "rotation_in_progress" "The former secret is still valid",
    /// Only verify lifts this (C8.4).
    VerifyRequired = 409 "verify_required" "The subscription was disabled by failures; verify it",
    /// A ceiling is reached.
    LimitReached = 409 "limit_reached" "A limit is reached",
    /// If-Match names an older state (A1.8).
    PreconditionFailed = 412 "precondition_failed" "The object has changed since it was read",
    /// The body is over the limit (A1.9).
    PayloadTooLarge = 413 "payload_too_large" "The body is too large",
    /// The URL is over the limit.
    UriTooLong = 414 "uri_too_long" "The URL is too long",
    /// Another content type is needed (A1.11).
    UnsupportedMediaType = 415 "unsupported_media_type" "The body's media type is not supported",
    /// Fields are wrong; `errors` names each.
    Invalid = 422 "invalid" "Some fields are not valid",
    /// Headers are over the limit.
    HeadersTooLarge = 431 "headers_too_large" "The headers are too large",
    /// Over a rate (C11.6).
    RateLimited = 429 "rate_limited" "Too many requests",
    /// A fault of ours.
    Internal = 500 "internal" "The hub failed; the log says why",
    /// Writes are suspended (C13.4).
    StoreSuspended = 503 "store_suspended" "The store takes no writes now",
    /// Less than `STORE_RESERVE_BYTES` is free (C13.4).
    DiskLow = 503 "disk_low" "The disk is nearly full",
    /// A check of `/readyz` failed, or the hub is draining (C13.1).
    NotReady = 503 "not_ready" "The hub is not ready",
    /// The hub is stopping (C13.2).
    Stopping = 503 "stopping" "The hub is stopping",
    /// Dead letters are not sent again until fewer jobs wait for another attempt.
    BacklogFull = 503 "backlog_full" "Too many jobs are waiting",
    /// Too many requests at once (A1.9).
    Overloaded = 503 "overloaded" "Too many connections",
}

macro_rules! field_codes {
    ($($(#[$doc:meta])* $name:ident $text:literal,)*) => {
        /// What is wrong with one field (A1.4, `errors` of a 422). Destinations that the address policy refuses carry the code of
        /// the refusing rule instead.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum FieldCode { $($(#[$doc])* $name,)* }

        impl FieldCode {
            /// Every code.
            pub const ALL: &'static [FieldCode] = &[$(FieldCode::$name,)*];

            /// The code as clients see it.
            pub fn text(self) -> &'static str {
                match self { $(FieldCode::$name => $text,)* }
            }
        }
    };
}

field_codes! {
    /// It must be there.
    Required "required",
    /// Another JSON type is wanted.
    WrongType "wrong_type",
    /// There is no such field here (A1.9).
    UnknownField "unknown_field",
    /// It is shown, and not to be set (A1.9).
    ReadOnly "read_only",
    /// A text or list is empty and must not be.
    Empty "empty",
    /// A text or list is too long.
    TooLong "too_long",
    /// A number or duration is too small or too large.
    OutOfRange "out_of_range",
    /// The value breaks the grammar of its field.
    InvalidValue "invalid_value",
    /// The same value stands twice where each may stand once.
    Duplicate "duplicate",
    /// The value does not go with another field.
    Conflict "conflict",
    /// The hub has no such kind of sink.
    UnsupportedSinkKind "unsupported_sink_kind",
    /// The header is ours, or none that a subscription may set (C9.9).
    HeaderNotAllowed "header_not_allowed",
    /// The new destination did not pass its probe.
    ProbeFailed "probe_failed",
}

/// A count with its unit as people say it: `1 byte`, `2 bytes`.
pub fn counted(count: u64, unit: &str) -> String {
    match (count, unit.strip_suffix('y')) {
        (1, _) => format!("1 {unit}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        (_, None) => format!("{count} {unit}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A1.4
    #[test]
    fn codes_are_unique() {
        let mut texts: Vec<_> = Code::ALL.iter().map(|code| code.text()).collect();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), Code::ALL.len());
        let mut texts: Vec<_> = FieldCode::ALL.iter().map(|code| code.text()).collect();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), FieldCode::ALL.len());
    }

    #[test]
    fn counts_are_said_as_people_say_them() {
        let said =
            [(0, "byte"), (1, "byte"), (2, "byte"), (1, "delivery"), (2, "delivery")].map(|(n, of)| counted(n, of));
        assert_eq!(said, ["0 bytes", "1 byte", "2 bytes", "1 delivery", "2 deliveries"]);
    }
}
