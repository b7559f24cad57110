//! Chinese characters that sound like the right ones, and traditional forms.

use std::ops::Range;

use super::Open;
use super::grams::Grams;
use crate::text::{Change, Misspelling, lexicon, simplify};

/// From this rank on a common word is rare enough to be a slip itself (定单 for 订单).
const RARE: u32 = 25_000;
/// Up to this rank a character is typed so often that a slip must make a word of it.
const DAILY: u32 = 2_000;
/// Up to this rank a character is a small word of its own.
const SMALL: u32 = 100;
/// Slips among the commonest characters that everybody makes.
const USUAL: &[(char, char)] =
    &[('那', '哪'), ('卷', '券'), ('帐', '账'), ('定', '订'), ('象', '像'), ('做', '作'), ('在', '再'), ('座', '坐')];
/// Corrections can make further ones visible; more rounds than this change nothing in practice.
const ROUNDS: usize = 3;

/// Reads one run of Han characters.
pub(super) fn read(grams: &Grams, text: &str, run: Range<usize>, open: Open<'_>) -> Vec<Change> {
    let places: Vec<usize> = text[run.clone()].char_indices().map(|(at, _)| run.start + at).collect();
    let typed: Vec<char> = text[run.clone()].chars().collect();
    let simplified: Vec<char> = typed.iter().map(|c| simplify(*c)).collect();
    let mut reading = Run { grams, open, chars: simplified.clone() };
    for _ in 0..ROUNDS {
        if !reading.correct() {
            break;
        }
    }
    let read = reading.chars;
    let end_of = |at: usize| places.get(at).copied().unwrap_or(run.end);
    let mut changes: Vec<Change> = Vec::new();
    for at in (0..typed.len()).filter(|at| typed[*at] != read[*at]) {
        let kind = if simplified[at] == read[at] { Misspelling::Traditional } else { Misspelling::Homophone };
        let span = places[at]..end_of(at + 1);
        match changes.last_mut() {
            Some(last) if last.kind == kind && last.span.end == span.start => {
                last.span.end = span.end;
                last.to.push(read[at]);
            }
            _ => changes.push(Change { kind, span, to: read[at].to_string() }),
        }
    }
    changes
}

/// A character put in the place of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Swap {
    at: usize,
    to: char,
}

struct Run<'a> {
    grams: &'a Grams,
    open: Open<'a>,
    chars: Vec<char>,
}

