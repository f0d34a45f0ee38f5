//! Notices: what an operator must know, once per subject and window (`/admin/notices`, the log, and a metric by kind).
//!
//! A notice says what happened, to what, since when, with what last error, and what to do. The kinds are a closed list.

use crate::model::ids::SubscriptionId;
use crate::model::limits::NOTICE_TEXT_BYTES;
use crate::time::HubTime;
use bincode::{Decode, Encode};

/// One notice as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Notice {
    /// What kind of thing happened.
    pub kind: NoticeKind,
    /// Whose: none where it is the whole hub's.
    pub tenant: Option<String>,
    /// The subscription it is about, where it is about one.
    pub subscription: Option<SubscriptionId>,
    /// What it is about: a destination without its query, a topic, a partition. Within [`NOTICE_WINDOW_MS`] there is one notice of a kind
    /// for a tenant, subscription and subject.
    ///
    /// [`NOTICE_WINDOW_MS`]: crate::model::limits::NOTICE_WINDOW_MS
    pub subject: String,
    /// Since when it is so.
    pub since: HubTime,
    /// The last error as a stable code, where there was one.
    pub last_error: Option<String>,
    /// What happened, in a sentence with its particulars. Never a body, a secret or a credential.
    pub detail: String,
    /// When it was raised; the writer sets it.
    pub at: HubTime,
}

/// Who must act on a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// Watch it: it may mend itself. Logged as a warning.
    Watch,
    /// It stays until a person acts. Logged as an error.
    Act,
}

impl Urgency {
    /// Its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Urgency::Watch => "watch",
            Urgency::Act => "act",
        }
    }
}

impl Notice {
    /// A notice about the whole hub or a part of it; the fields say more where there is more.
    pub fn about(kind: NoticeKind, subject: impl Into<String>, since: HubTime, detail: impl Into<String>) -> Self {
        let (tenant, subscription, last_error) = (None, None, None);
        Self {
            kind,
            tenant,
            subscription,
            subject: subject.into(),
            since,
            last_error,
            detail: detail.into(),
            at: since,
        }
    }

    /// Its texts cut to [`NOTICE_TEXT_BYTES`] each: subjects and errors may come from outside.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let texts = [Some(&mut self.subject), Some(&mut self.detail), self.last_error.as_mut(), self.tenant.as_mut()];
        for text in texts.into_iter().flatten() {
            let end = text.floor_char_boundary(NOTICE_TEXT_BYTES);
            text.truncate(end);
        }
        self
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $code:literal $urgency:ident $advice:literal,)*) => {
        /// The kinds of notices: a closed list, used in the API and as a metric label. New ones come last: the store knows them by number.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
        pub enum NoticeKind { $($(#[$doc])* $name,)* }

        impl NoticeKind {
            /// Every kind.
            pub const ALL: &'static [NoticeKind] = &[$(NoticeKind::$name,)*];

            /// The stable code.
            pub fn code(self) -> &'static str {
                match self { $(NoticeKind::$name => $code,)* }
            }

            /// Who must act.
            pub fn urgency(self) -> Urgency {
                match self { $(NoticeKind::$name => Urgency::$urgency,)* }
            }

            /// What to do, for people.
            pub fn advice(self) -> &'static str {
                match self { $(NoticeKind::$name => $advice,)* }
            }
        }
    };
}

