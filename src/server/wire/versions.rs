//! Versions of the catalog, and changes that wait.

use super::request::{at_most, invalid};
use crate::registry::pin::Held;
use crate::registry::{FieldChange, fields_that_differ};
use crate::server::proto;
use crate::tool::ToolCard;
use crate::types::{CatalogVersion, Problem, ToolId, UnixMs};

/// Approvals in one call.
const MAX_APPROVALS: usize = 100_000;
const MAX_VERSION_BYTES: usize = 64;

/// A version of which nothing but its making is known yet.
pub(in crate::server) fn version(version: &CatalogVersion, made: UnixMs, cause: &str) -> proto::Version {
    proto::Version {
        catalog_version: version.to_string(),
        generation: version.generation,
        made_ms: made.0,
        cause: cause.to_owned(),
        ..proto::Version::default()
    }
}

/// The name of one version; an empty one is refused.
pub(in crate::server) fn version_name(name: String) -> Result<String, Problem> {
    if name.is_empty() || name.len() > MAX_VERSION_BYTES {
        return Err(invalid("version", "names no version", "a catalog_version or a generation"));
    }
    Ok(name)
}

/// Name and hash of each.
pub(in crate::server) fn approvals(approvals: Vec<proto::Approval>) -> Result<Vec<(String, String)>, Problem> {
    if approvals.is_empty() {
        return Err(invalid("approvals", "must not be empty", "at least one entry"));
    }
    at_most("approvals", approvals.len(), MAX_APPROVALS, "entries")?;
    if let Some(i) = approvals.iter().position(|approval| approval.name.is_empty()) {
        return Err(invalid(format!("approvals[{i}].name"), "must not be empty", "name of a card"));
    }
    Ok(approvals.into_iter().map(|approval| (approval.name, approval.hash)).collect())
}

pub(in crate::server) fn held(id: &ToolId, held: &Held, serving: &ToolCard) -> proto::HeldCard {
    proto::HeldCard {
        name: id.to_string(),
        source: held.card.source.clone(),
        hash: held.card.hash().0,
        reasons: held.reasons.iter().map(|reason| reason.as_str().to_owned()).collect(),
        fields: fields_that_differ(serving, &held.card).into_iter().map(field_change).collect(),
    }
}

pub(in crate::server) fn field_change(change: FieldChange) -> proto::FieldChange {
    proto::FieldChange {
        pointer: change.pointer,
        before: change.before.unwrap_or_default(),
        after: change.after.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_approved_or_rolled_back_by_an_empty_name() {
        assert_eq!(approvals(Vec::new()).unwrap_err().fields[0].path, "approvals");
        let nameless = proto::Approval { name: String::new(), hash: "x".into() };
        assert_eq!(approvals(vec![nameless]).unwrap_err().fields[0].path, "approvals[0].name");
        assert_eq!(version_name(String::new()).unwrap_err().fields[0].path, "version");
        assert!(version_name("9".repeat(65)).is_err() && version_name("7-退".into()).is_ok());
    }
}
