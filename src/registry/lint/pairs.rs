//! Pairs of cards that are close: synonyms, shades of one meaning, borders that are missing.
//!
//! Owns: what closeness means for a pair, and how a proposed boundary is worded.
//! Does not know: how closeness is measured.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Overlap;
use super::card::Card;
use super::lexicon::is_verb;
use super::report::{Hit, Report, words};
use super::rule::Rule;
use super::words::set::{DUPLICATE_MEANING, MERGE_CANDIDATE, MISSING_BOUNDARY, ONE_SIDED_BOUNDARY};
use crate::text::tokenise;
use crate::tool::ToolCard;

/// Closeness by vectors from which on two cards mean the same.
pub const DUPLICATE: f32 = 0.6;
/// Closeness by vectors from which on two cards are likely to be mistaken for each other.
pub const CLOSE: f32 = 0.3;
/// The same for two cards of one class that take the same id and of which one names the other: two questions about one
/// thing, which its author knew to be confusable.
pub const CLOSE_ABOUT_ONE_THING: f32 = 0.12;
/// The first two for closeness by words alone.
pub(super) const DUPLICATE_BY_WORDS: f32 = 0.9;
pub(super) const CLOSE_BY_WORDS: f32 = 0.75;
/// Pairs one card is reported in; the closest ones.
pub(super) const MAX_PARTNERS: usize = 5;

/// How a pair was compared, which its findings say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measured {
    Vectors,
    Words,
}

impl Measured {
    fn duplicate(self) -> f32 {
        match self {
            Self::Vectors => DUPLICATE,
            Self::Words => DUPLICATE_BY_WORDS,
        }
    }

    fn close(self) -> f32 {
        match self {
            Self::Vectors => CLOSE,
            Self::Words => CLOSE_BY_WORDS,
        }
    }
}

