//! The report as SARIF 2.1.0, which code hosts show beside the lines.

use std::path::Path;

use pointsman::pipeline::severity_name;
use pointsman::registry::Quarantined;
use pointsman::registry::lint::{Finding, Language, Severity, rules};
use pointsman::types::encoding::hex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Report, first_line};

/// Rule of results about cards that would not be served.
const QUARANTINED: &str = "quarantined-card";

pub(super) fn sarif(report: &Report) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let ids: Vec<&str> = rules().iter().map(|rule| rule.id).chain([QUARANTINED]).collect();
    let results = report.quarantined.iter().map(|card| quarantined(card, &ids, &here));
    let results: Vec<Value> = results.chain(report.findings.iter().map(|one| finding(one, &ids, &here))).collect();
    let notes = report.notices.iter().chain(&report.remarks);
    let notifications: Vec<Value> = notes.map(|note| json!({"level": "note", "message": {"text": note}})).collect();
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "pointsman",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": descriptors(report.language),
            }},
            "language": match report.language { Language::English => "en-US", Language::Chinese => "zh-CN" },
            "columnKind": "unicodeCodePoints",
            "invocations": [{"executionSuccessful": true, "toolExecutionNotifications": notifications}],
            "results": results,
        }],
    });
    format!("{log:#}\n")
}

fn descriptors(language: Language) -> Vec<Value> {
    let of = |id: &str, title: &str, help: &str, severity| {
        json!({
            "id": id,
            "shortDescription": {"text": title},
            "fullDescription": {"text": help},
            "help": {"text": help},
            "defaultConfiguration": {"level": severity_name(severity)},
        })
    };
    let mut all: Vec<Value> = rules()
        .iter()
        .map(|rule| of(rule.id, rule.title.of(language), rule.help.of(language), rule.severity))
        .collect();
    let [title, help] = match language {
        Language::English => [
            "A card that would not be served",
            "A card with such a fault is kept out of every choice; the other cards are served.",
        ],
        Language::Chinese => ["卡片不会上线", "有此错误的卡片不参与任何选择；其他卡片照常服务。"],
    };
    all.push(of(QUARANTINED, title, help, Severity::Error));
    all
}

fn finding(finding: &Finding, ids: &[&str], here: &Path) -> Value {
    let text = [finding.reason.trim(), finding.proposal.trim()].join(" ");
    let text = format!("{}: {}", finding.tool, text.trim());
    let level = severity_name(finding.severity);
    let parts = [finding.rule, &finding.tool, finding.other.as_deref().unwrap_or_default(), &finding.reason];
    let place = (finding.file.as_str(), finding.line);
    result(finding.rule, level, &text, (&finding.tool, place), &parts, ids, here)
}

fn quarantined(card: &Quarantined, ids: &[&str], here: &Path) -> Value {
    let problem = |problem: &pointsman::registry::CardProblem| {
        let at = if problem.pointer.is_empty() { "" } else { ": " };
        format!("{}{at}{}", problem.pointer, problem.message)
    };
    let problems: Vec<String> = card.problems.iter().map(problem).collect();
    let text = format!("{}: {}", card.card, problems.join("; "));
    let place = (card.source.as_str(), first_line(card));
    result(QUARANTINED, "error", &text, (&card.card, place), &[QUARANTINED, &card.card], ids, here)
}

/// `parts` are what makes the result the same one in the next run, wherever its line has moved.
fn result(
    rule: &str,
    level: &str,
    text: &str,
    (tool, (file, line)): (&str, (&str, Option<usize>)),
    parts: &[&str],
    ids: &[&str],
    here: &Path,
) -> Value {
    let mut location = json!({"logicalLocations": [{"name": tool, "kind": "object"}]});
    if !file.is_empty() {
        let mut physical = json!({"artifactLocation": {"uri": uri(file, here)}});
        if let Some(line) = line.filter(|line| *line > 0) {
            physical["region"] = json!({"startLine": line});
        }
        location["physicalLocation"] = physical;
    }
    let mut result = json!({
        "ruleId": rule,
        "level": level,
        "message": {"text": text},
        "locations": [location],
        "partialFingerprints": {"pointsman/v1": hex(&Sha256::digest(parts.join("\u{0}"))[..16])},
    });
    if let Some(index) = ids.iter().position(|id| *id == rule) {
        result["ruleIndex"] = index.into();
    }
    result
}

/// `file` as a reference relative to the folder the program runs in.
fn uri(file: &str, here: &Path) -> String {
    let path = Path::new(file);
    let path = path.strip_prefix(here).unwrap_or(path);
    let path = path.strip_prefix(".").unwrap_or(path);
    let text = path.to_string_lossy();
    let mut uri = String::new();
    // What lies elsewhere has no relative name that another machine could follow.
    if path.is_absolute() {
        uri.push_str("file://");
    }
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => uri.push(byte as char),
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn files_are_named_relative_and_encoded() {
        let here = Path::new("/home/me/repo");
        assert_eq!(uri("/home/me/repo/cards/a b.yaml", here), "cards/a%20b.yaml");
        assert_eq!(uri("./注册.yaml", here), "%E6%B3%A8%E5%86%8C.yaml");
        assert_eq!(uri("/elsewhere/x.yaml", here), "file:///elsewhere/x.yaml");
        assert_eq!(uri("put", here), "put");
    }

    #[test]
    fn results_have_rule_level_place_and_a_fingerprint_that_lines_do_not_change() {
        let mut report = sample();
        let log: Value = serde_json::from_str(&sarif(&report)).unwrap();
        let results = log["runs"][0]["results"].as_array().unwrap();
        assert_eq!(results.len(), 4);
        assert_eq!((&results[0]["ruleId"], &results[0]["level"]), (&QUARANTINED.into(), &"error".into()));
        assert_eq!(results[0]["locations"][0]["physicalLocation"]["region"]["startLine"], 7);
        assert_eq!(results[2]["level"], "note");
        assert_eq!(results[2]["locations"][0]["physicalLocation"].get("region"), None);
        let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
        let index = results[0]["ruleIndex"].as_u64().unwrap() as usize;
        assert_eq!(rules[index]["id"], QUARANTINED);
        report.findings.iter_mut().for_each(|finding| finding.line = Some(99));
        let moved: Value = serde_json::from_str(&sarif(&report)).unwrap();
        let prints = |log: &Value| {
            let results = log["runs"][0]["results"].as_array().unwrap().clone();
            results.iter().map(|result| result["partialFingerprints"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(prints(&log), prints(&moved));
    }
}
