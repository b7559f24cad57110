//! What a rule is and the list of all of them.

use super::words::{descriptions, effects, names, parameters, safety, set};
use super::{Language, Severity};

/// One text in each language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words {
    pub en: &'static str,
    pub zh: &'static str,
}

impl Words {
    pub fn of(self, language: Language) -> &'static str {
        match language {
            Language::English => self.en,
            Language::Chinese => self.zh,
        }
    }
}

/// One rule: what SARIF and the documents say about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    pub id: &'static str,
    /// On cards that were written for this server.
    pub severity: Severity,
    /// On flat and imported cards, whose authors wrote for somebody else; `None`: not looked for there.
    pub imported: Option<Severity>,
    /// One line.
    pub title: Words,
    /// Why it matters and what to do.
    pub help: Words,
}

impl Rule {
    pub(super) const fn new(
        id: &'static str,
        severity: Severity,
        imported: Option<Severity>,
        title: [&'static str; 2],
        help: [&'static str; 2],
    ) -> Self {
        let title = Words { en: title[0], zh: title[1] };
        let help = Words { en: help[0], zh: help[1] };
        Self { id, severity, imported, title, help }
    }
}

/// Every rule, in the order of the documents: names, descriptions, parameters, effects, safety, the set of cards.
pub fn rules() -> &'static [Rule] {
    &RULES
}

static RULES: [Rule; 59] = [
    names::GENERIC_NAME,
    names::NAME_NO_VERB,
    names::ABBREVIATION,
    names::SIMILAR_NAME,
    descriptions::VAGUE_DESCRIPTION,
    descriptions::MISSING_WHEN_NOT,
    descriptions::MISSING_RETURNS,
    descriptions::VAGUE_RETURNS,
    descriptions::INTERNAL_JARGON,
    descriptions::FEW_WORDINGS,
    descriptions::ONE_LANGUAGE_ONLY,
    descriptions::DUPLICATE_WORDING,
    descriptions::LONG_DESCRIPTION,
    descriptions::BOUNDARY_WITHOUT_TOOL,
    parameters::FREE_TEXT_ENUM,
    parameters::IDENTITY_PARAM,
    parameters::NO_LIMIT_CAP,
    parameters::NO_MAX_LENGTH,
    parameters::NO_MAX_ITEMS,
    parameters::OPEN_PROPERTIES,
    parameters::MODEL_COMPUTES_DATE,
    parameters::TOO_MANY_REQUIRED,
    parameters::INVENTED_ID,
    parameters::NOUN_ONLY_PARAM,
    parameters::UNDESCRIBED_PARAM,
    parameters::MIXED_MEANING,
    parameters::CODED_VALUES,
    parameters::DEFAULT_OUTSIDE,
    parameters::SIMILAR_PARAMS,
    parameters::REQUIRED_UNKNOWN,
    parameters::DEEP_PARAMETERS,
    effects::DESTRUCTIVE_NO_PREVIEW,
    effects::PREVIEW_NOT_READ,
    effects::TOKEN_NOT_REQUIRED,
    effects::SIDE_EFFECT_TOO_LOW,
    effects::HINT_CONTRADICTION,
    effects::MISSING_SIDE_EFFECT,
    effects::UNSTATED_LIMITS,
    effects::NO_IDEMPOTENCY_KEY,
    effects::FALLBACK_NOT_READ,
    effects::NO_RESULT_FIELDS,
    effects::NO_DONE_FIELD,
    safety::INJECTION_PHRASE,
    safety::HIDDEN_CHARACTERS,
    safety::MIXED_SCRIPT_NAME,
    safety::SECRET_PARAM,
    safety::SECRET_VALUE,
    set::DUPLICATE_MEANING,
    set::MERGE_CANDIDATE,
    set::MISSING_BOUNDARY,
    set::ONE_SIDED_BOUNDARY,
    set::ONE_SIDED_CONFLICT,
    set::UNKNOWN_TOOL_REFERENCE,
    set::QUARANTINED_REFERENCE,
    set::SELF_REFERENCE,
    set::REQUIRES_CYCLE,
    set::CONFLICTS_WITH_REQUIRED,
    set::REPEATED_BOUNDARY,
    set::MISSING_DOMAIN,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_rule_has_an_id_of_its_own_and_says_itself_in_both_languages() {
        let ids: BTreeSet<&str> = rules().iter().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), rules().len());
        assert!(ids.len() >= 25);
        for rule in rules() {
            assert!(rule.id.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{}", rule.id);
            assert!(!rule.title.en.is_empty() && rule.title.en.is_ascii(), "{}", rule.id);
            assert!(rule.help.en.len() > rule.title.en.len(), "{}", rule.id);
            for text in [rule.title.zh, rule.help.zh] {
                assert!(text.chars().any(crate::text::language::is_han), "{}", rule.id);
            }
        }
    }
}
