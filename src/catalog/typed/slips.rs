//! Slips in Latin words: a letter too many, missing, wrong, or two in the wrong order.

use std::ops::Range;

use super::Open;
use super::words::{SHORTEST, Words};
use crate::text::{Change, Misspelling, lexicon};

/// From this length on two slips are forgiven.
const LONG: usize = 8;
/// Most words that are looked up: the work of one request is bounded.
const MAX_LOOKED_UP: usize = 40;

/// `tokens` are Latin words of `text`, none of them in a slot.
pub(super) fn read(words: &Words, text: &str, tokens: &[Range<usize>], open: Open<'_>) -> Vec<Change> {
    let unknown = tokens.iter().filter(|token| {
        let word = &text[(*token).clone()];
        // A capital inside a sentence marks a name.
        let is_name = word.starts_with(|c: char| c.is_ascii_uppercase()) && token.start > 0;
        let small = word.to_ascii_lowercase();
        small.len() >= SHORTEST && !is_name && !lexicon::is_english(&small) && !words.knows(&small, open)
    });
    let corrected = unknown.take(MAX_LOOKED_UP).filter_map(|token| {
        let to = nearest(words, &text[token.clone()].to_ascii_lowercase(), open)?;
        Some(Change { kind: Misspelling::Slip, span: token.clone(), to })
    });
    corrected.collect()
}

fn nearest(words: &Words, word: &str, open: Open<'_>) -> Option<String> {
    let slips = if word.len() >= LONG { 2 } else { 1 };
    let near = words.near(word, slips, open).into_iter().filter(|(other, _, _)| begins_alike(word, other));
    let order = |(other, distance, of_card): &(&str, usize, bool)| {
        let rank = lexicon::english_rank(other).unwrap_or(u32::MAX);
        (*distance, slip(word, other), !of_card, rank, (*other).to_owned())
    };
    near.filter(|(other, _, _)| word.len() > SHORTEST || slip(word, other) < Slip::Wrong)
        .min_by_key(order)
        .map(|(other, _, _)| other.to_owned())
}

/// People get the first letter right, or swap it with the second.
fn begins_alike(word: &str, other: &str) -> bool {
    let (word, other) = (word.as_bytes(), other.as_bytes());
    word.first() == other.first() || word.get(..2).is_some_and(|two| other.get(..2) == Some(&[two[1], two[0]]))
}

/// How letters differ, the most usual first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Slip {
    /// Letters are missing, or two are in the wrong order.
    Missing,
    TooMany,
    Wrong,
}

fn slip(word: &str, other: &str) -> Slip {
    if within(word, other) || sorted(word) == sorted(other) {
        Slip::Missing
    } else if within(other, word) {
        Slip::TooMany
    } else {
        Slip::Wrong
    }
}

/// Whether all letters of `part` stand in `whole` in this order.
fn within(part: &str, whole: &str) -> bool {
    let mut rest = whole.bytes();
    part.bytes().all(|byte| rest.any(|other| other == byte))
}

fn sorted(word: &str) -> Vec<u8> {
    let mut bytes = word.as_bytes().to_vec();
    bytes.sort_unstable();
    bytes
}
