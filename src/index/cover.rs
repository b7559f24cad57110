//! How much of each document an utterance says: the other side of BM25, which asks how much of the utterance a document
//! holds.
//!
//! Owns: shares of the documents' weight, rare words counting more.
//! Does not know: how text becomes tokens.

use std::collections::{HashMap, HashSet};

/// Documents in the order given to [`CoverIndex::build`]; immutable.
pub struct CoverIndex {
    documents: usize,
    /// For each token the documents that hold it, ascending, and the share of their weight it makes up.
    postings: HashMap<String, Vec<(usize, f32)>>,
}

impl CoverIndex {
    /// One list of tokens per document. A token weighs as in BM25: `ln(1 + (n - df + 0.5) / (df + 0.5))`.
    pub fn build(documents: &[Vec<String>]) -> Self {
        let mut holders: HashMap<&str, Vec<usize>> = HashMap::new();
        let distinct: Vec<Vec<&str>> = documents.iter().map(|tokens| distinct(tokens)).collect();
        for (document, tokens) in distinct.iter().enumerate() {
            for token in tokens {
                holders.entry(token).or_default().push(document);
            }
        }
        let count = documents.len() as f32;
        let weight = |token: &str| {
            let held = holders.get(token).map_or(0, Vec::len) as f32;
            (1.0 + (count - held + 0.5) / (held + 0.5)).ln()
        };
        let mut postings: HashMap<String, Vec<(usize, f32)>> = HashMap::with_capacity(holders.len());
        for (document, tokens) in distinct.iter().enumerate() {
            let total: f32 = tokens.iter().map(|token| weight(token)).sum();
            for token in tokens {
                postings.entry((*token).to_owned()).or_default().push((document, weight(token) / total));
            }
        }
        Self { documents: documents.len(), postings }
    }

    /// The share of every document that `tokens` say, in `[0, 1]`, in document order.
    pub fn shares(&self, tokens: &[String]) -> Vec<f32> {
        let mut shares = vec![0.0; self.documents];
        for token in distinct(tokens) {
            for (document, share) in self.postings.get(token).into_iter().flatten() {
                shares[*document] += share;
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

    #[test]
    fn a_document_that_is_said_in_full_has_share_one() {
        let index = CoverIndex::build(&[words("cancel order"), words("track order"), words(""), words("退款 款单")]);
        let shares = index.shares(&words("please cancel the order order"));
        assert!((shares[0] - 1.0).abs() < 1e-6, "{shares:?}");
        assert!(shares[1] > 0.0 && shares[1] < 0.5, "a common word weighs less than a rare one: {shares:?}");
        assert_eq!((shares[2], shares[3]), (0.0, 0.0));
        assert!((index.shares(&words("退款 款单 吗"))[3] - 1.0).abs() < 1e-6);
        assert_eq!(CoverIndex::build(&[]).shares(&words("x")), [0.0; 0]);
    }
}
