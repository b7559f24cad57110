//! Identifiers that are never mixed up with display text or with each other.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The name under which a tool is known in one catalog: unique, case-sensitive, exactly as its owner wrote it, with
/// the source in front (`server/tool`) where two sources use the same name. Cheap to clone; ordered by bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolId(Arc<str>);

impl ToolId {
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::borrow::Borrow<str> for ToolId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// SHA-256 of a card's canonical JSON, in lower-case hex. Two cards with the same hash behave alike everywhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CardHash(pub String);

/// Names one immutable catalog: a counter that grows with each swap in this process, and a digest of its content that
/// is the same in every process that loaded the same cards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogVersion {
    /// Starts at 1 and grows by one with each change of the cards that are served.
    pub generation: u64,
    /// First 12 hex digits of the SHA-256 over all ids and card hashes in id order.
    pub digest: String,
}

impl fmt::Display for CatalogVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.generation, self.digest)
    }
}

/// Identifies one decision. UUID version 7: ordered by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DecisionId(uuid::Uuid);

impl DecisionId {
    pub fn generate() -> Self {
        Self(uuid::Uuid::now_v7())
    }
}

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "d_{}", self.0.simple())
    }
}
