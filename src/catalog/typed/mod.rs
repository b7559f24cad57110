//! Reading an utterance as it was meant: wrong characters, pinyin, traditional forms and slips in Latin words, put right
//! by the words of the cards.
//!
//! Owns: the vocabulary of one catalog, what a stretch of text is read as.
//! Does not know: what the reading is used for. The utterance itself never changes.

mod grams;
mod homophones;
mod owners;
mod slips;
mod spelled;
mod words;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use self::grams::{Grams, Sounds, grams_in};
use self::owners::Owners;
use self::words::{Spellings, Words, words_in};
use super::texts::each_parameter;
use crate::text::language::is_han;
use crate::text::{Language, Query, Reading};
use crate::tool::ToolCard;

/// What is read, in bytes; longer texts are pasted, not typed.
const MAX_READ: usize = 4_000;

/// Which tools' words may be used, by position: a word of a forbidden card must not show in anybody's reading.
pub type Open<'a> = &'a dyn Fn(usize) -> bool;

/// Grams and words of one card as texts, each once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    grams: BTreeSet<String>,
    words: BTreeSet<String>,
}

impl Said {
    pub fn by(card: &ToolCard) -> Self {
        Self::in_texts(&texts(card))
    }

    fn in_texts(texts: &[&str]) -> Self {
        Self {
            grams: texts.iter().flat_map(|text| grams_in(text)).collect(),
            words: texts.iter().flat_map(|text| words_in(text)).collect(),
        }
    }
}

/// Grams and words of one card as numbers, each once.
#[derive(Debug)]
pub(super) struct Numbered {
    grams: Box<[u32]>,
    words: Box<[u32]>,
}

/// Numbers for grams and words, shared by the catalogs of many versions. No reading depends on them.
#[derive(Debug, Default)]
pub(super) struct Tables {
    sounds: Arc<Sounds>,
    spellings: Arc<Spellings>,
}

impl Tables {
    pub fn number(&mut self, said: &Said) -> Numbered {
        Numbered {
            grams: said.grams.iter().map(|gram| Sounds::number(&mut self.sounds, gram)).collect(),
            words: said.words.iter().map(|word| Spellings::number(&mut self.spellings, word)).collect(),
        }
    }
}

/// Every word of the cards, with the tools that use it.
#[derive(Debug, Default)]
pub struct Vocabulary {
    grams: Grams,
    words: Words,
}

impl Vocabulary {
    /// What each tool says, by position, in the numbers of `tables`.
    pub(super) fn of<'a>(tools: impl Iterator<Item = &'a Numbered> + Clone, tables: &Tables) -> Self {
        let (sounds, spellings) = (Arc::clone(&tables.sounds), Arc::clone(&tables.spellings));
        let grams = Owners::new(tools.clone().map(|said| &*said.grams), sounds.len());
        let words = Owners::new(tools.map(|said| &*said.words), spellings.len());
        Self { grams: Grams { sounds, owners: grams }, words: Words { spellings, owners: words } }
    }

    #[cfg(test)]
    fn of_texts<'a>(tools: impl Iterator<Item = Vec<&'a str>>) -> Self {
        let mut tables = Tables::default();
        let numbered: Vec<Numbered> = tools.map(|texts| tables.number(&Said::in_texts(&texts))).collect();
        Self::of(numbered.iter(), &tables)
    }

    /// What `query` is read as. Ids, numbers, contacts, links and quoted text are never touched.
    pub fn read(&self, query: &Query, open: Open<'_>) -> Reading {
        if query.language == Language::Other {
            return Reading::default();
        }
        let mut changes = Vec::new();
        for stretch in stretches(query) {
            changes.extend(homophones::read(&self.grams, &query.text, stretch, open));
        }
        let tokens = latin_tokens(query);
        let spelled = spelled::read(&self.grams, &self.words, &query.text, &tokens, open);
        let open_tokens: Vec<Range<usize>> =
            tokens.into_iter().filter(|token| !spelled.iter().any(|change| covers(&change.span, token))).collect();
        changes.extend(spelled);
        if matches!(query.language, Language::En | Language::Mixed) {
            changes.extend(slips::read(&self.words, &query.text, &open_tokens, open));
        }
        Reading::new(changes)
    }
}

fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Texts whose words are the catalog's own.
fn texts(card: &ToolCard) -> Vec<&str> {
    let description = &card.description;
    let mut all: Vec<&str> = vec![&card.name, &description.what];
    all.extend(description.when_to_use.iter().chain(&card.examples).chain(&card.tags).map(String::as_str));
    all.extend(card.domain.as_deref());
    each_parameter(&card.parameters, &mut |name, property| {
        all.push(name);
        all.extend(property.get("description").and_then(Value::as_str));
    });
    all
}

/// Runs of Han characters outside slots.
fn stretches(query: &Query) -> Vec<Range<usize>> {
    runs(query, is_han)
}

/// Latin words outside slots that are written like words, not like identifiers.
fn latin_tokens(query: &Query) -> Vec<Range<usize>> {
    let text = &query.text;
    let joins = |c: char| c.is_ascii_digit() || matches!(c, '_' | '@' | '/' | '\\' | '#' | '.' | '-' | ':');
    let is_word = |token: &Range<usize>| {
        let word = &text[token.clone()];
        let before = text[..token.start].chars().next_back();
        let mut after = text[token.end..].chars();
        // A full stop ends a sentence unless something follows it at once.
        let joined_after = after.next().is_some_and(|c| joins(c) && after.next().is_some_and(|c| c.is_alphanumeric()));
        let one_case = word[1..].bytes().all(|byte| byte.is_ascii_lowercase());
        one_case && !before.is_some_and(|c| joins(c) || is_accented(c)) && !joined_after
    };
    runs(query, |c| c.is_ascii_alphabetic()).into_iter().filter(is_word).collect()
}

fn is_accented(c: char) -> bool {
    c.is_alphabetic() && !c.is_ascii() && !is_han(c)
}

/// Longest stretches outside slots, near enough to the beginning, whose characters are all `wanted`.
fn runs(query: &Query, wanted: impl Fn(char) -> bool) -> Vec<Range<usize>> {
    let mut slots = query.slots.iter().peekable();
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut run: Option<Range<usize>> = None;
    for (at, c) in query.text.char_indices().take_while(|(at, _)| *at < MAX_READ) {
        while slots.next_if(|slot| slot.span.end <= at).is_some() {}
        let in_slot = slots.peek().is_some_and(|slot| slot.span.contains(&at));
        if wanted(c) && !in_slot {
            run.get_or_insert(at..at).end = at + c.len_utf8();
        } else {
            found.extend(run.take());
        }
    }
    found.extend(run);
    found
}

#[cfg(test)]
mod tests;
