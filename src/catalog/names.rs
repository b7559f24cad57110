//! Tools that an utterance names.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::text::tokenise;
use crate::types::ToolId;

/// Canonical names → positions of tools. A tool is found by its whole name and by its name without prefixes, however
/// the utterance writes it: `ask_codex` finds `mcp__plugin_x__ask_codex`, `searchOrders` finds `search_orders`.
#[derive(Debug, Default)]
pub struct NameIndex {
    by_name: HashMap<Arc<str>, Vec<u32>>,
}

impl NameIndex {
    /// The canonical names of one tool.
    pub(super) fn forms(id: &ToolId) -> Vec<Arc<str>> {
        let mut forms: Vec<Arc<str>> = Vec::new();
        for form in suffixes(id.as_str()) {
            let canonical = canonical(form);
            // A part such as the `2` of `search__2` is a count: every number would name the tool.
            if canonical.chars().any(char::is_alphabetic) && !forms.iter().any(|known| **known == *canonical) {
                forms.push(canonical.into());
            }
        }
        forms
    }

    /// `forms` of each tool, in the order of their positions.
    pub(super) fn of<'a>(forms: impl Iterator<Item = &'a [Arc<str>]>) -> Self {
        let mut index = Self::default();
        for (position, forms) in (0..).zip(forms) {
            for form in forms {
                index.by_name.entry(Arc::clone(form)).or_default().push(position);
            }
        }
        index
    }

    /// Positions of all tools that `text` names, ascending. A plain word never counts as a name, only something written
    /// like an identifier (`search_graph`, `searchGraph`, `server/search`), or a text that is nothing but the name.
    pub fn named_in(&self, text: &str) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut add = |name: &str| {
            if let Some(positions) = self.by_name.get(canonical(name).as_str()) {
                found.extend(positions.iter().map(|position| *position as usize));
            }
        };
        add(text);
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':');
        for run in text.split(|c: char| !is_part(c)) {
            // In Chinese text there are no blanks around a name, so also try its ASCII runs.
            let ascii_runs = run.split(|c: char| !c.is_ascii());
            for word in std::iter::once(run).chain(ascii_runs) {
                let word = word.trim_matches(|c: char| !c.is_alphanumeric());
                if looks_like_identifier(word) {
                    for form in suffixes(word) {
                        add(form);
                    }
                }
            }
        }
        found
    }
}

/// `text` as lower-case words joined by blanks.
fn canonical(text: &str) -> String {
    tokenise(text).join(" ")
}

/// The name itself and what follows each source or namespace separator.
fn suffixes(name: &str) -> Vec<&str> {
    let mut forms = vec![name];
    for separator in ["/", ".", ":", "__"] {
        if let Some((_, rest)) = name.rsplit_once(separator)
            && !rest.is_empty()
        {
            forms.push(rest);
        }
    }
    forms
}

fn looks_like_identifier(word: &str) -> bool {
    let inner_separator = word.contains(['_', '/', '.', ':', '-']);
    let camel = word.as_bytes().windows(2).any(|w| w[0].is_ascii_lowercase() && w[1].is_ascii_uppercase());
    inner_separator || camel
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(names: &[&str], text: &str, expect: &[&str]) {
        let forms: Vec<_> = names.iter().map(|name| NameIndex::forms(&ToolId::new(*name))).collect();
        let index = NameIndex::of(forms.iter().map(Vec::as_slice));
        let found: Vec<&str> = index.named_in(text).into_iter().map(|position| names[position]).collect();
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn names_are_found_however_they_are_written() {
        let names = ["search_graph", "trace_path", "mcp__plugin_x__ask_codex", "calendar.respondToEvent", "search"];
        check(
            &names,
            "search_graph trace_path and ask_codex",
            &["search_graph", "trace_path", "mcp__plugin_x__ask_codex"],
        );
        check(&names, "请直接调用searchGraph查一下", &["search_graph"]);
        check(&names, "use respondToEvent", &["calendar.respondToEvent"]);
        check(&names, "search for a tool", &[]);
        check(&names, "Search", &["search"]);
        check(&names, "", &[]);
        check(&["search__2", "查询.3"], "评分9.2, 3.3 or v.2 of 8:3", &[]);
        check(&["search__2"], "search__2", &["search__2"]);
    }
}
