//! The one-way order of `src/`: a module uses the ones above it in `src/lib.rs`, never those below, and modules in one
//! paragraph of that list stay apart. Some crates have one home each, and so has reading the environment.

use std::collections::BTreeMap;
use std::path::Path;

use crate::source::{Token, files, read, root, tokens};

/// Crates and the modules that alone may use them; `main` and `cmd` are the binary.
const HOMES: &[(&str, &[&str])] = &[
    ("anyhow", &["main", "cmd"]),
    ("clap", &["main", "cmd"]),
    ("indicatif", &["main", "cmd"]),
    ("tonic", &["server", "cmd"]),
    ("tonic_health", &["server", "cmd"]),
    ("tonic_prost", &["server", "cmd"]),
    ("tonic_reflection", &["server", "cmd"]),
    ("rusqlite", &["store"]),
    ("fastembed", &["embed"]),
    ("ort", &["embed"]),
    ("hnsw_rs", &["index"]),
    ("bm25", &["index"]),
    ("moka", &["cache", "pipeline"]),
    ("async_openai", &["decide"]),
    ("rmcp", &["execute"]),
    ("jsonwebtoken", &["identity"]),
    ("x509_cert", &["identity"]),
    ("hmac", &["gate"]),
];

#[test]
fn modules_use_only_what_stands_above_them() {
    let order = Order::of(&read(&root().join("src/lib.rs")));
    let mut faults = Vec::new();
    for file in files(&root().join("src"), &["rs"]) {
        let path = file.strip_prefix(root().join("src")).unwrap();
        for (line, fault) in order.faults(&module_of(path), &read(&file)) {
            faults.push(format!("src/{}:{line}: {fault}", path.display()));
        }
    }
    assert!(faults.is_empty(), "the order of modules is broken:\n{}", faults.join("\n"));
}

/// Top-level modules of the library with the number of the paragraph they are listed in.
struct Order(BTreeMap<String, usize>);

impl Order {
    fn of(lib: &str) -> Self {
        let mut paragraph = 0;
        let mut modules = BTreeMap::new();
        for line in lib.lines().map(str::trim) {
            if line.is_empty() {
                paragraph += 1;
            }
            let declared = line.trim_start_matches("pub ").strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';'));
            if let Some(name) = declared {
                modules.insert(name.to_owned(), paragraph);
            }
        }
        assert!(!modules.is_empty(), "src/lib.rs lists no module");
        Self(modules)
    }

    /// Line and description of everything in one file that is against the order.
    fn faults(&self, module: &[String], source: &str) -> Vec<(usize, String)> {
        let tokens = tokens(source);
        let Some(own) = module.first() else { return Vec::new() };
        let mut faults: Vec<_> = strangers(&tokens, own).chain(environment(&tokens, own)).collect();
        // The binary's `crate::` is the binary itself; the library it uses as anyone else does.
        if let Some(&place) = self.0.get(own) {
            let uses = uses(&tokens, module);
            faults.extend(uses.iter().filter_map(|(line, path)| Some((*line, self.fault(own, place, path)?))));
        }
        faults.sort();
        faults.dedup();
        faults
    }

    fn fault(&self, own: &str, place: usize, path: &[String]) -> Option<String> {
        let used = path.first()?;
        match self.0.get(used) {
            _ if used == own => None,
            None => Some(format!("`{used}` is no module listed in src/lib.rs")),
            Some(other) if *other > place => Some(format!("`{own}` uses `{used}`, which stands below it")),
            Some(other) if *other == place => Some(format!("`{own}` uses `{used}`, which stands beside it")),
            Some(_) => None,
        }
    }
}

/// `decide/llm/mod.rs` → `decide`, `llm`.
fn module_of(path: &Path) -> Vec<String> {
    let mut parts: Vec<String> =
        path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod") || parts == ["lib"] {
        parts.pop();
    }
    parts
}

/// Uses of a crate outside its home.
fn strangers(tokens: &[Token], own: &str) -> impl Iterator<Item = (usize, String)> {
    tokens.iter().enumerate().filter_map(move |(at, token)| {
        let (name, homes) = HOMES.iter().find(|(name, _)| *name == token.text)?;
        let begins = at == 0 || tokens[at - 1].text != "::";
        let is_path = tokens.get(at + 1).is_some_and(|next| next.text == "::");
        (begins && is_path && !homes.contains(&own))
            .then(|| (token.line, format!("`{own}` uses the crate `{name}`, which belongs to {}", homes.join(" and "))))
    })
}

/// Reads of environment variables where everything comes as `Settings`.
fn environment(tokens: &[Token], own: &str) -> impl Iterator<Item = (usize, String)> {
    let reads = |words: &[Token]| {
        words[0].text == "env"
            && words[1].text == "::"
            && matches!(words[2].text.as_str(), "var" | "var_os" | "vars" | "vars_os")
    };
    let allowed = ["config", "main", "cmd"].contains(&own);
    let found = tokens.windows(3).filter(move |words| !allowed && reads(words));
    found.map(move |words| (words[0].line, format!("`{own}` reads the environment, which belongs to config")))
}

