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
    administers: Administers,
}

/// What of the registry a caller may change and see all of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Administers {
    Nothing,
    /// Cards that belong to the caller's tenant alone.
    OwnTenant,
    /// Every tenant's, and what is in the files.
    Everything,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Scopes {
    All,
    Only(BTreeSet<Scope>),
}

impl Caller {
    /// The caller on this machine when no identity is configured: every scope, and the registry.
    pub fn local() -> Self {
        Self::with_every_scope("local").operating()
    }

    pub fn with_scopes(tenant: impl Into<String>, scopes: impl IntoIterator<Item = Scope>) -> Self {
        Self::of(tenant.into(), Scopes::Only(scopes.into_iter().collect()))
    }

    pub fn with_every_scope(tenant: impl Into<String>) -> Self {
        Self::of(tenant.into(), Scopes::All)
    }

    fn of(tenant: String, scopes: Scopes) -> Self {
        Self { name: tenant.clone(), tenant, scopes, administers: Administers::Nothing }
    }

    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The same caller, who may also change the cards of its tenant.
    #[must_use]
    pub fn administering(self) -> Self {
        Self { administers: Administers::OwnTenant, ..self }
    }

    /// The same caller, who may also change the whole registry and see all of it.
    #[must_use]
    pub fn operating(self) -> Self {
        Self { administers: Administers::Everything, ..self }
    }

    pub fn holds(&self, scope: &Scope) -> bool {
        match &self.scopes {
            Scopes::All => true,
            Scopes::Only(held) => held.contains(scope),
        }
    }

    /// The same caller within one conversation: a scope granted as `scope@conversation` is held there, and nowhere else.
    #[must_use]
    pub fn within(&self, conversation: &str) -> Self {
        let Scopes::Only(held) = &self.scopes else { return self.clone() };
        let granted = |scope: &Scope| {
            let (scope, session) = scope.0.rsplit_once('@')?;
            (!conversation.is_empty() && session == conversation).then(|| Scope(scope.to_owned()))
        };
        let scopes = held.iter().filter_map(granted).chain(held.iter().cloned()).collect();
        Self { scopes: Scopes::Only(scopes), ..self.clone() }
    }

    pub fn administers(&self) -> Administers {
        self.administers
    }

    /// Whether something that is open to `tenants` alone is open to this caller; nobody named means everybody. Nobody is
    /// above this: an operator sees such a card in the registry and is still not offered it.
    pub fn belongs_to(&self, tenants: &[String]) -> bool {
        tenants.is_empty() || tenants.contains(&self.tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_for_a_conversation_counts_there_alone() {
        let scope = |name: &str| Scope(name.into());
        let caller = Caller::with_scopes("acme", [scope("orders:read"), scope("refunds:write@c-1")]);
        assert!(
            caller.within("c-1").holds(&scope("refunds:write")) && caller.within("c-1").holds(&scope("orders:read"))
        );
        for elsewhere in [caller.within("c-2"), caller.within(""), caller.clone()] {
            assert!(!elsewhere.holds(&scope("refunds:write")));
        }
        assert!(Caller::with_every_scope("acme").within("c-1").holds(&scope("x")));
    }

    #[test]
    fn what_names_no_tenant_is_open_to_all_and_the_rest_to_those_named() {
        let caller = Caller::with_every_scope("acme").operating();
        assert!(caller.belongs_to(&[]) && caller.belongs_to(&["globex".into(), "acme".into()]));
        assert!(!caller.belongs_to(&["globex".into()]) && !caller.belongs_to(&["acme ".into(), "Acme".into()]));
    }

    #[test]
    fn an_office_includes_the_lesser_ones() {
        let caller = || Caller::with_scopes("acme", []);
        assert_eq!(caller().administers(), Administers::Nothing);
        assert!(caller().administering().administers() < caller().operating().administers());
        assert_eq!(Caller::local().administers(), Administers::Everything);
    }
}
