//! Which of the ranked tools are handed on: all, the best, or those of the domain that was chosen first.
//!
//! Every narrowing of ours has a way out: the shortlist over all tools is kept beside, to be looked at when nothing
//! within is in the race, or fits.

use std::collections::BTreeMap;

use super::pairs::paired;
use super::shortlist::{is_named, shortlist_len};
use super::{Eligible, Ranked, Settings, Strategy};
use crate::catalog::Catalog;
use crate::decision::{DomainScore, Widened};
use crate::types::{Candidate, Score};

/// Tools to which a rule narrowed the choice.
#[derive(Debug, Clone)]
pub struct Within {
    pub tools: Eligible,
    /// Whether the choice may be opened again when none of them fits.
    pub widen: bool,
}

/// What is handed on.
#[derive(Debug, Clone, PartialEq)]
pub struct Mounted {
    /// Best first.
    pub candidates: Vec<Candidate>,
    /// The domain step, best first; empty without one.
    pub domains: Vec<DomainScore>,
    pub widened: Option<Widened>,
    /// What to look at when none of the candidates fits.
    pub beyond: Option<Vec<Candidate>>,
}

/// What the second best tool of a domain adds to the best: two tools that fit say more for a domain than one.
const SUPPORT: f32 = 0.25;
/// Domains that are less than this behind the best one are chosen with it, up to [`MOST_DOMAINS`].
const CLOSE_DOMAIN: f32 = 0.5;
const MOST_DOMAINS: usize = 3;
/// A tool this far behind the best of all, in fused score, is not in the race.
const IN_THE_RACE: f32 = 2.5;

/// Chooses from `ranked`, which is best first and holds every eligible tool if `within` is given or domains are
/// chosen first.
pub fn mount(catalog: &Catalog, ranked: Ranked, within: Option<&Within>, settings: &Settings) -> Mounted {
    let Ranked { candidates: ranking, gap, .. } = ranked;
    let shortlist = |ranking| shortlist(catalog, ranking, gap, settings);
    let few = ranking.len() <= settings.hand_on_all_up_to;
    let (domains, inner, widen) = match within {
        Some(within) => {
            let inside = |candidate: &&Candidate| {
                catalog.position(&candidate.tool).is_some_and(|position| within.tools.contains(position))
            };
            (Vec::new(), ranking.iter().filter(inside).cloned().collect(), within.widen)
        }
        None if settings.strategy == Strategy::Layered && !few => {
            let domains = score_domains(catalog, &ranking);
            let inside = |candidate: &&Candidate| is_chosen(catalog, candidate, &domains) || is_named(candidate);
            let inner: Vec<Candidate> = ranking.iter().filter(inside).cloned().collect();
            (domains, inner, true)
        }
        None => {
            let candidates = shortlist(ranking);
            return Mounted { candidates, domains: Vec::new(), widened: None, beyond: None };
        }
    };
    let in_the_race = |inner: &[Candidate]| match (inner.first(), ranking.first()) {
        (Some(inner), Some(best)) => best.score.get() - inner.score.get() < IN_THE_RACE,
        (None, _) | (_, None) => false,
    };
    if !widen {
        return Mounted { candidates: shortlist(inner), domains, widened: None, beyond: None };
    }
    if !in_the_race(&inner) {
        let candidates = shortlist(ranking);
        return Mounted { candidates, domains, widened: Some(Widened::NothingClose), beyond: None };
    }
    let candidates = shortlist(inner);
    Mounted { candidates, domains, widened: None, beyond: Some(shortlist(ranking)) }
}

fn shortlist(catalog: &Catalog, mut ranking: Vec<Candidate>, gap: f32, settings: &Settings) -> Vec<Candidate> {
    let len = shortlist_len(&ranking, gap, settings);
    let paired = paired(catalog, &ranking, len);
    let rest = ranking.split_off(len);
    ranking.extend(rest.into_iter().enumerate().filter(|(i, _)| paired.contains(&(len + i))).map(|(_, tool)| tool));
    ranking
}

fn domain_of<'a>(catalog: &'a Catalog, candidate: &Candidate) -> &'a str {
    catalog.tool(&candidate.tool).and_then(|tool| tool.card.domain.as_deref()).unwrap_or_default()
}

/// The domains by the scores of their best two tools, best first, equal ones by name.
fn score_domains(catalog: &Catalog, ranking: &[Candidate]) -> Vec<DomainScore> {
    let mut best: BTreeMap<&str, (f32, f32)> = BTreeMap::new();
    for candidate in ranking {
        let score = candidate.score.get();
        // The ranking is sorted, so the first two seen are the best two.
        match best.get_mut(domain_of(catalog, candidate)) {
            None => drop(best.insert(domain_of(catalog, candidate), (score, f32::MIN))),
            Some((_, second)) if *second == f32::MIN => *second = score,
            Some(_) => {}
        }
    }
    let total = |(first, second): (f32, f32)| first + SUPPORT * second.max(0.0);
    let mut domains: Vec<DomainScore> = best
        .into_iter()
        .map(|(domain, scores)| DomainScore { domain: domain.into(), score: Score::new(total(scores)), chosen: false })
        .collect();
    domains.sort_by(|a, b| a.score.descending(b.score).then_with(|| a.domain.cmp(&b.domain)));
    let best = domains.first().map_or(0.0, |best| best.score.get());
    for domain in domains.iter_mut().take(MOST_DOMAINS) {
        domain.chosen = best - domain.score.get() < CLOSE_DOMAIN;
    }
    domains
}

fn is_chosen(catalog: &Catalog, candidate: &Candidate, domains: &[DomainScore]) -> bool {
    let own = domain_of(catalog, candidate);
    domains.iter().any(|domain| domain.chosen && domain.domain == own)
}
