//! Close pairs by their words, for where no encoder has measured any.
//!
//! Owns: an index from words to cards, so that only cards which share rare words are compared.
//! Does not know: what a close pair means; see [`super::pairs`].

use std::collections::{BTreeMap, BTreeSet};

use super::Overlap;
use super::card::Card;
use super::lexicon::is_stop;
use crate::text::{terms, tokenise};

/// Cards that share a word beyond which the word tells nothing.
const COMMON: usize = 50;
/// Words of a card that are looked at, and partners it is compared with.
const MAX_WORDS: usize = 80;
const MAX_PARTNERS: usize = 20;
/// Share of the weight of all words that equal words of the whole description have to hold; rest for result and
/// arguments.
const WHAT: f32 = 0.6;
const RESULT: f32 = 0.2;
const ARGUMENTS: f32 = 0.2;

/// Share of words in common from which on cards with equal arguments and an equal result mean the same.
const TWIN: f32 = 0.3;

struct Bag {
    what: BTreeSet<usize>,
    result: BTreeSet<String>,
    arguments: BTreeSet<String>,
}

/// Pairs whose texts share most of their words, with a closeness on the scale of [`Overlap`]: it stays well below what
/// vectors would say for synonyms, so only plain cases are found.
pub(super) fn overlaps(cards: &[Card<'_>]) -> Vec<Overlap> {
    let mut vocabulary: BTreeMap<String, usize> = BTreeMap::new();
    let mut holders: Vec<Vec<usize>> = Vec::new();
    let mut bags = Vec::with_capacity(cards.len());
    for (nth, card) in cards.iter().enumerate() {
        let mut what = BTreeSet::new();
        for word in words(&card.card.description.what).into_iter().take(MAX_WORDS) {
            let next = vocabulary.len();
            let id = *vocabulary.entry(word).or_insert(next);
            if id == holders.len() {
                holders.push(Vec::new());
            }
            what.insert(id);
        }
        what.iter().for_each(|word| holders[*word].push(nth));
        let arguments = card.arguments().map(|argument| argument.name.to_lowercase()).collect();
        let result = card.card.description.returns.as_deref().map(words).unwrap_or_default();
        bags.push(Bag { what, result, arguments });
    }
    let weight = |word: usize| (1.0 + cards.len() as f32 / holders[word].len() as f32).ln();
    let mut found = Vec::new();
    for (nth, bag) in bags.iter().enumerate() {
        let mut shared: BTreeMap<usize, f32> = BTreeMap::new();
        for word in bag.what.iter().filter(|word| holders[**word].len() <= COMMON) {
            for other in holders[*word].iter().filter(|other| **other > nth) {
                *shared.entry(*other).or_default() += weight(*word);
            }
        }
        let mut partners: Vec<(usize, f32)> = shared.into_iter().collect();
        partners.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        for (other, _) in partners.into_iter().take(MAX_PARTNERS) {
            let closeness = closeness(bag, &bags[other], &weight);
            if closeness >= super::pairs::CLOSE_BY_WORDS {
                found.push(overlap(&cards[nth], &cards[other], closeness));
            }
        }
    }
    found
}

fn words(text: &str) -> BTreeSet<String> {
    let said: Vec<String> = tokenise(text).into_iter().filter(|word| !is_stop(word)).collect();
    terms(&said.join(" ")).into_iter().collect()
}

fn closeness(a: &Bag, b: &Bag, weight: &dyn Fn(usize) -> f32) -> f32 {
    let sum = |words: &mut dyn Iterator<Item = &usize>| words.map(|word| weight(*word)).sum::<f32>();
    let all = sum(&mut a.what.union(&b.what));
    let what = if all > 0.0 { sum(&mut a.what.intersection(&b.what)) / all } else { 0.0 };
    let share = |a: &BTreeSet<String>, b: &BTreeSet<String>| {
        let all = a.union(b).count();
        // Two cards that say nothing agree in nothing.
        if all == 0 { what } else { a.intersection(b).count() as f32 / all as f32 }
    };
    let (result, arguments) = (share(&a.result, &b.result), share(&a.arguments, &b.arguments));
    let closeness = WHAT * what + RESULT * result + ARGUMENTS * arguments;
    // The same arguments give the same result: other words for the rest make no other tool.
    let is_twin = !a.result.is_empty() && !a.arguments.is_empty() && result == 1.0 && arguments == 1.0 && what >= TWIN;
    if is_twin { closeness.max(super::pairs::DUPLICATE_BY_WORDS) } else { closeness }
}

fn overlap(a: &Card<'_>, b: &Card<'_>, closeness: f32) -> Overlap {
    let text = |card: &Card<'_>| card.card.description.what.clone();
    let (first, second) = if a.card.id <= b.card.id { (a, b) } else { (b, a) };
    Overlap { tools: [first.card.id.clone(), second.card.id.clone()], closeness, phrases: [text(first), text(second)] }
}