kinds! {
    /// A destination's breaker opened (C7).
    BreakerOpened "breaker_opened" Watch
        "Its deliveries wait, and a probe goes through now and then; it closes by itself when one succeeds. If it does not, ask the receiver's owner.",
    /// A subscription was switched off after lasting failures (C8).
    AutoDisabled "auto_disabled" Act
        "Have the receiver mended, then POST /v1/subscriptions/{id}/verify: waiting deliveries go on, and its answer says what was skipped meanwhile.",
    /// A subscription was switched off because its destination says that it is gone (C9.10).
    Gone "gone" Act
        "Ask the receiver's owner: PATCH the new URL, or delete the subscription; POST /v1/subscriptions/{id}/verify where the 410 was a mistake.",
    /// A subscription is still off a day after it was switched off (C8).
    StillDisabled "still_disabled" Act
        "Nothing is delivered to it, and new events are not matched. Verify it, give it another URL, or delete it.",
    /// Auto-disable would have switched a subscription off, and is itself off (C8.3).
    WouldDisable "would_disable" Watch
        "AUTODISABLE_ENABLED is false, so it is still tried. Have the receiver mended, or pause or delete the subscription.",
    /// A job was given up because it crashed its worker again and again (C5.6).
    PoisonJob "poison_job" Act
        "The event is kept as a dead letter with reason poison. This is a fault of the hub: report it with the log of the crashes; redrive it once it is mended.",
    /// Events of other tenants are stored in a single-tenant hub (C2.8).
    ForeignTenant "foreign_tenant" Act
        "They can never be delivered. Set TENANT_ID to that tenant, set MULTI_TENANT_ENABLED, or have the producer send the right ce-tenantid.",
    /// No record of a topic names a tenant (C2.8).
    TopicWithoutTenant "topic_without_tenant" Act
        "Everything in it is quarantined: see /admin/poison. Have its producer set ce-tenantid.",
    /// A transaction hangs in a partition: nothing behind its first record can be read (C1.6).
    HangingTransaction "hanging_transaction" Act
        "Find the producer that left it open. kafka-transactions.sh find-hanging names it, and abort ends it; the partition is then read on by itself.",
    /// Brokers refuse us or a topic: credentials, certificates or rights (C1.7).
    KafkaRefused "kafka_refused" Act
        "Correct the user, password or right at the brokers: it is tried again every few seconds. Changed settings of the hub need its restart.",
    /// The store took no writes for a while (C13.4).
    StoreSuspended "store_suspended" Watch
        "It healed by itself and nothing was lost. The log says what the disk said: free some space, or look at the disk, before it comes again.",
    /// Too little of the disk is free (C13.4).
    DiskLow "disk_low" Act
        "Free some space or enlarge the disk: events and changes are then taken again by themselves; what Kafka holds meanwhile is read later.",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_codes_of_their_own_and_say_what_to_do() {
        for (at, kind) in NoticeKind::ALL.iter().enumerate() {
            let earlier = &NoticeKind::ALL[..at];
            assert!(earlier.iter().all(|other| other.code() != kind.code()), "{kind:?}");
            assert!(kind.advice().len() > 40 && kind.advice().ends_with('.'), "{kind:?}");
        }
    }

    // C13.6: kinds are stored by number.
    #[test]
    fn kinds_keep_their_numbers() {
        let number = |kind: &NoticeKind| bincode::encode_to_vec(kind, bincode::config::standard()).unwrap();
        let first: Vec<_> = NoticeKind::ALL.iter().take(10).map(|kind| (number(kind)[0], kind.code())).collect();
        let expected = [
            (0, "breaker_opened"),
            (1, "auto_disabled"),
            (2, "gone"),
            (3, "still_disabled"),
            (4, "would_disable"),
            (5, "poison_job"),
            (6, "foreign_tenant"),
            (7, "topic_without_tenant"),
            (8, "hanging_transaction"),
            (9, "kafka_refused"),
        ];
        assert_eq!(first, expected);
    }

    // C13.6: these bytes are the format; another reading of them needs another version.
    #[test]
    fn golden_bytes_of_a_notice() {
        let notice = Notice {
            tenant: Some("t".to_owned()),
            subscription: Some(SubscriptionId([7; 16])),
            last_error: Some("e".to_owned()),
            at: HubTime(9),
            ..Notice::about(NoticeKind::Gone, "s", HubTime(5), "d")
        };
        let bytes = bincode::encode_to_vec(&notice, bincode::config::standard()).unwrap();
        let expected = [&[2, 1, 1, b't', 1][..], &[7; 16], &[1, b's', 5, 1, 1, b'e', 1, b'd', 9]].concat();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn texts_from_outside_are_cut() {
        let mut notice = Notice::about(NoticeKind::ForeignTenant, "é".repeat(NOTICE_TEXT_BYTES), HubTime(1), "x");
        notice.last_error = Some("y".repeat(NOTICE_TEXT_BYTES + 1));
        let cut = notice.bounded();
        assert!(cut.subject.len() <= NOTICE_TEXT_BYTES && cut.last_error.unwrap().len() == NOTICE_TEXT_BYTES);
        assert_eq!(cut.detail, "x");
    }
}
