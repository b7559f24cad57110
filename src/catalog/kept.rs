//! What follows from one card alone, kept from one catalog to the next as long as the card stays the same.
//!
//! Owns: which cards are prepared again, on how many threads, when everything kept is thrown away.
//! Does not know: what an index makes of it ([`super::build`]). No answer depends on what was kept.

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::names::NameIndex;
use super::texts::{border_texts, dense_texts, is_chinese, lexical_terms, name_terms, purpose_terms};
use super::tool::Tool;
use super::typed::{Numbered, Said, Tables};
use crate::args::SchemaError;
use crate::embed::Embedded;
use crate::index::{Bag, LexicalIndex, Terms};
use crate::registry::Registry;
use crate::text::simplify_text;
use crate::tool::ToolCard;
use crate::types::ToolId;

/// Fewer cards than this are read on one thread.
const WORTH_A_THREAD: usize = 256;
/// More threads than this gain little: what they find is put together on one.
const MOST_THREADS: usize = 8;
/// Terms that may be known beyond four times those in use.
const SPARE_TERMS: usize = 100_000;

/// One card made ready.
pub(super) struct Prepared {
    pub tool: Tool,
    /// What is embedded for it.
    pub texts: Vec<Arc<str>>,
    /// Other tools it sends the reader to, by the name it uses, and the case to embed for them.
    pub borders: Vec<(String, Arc<str>)>,
    pub is_chinese: bool,
    /// SHA-256 of [`Prepared::line`].
    pub print: [u8; 32],
    pub names: Vec<Arc<str>>,
    pub lexical: Bag,
    pub name_words: Bag,
    pub purpose_words: Bag,
    pub said: Numbered,
}

impl Prepared {
    /// Id and content of the card: what the version of a catalog is made of.
    pub fn line(&self) -> String {
        line(&self.tool)
    }
}

fn line(tool: &Tool) -> String {
    format!("{}\u{0}{}\n", tool.id(), tool.hash.0)
}

/// What the last build left for the next.
#[derive(Default)]
pub(super) struct Kept {
    /// In id order.
    cards: Vec<Arc<Prepared>>,
    pub terms: Terms,
    pub tables: Tables,
    /// By encoder, then by text.
    pub vectors: HashMap<String, HashMap<Arc<str>, Embedded>>,
    /// How many terms the last catalog had.
    pub used_terms: usize,
}

impl Kept {
    /// The served cards of `registry` made ready, in id order; those that are new or changed are read on up to
    /// `threads`. A card whose schema cannot be compiled is handed back and left out.
    pub fn prepare(&mut self, registry: &Registry, threads: usize) -> (Vec<Arc<Prepared>>, Vec<(ToolId, SchemaError)>) {
        if self.terms.len() > SPARE_TERMS + 4 * self.used_terms {
            // What changing cards left behind takes more room than reading all of them again takes time.
            *self = Self::default();
        }
        let known: Vec<Option<Arc<Prepared>>> = registry.cards.values().map(|card| self.known(card)).collect();
        let unknown = registry.cards.values().zip(&known).filter(|(_, known)| known.is_none());
        let unknown: Vec<&Arc<ToolCard>> = unknown.map(|(card, _)| card).collect();
        let mut read = read_all(&unknown, threads).into_iter();
        let mut broken = Vec::new();
        let mut cards = Vec::with_capacity(known.len());
        for (card, known) in registry.cards.values().zip(known) {
            match known {
                Some(prepared) => cards.push(prepared),
                None => match read.next() {
                    Some(Ok(read)) => cards.push(Arc::new(self.number(read))),
                    Some(Err(error)) => broken.push((card.id.clone(), error)),
                    None => {}
                },
            }
        }
        self.cards.clone_from(&cards);
        (cards, broken)
    }

    fn known(&self, card: &Arc<ToolCard>) -> Option<Arc<Prepared>> {
        let at = self.cards.binary_search_by(|known| known.tool.id().cmp(&card.id)).ok()?;
        let known = &self.cards[at];
        // After a reload from disk equal cards are not the same ones.
        (Arc::ptr_eq(&known.tool.card, card) || known.tool.card == *card).then(|| Arc::clone(known))
    }

    fn number(&mut self, read: Read) -> Prepared {
        Prepared {
            lexical: LexicalIndex::bag(&read.lexical, &mut self.terms),
            name_words: Bag::of(&read.name_words, &mut self.terms),
            purpose_words: Bag::of(&read.purpose_words, &mut self.terms),
            said: self.tables.number(&read.said),
            print: Sha256::digest(line(&read.tool)).into(),
            names: NameIndex::forms(read.tool.id()),
            tool: read.tool,
            texts: read.texts,
            borders: read.borders,
            is_chinese: read.is_chinese,
        }
    }
}

/// One card as several threads can read it at once.
struct Read {
    tool: Tool,
    texts: Vec<Arc<str>>,
    borders: Vec<(String, Arc<str>)>,
    is_chinese: bool,
    lexical: Vec<String>,
    name_words: Vec<String>,
    purpose_words: Vec<String>,
    said: Said,
}

impl Read {
    fn card(card: &Arc<ToolCard>) -> Result<Self, SchemaError> {
        let borders = border_texts(card).map(|(target, case)| (target.to_owned(), simplify_text(case).into()));
        Ok(Self {
            tool: Tool::new(Arc::clone(card))?,
            texts: dense_texts(card).into_iter().map(Arc::from).collect(),
            borders: borders.collect(),
            is_chinese: is_chinese(card),
            lexical: lexical_terms(card),
            name_words: name_terms(card),
            purpose_words: purpose_terms(card),
            said: Said::by(card),
        })
    }
}

/// One result per card, in order.
fn read_all(cards: &[&Arc<ToolCard>], threads: usize) -> Vec<Result<Read, SchemaError>> {
    let threads = threads.min(cards.len() / WORTH_A_THREAD).clamp(1, MOST_THREADS);
    let read = |cards: &[&Arc<ToolCard>]| cards.iter().map(|card| Read::card(card)).collect::<Vec<_>>();
    if threads == 1 {
        return read(cards);
    }
    std::thread::scope(|scope| {
        let parts = cards.chunks(cards.len().div_ceil(threads));
        let running: Vec<_> = parts.map(|part| scope.spawn(move || read(part))).collect();
        let done = running.into_iter().map(|part| part.join());
        done.flat_map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

#[cfg(test)]
mod tests;
