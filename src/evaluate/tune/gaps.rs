//! How far behind the best the right tool is, and what shortlists that makes.
//!
//! Source: split conformal prediction with its finite-sample correction, Vovk, Gammerman and Shafer, Algorithmic
//! Learning in a Random World, 2005: of `n` distances the `⌈(n + 1) · level⌉`-th covers a new one with that frequency.

use super::cases::Case;
use crate::retrieve::{Basis, Strategy};
use crate::retrieve::{Coverage, Fusion, Gaps, Scored, Settings, shortlist_len};
use crate::types::{Candidate, Signal, ToolId};

/// Stands for no limit: too few rows for the level.
const NO_LIMIT: f64 = 100.0;
const FEWEST: usize = 5;
/// The length everything is compared with, and the limits of the lists that adapt.
const FIXED: usize = 8;
const LONGEST: [usize; 2] = [8, 20];
/// Longest list, with room for tools that are named.
const HEAD: usize = 64;

/// Lists of one kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShortlistFigures {
    /// `None` for lists of a fixed length.
    pub coverage: Option<Coverage>,
    pub longest: usize,
    pub mean_length: f64,
    /// Share of the rows with a right tool on the list.
    pub covered: f64,
}

/// Distance of the best right tool from the best one; `None` when no right tool is eligible.
pub(super) fn distance(case: &Case, scored: &Scored) -> Option<f64> {
    let best = scored.fused[*scored.order.first()?].get();
    let right = scored.order.iter().find(|at| case.accepts(**at))?;
    Some(f64::from(best - scored.fused[*right].get()))
}

/// The gaps over the distances of the rows that no weight followed.
pub(super) fn gaps(mut distances: Vec<f64>) -> Gaps {
    distances.sort_unstable_by(f64::total_cmp);
    let of = |coverage: Coverage| {
        let rank = ((distances.len() + 1) * usize::from(coverage.percent())).div_ceil(100);
        let distance = rank.checked_sub(1).and_then(|at| distances.get(at)).copied().unwrap_or(NO_LIMIT);
        // Rounded up: a gap must not fall short of the row it comes from.
        ((distance * 1000.0).ceil() / 1000.0).min(NO_LIMIT) as f32
    };
    Gaps { of_90: of(Coverage::Of90), of_95: of(Coverage::Of95), of_98: of(Coverage::Of98), of_99: of(Coverage::Of99) }
}

/// Sums over rows of what each kind of list gives.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Shortlists {
    rows: usize,
    lists: Vec<ShortlistFigures>,
}

impl Shortlists {
    /// Adds one row, ranked by `fusion`.
    pub fn add(&mut self, case: &Case, scored: &Scored, fusion: &Fusion) {
        let named = scored.signals.iter().find(|signal| signal.kind == Signal::Named);
        let candidate = |at: &usize| Candidate {
            tool: ToolId::new(""),
            score: scored.fused[*at],
            signals: named.map(|signal| (Signal::Named, signal.values[*at])).into_iter().collect(),
        };
        let head: Vec<Candidate> = scored.order.iter().take(HEAD).map(candidate).collect();
        let right = scored.order.iter().position(|at| case.accepts(*at));
        let kinds = kinds();
        if self.lists.is_empty() {
            let list = |(coverage, longest)| ShortlistFigures { coverage, longest, mean_length: 0.0, covered: 0.0 };
            self.lists = kinds.iter().copied().map(list).collect();
        }
        self.rows += 1;
        for (list, (coverage, longest)) in self.lists.iter_mut().zip(kinds) {
            let settings = Settings {
                hand_on_all_up_to: 0,
                shortlist_min: if coverage.is_some() { FEWEST } else { longest },
                shortlist_max: longest,
                coverage: coverage.unwrap_or_default(),
                basis: Basis::Fused,
                without: Default::default(),
                strategy: Strategy::Auto,
            };
            let length = shortlist_len(&head, fusion.gap.of(settings.coverage), &settings);
            list.mean_length += length as f64;
            list.covered += f64::from(u8::from(right.is_some_and(|rank| rank < length)));
        }
    }

    /// Means; empty without rows.
    pub fn figures(&self) -> Vec<ShortlistFigures> {
        let rows = self.rows.max(1) as f64;
        let mean = |list: &ShortlistFigures| ShortlistFigures {
            mean_length: list.mean_length / rows,
            covered: list.covered / rows,
            ..*list
        };
        self.lists.iter().map(mean).collect()
    }
}

fn kinds() -> Vec<(Option<Coverage>, usize)> {
    let levels = Coverage::PERCENTS.into_iter().filter_map(Coverage::of_percent);
    let adaptive = levels.flat_map(|level| LONGEST.map(|longest| (Some(level), longest)));
    std::iter::once((None, FIXED)).chain(adaptive).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_have_the_finite_sample_correction() {
        let many = gaps((1..=199).map(f64::from).collect());
        // ⌈200 · level⌉ of 1..=199, and no more than the largest gap a manifest may hold.
        assert_eq!((many.of_90, many.of_99), (100.0, 100.0));
        let small = gaps((1..=199).rev().map(|at| f64::from(at) / 1000.0).collect());
        assert_eq!((small.of_90, small.of_95, small.of_98, small.of_99), (0.18, 0.19, 0.196, 0.198));
        let few = gaps(vec![0.5; 20]);
        assert_eq!((few.of_90, few.of_95, few.of_99), (0.5, 0.5, 100.0));
        assert_eq!(gaps(Vec::new()).of_90, 100.0);
    }
}
