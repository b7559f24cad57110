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
    /// Whose tokens these are, for the log of changes.
    pub name: String,
    /// What is kept apart: caches, open questions, quotas.
    pub tenant: String,
    scopes: Scopes,
    administers: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Scopes {
    All,
    Only(BTreeSet<Scope>),
}

impl Caller {
    /// The caller on this machine when no identity is configured: every scope, and the registry.
    pub fn local() -> Self {
        Self::with_every_scope("local").administering()
    }

    pub fn with_scopes(tenant: impl Into<String>, scopes: impl IntoIterator<Item = Scope>) -> Self {
        Self::of(tenant.into(), Scopes::Only(scopes.into_iter().collect()))
    }

    pub fn with_every_scope(tenant: impl Into<String>) -> Self {
        Self::of(tenant.into(), Scopes::All)
    }

    fn of(tenant: String, scopes: Scopes) -> Self {
        Self { name: tenant.clone(), tenant, scopes, administers: false }
    }

    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The same caller, who may also change the registry and see all of it.
    #[must_use]
    pub fn administering(self) -> Self {
        Self { administers: true, ..self }
    }

    pub fn holds(&self, scope: &Scope) -> bool {
        match &self.scopes {
            Scopes::All => true,
            Scopes::Only(held) => held.contains(scope),
        }
    }

    /// Whether this caller may change the registry and see all of it.
    pub fn administers(&self) -> bool {
        self.administers
    }
}
