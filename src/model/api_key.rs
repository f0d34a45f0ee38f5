//! API keys: who may call what (A1.1).

use crate::model::ids::KeyId;
use crate::time::Timestamp;
use bincode::{Decode, Encode};

/// An API key as the store keeps it: never the key itself.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct ApiKey {
    /// Public id.
    pub id: KeyId,
    /// A name for people.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// SHA-256 of the whole key text.
    pub sha256: [u8; 32],
    /// Wall time of creation.
    pub created_at: Timestamp,
    /// Not valid from then on.
    pub expires_at: Option<Timestamp>,
    /// Revoked then.
    pub revoked_at: Option<Timestamp>,
}

/// What a key may do (A1.1).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Role {
    /// `/v1` of one tenant.
    Tenant(String),
    /// `/admin`, and `/v1` for any tenant named in `X-Tenant-Id`.
    Operator,
    /// `/ingest`, for these tenants and sources; an empty list allows all.
    Ingest {
        /// Tenants it may write.
        tenants: Vec<String>,
        /// Sources it may speak for.
        sources: Vec<String>,
    },
    /// Reads of `/admin`.
    Viewer,
}

impl Role {
    /// The role's name in the API.
    pub fn name(&self) -> &'static str {
        match self {
            Role::Tenant(_) => "tenant",
            Role::Operator => "operator",
            Role::Ingest { .. } => "ingest",
            Role::Viewer => "viewer",
        }
    }
}
