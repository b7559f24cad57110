//! What the user is told when a person takes over.
//!
//! Owns: the sentences by reason and locale, and which locale an utterance gets.
//! Does not know: why it was handed over, or who takes over.

use std::collections::BTreeMap;

use crate::decision::HandoffReason;
use crate::text::Query;

/// Sentences of one reason by locale: `en`, `zh` or another two- or three-letter tag.
pub type ByLocale = BTreeMap<String, String>;

/// The locale that every reason has a sentence in.
pub const FALLBACK_LOCALE: &str = "en";

/// A sentence for each reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentences {
    pub fuse_blown: ByLocale,
    pub policy: ByLocale,
    pub budget: ByLocale,
}

impl Default for Sentences {
    fn default() -> Self {
        let of =
            |en: &str, zh: &str| BTreeMap::from([("en".to_owned(), en.to_owned()), ("zh".to_owned(), zh.to_owned())]);
        Self {
            fuse_blown: of(
                "I could not work this out reliably, so I am handing you over to a colleague.",
                "这个问题我没能可靠地处理，现在为您转接人工同事。",
            ),
            policy: of(
                "A colleague has to take care of this, so I am handing you over.",
                "这件事需要由人工处理，现在为您转接。",
            ),
            budget: of(
                "This is taking longer than it should, so I am handing you over to a colleague.",
                "处理时间超出了预期，现在为您转接人工同事。",
            ),
        }
    }
}

impl Sentences {
    pub fn by_locale(&self, reason: HandoffReason) -> &ByLocale {
        match reason {
            HandoffReason::FuseBlown => &self.fuse_blown,
            HandoffReason::Policy => &self.policy,
            HandoffReason::Budget => &self.budget,
        }
    }

    /// The sentence in the utterance's language; English where there is none in it.
    pub fn of(&self, reason: HandoffReason, query: &Query) -> &str {
        let sentences = self.by_locale(reason);
        let own = if query.language.prefers_chinese() { &["zh"] } else { query.codes };
        let mut codes = own.iter().copied().chain([FALLBACK_LOCALE]);
        codes.find_map(|code| sentences.get(code)).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::normalise;

    #[test]
    fn the_sentence_is_in_the_language_of_the_utterance() {
        let mut sentences = Sentences::default();
        sentences.policy.insert("ru".into(), "Вас соединят с сотрудником.".into());
        let of = |text: &str| sentences.of(HandoffReason::Policy, &normalise(text).unwrap()).to_owned();
        assert_eq!(of("转人工"), sentences.policy["zh"]);
        assert_eq!(of("帮我查一下 order status"), sentences.policy["zh"]);
        assert_eq!(of("a person please"), sentences.policy["en"]);
        assert_eq!(of("позовите человека"), sentences.policy["ru"]);
        assert_eq!(of("人をお願いします"), sentences.policy["en"]);
        for reason in HandoffReason::ALL {
            let sentences = sentences.by_locale(reason);
            assert!(sentences.contains_key("en") && sentences.contains_key("zh"), "{reason:?}");
        }
    }
}
