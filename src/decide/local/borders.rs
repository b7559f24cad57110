//! Which side of the border between two tools an utterance lies on, by concepts and words.
//!
//! A card says "for this case use that tool". Where the ranking puts the card above the other tool although the
//! utterance speaks of the case, and of nothing in it that the card itself serves, the border decides. Vectors of such
//! cases do not exist: they must not attract anything.

use std::sync::LazyLock;

use regex::Regex;

use super::concepts::{Concepts, asking_rules};
use super::extract::words;
use crate::catalog::Tool;
use crate::text::language::is_han;
use crate::text::{Query, SlotKind};
use crate::tool::Boundary;

/// What one candidate's card speaks of.
pub(super) struct Reading<'a> {
    tool: &'a Tool,
    /// Its place in the ranking.
    score: f32,
    name: Concepts,
    /// Of the name and of what the tool does.
    core: Concepts,
    /// With the wordings that lead to it.
    wide: Concepts,
}

impl<'a> Reading<'a> {
    pub(super) fn of(tool: &'a Tool, score: f32) -> Self {
        let card = &tool.card;
        let name = Concepts::of(&card.name.replace(['_', '-', '/', '.'], " "));
        let core = name.union(Concepts::of(&without_asides(&card.description.what)));
        let texts = card.description.when_to_use.iter().chain(&card.examples);
        let wide = texts.fold(core, |all, text| all.union(Concepts::of(text)));
        Self { tool, score, name, core, wide }
    }
}

/// What an utterance says about one candidate beside its rank.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Shift {
    /// Concepts shared with the card, each worth more the fewer candidates share it.
    pub agrees: f32,
    /// -1 where the card's own boundaries name the utterance, 1 where those of another card do, else 0.
    pub border: f32,
}

/// For each candidate what the concepts of the utterance are worth and what the borders move, in the given order.
pub(super) fn shifts(query: &Query, readings: &[Reading<'_>]) -> Vec<Shift> {
    let text = query.retrieval_text().to_lowercase();
    let said = said(query, &text);
    let agreement = |reading| Shift { agrees: agreement(said, reading, readings), border: 0.0 };
    let mut shifts: Vec<Shift> = readings.iter().map(agreement).collect();
    for (index, own) in readings.iter().enumerate() {
        for boundary in &own.tool.card.description.when_not_to_use {
            let other = readings.iter().position(|reading| is_named(reading.tool, boundary));
            let is_behind = other.is_none_or(|other| readings[other].score < own.score);
            if is_behind && speaks_of(said, &text, &boundary.case, own, other.map(|other| &readings[other])) {
                shifts[index].border = -1.0;
                if let Some(other) = other {
                    shifts[other].border = 1.0;
                }
            }
        }
    }
    shifts
}

/// Who names a thing by its id wants something done with it, not its rules.
fn said(query: &Query, text: &str) -> Concepts {
    let said = Concepts::of(text);
    let has_id = query.slots.iter().any(|slot| slot.kind == SlotKind::Id);
    if has_id { said.without(asking_rules()) } else { said }
}

/// Concepts in the name count more than those in the rest of the text, and these more than those of single wordings.
fn agreement(said: Concepts, reading: &Reading<'_>, all: &[Reading<'_>]) -> f32 {
    let worth = |concept: Concepts| {
        let sharing = all.iter().filter(|other| !other.wide.common(concept).is_empty()).count();
        let rarity = 1.0 - (sharing as f32 - 1.0) / (all.len().max(2) as f32 - 1.0);
        let place = if !reading.name.common(concept).is_empty() {
            1.5
        } else if !reading.core.common(concept).is_empty() {
            1.0
        } else {
            0.5
        };
        rarity * place
    };
    said.common(reading.wide).each().map(worth).fold(0.0, |sum, worth| sum + worth)
}

/// Whether the utterance speaks of the whole case: of all that sets it apart from the card and, where the other tool
/// is known, belongs to that.
fn speaks_of(said: Concepts, text: &str, case: &str, own: &Reading<'_>, other: Option<&Reading<'_>>) -> bool {
    if chinese_words(case).any(|word| says(text, word)) {
        return true;
    }
    let apart = Concepts::of(&without_asides(case)).without(own.wide);
    let apart = other.map_or(apart, |other| {
        let theirs = apart.common(other.wide);
        if theirs.is_empty() { apart } else { theirs }
    });
    !apart.is_empty() && apart.without(said).is_empty()
}

