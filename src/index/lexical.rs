//! BM25 over tokens.
//!
//! Owns: the weight of each token in each document, summed over a query in a fixed order.
//! Does not know: how text becomes tokens ([`crate::text`]).
//!
//! Source: Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009. The
//! formula is the `bm25` crate's, and the tests compare the two to the bit; the crate itself would compute each weight
//! for each query, and builds anew for each change.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::rank;
use super::terms::{Bag, Terms, holders};

/// How fast further occurrences of a token stop counting. Higher than the usual 1.2: a card that says a word in its name,
/// its purpose and its parameters is about it. Measured on the development sets.
const K1: f32 = 2.0;
/// How much a long document is marked down. Nearly in full: a long schema holds many words by chance. Measured likewise.
const B: f32 = 0.9;
/// Tokens of one document that count; the longest real cards have some hundred.
const MAX_DOCUMENT_TOKENS: usize = 5_000;

/// Documents in the order given to [`LexicalIndex::build`]; immutable.
pub struct LexicalIndex {
    documents: usize,
    /// For each token the documents that hold it, ascending, and what it adds to their score, which does not depend on
    /// the query.
    postings: HashMap<Arc<str>, Vec<(u32, f32)>>,
}

impl LexicalIndex {
    /// One list of tokens per document, of which the first 5,000 count.
    pub fn build(documents: &[Vec<String>]) -> Self {
        let mut terms = Terms::default();
        let bags: Vec<Bag> = documents.iter().map(|tokens| Self::bag(tokens, &mut terms)).collect();
        Self::of(bags.iter(), &terms)
    }

    /// One document for [`LexicalIndex::of`]; the first 5,000 tokens count.
    pub fn bag(tokens: &[String], terms: &mut Terms) -> Bag {
        Bag::of(&tokens[..tokens.len().min(MAX_DOCUMENT_TOKENS)], terms)
    }

    /// One bag per document, all of `terms`.
    pub fn of<'a>(bags: impl Iterator<Item = &'a Bag> + Clone, terms: &Terms) -> Self {
        let documents = bags.clone().count();
        let total: usize = bags.clone().map(Bag::length).sum();
        let average = (total as f64 / documents.max(1) as f64) as f32;
        let holders = holders(bags.clone(), terms);
        let rarities: Vec<f32> = holders.iter().map(|held| rarity(documents, *held as usize)).collect();
        let mut postings: Vec<Vec<(u32, f32)>> =
            holders.iter().map(|held| Vec::with_capacity(*held as usize)).collect();
        for (document, bag) in (0..).zip(bags) {
            let norm = K1 * (1.0 - B + B * (bag.length() as f32 / average));
            for (number, count) in bag.counts() {
                let count = *count as f32;
                let weight = count * (K1 + 1.0) / (count + norm);
                postings[*number as usize].push((document, rarities[*number as usize] * weight));
            }
        }
        Self { documents, postings: terms.named(postings) }
    }

    /// How many distinct tokens the documents hold.
    pub fn terms(&self) -> usize {
        self.postings.len()
    }

    /// BM25 score of every document (0 where no token is shared), in document order. Repeated query tokens count once.
    pub fn scores(&self, tokens: &[String]) -> Vec<f32> {
        let mut scores = vec![0.0; self.documents];
        let mut seen = HashSet::new();
        // Additions run in the order of the query's tokens: the same query gives the same sum to the last bit.
        for token in tokens.iter().filter(|token| seen.insert(token.as_str())) {
            for (document, score) in self.postings.get(token.as_str()).into_iter().flatten() {
                scores[*document as usize] += score;
            }
        }
        scores
    }

    /// Share of the query's distinct tokens that `document` holds, or any document for `None`; each counts by how rare
    /// it is, one that no document holds most. 0 without tokens.
    pub fn coverage(&self, tokens: &[String], document: Option<usize>) -> f32 {
        let (mut held, mut all) = (0.0, 0.0);
        let mut seen = HashSet::new();
        for token in tokens.iter().filter(|token| seen.insert(token.as_str())) {
            let postings = self.postings.get(token.as_str()).map_or(&[][..], Vec::as_slice);
            let rarity = rarity(self.documents, postings.len());
            let holds = match document {
                Some(document) => postings.binary_search_by_key(&document, |posting| posting.0 as usize).is_ok(),
                None => !postings.is_empty(),
            };
            all += rarity;
            held += if holds { rarity } else { 0.0 };
        }
        if all > 0.0 { held / all } else { 0.0 }
    }

    /// The best `k` documents that share a token with the query, best first, equal scores by document.
    pub fn search(&self, tokens: &[String], k: usize) -> Vec<(usize, f32)> {
        let hits = self.scores(tokens).into_iter().enumerate().filter(|(_, score)| *score > 0.0).collect();
        rank::best(hits, k)
    }
}

