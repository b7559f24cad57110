//! What a ranking shows besides its order.
//!
//! Owns: how each signal spreads over the eligible tools, how much of the utterance the candidates' words cover.
//! Does not know: what is concluded from it.

use super::signals::SignalValues;
use crate::catalog::Catalog;
use crate::text::{Query, terms};
use crate::types::{Candidate, Distribution, Evidence, Spread};

/// Candidates, from the top, whose words are looked at: a decider weighs no more.
const COVERED: usize = 16;

/// `encoder` is the one the utterance was embedded with. What single candidates cover, [`cover`] adds.
pub(super) fn evidence(catalog: &Catalog, query: &Query, encoder: Option<&str>, signals: &[SignalValues]) -> Evidence {
    Evidence {
        encoder: encoder.map(str::to_owned),
        tools: signals.iter().map(|signal| signal.values.len()).max().unwrap_or(0),
        signals: signals.iter().map(|signal| (signal.kind, distribution(&signal.values))).collect(),
        unrelated: encoder.and_then(|encoder| catalog.dense.get(encoder)).map(|rows| rows.unrelated),
        known_words: catalog.lexical.coverage(&terms(&query.retrieval_text()), None),
        coverage: Default::default(),
    }
}

/// Adds how much of the utterance the words of the first `candidates` cover.
pub fn cover(evidence: &mut Evidence, catalog: &Catalog, query: &Query, candidates: &[Candidate]) {
    let terms = terms(&query.retrieval_text());
    for candidate in candidates.iter().take(COVERED) {
        if let Some(position) = catalog.position(&candidate.tool) {
            let share = || catalog.lexical.coverage(&terms, Some(position));
            evidence.coverage.entry(candidate.tool.clone()).or_insert_with(share);
        }
    }
}

fn distribution(values: &[f32]) -> Distribution {
    let mut highest = f32::MIN;
    let mut second = f32::MIN;
    for value in values {
        if *value > highest {
            (highest, second) = (*value, highest);
        } else {
            second = second.max(*value);
        }
    }
    let second = if second == f32::MIN { highest } else { second };
    Distribution { spread: Spread::of(values), highest, second }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_value_is_that_of_another_tool() {
        let pair = |values: &[f32]| (distribution(values).highest, distribution(values).second);
        assert_eq!(pair(&[0.1, 0.9, 0.5]), (0.9, 0.5));
        assert_eq!(pair(&[0.9, 0.9, 0.5]), (0.9, 0.9));
        assert_eq!(pair(&[0.4]), (0.4, 0.4));
    }
}