/// Every path that starts at `crate`, `self` or `super`, with its line, seen from the root of the crate.
fn uses(tokens: &[Token], file: &[String]) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let mut inline: Vec<(usize, &str)> = Vec::new();
    let mut depth = 0;
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    for at in 0..tokens.len() {
        match text(at) {
            "{" => {
                depth += 1;
                if at >= 2 && text(at - 2) == "mod" {
                    inline.push((depth, text(at - 1)));
                }
            }
            "}" => {
                inline.pop_if(|(opened, _)| *opened == depth);
                depth -= 1;
            }
            "crate" if text(at + 1) == "as" => found.push((tokens[at].line, vec!["crate as".to_owned()])),
            "crate" | "self" | "super" if text(at + 1) == "::" && (at == 0 || text(at - 1) != "::") => {
                let here = file.iter().map(String::as_str).chain(inline.iter().map(|(_, name)| *name));
                branch(tokens, at, here.map(str::to_owned).collect(), &mut found);
            }
            _ => {}
        }
    }
    found
}

/// Follows one path, or one member of a group, that begins at `at` in the module `base`; returns where it ends.
fn branch(tokens: &[Token], at: usize, base: Vec<String>, found: &mut Vec<(usize, Vec<String>)>) -> usize {
    let Some(token) = tokens.get(at) else { return at };
    let mut path = base;
    match token.text.as_str() {
        "{" => {
            let mut at = at + 1;
            while tokens.get(at).is_some_and(|token| token.text != "}") {
                at = match tokens[at].text.as_str() {
                    "," => at + 1,
                    "as" => at + 2,
                    _ => branch(tokens, at, path.clone(), found),
                };
            }
            return at + 1;
        }
        "crate" => path.clear(),
        "self" => {}
        "super" => {
            path.pop();
        }
        name => path.push(name.to_owned()),
    }
    if tokens.get(at + 1).is_some_and(|next| next.text == "::") {
        return branch(tokens, at + 2, path, found);
    }
    found.push((token.line, path));
    at + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = "//! Order.\n\npub mod types;\n\npub mod text;\npub mod tool;\n\npub mod pipeline;\n";

    #[track_caller]
    fn check(module: &str, source: &str, expected: &[&str]) {
        let faults = Order::of(LIB).faults(&module_of(Path::new(module)), source);
        let found: Vec<_> = faults.iter().map(|(line, fault)| format!("{line} {fault}")).collect();
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn what_stands_above_and_the_own_module_may_be_used() {
        check(
            "pipeline/mod.rs",
            "use crate::{text::{self, Query}, types::Score};\nfn f() { crate::tool::card() }",
            &[],
        );
        check("text/slots.rs", "use super::language; mod tests { use super::*; use super::super::tokens; }", &[]);
        check(
            "text/mod.rs",
            "/// See [`crate::pipeline`].\npub(crate) fn f() -> &'static str { \"crate::tool\" }",
            &[],
        );
    }

    #[test]
    fn what_stands_below_is_found_in_every_form() {
        let below = "`types` uses `text`, which stands below it";
        for source in [
            "use crate::text::Query;",
            "use crate::{types::Score, text as words};",
            "use {std::fmt, crate::{types::{Score, ids}, text::{slots::{Slot}, Query}}};",
            "fn f() { let q = crate::text::normalise(\"a\"); }",
            "use super::super::text;",
            "mod tests { use super::super::super::text::Query; }",
            "macro_rules! m { () => { $crate::text::go() } }",
        ] {
            check("types/score.rs", source, &[&format!("1 {below}")]);
        }
    }

    #[test]
    fn neighbours_stay_apart_and_the_root_is_no_detour() {
        check("text/mod.rs", "\nuse crate::tool::ToolCard;", &["2 `text` uses `tool`, which stands beside it"]);
        check("text/mod.rs", "use crate::*;", &["1 `*` is no module listed in src/lib.rs"]);
        check("text/mod.rs", "use crate as root;", &["1 `crate as` is no module listed in src/lib.rs"]);
        check("text/mod.rs", "use super::Reexported;", &["1 `Reexported` is no module listed in src/lib.rs"]);
    }

    #[test]
    fn crates_stay_at_home() {
        let fault = "1 `text` uses the crate `tonic`, which belongs to server and cmd";
        check("text/mod.rs", "fn f() -> tonic::Status { g() }", &[fault]);
        let fault = "1 `text` reads the environment, which belongs to config";
        check("text/mod.rs", "fn f() { std::env::var(\"HOME\"); std::env::args() }", &[fault]);
        check("cmd/route.rs", "use anyhow::Result; use crate::flags; use pointsman::pipeline; use tonic::Code;", &[]);
    }
}