pub(super) fn check(
    cards: &[Card<'_>],
    by_id: &BTreeMap<&str, usize>,
    overlaps: &[Overlap],
    how: Measured,
    report: &mut Report,
) {
    let mut close: Vec<&Overlap> = overlaps.iter().collect();
    close.sort_by(|a, b| b.closeness.total_cmp(&a.closeness).then_with(|| a.tools.cmp(&b.tools)));
    let mut partners: BTreeMap<usize, usize> = BTreeMap::new();
    for overlap in close {
        let [first, second] = &overlap.tools;
        let pair = by_id.get(first.as_str()).zip(by_id.get(second.as_str()));
        let Some((&first, &second)) = pair.filter(|(first, second)| first != second) else { continue };
        if !counts(&cards[first], &cards[second], overlap.closeness, how) {
            continue;
        }
        if [first, second].iter().any(|card| partners.get(card).is_some_and(|count| *count >= MAX_PARTNERS)) {
            continue;
        }
        if judge(&cards[first], &cards[second], overlap, how, report) {
            for card in [first, second] {
                *partners.entry(card).or_default() += 1;
            }
        }
    }
}

/// Whether two cards are close enough to be looked at.
fn counts(a: &Card<'_>, b: &Card<'_>, closeness: f32, how: Measured) -> bool {
    let about_one_thing =
        || names(a.card, b.card) != names(b.card, a.card) && same_class(a.card, b.card) && take_the_same_id(a, b);
    closeness >= how.close() || how == Measured::Vectors && closeness >= CLOSE_ABOUT_ONE_THING && about_one_thing()
}

/// An argument of the same name and the same pattern.
fn take_the_same_id(a: &Card<'_>, b: &Card<'_>) -> bool {
    a.arguments().any(|argument| {
        let pattern = argument.text("pattern");
        pattern.is_some() && b.arguments().any(|other| other.name == argument.name && other.text("pattern") == pattern)
    })
}

/// False if the pair is in order.
fn judge(a: &Card<'_>, b: &Card<'_>, overlap: &Overlap, how: Measured, report: &mut Report) -> bool {
    let (a_names_b, b_names_a) = (names(a.card, b.card), names(b.card, a.card));
    let sides = [(a, b, &overlap.phrases[0], &overlap.phrases[1]), (b, a, &overlap.phrases[1], &overlap.phrases[0])];
    if are_linked(a.card, b.card) {
        return false;
    }
    if !(a_names_b && b_names_a) && are_shades(a.card, b.card) {
        for (card, other, own, theirs) in sides {
            shades(card, other, (own, theirs), report);
        }
    } else if overlap.closeness >= how.duplicate() && !a_names_b && !b_names_a && same_class(a.card, b.card) {
        for (card, other, own, theirs) in sides {
            duplicate(card, other, (own, theirs), how, report);
        }
    } else {
        match (a_names_b, b_names_a) {
            (true, true) => return false,
            (false, false) => sides.iter().for_each(|(card, other, own, theirs)| {
                border(&MISSING_BOUNDARY, card, other, (own, theirs), how, report);
            }),
            (true, false) => border(&ONE_SIDED_BOUNDARY, b, a, (sides[1].2, sides[1].3), how, report),
            (false, true) => border(&ONE_SIDED_BOUNDARY, a, b, (sides[0].2, sides[0].3), how, report),
        }
    }
    true
}

fn names(card: &ToolCard, other: &ToolCard) -> bool {
    card.description.when_not_to_use.iter().any(|boundary| boundary.use_tool.as_deref() == Some(other.id.as_str()))
}

/// A preview and what it leads to follow each other; they are no alternatives.
fn are_linked(a: &ToolCard, b: &ToolCard) -> bool {
    let leads = |from: &ToolCard, to: &ToolCard| {
        let id = to.id.as_str();
        from.requires.iter().any(|tool| tool == id)
            || from.confirmation.as_ref().and_then(|confirmation| confirmation.tool.as_deref()) == Some(id)
    };
    leads(a, b) || leads(b, a)
}

fn same_class(a: &ToolCard, b: &ToolCard) -> bool {
    !(a.side_effect_declared && b.side_effect_declared) || a.side_effect == b.side_effect
}

/// Equal arguments, equal class, the same verb: two values of a `type`.
fn are_shades(a: &ToolCard, b: &ToolCard) -> bool {
    let verb = |card: &ToolCard| tokenise(&card.name).into_iter().next().filter(|first| is_verb(first));
    let arguments = |card: &ToolCard| card.parameters.get("properties").and_then(Value::as_object).map_or(0, Map::len);
    a.source == b.source
        && same_class(a, b)
        && arguments(a) > 0
        && verb(a).is_some()
        && verb(a) == verb(b)
        && letters(&value_of(&a.name)) != letters(&value_of(&b.name))
        && without_texts(&a.parameters) == without_texts(&b.parameters)
}

/// A schema without what only people read.
fn without_texts(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, value)| {
                !matches!(key.as_str(), "description" | "title" | "examples" | "$comment") || value.is_object()
            });
            kept.map(|(key, value)| (key.clone(), without_texts(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema.clone(),
    }
}

fn duplicate(card: &Card<'_>, other: &Card<'_>, phrases: (&str, &str), how: Measured, report: &mut Report) {
    let language = report.language;
    let (name, twin) = (card.card.id.as_str(), other.card.id.as_str());
    let (own, theirs) = shown(phrases);
    let by = by(how, report);
    let reason = words!(
        language,
        "`{name}` and `{twin}` mean the same{by}: \"{own}\" and \"{theirs}\".",
        "`{name}` 和 `{twin}` 含义相同{by}：“{own}”与“{theirs}”。"
    );
    let proposal = words!(
        language,
        "Keep one of the two and move the wordings of the other to it; or say in both what sets them apart.",
        "两个只留一个，把另一个的说法并过来；或者在两边写明区别。"
    );
    report.pair(&DUPLICATE_MEANING, card, twin, Hit { pointer: "/description".into(), reason, proposal });
}

fn shades(card: &Card<'_>, other: &Card<'_>, phrases: (&str, &str), report: &mut Report) {
    let language = report.language;
    let (name, twin) = (card.card.id.as_str(), other.card.id.as_str());
    let (own, theirs) = shown(phrases);
    let reason = words!(
        language,
        "`{name}` and `{twin}` take the same arguments and differ in a shade: \"{own}\" and \"{theirs}\".",
        "`{name}` 和 `{twin}` 参数相同，只差一点含义：“{own}”与“{theirs}”。"
    );
    let values = [card, other].map(|card| value_of(&card.card.name));
    let values = values.join(", ");
    let proposal = words!(
        language,
        "Make one tool of both with a parameter `type` and `enum: [{values}]`.",
        "合并成一个工具，用参数 `type` 和 `enum: [{values}]` 区分。"
    );
    report.pair(&MERGE_CANDIDATE, card, twin, Hit { pointer: "/parameters".into(), reason, proposal });
}

/// Numbers at the end make no other name.
fn letters(name: &str) -> String {
    name.chars().filter(|c| c.is_alphabetic()).collect()
}

/// A name without its verb.
fn value_of(name: &str) -> String {
    let parts = tokenise(name);
    if parts.len() > 1 { parts[1..].join("_") } else { parts.join("_") }
}

fn border(rule: &Rule, card: &Card<'_>, other: &Card<'_>, phrases: (&str, &str), how: Measured, report: &mut Report) {
    let language = report.language;
    let (name, twin) = (card.card.id.as_str(), other.card.id.as_str());
    let (own, theirs) = shown(phrases);
    let by = by(how, report);
    let reason = if rule.id == ONE_SIDED_BOUNDARY.id {
        words!(
            language,
            "`{twin}` names `{name}` under `when_not_to_use`, but not the other way round, although they are close{by}: \
             \"{own}\" and \"{theirs}\".",
            "`{twin}` 在 `when_not_to_use` 里指明了 `{name}`，反过来却没有，而两者很接近{by}：“{own}”与“{theirs}”。"
        )
    } else {
        words!(
            language,
            "`{name}` and `{twin}` are close{by}, and neither names the other: \"{own}\" and \"{theirs}\".",
            "`{name}` 和 `{twin}` 很接近{by}，却都没有指明对方：“{own}”与“{theirs}”。"
        )
    };
    let proposal = words!(
        language,
        "Add to `when_not_to_use`: `- {{case: \"{theirs}\", use: {twin}}}`.",
        "在 `when_not_to_use` 里加上：`- {{case: \"{theirs}\", use: {twin}}}`。"
    );
    report.pair(rule, card, twin, Hit { pointer: "/description/when_not_to_use".into(), reason, proposal });
}

fn shown((own, theirs): (&str, &str)) -> (String, String) {
    let plain = |text: &str| crate::registry::shorten(&text.replace('"', "'"));
    (plain(own), plain(theirs))
}

fn by(how: Measured, report: &Report) -> String {
    match how {
        Measured::Vectors => String::new(),
        Measured::Words => words!(report.language, " by their words alone", "（仅按字词比较）"),
    }
}
