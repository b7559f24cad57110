//! What the documents say is there is there: behaviours and their proofs, the two READMEs, the sample files.

use std::collections::BTreeMap;

use crate::source::{files, read, root, tokens};

const OPEN: &str = "open";

#[test]
fn behaviours_name_the_tests_that_prove_them() {
    let path = root().join("docs/BEHAVIOURS.md");
    let text = read(&path);
    let proofs = proofs(
        files(&root().join("tests/it/behaviours"), &["rs"]).iter().map(|file| (file.display().to_string(), read(file))),
    );
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, blessed(&text, &proofs)).unwrap();
    }
    let claims = claims(&read(&path));
    println!("{} of {} behaviours are proven", claims.values().filter(|test| *test != OPEN).count(), claims.len());
    let faults = disagreements(&claims, &proofs);
    assert!(
        faults.is_empty(),
        "docs/BEHAVIOURS.md disagrees with tests/it/behaviours (BLESS=1 writes the last column anew):\n{}",
        faults.join("\n")
    );
}

/// Id → what the last column says.
fn claims(text: &str) -> BTreeMap<String, String> {
    let mut claims = BTreeMap::new();
    for row in text.lines().filter(|line| line.starts_with("| SB-")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [id, _, _, test] = cells[..] else { panic!("not four columns: {row}") };
        assert!(claims.insert(id.to_owned(), test.trim_matches('`').to_owned()).is_none(), "{id} stands twice");
    }
    let expected: Vec<String> = (1..=claims.len()).map(|number| format!("SB-{number:03}")).collect();
    assert!(claims.keys().eq(&expected), "ids are not numbered without a gap");
    claims
}

/// Id → name of its test, from functions `sb_NNN_…` that are tests. One function may prove one row, and only one does.
fn proofs(sources: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let mut proofs = BTreeMap::new();
    for (file, source) in sources {
        for name in tests_in(&source) {
            let number = name.split('_').nth(1).filter(|number| number.len() == 3 && number.parse::<u16>().is_ok());
            let number = number.unwrap_or_else(|| panic!("{file}: `{name}` has no number of three digits"));
            let other = proofs.insert(format!("SB-{number}"), name.clone());
            assert!(other.is_none(), "{file}: `{name}` and `{}` prove the same row", other.unwrap_or_default());
        }
    }
    proofs
}

/// Functions `sb_…`; each must carry a test attribute and must not be ignored.
fn tests_in(source: &str) -> Vec<String> {
    let tokens = tokens(source);
    let text: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
    let mut found = Vec::new();
    for (at, pair) in text.windows(2).enumerate() {
        if pair[0] == "fn" && pair[1].starts_with("sb_") {
            // Attributes stand between the end of the item before and this function.
            let begin = text[..at].iter().rposition(|word| matches!(*word, "}" | ";" | "{")).map_or(0, |end| end + 1);
            let attributes = &text[begin..at];
            assert!(attributes.contains(&"test"), "`{}` is not a test", pair[1]);
            assert!(!attributes.contains(&"ignore"), "`{}` is ignored", pair[1]);
            found.push(pair[1].to_owned());
        }
    }
    found
}

fn disagreements(claims: &BTreeMap<String, String>, proofs: &BTreeMap<String, String>) -> Vec<String> {
    let mut faults = Vec::new();
    for (id, claimed) in claims {
        match proofs.get(id) {
            None if claimed == OPEN => {}
            None => faults.push(format!("{id} claims `{claimed}`, which does not exist")),
            Some(test) if test == claimed => {}
            Some(test) => faults.push(format!("{id} is proven by `{test}` and says `{claimed}`")),
        }
    }
    faults.extend(
        proofs.iter().filter(|(id, _)| !claims.contains_key(*id)).map(|(id, test)| format!("no {id}: `{test}`")),
    );
    faults
}

