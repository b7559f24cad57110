//! Gathers what the rules find on one card after another.

use super::card::Card;
use super::rule::Rule;
use super::{Finding, Language, Severity};

/// Findings of one rule on one native card; what is beyond is told in the last one's place.
const MAX_EACH: usize = 20;
/// Parameters that a gathered finding names.
const MAX_NAMED: usize = 5;

/// Words in the language of the report; what is in braces is taken from the surroundings in both.
macro_rules! words {
    ($language:expr, $en:literal, $zh:literal) => {
        match $language {
            $crate::registry::lint::Language::English => format!($en),
            $crate::registry::lint::Language::Chinese => format!($zh),
        }
    };
}
pub(super) use words;

/// A part of a card that a rule complains about.
#[derive(Debug, Clone)]
pub(super) struct Hit {
    pub pointer: String,
    pub reason: String,
    pub proposal: String,
}

pub(super) struct Report {
    pub language: Language,
    findings: Vec<Finding>,
}

impl Report {
    pub fn new(language: Language) -> Self {
        Self { language, findings: Vec::new() }
    }

    /// One finding on the part of `card` at `pointer`.
    pub fn add(&mut self, rule: &Rule, card: &Card<'_>, hit: Hit) {
        self.push(rule, card, hit, None);
    }

    /// One finding on a pair; the other card gets one of its own.
    pub fn pair(&mut self, rule: &Rule, card: &Card<'_>, other: &str, hit: Hit) {
        self.push(rule, card, hit, Some(other.to_owned()));
    }

    /// Findings on several parts of one card that have a name each. The author of a native card gets each with its
    /// line; of an imported one, which nobody here can mend part by part, all of a rule are one.
    pub fn parts(&mut self, rule: &Rule, card: &Card<'_>, mut hits: Vec<(String, Hit)>) {
        if card.native {
            for (_, hit) in hits.into_iter().take(MAX_EACH) {
                self.add(rule, card, hit);
            }
            return;
        }
        let count = hits.len();
        let names: Vec<String> = hits.iter().take(MAX_NAMED).map(|(name, _)| format!("`{name}`")).collect();
        let Some((_, first)) = hits.first_mut() else { return };
        if count > 1 {
            let names = names.join(", ");
            let also = words!(
                self.language,
                " This holds for {count} parameters: {names}",
                "共有 {count} 个参数如此：{names}"
            );
            let more = if count > MAX_NAMED { ", …" } else { "" };
            let end = if self.language == Language::Chinese { "。" } else { "." };
            first.reason = format!("{}{also}{more}{end}", first.reason);
        }
        let first = first.clone();
        self.add(rule, card, first);
    }

    /// A card that is not served.
    pub fn quarantined(
        &mut self,
        rule: &Rule,
        finding: (String, String, Option<usize>),
        reason: String,
        proposal: String,
    ) {
        let (tool, file, line) = finding;
        let severity = rule.severity;
        self.findings.push(Finding { rule: rule.id, severity, tool, file, line, reason, proposal, other: None });
    }

    fn push(&mut self, rule: &Rule, card: &Card<'_>, hit: Hit, other: Option<String>) {
        let Some(severity) = severity(rule, card.native) else { return };
        self.findings.push(Finding {
            rule: rule.id,
            severity,
            tool: card.card.id.to_string(),
            file: card.place.map(|place| place.file.to_string()).unwrap_or_default(),
            line: card.place.and_then(|place| place.line(&hit.pointer)),
            reason: hit.reason,
            proposal: hit.proposal,
            other,
        });
    }

    /// Sorted, and the same thing said once.
    pub fn finish(mut self) -> Vec<Finding> {
        self.findings.sort_by(|a, b| {
            let key = |f: &Finding| (f.tool.clone(), f.rule, f.line, f.other.clone(), f.reason.clone());
            key(a).cmp(&key(b))
        });
        self.findings.dedup();
        self.findings
    }
}

pub(super) fn severity(rule: &Rule, native: bool) -> Option<Severity> {
    if native { Some(rule.severity) } else { rule.imported }
}
