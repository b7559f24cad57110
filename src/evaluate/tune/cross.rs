//! One encoder: the final weights, and for each set the weights that were found without it.

use std::collections::BTreeMap;

use super::cases::Case;
use super::choose::choose;
use super::gaps::{self, Shortlists};
use super::{Recall, SetFigures, Tuning};
use crate::index::IndexError;
use crate::retrieve::{Fusion, Gaps, Scored};

/// Searches for so many sets.
pub(super) fn steps(sets: usize) -> usize {
    if sets > 1 { sets + 1 } else { 1 }
}

/// `step` hears of each search that is done.
pub(super) fn tuning(
    encoder: &str,
    sets: &BTreeMap<String, Vec<Case>>,
    step: &mut dyn FnMut(),
) -> Result<Tuning, IndexError> {
    let fusion = found(sets, None)?;
    step();
    let (mut figures, mut shortlists, mut held_out_shortlists) =
        (Vec::new(), Shortlists::default(), Shortlists::default());
    for (name, cases) in sets {
        let untuned = scored(cases, Fusion::UNTUNED, &mut |_, _| ())?;
        let tuned = scored(cases, fusion, &mut |case, scored| shortlists.add(case, scored, &fusion))?;
        let mut held_out = None;
        if sets.len() > 1 {
            let without = found(sets, Some(name))?;
            let mut add = |case: &Case, scored: &Scored| held_out_shortlists.add(case, scored, &without);
            held_out = Some(scored_mean(scored(cases, without, &mut add)?));
            step();
        }
        let (untuned, tuned) = (scored_mean(untuned), scored_mean(tuned));
        figures.push(SetFigures { set: name.clone(), rows: cases.len(), untuned, held_out, tuned });
    }
    let all = || sets.values().flatten();
    Ok(Tuning {
        encoder: encoder.to_owned(),
        fusion,
        fitted_rows: all().filter(|case| !case.for_gaps).count(),
        gap_rows: all().filter(|case| case.for_gaps).count(),
        sets: figures,
        shortlists: shortlists.figures(),
        held_out_shortlists: held_out_shortlists.figures(),
    })
}

/// Weights and gaps from every set but one.
fn found(sets: &BTreeMap<String, Vec<Case>>, without: Option<&str>) -> Result<Fusion, IndexError> {
    let used: Vec<&Vec<Case>> =
        sets.iter().filter(|(name, _)| without != Some(name.as_str())).map(|(_, cases)| cases).collect();
    let fitted: Vec<Vec<&Case>> =
        used.iter().map(|cases| cases.iter().filter(|case| !case.for_gaps).collect()).collect();
    let point = choose(&fitted);
    let fusion = point.fusion(Gaps { of_90: 0.0, of_95: 0.0, of_98: 0.0, of_99: 0.0 });
    let mut distances = Vec::new();
    for case in used.into_iter().flatten().filter(|case| case.for_gaps) {
        distances.extend(gaps::distance(case, &case.score(fusion)?));
    }
    Ok(Fusion { gap: gaps::gaps(distances), ..fusion })
}

/// Recall of each case by the prefilter itself.
fn scored(cases: &[Case], fusion: Fusion, each: &mut dyn FnMut(&Case, &Scored)) -> Result<Vec<Recall>, IndexError> {
    let one = |case: &Case| {
        let scored = case.score(fusion)?;
        each(case, &scored);
        Ok(case.recall_of(&scored))
    };
    cases.iter().map(one).collect()
}

fn scored_mean(recalls: Vec<Recall>) -> Recall {
    let rows = recalls.len().max(1) as f64;
    let mean = |of: fn(&Recall) -> f64| recalls.iter().map(of).sum::<f64>() / rows;
    Recall { at_5: mean(|recall| recall.at_5), at_8: mean(|recall| recall.at_8) }
}