fn blessed(text: &str, proofs: &BTreeMap<String, String>) -> String {
    let row = |line: &str| {
        let Some(id) = line.strip_prefix("| ").and_then(|rest| rest.get(..6)).filter(|id| id.starts_with("SB-")) else {
            return format!("{line}\n");
        };
        let (kept, _) = line.trim_end_matches(" |").rsplit_once(" | ").unwrap();
        let test = proofs.get(id).map_or(OPEN.to_owned(), |test| format!("`{test}`"));
        format!("{kept} | {test} |\n")
    };
    text.lines().map(row).collect()
}

#[test]
fn both_readmes_have_the_same_headings_and_commands() {
    let outlines = ["README.md", "README.zh-CN.md"].map(|name| Outline::of(&read(&root().join(name))));
    let [english, chinese] = outlines;
    assert_eq!(english.levels, chinese.levels, "heading levels differ");
    assert_eq!(english.code.len(), chinese.code.len(), "number of code blocks differs");
    for (english, chinese) in english.code.iter().zip(&chinese.code) {
        assert_eq!(english, chinese, "a code block differs");
    }
}

/// What two translations of one document have in common.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outline {
    /// Levels of the headings, in order.
    levels: Vec<usize>,
    /// Code blocks with their language, in order; empty lines and comments left out.
    code: Vec<Vec<String>>,
}