impl Run<'_> {
    /// One round from left to right; whether anything changed.
    fn correct(&mut self) -> bool {
        let mut changed = false;
        for at in 0..self.chars.len().saturating_sub(1) {
            if let Some(swap) = self.swap(at) {
                self.chars[swap.at] = swap.to;
                changed = true;
            }
        }
        changed
    }

    /// What to put right in the pair at `at`.
    fn swap(&self, at: usize) -> Option<Swap> {
        let (first, second) = (self.chars[at], self.chars[at + 1]);
        let pair = word(&[first, second]);
        if self.grams.knows(&pair, self.open) {
            return None;
        }
        let rank = lexicon::chinese_rank(&pair);
        if rank.is_some_and(|rank| rank < RARE) || self.in_longer_word(at) {
            return None;
        }
        let place = |word: &str| lexicon::chinese_rank(word).unwrap_or(u32::MAX);
        for loosely in [false, true] {
            let mut pairs = self.grams.pairs_like(first, second, loosely, self.open);
            // A word before a pair across two words, then what more tools say, then the most common.
            pairs.sort_by_key(|(word, count)| (place(word) == u32::MAX, std::cmp::Reverse(*count), place(word), *word));
            let found = pairs.iter().find_map(|(like, _)| {
                let swap = self.one_swap(at, like)?;
                let better = rank.is_none_or(|rank| !loosely && place(like) < rank);
                (better && self.is_meant(swap, at, place(like), loosely) && self.is_free(swap, at)).then_some(swap)
            });
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Whether more than the sound speaks for a swap in the pair at `at`, which makes a word of this rank.
    fn is_meant(&self, swap: Swap, at: usize, rank: u32, loosely: bool) -> bool {
        let typed = lexicon::chinese_rank(&word(&[self.chars[swap.at]])).unwrap_or(u32::MAX);
        let rare = typed >= DAILY || USUAL.contains(&(self.chars[swap.at], swap.to));
        let triple = rare && !loosely && self.makes_triple(swap);
        // The other character must not belong to another word: 日期|是 is not 期时.
        let other = if swap.at == at { at + 1 } else { at };
        let outer = if swap.at == at { Some(other) } else { other.checked_sub(1) };
        let bound = outer
            .filter(|start| start + 1 < self.chars.len())
            .is_some_and(|start| lexicon::chinese_rank(&word(&[self.chars[start], self.chars[start + 1]])).is_some());
        // A small word stands beside anything: 肉|和 is not 柔和.
        let weak = lexicon::chinese_rank(&word(&[self.chars[other]])).is_some_and(|rank| rank < SMALL);
        let is_word = !weak && rank < if loosely { RARE } else { u32::MAX };
        is_word && !bound && (rare || !loosely) || triple
    }

    /// The one character in which the pair at `at` differs from `like`.
    fn one_swap(&self, at: usize, like: &str) -> Option<Swap> {
        let mut like = like.chars();
        let (first, second) = (like.next()?, like.next()?);
        if like.next().is_some() {
            return None;
        }
        match (first == self.chars[at], second == self.chars[at + 1]) {
            (true, false) => Some(Swap { at: at + 1, to: second }),
            (false, true) => Some(Swap { at, to: first }),
            (true, true) | (false, false) => None,
        }
    }

    /// Whether the character is not held in its place by the word on its other side.
    fn is_free(&self, swap: Swap, pair: usize) -> bool {
        let neighbour = if swap.at == pair { swap.at.checked_sub(1) } else { Some(swap.at) };
        let Some(start) = neighbour.filter(|start| start + 1 < self.chars.len()) else { return true };
        let chars = [self.chars[start], self.chars[start + 1]];
        if self.grams.knows(&word(&chars), self.open) {
            return false;
        }
        if !self.is_known(&chars) {
            return true;
        }
        // A word that holds the neighbour more firmly leaves this one free: 以下|定单.
        let beyond = if swap.at == pair { start.checked_sub(1) } else { Some(start + 1) };
        let other = beyond.filter(|beyond| beyond + 1 < self.chars.len());
        let other = other.map(|beyond| [self.chars[beyond], self.chars[beyond + 1]]);
        let rank = |chars: &[char]| lexicon::chinese_rank(&word(chars)).unwrap_or(u32::MAX);
        other.is_some_and(|other| rank(&other) < rank(&chars))
    }

    fn is_known(&self, chars: &[char]) -> bool {
        let word = word(chars);
        lexicon::chinese_rank(&word).is_some_and(|rank| rank < RARE) || self.grams.knows(&word, self.open)
    }

    /// Whether the pair at `at` lies inside a common word of three characters, or a triple the cards have.
    fn in_longer_word(&self, at: usize) -> bool {
        let starts = [at.checked_sub(1), Some(at)].into_iter().flatten();
        let mut triples = starts.filter_map(|start| self.chars.get(start..start + 3));
        triples.any(|triple| lexicon::chinese_rank(&word(triple)).is_some())
    }

    /// Whether the swap makes a triple that the cards have.
    fn makes_triple(&self, swap: Swap) -> bool {
        let mut chars = self.chars.clone();
        chars[swap.at] = swap.to;
        let starts = swap.at.saturating_sub(2)..=swap.at;
        starts.filter_map(|start| chars.get(start..start + 3)).any(|triple| self.grams.knows(&word(triple), self.open))
    }
}

fn word(chars: &[char]) -> String {
    chars.iter().collect()
}