/// Chinese words in a case, as in "wants somebody to hurry (催一下)".
fn chinese_words(case: &str) -> impl Iterator<Item = &str> {
    const SHORTEST: usize = 2;
    const LONGEST: usize = 8;
    let has_latin = case.contains(|c: char| c.is_ascii_alphabetic());
    let parts = case.split(|c: char| !is_han(c)).filter(move |_| has_latin);
    parts.filter(|part| (SHORTEST..=LONGEST).contains(&part.chars().count()))
}

/// A verb and its object may stand apart: 开票 is said in 开张发票.
fn says(text: &str, word: &str) -> bool {
    const GAP: usize = 2;
    if words::find_meant(text, word).is_some() {
        return true;
    }
    let mut chars = word.chars();
    let (Some(verb), Some(object), None) = (chars.next(), chars.next(), chars.next()) else { return false };
    text.match_indices(verb).any(|(at, _)| {
        let rest = text[at + verb.len_utf8()..].chars().take(GAP + 1);
        rest.take_while(|c| is_han(*c)).any(|c| c == object) && !words::is_negated(text, at)
    })
}

/// Identifiers in prose point at something else, and "that has been drawn up" tells a state, not an act.
fn without_asides(text: &str) -> String {
    static ASIDES: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"\S*_\S*|\b(?:that|which) (?:has|have|was|were|had|is|are)(?: already| not)?(?: been)? \w+(?: \w+)?",
        )
        .expect("the pattern is constant and tested")
    });
    ASIDES.replace_all(text, " ").into_owned()
}

fn is_named(tool: &Tool, boundary: &Boundary) -> bool {
    boundary.use_tool.as_deref().is_some_and(|name| tool.is_called(name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::decide::llm::testing::card;
    use crate::text::normalise;

    fn tool(name: &str, what: &str, boundaries: &[(&str, &str)]) -> Tool {
        let mut own = card(name, json!({"type": "object", "properties": {}}));
        own.description.what = what.into();
        let boundary =
            |(case, other): &(&str, &str)| Boundary { case: (*case).into(), use_tool: Some((*other).into()) };
        own.description.when_not_to_use = boundaries.iter().map(boundary).collect();
        Tool::new(Arc::new(own)).unwrap()
    }

    /// Borders of three tools ranked in this order.
    fn borders(utterance: &str) -> Vec<f32> {
        let tools = [
            tool(
                "cancel_booking",
                "Cancel a booking.",
                &[
                    ("Asks for the rules of cancelling", "search_rules"),
                    ("Wants somebody to hurry (催单)", "urge_booking"),
                ],
            ),
            tool(
                "search_rules",
                "Look up published rules. See cancel_booking.",
                &[("Wants to cancel now", "cancel_booking")],
            ),
            tool("urge_booking", "Make the kitchen hurry.", &[]),
        ];
        let readings: Vec<_> = tools.iter().enumerate().map(|(rank, tool)| Reading::of(tool, -(rank as f32))).collect();
        shifts(&normalise(utterance).unwrap(), &readings).iter().map(|shift| shift.border).collect()
    }

    #[test]
    fn a_case_that_is_spoken_of_moves_both_sides() {
        assert_eq!(borders("取消有什么规定"), [-1.0, 1.0, 0.0]);
        assert_eq!(borders("what is your policy on cancelling"), [-1.0, 1.0, 0.0]);
        assert_eq!(borders("帮我催一下单"), [-1.0, 0.0, 1.0]);
        assert_eq!(borders("取消"), [0.0; 3], "the ranking has it right already");
        assert_eq!(borders("别催单"), [0.0; 3]);
        assert_eq!(borders("我知道规定,取消BK-20260418"), [0.0; 3], "an id wants something done");
    }

    #[test]
    fn rare_concepts_and_names_are_worth_more() {
        let cancel = tool("cancel_booking", "Cancel a booking.", &[]);
        let list = tool("list_bookings", "List bookings, cancelled ones too.", &[]);
        let readings = [Reading::of(&cancel, 0.0), Reading::of(&list, 0.0)];
        let agrees = |text: &str| -> Vec<f32> {
            shifts(&normalise(text).unwrap(), &readings).iter().map(|shift| shift.agrees).collect()
        };
        assert_eq!(agrees("取消"), [0.0, 0.0], "both speak of it");
        assert_eq!(agrees("列一下"), [0.0, 1.5]);
    }
}
