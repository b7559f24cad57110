//! How many candidates are handed on, and in which order the decider sees them.

use super::Settings;
use crate::catalog::{Catalog, Tool};
use crate::types::{Candidate, Signal};

/// Length of the shortlist, counted from the top of `ranking` (best first, every eligible tool).
///
/// Few eligible tools are all handed on. Above that: at least `shortlist_min`, more while the scores stay within `gap`
/// of the best, at most `shortlist_max`; tools that the utterance names rank first and always have a place.
pub fn shortlist_len(ranking: &[Candidate], gap: f32, settings: &Settings) -> usize {
    if ranking.len() <= settings.hand_on_all_up_to {
        return ranking.len();
    }
    let named = ranking.iter().take_while(|candidate| is_named(candidate)).count();
    let mut len = settings.shortlist_min.min(ranking.len());
    let is_close = |next: usize| ranking[0].score.get() - ranking[next].score.get() <= gap;
    while len < settings.shortlist_max.min(ranking.len()) && is_close(len) {
        len += 1;
    }
    len.max(named)
}

/// The utterance names it: it has a place whatever else holds.
pub(super) fn is_named(candidate: &Candidate) -> bool {
    candidate.signals.get(&Signal::Named).is_some_and(|value| *value > 0.0)
}

/// The candidates' tools by name: tiny score changes cannot move them, so the same set gives the same prompt.
pub fn stable_order<'a>(catalog: &'a Catalog, candidates: &[Candidate]) -> Vec<&'a Tool> {
    let mut tools: Vec<&Tool> = candidates.iter().filter_map(|candidate| catalog.tool(&candidate.tool)).collect();
    tools.sort_by(|a, b| a.id().cmp(b.id()));
    tools
}
