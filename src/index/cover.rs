//! How much of each document an utterance says: the other side of BM25, which asks how much of the utterance a document
//! holds.
//!
//! Owns: shares of the documents' weight, rare words counting more.
//! Does not know: how text becomes tokens.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::terms::{Bag, Terms, holders};

/// Documents in the order given to [`CoverIndex::of`]; immutable.
pub struct CoverIndex {
    documents: usize,
    /// For each token the documents that hold it, ascending, and the share of their weight it makes up.
    postings: HashMap<Arc<str>, Vec<(u32, f32)>>,
}

impl CoverIndex {
    /// One bag per document, all of `terms`. A token weighs as in BM25: `ln(1 + (n - df + 0.5) / (df + 0.5))`.
    pub fn of<'a>(bags: impl Iterator<Item = &'a Bag> + Clone, terms: &Terms) -> Self {
        let documents = bags.clone().count();
        let count = documents as f32;
        let holders = holders(bags.clone(), terms);
        let weight = |held: &u32| {
            let held = *held as f32;
            (1.0 + (count - held + 0.5) / (held + 0.5)).ln()
        };
        let weights: Vec<f32> = holders.iter().map(weight).collect();
        let mut postings: Vec<Vec<(u32, f32)>> =
            holders.iter().map(|held| Vec::with_capacity(*held as usize)).collect();
        for (document, bag) in (0..).zip(bags) {
            let total: f32 = bag.counts().iter().map(|(number, _)| weights[*number as usize]).sum();
            for (number, _) in bag.counts() {
                postings[*number as usize].push((document, weights[*number as usize] / total));
            }
        }
        Self { documents, postings: terms.named(postings) }
    }

    /// The share of every document that `tokens` say, in `[0, 1]`, in document order.
    pub fn shares(&self, tokens: &[String]) -> Vec<f32> {
        let mut shares = vec![0.0; self.documents];
        for token in distinct(tokens) {
            for (document, share) in self.postings.get(token).into_iter().flatten() {
                shares[*document as usize] += share;
            }
        }
        shares
    }
}

/// Each token once, in order of first appearance, so that sums always run in the same order.
fn distinct(tokens: &[String]) -> Vec<&str> {
    let mut seen = HashSet::new();
    tokens.iter().map(String::as_str).filter(|token| seen.insert(*token)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn build(documents: &[Vec<String>]) -> CoverIndex {
        let mut terms = Terms::default();
        // Terms that no document holds any more change nothing.
        terms.number("gone");
        let bags: Vec<Bag> = documents.iter().map(|tokens| Bag::of(tokens, &mut terms)).collect();
        CoverIndex::of(bags.iter(), &terms)
    }

    #[test]
    fn a_document_that_is_said_in_full_has_share_one() {
        let index = build(&[words("cancel order"), words("track order"), words(""), words("退款 款单")]);
        let shares = index.shares(&words("please cancel the order order"));
        assert!((shares[0] - 1.0).abs() < 1e-6, "{shares:?}");
        assert!(shares[1] > 0.0 && shares[1] < 0.5, "a common word weighs less than a rare one: {shares:?}");
        assert_eq!((shares[2], shares[3]), (0.0, 0.0));
        assert!((index.shares(&words("退款 款单 吗"))[3] - 1.0).abs() < 1e-6);
        assert_eq!(build(&[]).shares(&words("x")), [0.0; 0]);
    }
}
