//! BM25 over tokens.
//!
//! Owns: the weight of each token in each document, summed over a query in a fixed order.
//! Does not know: how text becomes tokens ([`crate::text`]).
//!
//! Source: Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009; the formula is the
//! `bm25` crate's.

use std::collections::{HashMap, HashSet};

use bm25::{Embedder, EmbedderBuilder, Embedding, Scorer, TokenEmbedder, TokenEmbedding, Tokenizer};

use super::rank;

/// How fast further occurrences of a token stop counting. Higher than the usual 1.2: a card that says a word in its name,
/// its purpose and its parameters is about it. Measured on the development sets.
const K1: f32 = 2.0;
/// How much a long document is marked down. Nearly in full: a long schema holds many words by chance. Measured likewise.
const B: f32 = 0.9;
/// Tokens of one document that count. The crate looks tokens up by walking over a document's, so building takes the
/// square of this; the longest real cards have some hundred.
const MAX_DOCUMENT_TOKENS: usize = 5_000;

/// Documents in the order given to [`LexicalIndex::build`]; immutable.
pub struct LexicalIndex {
    documents: usize,
    /// For each token the documents that hold it, ascending, and what it adds to their score. That does not depend on
    /// the query, yet the crate's scorer computes it for each one: with 10,000 documents of 40 tokens and 20 query
    /// tokens 14 ms, against 0.1 ms for adding it up.
    postings: HashMap<String, Vec<(usize, f32)>>,
}

impl LexicalIndex {
    /// One list of tokens per document, of which the first 5,000 count.
    pub fn build(documents: &[Vec<String>]) -> Self {
        let mut vocabulary = Vocabulary::default();
        let texts: Vec<String> = documents.iter().map(|tokens| vocabulary.text(tokens)).collect();
        let embedder = embedder(documents);
        let mut scorer = Scorer::<usize, u32>::new();
        let mut ids_of = Vec::with_capacity(documents.len());
        for (document, text) in texts.iter().enumerate() {
            let embedding = without_repeats(embedder.embed(text));
            ids_of.push(embedding.indices().copied().collect::<Vec<_>>());
            scorer.upsert(&document, embedding);
        }
        let mut postings = vec![Vec::new(); vocabulary.ids.len()];
        for (document, ids) in ids_of.into_iter().enumerate() {
            for id in ids {
                let query = Embedding(vec![TokenEmbedding { index: id, value: 1.0 }]);
                if let Some(score) = scorer.score(&document, &query) {
                    postings[id as usize].push((document, score));
                }
            }
        }
        let postings =
            vocabulary.ids.into_iter().map(|(token, id)| (token, std::mem::take(&mut postings[id as usize])));
        Self { documents: documents.len(), postings: postings.collect() }
    }

    /// BM25 score of every document (0 where no token is shared), in document order. Repeated query tokens count once.
    pub fn scores(&self, tokens: &[String]) -> Vec<f32> {
        let mut scores = vec![0.0; self.documents];
        let mut seen = HashSet::new();
        // Additions run in the order of the query's tokens: the same query gives the same sum to the last bit.
        for token in tokens.iter().filter(|token| seen.insert(token.as_str())) {
            for (document, score) in self.postings.get(token).into_iter().flatten() {
                scores[*document] += score;
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
            let postings = self.postings.get(token).map_or(&[][..], Vec::as_slice);
            let rarity = rarity(self.documents, postings.len());
            let holds = match document {
                Some(document) => postings.binary_search_by_key(&document, |posting| posting.0).is_ok(),
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

/// Numbers for tokens. The crate's own spaces are hashes, in which two words may meet.
#[derive(Default)]
struct Vocabulary {
    ids: HashMap<String, u32>,
}

impl Vocabulary {
    /// The counted tokens' numbers, in the form [`Numbers`] reads.
    fn text(&mut self, tokens: &[String]) -> String {
        let mut text = String::new();
        for token in counted(tokens) {
            let next = u32::try_from(self.ids.len()).expect("there are fewer than 2^32 distinct words in memory");
            let id = *self.ids.entry(token.clone()).or_insert(next);
            text.push_str(&id.to_string());
            text.push(' ');
        }
        text
    }
}

/// Reads a text of numbers.
#[derive(Default)]
struct Numbers;

impl Tokenizer for Numbers {
    fn tokenize(&self, text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }
}

impl TokenEmbedder for Numbers {
    type EmbeddingSpace = u32;

    fn embed(token: &str) -> u32 {
        token.parse().expect("the vocabulary writes numbers")
    }
}

fn embedder(documents: &[Vec<String>]) -> Embedder<Numbers, Numbers> {
    let total: usize = documents.iter().map(|tokens| counted(tokens).len()).sum();
    let average = total as f64 / documents.len().max(1) as f64;
    EmbedderBuilder::with_avgdl(average as f32).k1(K1).b(B).build()
}

/// The crate's embedding has an entry per occurrence, each with the weight of all of them.
fn without_repeats(mut embedding: Embedding<u32>) -> Embedding<u32> {
    let mut seen = HashSet::new();
    embedding.0.retain(|token| seen.insert(token.index));
    embedding
}

fn counted(tokens: &[String]) -> &[String] {
    &tokens[..tokens.len().min(MAX_DOCUMENT_TOKENS)]
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

    proptest! {
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
