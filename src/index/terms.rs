//! Numbers for terms, and documents as counted numbers: what stays the same from one version of an index to the next.
//!
//! Owns: which number a term has, how often a document holds it.
//! Does not know: weights ([`super::lexical`], [`super::cover`]) or how text becomes terms.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Numbers for terms, in the order in which they were first seen. No answer of an index depends on them.
#[derive(Debug, Default)]
pub struct Terms {
    numbers: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
}

impl Terms {
    /// The number of `term`, a new one if it has none yet.
    pub fn number(&mut self, term: &str) -> u32 {
        if let Some(number) = self.numbers.get(term) {
            return *number;
        }
        let number = u32::try_from(self.texts.len()).expect("there are fewer than 2^32 distinct words in memory");
        let text: Arc<str> = term.into();
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }

    /// How many terms have a number.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Lists by number as lists by term, empty ones left out.
    pub(super) fn named<T>(&self, lists: Vec<Vec<T>>) -> HashMap<Arc<str>, Vec<T>> {
        let held = self.texts.iter().zip(lists).filter(|(_, list)| !list.is_empty());
        held.map(|(term, list)| (Arc::clone(term), list)).collect()
    }
}

/// The terms of one document, counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bag {
    /// Number and count of each term, in order of first appearance, so that sums always run in the same order.
    counts: Box<[(u32, u32)]>,
    length: usize,
}

impl Bag {
    pub fn of(tokens: &[String], terms: &mut Terms) -> Self {
        let mut counts: Vec<(u32, u32)> = Vec::with_capacity(tokens.len());
        let mut place: HashMap<u32, usize> = HashMap::with_capacity(tokens.len());
        for token in tokens {
            let number = terms.number(token);
            match place.entry(number) {
                Entry::Occupied(known) => counts[*known.get()].1 += 1,
                Entry::Vacant(free) => {
                    free.insert(counts.len());
                    counts.push((number, 1));
                }
            }
        }
        Self { counts: counts.into(), length: tokens.len() }
    }

    /// Number and count of each distinct term.
    pub(super) fn counts(&self) -> &[(u32, u32)] {
        &self.counts
    }

    /// All terms, repeated ones as often as they stand there.
    pub(super) fn length(&self) -> usize {
        self.length
    }
}

/// How many of `bags` hold each term, by number.
pub(super) fn holders<'a>(bags: impl Iterator<Item = &'a Bag>, terms: &Terms) -> Vec<u32> {
    let mut holders = vec![0; terms.len()];
    for (number, _) in bags.flat_map(Bag::counts) {
        holders[*number as usize] += 1;
    }
    holders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_keep_their_numbers_and_documents_their_counts() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let mut terms = Terms::default();
        assert!(terms.is_empty());
        let one = Bag::of(&words("退款 order 退款"), &mut terms);
        assert_eq!((one.counts(), one.length(), terms.len()), (&[(0, 2), (1, 1)][..], 3, 2));
        let other = Bag::of(&words("order track"), &mut terms);
        assert_eq!(other.counts(), [(1, 1), (2, 1)]);
        assert_eq!(holders([&one, &other].into_iter(), &terms), [1, 2, 1]);
        assert_eq!(Bag::of(&[], &mut terms).length(), 0);
        let named = terms.named(vec![vec![7], vec![], vec![8, 9]]);
        assert_eq!((named.len(), &named["退款"], &named["track"]), (2, &vec![7], &vec![8, 9]));
    }
}
