//! What is wrong with the wording, the schemas and the set of cards that can be served all the same.
//!
//! Owns: the rules with their ids, severity, reason and proposal in English and Chinese.
//! Does not know: vectors (pairs of cards that are close arrive as [`Overlap`]), output formats.

//!
//! A card that was written for this server is held to everything; one that was exported by somebody else only to what
//! makes sense for it, mostly as notes. Nothing here compares every card with every other: pairs come from outside, or
//! from an index over names and words.

mod bounds;
mod card;
mod closed;
mod describe;
mod effects;
mod jargon;
mod lexical;
mod lexicon;
mod meaning;
mod names;
pub mod pairs;
mod references;
mod report;
mod rule;
mod safety;
mod seen;
mod set;
mod words;

use std::collections::{BTreeMap, BTreeSet};

pub use rule::{Rule, Words, rules};

use crate::registry::Registry;
use crate::types::ToolId;
use card::Card;
use pairs::Measured;
use report::Report;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Note,
    Warning,
    Error,
}

/// The language of reasons and proposals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Language {
    #[default]
    English,
    Chinese,
}

/// One thing that a rule found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Id of the rule, such as `vague-description`.
    pub rule: &'static str,
    pub severity: Severity,
    /// Id of the tool, or the name of a quarantined card.
    pub tool: String,
    /// File or `put`; empty when not known.
    pub file: String,
    /// 1-based line in the file.
    pub line: Option<usize>,
    pub reason: String,
    pub proposal: String,
    /// The other tool of a pair.
    pub other: Option<String>,
}

/// Two cards whose texts are close in an encoder's space.
#[derive(Debug, Clone, PartialEq)]
pub struct Overlap {
    /// In id order.
    pub tools: [ToolId; 2],
    /// How close, 0 to 1: 1 for cards that say the same, about 0 for unrelated ones.
    pub closeness: f32,
    /// The text of each that comes closest to the other's.
    pub phrases: [String; 2],
}

/// Findings by tool, then by rule, then by line. The order of the cards in their files does not matter.
///
/// Without any overlap the pairs are found by their words alone, which finds plain cases only; the findings say so.
pub fn lint(registry: &Registry, overlaps: &[Overlap], language: Language) -> Vec<Finding> {
    let mut report = Report::new(language);
    let cards: Vec<Card<'_>> = registry.cards.values().map(|card| Card::new(card, registry)).collect();
    let by_id: BTreeMap<&str, usize> =
        cards.iter().enumerate().map(|(nth, card)| (card.card.id.as_str(), nth)).collect();
    let tools: BTreeSet<&str> = cards.iter().map(|card| card.card.name.as_str()).collect();
    let prefixes = names::prefixes(&cards);
    let known = jargon::known(&cards);
    for card in &cards {
        names::check(card, &prefixes, &mut report);
        describe::check(card, cards.len() == 1, &mut report);
        jargon::check(card, &known, &mut report);
        bounds::check(card, &mut report);
        closed::check(card, &mut report);
        meaning::check(card, &tools, &mut report);
        effects::check(card, registry, &mut report);
        safety::check(card, &mut report);
    }
    references::check(&cards, registry, &mut report);
    set::check(&cards, &mut report);
    if overlaps.is_empty() {
        pairs::check(&cards, &by_id, &lexical::overlaps(&cards), Measured::Words, &mut report);
    } else {
        pairs::check(&cards, &by_id, overlaps, Measured::Vectors, &mut report);
    }
    report.finish()
}

#[cfg(test)]
mod tests;
