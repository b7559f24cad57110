//! Who asks: decided by the transport, never by the request body or a tool argument.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// A permission such as `orders:read`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scope(pub String);

/// The identified caller of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub tenant: String,
    scopes: Scopes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Scopes {
    All,
    Only(BTreeSet<Scope>),
}

impl Caller {
    /// The caller on this machine when no identity is configured: every scope.
    pub fn local() -> Self {
        Self { tenant: "local".into(), scopes: Scopes::All }
    }

    pub fn with_scopes(tenant: impl Into<String>, scopes: impl IntoIterator<Item = Scope>) -> Self {
        Self { tenant: tenant.into(), scopes: Scopes::Only(scopes.into_iter().collect()) }
    }

    pub fn holds(&self, scope: &Scope) -> bool {
        match &self.scopes {
            Scopes::All => true,
            Scopes::Only(held) => held.contains(scope),
        }
    }
}