/// BM25's weight of a token that `holding` of `documents` hold; above 0.
fn rarity(documents: usize, holding: usize) -> f32 {
    let (documents, holding) = (documents as f32, holding as f32);
    (1.0 + (documents - holding + 0.5) / (holding + 0.5)).ln()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn index(documents: &[&str]) -> LexicalIndex {
        LexicalIndex::build(&documents.iter().map(|text| words(text)).collect::<Vec<_>>())
    }

    #[track_caller]
    fn check(documents: &[&str], query: &str, expect: &[usize]) {
        let found: Vec<usize> = index(documents).search(&words(query), 10).into_iter().map(|hit| hit.0).collect();
        assert_eq!(found, expect, "{query}");
    }

    #[test]
    fn rare_words_repeated_words_and_short_documents_win() {
        check(&["refund an order", "cancel an order", "track a parcel"], "refund order", &[0, 1]);
        check(&["order order list", "order stock list"], "order", &[0, 1]);
        check(&["track a parcel on its way to the customer", "track parcel"], "parcel", &[1, 0]);
        check(&["查询 询订 订单", "取消 消订 订单", "物流 流查 查询"], "取消 消一 一下 订单", &[1, 0]);
    }

    #[test]
    fn equal_scores_are_ordered_by_document() {
        check(&["b c", "a c", "a b", "a d"], "a", &[1, 2, 3]);
    }

    #[test]
    fn nothing_shared_and_nothing_there_score_zero() {
        check(&["refund", ""], "parcel", &[]);
        check(&["refund", ""], "", &[]);
        check(&[], "refund", &[]);
        check(&["", ""], "refund", &[]);
        assert_eq!(index(&["refund", ""]).scores(&words("parcel")), [0.0, 0.0]);
    }

    #[test]
    fn rare_words_count_more_in_coverage() {
        let index = index(&["refund an order", "track an order", "track a parcel"]);
        let coverage = |query: &str, document| index.coverage(&words(query), document);
        assert_eq!(coverage("refund order", Some(0)), 1.0);
        assert!(coverage("refund order", Some(1)) < 0.5);
        assert!(coverage("order weather", None) < 0.5 && coverage("order order weather", None) > 0.0);
        assert_eq!((coverage("weather", None), coverage("", None), coverage("order", Some(9))), (0.0, 0.0, 0.0));
    }

    #[test]
    fn repeated_query_words_count_once() {
        let index = index(&["refund an order", "track an order"]);
        assert_eq!(index.scores(&words("order order refund order")), index.scores(&words("order refund")));
    }

    #[test]
    fn a_word_in_every_document_still_counts() {
        assert!(index(&["tool", "tool"]).scores(&words("tool")).iter().all(|score| *score > 0.0));
    }

    #[test]
    fn a_huge_document_is_cut_and_found() {
        let mut long: Vec<String> = (0..MAX_DOCUMENT_TOKENS).map(|n| n.to_string()).collect();
        long.push("beyond".to_owned());
        let index = LexicalIndex::build(&[long, words("beyond")]);
        assert_eq!(index.search(&words("17"), 5)[0].0, 0);
        assert_eq!(index.search(&words("beyond"), 5).len(), 1);
    }

    /// The textbook formula, token by token.
    fn by_hand(documents: &[Vec<String>], query: &[String]) -> Vec<f64> {
        let (k1, b, n) = (f64::from(K1), f64::from(B), documents.len() as f64);
        let average = documents.iter().map(Vec::len).sum::<usize>() as f64 / n;
        let distinct: std::collections::BTreeSet<_> = query.iter().collect();
        let of_one = |document: &Vec<String>, token: &String| {
            let count = document.iter().filter(|t| *t == token).count() as f64;
            let holding = documents.iter().filter(|d| d.contains(token)).count() as f64;
            let idf = (1.0 + (n - holding + 0.5) / (holding + 0.5)).ln();
            let norm = k1 * (1.0 - b + b * document.len() as f64 / average);
            if count == 0.0 { 0.0 } else { idf * count * (k1 + 1.0) / (count + norm) }
        };
        documents.iter().map(|document| distinct.iter().map(|token| of_one(document, token)).sum()).collect()
    }

    fn tokens(length: usize) -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[ab退款]{1,2}", 0..length)
    }

    /// Reads a text of numbers: the crate's own spaces are hashes, in which two words may meet.
    #[derive(Default)]
    struct Numbers;

    impl bm25::Tokenizer for Numbers {
        fn tokenize(&self, text: &str) -> Vec<String> {
            text.split_whitespace().map(str::to_owned).collect()
        }
    }

    impl bm25::TokenEmbedder for Numbers {
        type EmbeddingSpace = u32;

        fn embed(token: &str) -> u32 {
            token.parse().unwrap()
        }
    }

    /// What the crate makes of one token in every document.
    fn by_crate(documents: &[Vec<String>], token: &str) -> Vec<f32> {
        let mut terms = Terms::default();
        let mut text = |tokens: &[String]| {
            tokens.iter().map(|token| terms.number(token).to_string()).collect::<Vec<_>>().join(" ")
        };
        let texts: Vec<String> = documents.iter().map(|tokens| text(tokens)).collect();
        let query = bm25::TokenEmbedding { index: terms.number(token), value: 1.0 };
        let average = documents.iter().map(Vec::len).sum::<usize>() as f64 / documents.len() as f64;
        let embedder: bm25::Embedder<Numbers, Numbers> =
            bm25::EmbedderBuilder::with_avgdl(average as f32).k1(K1).b(B).build();
        let mut scorer = bm25::Scorer::<usize, u32>::new();
        for (document, text) in texts.iter().enumerate() {
            scorer.upsert(&document, embedder.embed(text));
        }
        let query = bm25::Embedding(vec![query]);
        (0..texts.len()).map(|document| scorer.score(&document, &query).unwrap()).collect()
    }

    proptest! {
        #[test]
        fn each_weight_is_the_crates_to_the_bit(documents in prop::collection::vec(tokens(12), 1..12), token in "[ab退款]{1,2}") {
            let scores = LexicalIndex::build(&documents).scores(std::slice::from_ref(&token));
            let bits = |scores: Vec<f32>| scores.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            prop_assert_eq!(bits(scores), bits(by_crate(&documents, &token)));
        }

        #[test]
        fn scores_are_those_of_the_formula(documents in prop::collection::vec(tokens(12), 1..12), query in tokens(8)) {
            let index = LexicalIndex::build(&documents);
            let scores = index.scores(&query);
            for (got, expected) in scores.iter().zip(by_hand(&documents, &query)) {
                prop_assert!((f64::from(*got) - expected).abs() < 1e-4, "{} is not {}", got, expected);
            }
            prop_assert_eq!(LexicalIndex::build(&documents).scores(&query), scores);
        }
    }
}
