//! Rankings by the usual means, over the tools and vectors of the same run.
//!
//! Owns: plain BM25, dense alone and reciprocal-rank fusion of the two, as figures to set ours beside.
//! Does not know: how the router fuses its signals. Its lexical signal has stems, parameters and fields in it, so
//! BM25 is built anew from plain words; the cosines are the router's own.
//!
//! Source: reciprocal-rank fusion with the constant 60, Cormack, Clarke and Büttcher, SIGIR 2009.

use std::collections::BTreeMap;

use crate::index::LexicalIndex;
use crate::registry::Registry;
use crate::text::{normalise, tokenise};
use crate::tool::ToolCard;
use crate::types::{Candidate, Score, Signal, ToolId};

/// A ranking that is set beside ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Bm25,
    Dense,
    Rrf,
}

impl Method {
    /// In the order of [`Baselines::rank`].
    pub const ALL: [Self; 3] = [Self::Bm25, Self::Dense, Self::Rrf];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bm25 => "bm25",
            Self::Dense => "dense",
            Self::Rrf => "rrf",
        }
    }
}

/// Damps the first ranks; the value of the paper.
const RRF_CONSTANT: f64 = 60.0;

/// Plain words of every served tool.
pub(super) struct Baselines {
    words: LexicalIndex,
    position: BTreeMap<ToolId, usize>,
}

impl Baselines {
    pub fn new(registry: &Registry) -> Self {
        let documents: Vec<Vec<String>> = registry.cards.values().map(|card| words(card)).collect();
        let position = registry.cards.keys().cloned().enumerate().map(|(at, id)| (id, at)).collect();
        Self { words: LexicalIndex::build(&documents), position }
    }

    /// Orders `candidates`, which are all eligible tools, once per [`Method::ALL`]; equal scores by tool id. The
    /// utterance counts alone, without earlier turns.
    pub fn rank<'a>(&self, utterance: &str, candidates: &'a [Candidate]) -> [Vec<&'a ToolId>; 3] {
        let tokens = normalise(utterance).map(|query| tokenise(&query.retrieval_text())).unwrap_or_default();
        let scores = self.words.scores(&tokens);
        let of = |id: &ToolId| self.position.get(id).and_then(|at| scores.get(*at)).copied().unwrap_or(0.0);
        let bm25 = candidates.iter().map(|candidate| (&candidate.tool, of(&candidate.tool))).collect();
        let dense = candidates.iter().map(|candidate| (&candidate.tool, cosine(candidate))).collect();
        let (bm25, dense) = (ordered(bm25), ordered(dense));
        let rrf = ordered(fused(&[&bm25, &dense]));
        [bm25, dense, rrf].map(|order| order.into_iter().map(|(id, _)| id).collect())
    }
}

/// Name, description and examples: the texts the encoders get as well, without parameters and without stems.
fn words(card: &ToolCard) -> Vec<String> {
    let description = &card.description;
    let texts = description.when_to_use.iter().chain(&card.examples);
    [&card.name, &description.what].into_iter().chain(texts).flat_map(|text| tokenise(text)).collect()
}

/// Mean of the cosines to the tool's centroid and to its closest text: no weight is fitted.
fn cosine(candidate: &Candidate) -> f32 {
    let of = |signal| candidate.signals.get(&signal).copied().unwrap_or(0.0);
    (of(Signal::DenseCentroid) + of(Signal::DenseBest)) / 2.0
}

fn ordered(mut scored: Vec<(&ToolId, f32)>) -> Vec<(&ToolId, f32)> {
    scored.sort_by(|a, b| Score::new(a.1).descending(Score::new(b.1)).then(a.0.cmp(b.0)));
    scored
}

/// A tool that a list gives no score has no rank in it.
fn fused<'a>(lists: &[&[(&'a ToolId, f32)]]) -> Vec<(&'a ToolId, f32)> {
    let mut totals: BTreeMap<&ToolId, f64> = BTreeMap::new();
    for list in lists {
        for (rank, (id, score)) in list.iter().enumerate() {
            let part = if *score > 0.0 { 1.0 / (RRF_CONSTANT + rank as f64 + 1.0) } else { 0.0 };
            *totals.entry(id).or_default() += part;
        }
    }
    totals.into_iter().map(|(id, total)| (id, total as f32)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tools::tests::card;
    use super::*;

    fn registry(tools: &[(&str, &str)]) -> Registry {
        let served = |(id, what): &(&str, &str)| {
            let mut card = ToolCard::clone(&card(id, id));
            card.description.what = (*what).to_owned();
            (ToolId::new(*id), Arc::new(card))
        };
        Registry { cards: tools.iter().map(served).collect(), ..Registry::default() }
    }

    fn candidates(cosines: &[(&str, f32)]) -> Vec<Candidate> {
        let candidate = |(id, cosine): &(&str, f32)| Candidate {
            tool: ToolId::new(*id),
            score: Score::new(0.0),
            signals: [(Signal::DenseCentroid, *cosine), (Signal::DenseBest, *cosine), (Signal::Lexical, 9.0)].into(),
        };
        cosines.iter().map(candidate).collect()
    }

    fn names(order: &[&ToolId]) -> String {
        order.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_method_ranks_by_its_own_means_in_both_languages() {
        let registry = registry(&[
            ("faq", "Answers questions 常见问题"),
            ("refund", "Refund an order 退款"),
            ("track", "Track a parcel 查快递到哪"),
        ]);
        let baselines = Baselines::new(&registry);
        // By meaning: refund, faq, track.
        let candidates = candidates(&[("refund", 0.9), ("faq", 0.5), ("track", 0.4)]);
        for utterance in ["ｔｒａｃｋ my parcel", "我的快递到哪了", "快递 parcel 到哪"] {
            let [bm25, dense, rrf] = baselines.rank(utterance, &candidates);
            assert_eq!(names(&bm25), "track faq refund", "{utterance}");
            assert_eq!(names(&dense), "refund faq track");
            // Words give `track` alone a rank: 1/61 + 1/63 against 1/61.
            assert_eq!(names(&rrf), "track refund faq");
        }
    }

    #[test]
    fn words_nobody_has_and_no_vector_leave_the_order_of_names() {
        let registry = registry(&[("b", "退款"), ("a", "退款")]);
        let candidate =
            |id: &str| Candidate { tool: ToolId::new(id), score: Score::new(1.0), signals: BTreeMap::new() };
        let candidates = [candidate("b"), candidate("a"), candidate("unknown")];
        for order in Baselines::new(&registry).rank("zzz", &candidates) {
            assert_eq!(names(&order), "a b unknown");
        }
        assert_eq!(Baselines::new(&registry).rank("", &[]), [const { Vec::<&ToolId>::new() }; 3]);
    }
}
