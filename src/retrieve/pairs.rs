//! Tools that belong beside another one on a shortlist, because its card sends the reader to them.
//!
//! Owns: when such a tool is pulled in, how many are.
//! Does not know: how long the shortlist is otherwise, or how a signal was found.

use std::collections::BTreeSet;

use super::eligible::Eligible;
use crate::catalog::Catalog;
use crate::types::{Candidate, Signal, ToolId};

/// Most tools that are pulled in beyond the usual length: the pair is to be seen, the shortlist to stay short.
const MOST_PAIRED: usize = 3;

/// Places in `ranking`, beyond the first `len`, of tools that have to be shown as well: one of the first sends the reader
/// there, and what is asked fits the case better than it fits this card's own texts.
pub(super) fn paired(catalog: &Catalog, ranking: &[Candidate], len: usize) -> BTreeSet<usize> {
    let (shown, beyond) = ranking.split_at(len.min(ranking.len()));
    let mut found = BTreeSet::new();
    for source in shown {
        let Some(own) = source.signals.get(&Signal::DenseBest) else { continue };
        for target in targets(catalog, source) {
            let place = beyond.iter().position(|candidate| candidate.tool.as_str() == target);
            let Some(place) = place.filter(|_| found.len() < MOST_PAIRED) else { continue };
            if beyond[place].signals.get(&Signal::Boundary).is_some_and(|case| case > own) {
                found.insert(shown.len() + place);
            }
        }
    }
    found
}

fn targets<'a>(catalog: &'a Catalog, source: &Candidate) -> impl Iterator<Item = &'a str> {
    let borders = catalog.tool(&source.tool).map(|tool| tool.card.description.when_not_to_use.as_slice());
    borders.unwrap_or_default().iter().filter_map(|border| border.use_tool.as_deref())
}

/// Indices, in `order` beyond the first `top`, of the tools to which those first ones send the reader: they must not get
/// lost before [`paired`] looks at them. `positions` are those of the eligible tools, in order.
pub(super) fn targets_beyond(
    catalog: &Catalog,
    eligible: &Eligible,
    positions: &[usize],
    order: &[usize],
    top: usize,
) -> BTreeSet<usize> {
    let shown = order.iter().take(top).map(|i| &catalog.tools[positions[*i]].card);
    let names = shown.flat_map(|card| card.description.when_not_to_use.iter().filter_map(|b| b.use_tool.as_deref()));
    let places =
        names.filter_map(|name| catalog.position(&ToolId::new(name))).filter(|place| eligible.contains(*place));
    let beyond: BTreeSet<usize> = order.iter().skip(top).copied().collect();
    places.filter_map(|place| positions.binary_search(&place).ok()).filter(|i| beyond.contains(i)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::catalog::CatalogBuilder;
    use crate::embed::Encoders;
    use crate::index::{Mode, Settings};
    use crate::registry::{Registry, from_values, merge};
    use crate::retrieve::{Narrowing, eligible};
    use crate::types::{Caller, Score};

    const NAMES: [&str; 5] = ["cancel_order", "faq", "get_order", "refund_order", "track"];

    async fn catalog() -> Catalog {
        let card = |name: &str| {
            let what = match name {
                "cancel_order" => "Cancels. For refunds, use refund_order. 查物流请用 track。",
                _ => "Does it.",
            };
            json!({"name": name, "description": what, "side_effect": "read", "timeout_ms": 9, "permissions": []})
        };
        let settings = Settings { mode: Mode::Auto, exact_up_to: 1_000, recall_sample: 0.0 };
        let registry = merge(Registry::default(), from_values(&NAMES.map(card)));
        let builder = CatalogBuilder::new(Arc::new(Encoders::none()), settings);
        builder.build(registry, 1, &|_, _| {}).await.unwrap().0
    }

    fn candidate(name: &str, own: f32, case: f32) -> Candidate {
        let signals = [(Signal::DenseBest, own), (Signal::Boundary, case)].into();
        Candidate { tool: ToolId::new(name), score: Score::new(0.0), signals }
    }

    #[tokio::test]
    async fn a_case_that_fits_better_than_the_card_brings_its_tool_along() {
        let catalog = catalog().await;
        let ranking = |case: f32| {
            vec![
                candidate("cancel_order", 0.5, 0.0),
                candidate("faq", 0.1, 0.0),
                candidate("get_order", 0.9, 0.9),
                candidate("refund_order", 0.1, case),
                candidate("track", 0.1, 0.4),
            ]
        };
        assert_eq!(paired(&catalog, &ranking(0.6), 2), BTreeSet::from([3]));
        // A weaker case, a source that is not shown, a target that is shown already, an empty list.
        assert_eq!(paired(&catalog, &ranking(0.5), 2), BTreeSet::new());
        assert_eq!(paired(&catalog, &ranking(0.6)[1..], 2), BTreeSet::new());
        assert_eq!(paired(&catalog, &ranking(0.6), 4), BTreeSet::new());
        assert_eq!(paired(&catalog, &[], 2), BTreeSet::new());
        // Words alone know no cases.
        let bare: Vec<Candidate> =
            ranking(0.6).into_iter().map(|candidate| Candidate { signals: Default::default(), ..candidate }).collect();
        assert_eq!(paired(&catalog, &bare, 2), BTreeSet::new());
    }

    #[tokio::test]
    async fn targets_of_the_first_are_not_cut_off() {
        let catalog = catalog().await;
        let all = eligible(&catalog, &Caller::local(), &Narrowing::default(), &[]);
        let positions: Vec<usize> = all.positions().collect();
        assert_eq!(targets_beyond(&catalog, &all, &positions, &[0, 1, 2, 3, 4], 1), BTreeSet::from([3, 4]));
        assert_eq!(targets_beyond(&catalog, &all, &positions, &[1, 4, 0, 3, 2], 3), BTreeSet::from([3]));
        assert_eq!(targets_beyond(&catalog, &all, &positions, &[1, 4, 0, 3, 2], 2), BTreeSet::new());
    }
}
