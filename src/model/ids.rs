//! Ids are types, so that a sequence can never be handed in where a log number is wanted.

use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, bincode::Encode, bincode::Decode)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// The store's own number of a tenant; never shown outside.
    TenantNo, u32
);
number!(
    /// The store's own number of a subscription; never used again after a delete.
    SubNo, u32
);
number!(
    /// The rising number of an event in the store's log (`g` in the design notes). Within one tenant it rises with [`Seq`].
    LogNo, u64
);
number!(
    /// Arrival sequence of an event in its tenant: from 1, no holes (C3.3).
    Seq, u64
);
number!(
    /// The rising number of a claim.
    ClaimNo, u64
);
number!(
    /// Raised by every change of a subscription's state; an attempt starts only under the generation it was claimed under (C5.5).
    Generation, u64
);

/// A `ce-id`: a UUIDv7, shown in lower case, hyphenated (C2.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, bincode::Encode, bincode::Decode)]
pub struct EventId(pub [u8; 16]);

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Uuid::from_bytes(self.0).hyphenated().fmt(f)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not an id of the wanted kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a valid id")]
pub struct InvalidId;

impl FromStr for EventId {
    type Err = InvalidId;

    /// Takes the hyphenated form of a UUIDv7 in either case; braces, URNs and the bare 32 digits are refused.
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        if text.len() != 36 {
            return Err(InvalidId);
        }
        let uuid = Uuid::try_parse(text).map_err(|_| InvalidId)?;
        if uuid.get_version_num() != 7 || uuid.get_variant() != uuid::Variant::RFC4122 {
            return Err(InvalidId);
        }
        Ok(Self(uuid.into_bytes()))
    }
}

macro_rules! prefixed {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, bincode::Encode, bincode::Decode)]
        pub struct $name(pub [u8; 16]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), Uuid::from_bytes(self.0).hyphenated())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let rest = text.strip_prefix($prefix).ok_or(InvalidId)?;
                // Only the spelling that we print: one object, one name.
                if rest.len() != 36 || rest.bytes().any(|b| b.is_ascii_uppercase()) {
                    return Err(InvalidId);
                }
                Uuid::try_parse(rest).map(|u| Self(u.into_bytes())).map_err(|_| InvalidId)
            }
        }
    };
}

prefixed!(
    /// Public id of a subscription: `sub_` and a UUIDv7 (A1.10).
    SubscriptionId, "sub_"
);
prefixed!(
    /// Public id of an API key: `key_` and a UUIDv7 (A1.10).
    KeyId, "key_"
);
prefixed!(
    /// Public id of a replay, or of other bulk work on a subscription: `rpl_` and a UUIDv7 (A1.10).
    ReplayId, "rpl_"
);
prefixed!(
    /// Id of one attempt, new on every attempt: `dlv_` and a UUIDv8 derived from job and claim (C9.3).
    DeliveryId, "dlv_"
);

#[cfg(test)]
mod tests {
    use super::*;

    // C2.2
    #[test]
    fn event_ids_are_hyphenated_uuid_v7_only() {
        for (text, good) in [
            ("0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d01", true),
            ("0198B0C2-7C1E-7D3A-9F10-2B6C5A4E8D01", true),
            ("3f2504e0-4f89-41d3-9a0c-0305e82c3301", false),
            ("0198b0c27c1e7d3a9f102b6c5a4e8d01", false),
            ("{0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d01}", false),
            ("0198b0c2-7c1e-7d3a-1f10-2b6c5a4e8d01", false),
            ("", false),
        ] {
            assert_eq!(text.parse::<EventId>().is_ok(), good, "{text}");
        }
        let id: EventId = "0198B0C2-7C1E-7D3A-9F10-2B6C5A4E8D01".parse().unwrap();
        assert_eq!(id.to_string(), "0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d01");
    }

    // A1.10
    #[test]
    fn public_ids_have_one_spelling() {
        let id = SubscriptionId([7; 16]);
        assert_eq!(id.to_string().parse::<SubscriptionId>(), Ok(id));
        assert!(id.to_string().to_uppercase().parse::<SubscriptionId>().is_err());
        assert!(id.to_string().replace("sub_", "key_").parse::<SubscriptionId>().is_err());
    }
}
