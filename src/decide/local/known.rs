//! How much of an utterance the cards have ever heard of: a request from another world shares hardly a word with any.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::catalog::Tool;
use crate::text::language::is_han;
use crate::text::{Query, terms};

/// Longest text of a card that is read, in bytes.
const MAX_TEXT: usize = 8_000;

/// Words that stand in every request.
const STOP_WORDS: [&str; 60] = [
    "a", "an", "the", "i", "im", "you", "your", "my", "me", "we", "it", "is", "are", "was", "be", "do", "doe", "did",
    "can", "could", "would", "will", "to", "of", "in", "on", "at", "for", "from", "with", "and", "or", "but", "so",
    "this", "that", "these", "those", "pleas", "want", "need", "id", "like", "have", "has", "had", "get", "got",
    "just", "now", "some", "any", "there", "here", "what", "when", "how", "hi", "hello", "if",
];
/// Characters that mostly bind others.
const STOP_CHARACTERS: &str =
    "的了吗呢啊吧呀嘛么是在我你您他她它们这那个就都也还又再很太和与跟把被让给帮请要想有没不会能可以一下点些什怎";

/// Share of the content words, in `[0, 1]`, that stand on one of the cards; 1 without content words. A Chinese character
/// counts as half a word and is known in a known pair of characters.
pub(super) fn share<'a>(query: &Query, tools: impl Iterator<Item = &'a Tool>) -> f32 {
    let mut vocabulary = BTreeSet::new();
    for tool in tools {
        read(tool, &mut vocabulary);
    }
    let text = query.retrieval_text();
    let latin = terms(&text).into_iter().filter(|term| term.is_ascii() && !STOP_WORDS.contains(&term.as_str()));
    let (mut all, mut known) = (0.0f32, 0.0f32);
    for term in latin {
        all += 1.0;
        known += if vocabulary.contains(&term) { 1.0 } else { 0.0 };
    }
    let chars: Vec<char> = text.chars().collect();
    let pair_is_known =
        |at: usize| chars.get(at..at + 2).is_some_and(|pair| vocabulary.contains(&pair.iter().collect::<String>()));
    for (at, c) in chars.iter().enumerate().filter(|(_, c)| is_han(**c) && !STOP_CHARACTERS.contains(**c)) {
        all += 0.5;
        let is_known = pair_is_known(at) || at > 0 && pair_is_known(at - 1) || vocabulary.contains(&c.to_string());
        known += if is_known { 0.5 } else { 0.0 };
    }
    if all > 0.0 { known / all } else { 1.0 }
}

fn read(tool: &Tool, vocabulary: &mut BTreeSet<String>) {
    let card = &tool.card;
    let description = &card.description;
    let mut add = |text: &str| {
        if text.len() <= MAX_TEXT {
            vocabulary.extend(terms(text));
        }
    };
    add(&card.name);
    add(&description.what);
    description.when_to_use.iter().chain(&card.examples).for_each(|text| add(text));
    for property in tool.schema.views() {
        add(property.name);
        add(property.description());
        property.choices().into_iter().chain(property.item_choices()).filter_map(Value::as_str).for_each(&mut add);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::decide::llm::testing::card;
    use crate::text::normalise;

    #[test]
    fn words_of_the_cards_are_known_in_both_languages() {
        let mut own = card("track_parcel", json!({"type": "object", "properties": {}}));
        own.description.what = "Show where a parcel is.".into();
        own.description.when_to_use = vec!["我的快递到哪了".into()];
        let tool = Tool::new(Arc::new(own)).unwrap();
        let share = |text: &str| share(&normalise(text).unwrap(), std::iter::once(&tool));
        assert_eq!(share("where are my parcels"), 1.0);
        assert_eq!(share("快递到哪"), 1.0);
        assert_eq!(share("play jazz"), 0.0);
        assert!(share("比特币到哪了") < 0.6);
        assert_eq!(share("?"), 1.0);
    }
}