impl Outline {
    fn of(markdown: &str) -> Self {
        let mut outline = Self::default();
        let mut inside = false;
        for line in markdown.lines() {
            match (line.starts_with("```"), inside) {
                (true, _) => {
                    inside = !inside;
                    if inside {
                        outline.code.push(vec![line.to_owned()]);
                    }
                }
                (false, true) if !line.trim().is_empty() && !line.trim_start().starts_with("# ") => {
                    outline.code.last_mut().unwrap().push(line.to_owned());
                }
                (false, false) if line.starts_with('#') => {
                    outline.levels.push(line.chars().take_while(|char| *char == '#').count());
                }
                (false, _) => {}
            }
        }
        assert!(!inside, "a code block is not closed");
        outline
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut broken = Vec::new();
    let documents = [files(&root().join("docs"), &["md"]), files(&root().join("examples"), &["md"])].concat();
    let top = ["README.md", "README.zh-CN.md", "CHANGELOG.md"].map(|name| root().join(name));
    for document in documents.iter().chain(&top) {
        let text = read(document);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target) {
            let path = target.split('#').next().unwrap_or_default();
            let elsewhere = target.contains("://") || path.is_empty();
            if !elsewhere && !document.with_file_name(path).exists() {
                broken.push(format!("{}: {target}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links lead nowhere:\n{}", broken.join("\n"));
}

/// Key and default of each setting of a section of the sample configuration, in order; no default where the line is
/// commented out.
fn sample_settings(section: &str) -> Vec<(String, Option<String>)> {
    let text = read(&root().join("examples/pointsman.toml"));
    let (_, body) = text.split_once(&format!("\n[{section}]\n")).unwrap();
    let lines = body.lines().take_while(|line| !line.starts_with('['));
    let setting = |line: &str| {
        let (line, given) = line.strip_prefix('#').map_or((line, true), |rest| (rest, false));
        let (key, rest) = line.split_once(" = ")?;
        let is_key = key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        let value = rest.split("  #").next().unwrap_or_default().split(" #").next().unwrap_or_default().trim();
        is_key.then(|| (key.to_owned(), given.then(|| value.to_owned())))
    };
    lines.filter_map(setting).collect()
}

#[test]
fn every_setting_of_the_llm_is_explained_with_its_default() {
    let text = read(&root().join("docs/LLM.md"));
    for section in ["llm", "quota"] {
        assert_eq!(
            explained_settings(&text, section),
            sample_settings(section),
            "docs/LLM.md, examples/pointsman.toml"
        );
    }
}

fn explained_settings(text: &str, section: &str) -> Vec<(String, Option<String>)> {
    let (_, table) = text.split_once(&format!("\n| `{section}.` |")).unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').splitn(3, " | ").map(str::trim).collect();
        let [key, default, meaning] = cells[..] else { panic!("not three columns: {row}") };
        assert!(!meaning.is_empty(), "{row}");
        let default = (default != "not set").then(|| default.trim_matches('`').to_owned());
        (key.trim_matches('`').to_owned(), default)
    })
    .collect()
}

#[test]
fn every_check_of_the_doctor_is_explained() {
    let text = read(&root().join("docs/LLM.md"));
    let (_, text) = text.split_once("\n## Doctor\n").unwrap();
    for check in pointsman::decide::llm::probe::Check::ALL {
        let cell = format!("`{}`", check.as_str());
        let found = text
            .lines()
            .any(|line| line.starts_with('|') && line.split(" | ").next().is_some_and(|first| first.contains(&cell)));
        assert!(found, "docs/LLM.md does not explain the check {cell}");
    }
}

#[test]
fn sample_registries_load_without_a_complaint() {
    let samples: Vec<_> = files(&root().join("examples"), &["yaml", "yml", "jsonl"])
        .into_iter()
        .filter(|file| file.file_stem().is_some_and(|stem| stem == "registry" || stem == "tools"))
        .collect();
    assert!(!samples.is_empty(), "examples/ holds no registry");
    for sample in samples {
        let registry = pointsman::registry::load(std::slice::from_ref(&sample), &[]).unwrap();
        assert!(!registry.cards.is_empty(), "{}", sample.display());
        assert!(registry.quarantined.is_empty(), "{}: {:?}", sample.display(), registry.quarantined);
    }
}

#[test]
fn the_card_in_the_readme_loads() {
    let readme = read(&root().join("README.md"));
    let (_, card) = readme.split_once("```yaml\n").unwrap();
    let (card, _) = card.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("parcels.yaml");
    std::fs::write(&file, card).unwrap();
    let registry = pointsman::registry::load(&[file], &[]).unwrap();
    assert!(registry.quarantined.is_empty(), "{:?}", registry.quarantined);
    assert_eq!(registry.cards.keys().map(|id| id.as_str()).collect::<Vec<_>>(), ["track_shipment"]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_claim_without_a_test_and_a_test_without_a_claim_are_found() {
        let claims = map(&[("SB-001", "open"), ("SB-002", "sb_002_gone"), ("SB-003", "open"), ("SB-004", "sb_004_a")]);
        let proofs = map(&[("SB-003", "sb_003_new"), ("SB-004", "sb_004_a"), ("SB-999", "sb_999_odd")]);
        let faults = disagreements(&claims, &proofs);
        assert_eq!(
            faults,
            [
                "SB-002 claims `sb_002_gone`, which does not exist",
                "SB-003 is proven by `sb_003_new` and says `open`",
                "no SB-999: `sb_999_odd`",
            ]
        );
    }

    #[test]
    fn tests_are_read_with_their_attributes() {
        let source = "use a::b;\n#[tokio::test(flavor = \"multi_thread\")]\nasync fn sb_001_x() {}\n// fn sb_002_no() {}\n\
                      #[test]\n#[allow(unused)]\nfn sb_003_y() { \"fn sb_004_no()\"; }";
        assert_eq!(tests_in(source), ["sb_001_x", "sb_003_y"]);
    }

    #[test]
    #[should_panic(expected = "is not a test")]
    fn a_helper_proves_nothing() {
        tests_in("fn sb_001_helper() {}");
    }

    #[test]
    fn blessing_changes_the_last_column_alone() {
        let text = "# B\n| SB-001 | a \\| b | c | open |\n| SB-002 | a | b | `sb_002_gone` |\n";
        let expected = "# B\n| SB-001 | a \\| b | c | `sb_001_x` |\n| SB-002 | a | b | open |\n";
        assert_eq!(blessed(text, &map(&[("SB-001", "sb_001_x")])), expected);
    }

    #[test]
    fn an_outline_ignores_prose() {
        let outline = Outline::of("# T\ntext\n```sh\n# a comment\nmake demo\n```\n### U\n");
        assert_eq!(outline, Outline { levels: vec![1, 3], code: vec![vec!["```sh".into(), "make demo".into()]] });
    }
}
