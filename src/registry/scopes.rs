//! What a registry says about the scopes its cards need: what each allows, and who grants it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fields::{Fields, Report, kind, shorten};
use super::positions::{Lines, join};
use super::suggest;
use crate::types::Scope;

const KEYS: [&str; 3] = ["name", "about", "granted_by"];
/// Longest text that is kept: it stands in every denial.
const MAX_CHARS: usize = 300;
const MAX_NAME_BYTES: usize = 128;

/// A scope in words, for denials.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeInfo {
    /// What it allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Who can grant it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_by: Option<String>,
}

/// Scopes by name.
pub type Scopes = BTreeMap<Scope, ScopeInfo>;

/// Reads the `scopes` of a file's frame. An entry that cannot be used is left out and remarked on: it only words
/// denials, so it never keeps cards from being served.
pub(super) fn read(root: &Map<String, Value>, lines: &Lines) -> (Scopes, Vec<String>) {
    let mut report = Report::new(lines, Vec::new());
    let mut scopes = Scopes::new();
    let frame = Fields::new(root, "");
    let listed = frame.list(&mut report, "scopes", "a list of scopes").flatten();
    for (index, entry) in listed.into_iter().flatten().enumerate() {
        let at = join("/scopes", index);
        let Value::Object(map) = entry else {
            report.add(&at, format!("expected a mapping with name, about and granted_by, found {}", kind(entry)));
            continue;
        };
        let fields = Fields::new(map, at);
        for key in fields.unknown(&KEYS) {
            let hint = suggest(key, KEYS);
            report.add(&fields.pointer(key), format!("unknown key `{}` is ignored{hint}", shorten(key)));
        }
        let Some(scope) = name(&fields, &mut report) else { continue };
        let info = ScopeInfo {
            about: words(&fields, "about", &mut report),
            granted_by: words(&fields, "granted_by", &mut report),
        };
        match scopes.entry(scope) {
            Entry::Vacant(free) => drop(free.insert(info)),
            Entry::Occupied(taken) => {
                let message = format!("`{}` stands twice; the first one counts", taken.key().0);
                report.add(&fields.pointer("name"), message);
            }
        }
    }
    let notices = report.into_problems().into_iter().map(|problem| {
        let line = problem.line.map(|line| format!(" on line {line}")).unwrap_or_default();
        format!("{}{line}: {}", problem.pointer, problem.message)
    });
    (scopes, notices.collect())
}

fn name(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Scope> {
    if fields.get("name").is_none() {
        fields.missing(report, "name", "the scope as cards write it");
        return None;
    }
    let name = fields.text(report, "name")?;
    let odd = |c: char| c.is_control() || c.is_whitespace();
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(odd) {
        report.add(&fields.pointer("name"), format!("expected 1 to {MAX_NAME_BYTES} bytes without white space"));
        return None;
    }
    Some(Scope(name))
}

fn words(fields: &Fields<'_>, key: &str, report: &mut Report<'_>) -> Option<String> {
    let text = fields.text(report, key)?;
    if text.chars().count() > MAX_CHARS {
        report.add(&fields.pointer(key), format!("longer than {MAX_CHARS} characters; the rest is left out"));
    }
    let kept: String = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_CHARS).collect();
    (!kept.is_empty()).then_some(kept)
}

/// Adds what `more` says about scopes that are not described yet. A different description of a known one is remarked
/// on and does not count.
pub(super) fn adopt(scopes: &mut Scopes, more: Scopes, from: &str, notices: &mut Vec<String>) {
    for (scope, info) in more {
        match scopes.get(&scope) {
            None => drop(scopes.insert(scope, info)),
            Some(known) if *known == info => {}
            Some(_) => {
                notices
                    .push(format!("{from}: the scope `{}` is described differently before; that one counts", scope.0));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(scopes: Value, names: &[&str], remarks: &[&str]) {
        let root = json!({ "scopes": scopes });
        let (found, notices) = read(root.as_object().unwrap(), &Lines::unknown());
        assert_eq!(found.keys().map(|scope| scope.0.as_str()).collect::<Vec<_>>(), names);
        assert_eq!(notices.len(), remarks.len(), "{notices:?}");
        for (notice, part) in notices.iter().zip(remarks) {
            assert!(notice.contains(part), "{notice}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_left_out_and_told() {
        check(json!([{"name": "refunds:write", "about": "pay", "granted_by": "the desk"}]), &["refunds:write"], &[]);
        check(json!("refunds:write"), &[], &["/scopes: expected a list"]);
        check(
            json!(["a", {"about": "x"}, {"name": "b c"}, {"name": "d", "grantedby": "x"}, {"name": "d"}]),
            &["d"],
            &["/scopes/0", "`name` is missing", "without white space", "did you mean `granted_by`", "stands twice"],
        );
        check(json!([{"name": "a", "about": "x".repeat(301)}]), &["a"], &["longer than 300"]);
    }

    #[test]
    fn the_first_description_counts() {
        let info = |about: &str| ScopeInfo { about: Some(about.into()), granted_by: None };
        let one = |about: &str| Scopes::from([(Scope("a".into()), info(about))]);
        let (mut scopes, mut notices) = (one("first"), Vec::new());
        adopt(&mut scopes, one("first"), "f", &mut notices);
        assert!(notices.is_empty());
        adopt(&mut scopes, one("second"), "f", &mut notices);
        assert_eq!((scopes, notices.len()), (one("first"), 1));
    }
}
