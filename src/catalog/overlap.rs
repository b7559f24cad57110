//! Pairs of cards that say nearly the same, measured on their vectors.
//!
//! Owns: which pairs are compared at all, how close two cards are, which texts of theirs collide.
//! Does not know: from where on a pair is a fault ([`crate::registry::lint`]).
//!
//! **Closeness** is the higher of two views, each on a scale where 1 is how alike equal cards are and 0 how alike cards of
//! this catalog are that have nothing to do with each other:
//!
//! - the whole cards: each text of one is compared with that text of the other which comes closest to it, and the other way
//!   round, and the mean of both directions counts;
//! - their first texts alone, name and purpose. That counts half: purposes share a frame ("Shows the … of one order"), so
//!   alone they hint at cards that are mistaken for each other and never prove that two say the same.
//!
//! Where Chinese stands in what is compared, the encoder that serves Chinese measures, elsewhere the one for English.
//!
//! **Which pairs.** Up to [`PAIRS_UP_TO`] cards all of them; above, each card with the [`NEIGHBOURS`] cards whose centroids
//! are nearest to its own for one of the encoders. In catalogs of up to [`ALL_UP_TO`] cards these are found among all
//! cards. In larger ones they are found among the cards that share one of the three nearest of √n landmarks with it and lie
//! about as far from it, so that the work grows with n√n; cards that say the same have the same landmarks.

use std::collections::{BTreeMap, BTreeSet};

use super::build::Catalog;
use super::rows::DenseRows;
use super::texts::{has_han, has_han_purpose, written_texts};
use crate::index::DenseIndex;
use crate::registry::lint::Overlap;
use crate::tool::ToolCard;
use crate::types::vector::dot;

/// Up to so many cards all pairs are compared text by text.
const PAIRS_UP_TO: usize = 128;
/// Above: cards with which each one is compared text by text.
const NEIGHBOURS: usize = 8;
/// Up to so many cards every pair of centroids is compared.
const ALL_UP_TO: usize = 3_000;
/// Landmarks whose cards one card is compared with.
const LANDMARKS_EACH: usize = 3;
/// Cards on either side of one, in the order of their distance from a landmark, with which its centroid is compared.
const WINDOW: usize = 256;
/// Texts of one card that are compared.
const MOST_TEXTS: usize = 24;
/// Pairs less close than this are of no interest to anybody.
const FLOOR: f32 = 0.1;
/// What the view of the first texts counts.
const PURPOSE_COUNTS: f32 = 0.5;
/// Cards that are compared with each other to find how alike unrelated ones are.
const DRAWN: usize = 48;
/// Fewer cards than this may all be related, so that they do not show what unrelated ones look like.
const FEW: usize = 8;
/// With few cards: at most so alike are unrelated ones.
const FEW_ZERO: f32 = 0.8;

/// Encoders by what they read; the names of both may be the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readers {
    /// For Chinese.
    pub chinese: String,
    /// For everything else.
    pub other: String,
}

/// Measures pairs of cards of one catalog.
pub struct Overlaps<'a> {
    catalog: &'a Catalog,
    /// The space for texts with Chinese in them, and the one for all others.
    spaces: [Space<'a>; 2],
}

/// One encoder's rows and what unrelated cards look like in them.
#[derive(Clone, Copy)]
struct Space<'a> {
    rows: &'a DenseRows,
    whole: Scale,
    purpose: Scale,
}

impl<'a> Space<'a> {
    fn of(catalog: &'a Catalog, name: &str) -> Option<Self> {
        let rows = catalog.dense.get(name)?;
        let whole = Scale::of(rows, &|a, b| Some(alike(rows, a, b)?.mean));
        Some(Self { rows, whole, purpose: Scale::of(rows, &|a, b| firsts(rows, a, b)) })
    }
}

impl Catalog {
    /// `None` where no encoder has read the cards.
    pub fn overlaps(&self, readers: &Readers) -> Option<Overlaps<'_>> {
        let spaces = [Space::of(self, &readers.chinese)?, Space::of(self, &readers.other)?];
        Some(Overlaps { catalog: self, spaces })
    }
}

impl Overlaps<'_> {
    /// The pairs of cards that are close to each other, closest first, equal ones by id; see the head of this module.
    /// Cards that no caller sees together are no pair. Takes seconds for ten thousand cards: run it on a thread that may
    /// block.
    pub fn all(&self) -> Vec<Overlap> {
        let tools = self.catalog.tools.len();
        if tools <= PAIRS_UP_TO {
            return self.among((0..tools).flat_map(|a| (a + 1..tools).map(move |b| [a, b])));
        }
        let near = self.spaces.iter().flat_map(|space| neighbours(space.rows, tools, ALL_UP_TO));
        self.among(near.collect::<BTreeSet<_>>().into_iter())
    }

    /// Those that the tool at `position` is part of.
    pub fn of(&self, position: usize) -> Vec<Overlap> {
        let tools = self.catalog.tools.len();
        if tools <= PAIRS_UP_TO {
            return self.among((0..tools).filter(|other| *other != position).map(|other| ordered(position, other)));
        }
        let near = self.spaces.iter().flat_map(|space| nearest(space.rows, position, 0..tools));
        self.among(near.map(|other| ordered(position, other)).collect::<BTreeSet<_>>().into_iter())
    }

    fn among(&self, pairs: impl Iterator<Item = [usize; 2]>) -> Vec<Overlap> {
        let mut found: Vec<Overlap> = pairs.filter_map(|pair| self.overlap(pair)).collect();
        found.sort_by(|x, y| y.closeness.total_cmp(&x.closeness).then_with(|| x.tools.cmp(&y.tools)));
        found
    }

    fn overlap(&self, [a, b]: [usize; 2]) -> Option<Overlap> {
        let cards = [a, b].map(|tool| self.catalog.tools[tool].card.as_ref());
        if !share_callers(cards[0], cards[1]) {
            return None;
        }
        let space = self.space(cards.iter().any(|card| has_han(card)));
        let alike = alike(space.rows, a, b)?;
        let whole = space.whole.place(alike.mean);
        let space_of_firsts = self.space(cards.iter().any(|card| has_han_purpose(card)));
        let purpose = firsts(space_of_firsts.rows, a, b).map_or(0.0, |value| space_of_firsts.purpose.place(value));
        let closeness = whole.max(PURPOSE_COUNTS * purpose);
        let phrase = |nth: usize| {
            let within = alike.closest[nth] - space.rows.texts[[a, b][nth]].start;
            written_texts(cards[nth]).into_iter().nth(within).unwrap_or_default()
        };
        (closeness >= FLOOR).then(|| Overlap {
            tools: [a, b].map(|tool| self.catalog.tools[tool].id().clone()),
            closeness,
            phrases: [phrase(0), phrase(1)],
        })
    }

    fn space(&self, chinese: bool) -> &Space<'_> {
        &self.spaces[usize::from(!chinese)]
    }
}

/// Whether somebody may see both.
fn share_callers(one: &ToolCard, other: &ToolCard) -> bool {
    one.tenants.is_empty() || other.tenants.is_empty() || one.tenants.iter().any(|t| other.tenants.contains(t))
}

/// What 0 and 1 mean.
#[derive(Debug, Clone, Copy)]
struct Scale {
    zero: f32,
}

impl Scale {
    fn of(rows: &DenseRows, measure: &dyn Fn(usize, usize) -> Option<f32>) -> Self {
        let tools = rows.texts.len();
        let step = tools.div_ceil(DRAWN).max(1);
        let drawn: Vec<usize> = (0..tools).step_by(step).collect();
        let mut values = Vec::new();
        for (at, a) in drawn.iter().enumerate() {
            values.extend(drawn[at + 1..].iter().filter_map(|b| measure(*a, *b)));
        }
        values.sort_by(f32::total_cmp);
        let zero = if tools < FEW {
            values.first().map_or(FEW_ZERO, |least| least.min(FEW_ZERO))
        } else {
            // Most pairs are unrelated; the few that are not do not move the median.
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        Self { zero }
    }

    fn place(self, alike: f32) -> f32 {
        ((alike - self.zero) / (1.0 - self.zero).max(1e-3)).clamp(0.0, 1.0)
    }
}

/// How alike two cards are in the encoder's own scale.
struct Alike {
    mean: f32,
    /// The rows of the two texts that collide.
    closest: [usize; 2],
}

/// `None` for a card without texts.
fn alike(rows: &DenseRows, a: usize, b: usize) -> Option<Alike> {
    let [of_a, of_b] = [a, b].map(|tool| rows.texts[tool].clone().take(MOST_TEXTS));
    let mut best_of_b = vec![f32::MIN; of_b.len()];
    let (mut sum, mut count) = (0.0, 0);
    let mut closest = ([0, 0], f32::MIN);
    for x in of_a {
        let mut best = f32::MIN;
        for (at, y) in of_b.clone().enumerate() {
            let value = between(rows, x, y);
            best = best.max(value);
            best_of_b[at] = best_of_b[at].max(value);
            if value > closest.1 {
                closest = ([x, y], value);
            }
        }
        sum += best;
        count += 1;
    }
    if count == 0 || best_of_b.is_empty() {
        return None;
    }
    let [there, back] = [sum / count as f32, best_of_b.iter().sum::<f32>() / best_of_b.len() as f32];
    Some(Alike { mean: (there + back) / 2.0, closest: closest.0 })
}

/// How alike the first texts of two cards are: name and purpose.
fn firsts(rows: &DenseRows, a: usize, b: usize) -> Option<f32> {
    let [a, b] = [a, b].map(|tool| rows.texts[tool].clone().next());
    Some(between(rows, a?, b?))
}

fn between(rows: &DenseRows, x: usize, y: usize) -> f32 {
    let row = |row: usize| DenseIndex::row(&rows.index, row).as_slice();
    rows.centre.between(x, y, dot(row(x), row(y))).clamp(-1.0, 1.0)
}

fn centroids(rows: &DenseRows, a: usize, b: usize) -> f32 {
    between(rows, rows.centroid[a], rows.centroid[b])
}

fn ordered(a: usize, b: usize) -> [usize; 2] {
    [a.min(b), a.max(b)]
}

/// The nearest of `others` to a tool, by centroid.
fn nearest(rows: &DenseRows, tool: usize, others: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut best = Best::default();
    for other in others.filter(|other| *other != tool) {
        best.offer(centroids(rows, tool, other), other);
    }
    best.0.into_iter().map(|(_, other)| other).collect()
}

/// The [`NEIGHBOURS`] best, best first, equals by position.
#[derive(Debug, Clone, Default)]
struct Best(Vec<(f32, usize)>);

impl Best {
    fn offer(&mut self, value: f32, tool: usize) {
        let worst = self.0.last().filter(|_| self.0.len() == NEIGHBOURS);
        if worst.is_some_and(|worst| value < worst.0 || value == worst.0 && tool > worst.1)
            || self.0.iter().any(|known| known.1 == tool)
        {
            return;
        }
        let at = self.0.partition_point(|known| known.0 > value || known.0 == value && known.1 < tool);
        self.0.insert(at, (value, tool));
        self.0.truncate(NEIGHBOURS);
    }
}

/// Each of the first `tools` tools with its nearest ones; found among all up to `all_up_to` tools.
fn neighbours(rows: &DenseRows, tools: usize, all_up_to: usize) -> BTreeSet<[usize; 2]> {
    let mut best = vec![Best::default(); tools];
    let mut compare = |a: usize, b: usize| {
        let value = centroids(rows, a, b);
        best[a].offer(value, b);
        best[b].offer(value, a);
    };
    if tools <= all_up_to {
        for a in 0..tools {
            (0..a).for_each(|b| compare(a, b));
        }
    } else {
        for members in around_landmarks(rows, tools).values() {
            for (at, a) in members.iter().enumerate() {
                members[at + 1..].iter().take(WINDOW).for_each(|b| compare(*a, *b));
            }
        }
    }
    let pairs =
        best.iter().enumerate().flat_map(|(tool, best)| best.0.iter().map(move |(_, other)| ordered(tool, *other)));
    pairs.collect()
}

/// Tools by the landmarks nearest to them, nearest to the landmark first. Landmarks are tools spread evenly over the ids.
fn around_landmarks(rows: &DenseRows, tools: usize) -> BTreeMap<usize, Vec<usize>> {
    let landmarks: Vec<usize> = (0..tools).step_by(tools.isqrt().max(1)).collect();
    let mut around: BTreeMap<usize, Vec<(f32, usize)>> = BTreeMap::new();
    for tool in 0..tools {
        let mut near: Vec<(f32, usize)> = landmarks.iter().map(|mark| (centroids(rows, tool, *mark), *mark)).collect();
        near.sort_by(|x, y| y.0.total_cmp(&x.0).then(x.1.cmp(&y.1)));
        for (value, mark) in near.into_iter().take(LANDMARKS_EACH) {
            around.entry(mark).or_default().push((value, tool));
        }
    }
    let sorted = |mut members: Vec<(f32, usize)>| {
        members.sort_by(|x, y| y.0.total_cmp(&x.0).then(x.1.cmp(&y.1)));
        members.into_iter().map(|(_, tool)| tool).collect()
    };
    around.into_iter().map(|(mark, members)| (mark, sorted(members))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::catalog::CatalogBuilder;
    use crate::embed::Encoders;
    use crate::index::{Mode, Settings};
    use crate::registry::{Registry, from_values, merge};
    use crate::types::ToolId;

    fn readers() -> Readers {
        Readers { chinese: "hashing".into(), other: "hashing".into() }
    }

    fn card(name: &str, what: &str, tenants: &[&str]) -> Value {
        json!({"name": name, "version": 1, "parameters": {"type": "object"}, "side_effect": "read", "idempotent": true,
            "timeout_ms": 9, "permissions": [], "tenants": tenants,
            "description": {"what": what, "when_to_use": [], "when_not_to_use": [], "returns": "x"}})
    }

    async fn catalog(cards: &[Value], encoders: Encoders) -> Catalog {
        let settings = Settings { mode: Mode::Exact, exact_up_to: 10, recall_sample: 0.0 };
        let registry = merge(Registry::default(), from_values(cards));
        assert_eq!(registry.quarantined, []);
        let builder = CatalogBuilder::new(Arc::new(encoders), settings);
        builder.build(registry, 1, &|_, _| {}).await.unwrap().0
    }

    /// Twelve cards about nothing in common, and what is given.
    async fn among_others(mut cards: Vec<Value>) -> Catalog {
        let words =
            ["moon", "river", "copper", "violin", "bread", "engine", "snow", "ticket", "天气", "发票", "退款", "积分"];
        for (n, word) in words.iter().enumerate() {
            cards.push(card(&format!("x{n}"), &word.repeat(4), &[]));
        }
        catalog(&cards, Encoders::hashing(64)).await
    }

    #[tokio::test]
    async fn equal_cards_are_one_apart_and_strangers_are_no_pair() {
        let what = "Shows where the parcels are 查快递";
        let catalog = among_others(vec![card("find_a", what, &[]), card("find_b", what, &[])]).await;
        let overlaps = catalog.overlaps(&readers()).unwrap().all();
        assert_eq!(overlaps[0].tools, ["find_a", "find_b"].map(ToolId::new));
        assert!(overlaps[0].closeness > 0.9, "{overlaps:?}");
        assert_eq!(overlaps[0].phrases, [what, what]);
        let strangers = |overlap: &Overlap| overlap.tools.iter().all(|id| id.as_str().starts_with('x'));
        assert!(overlaps.iter().filter(|overlap| strangers(overlap)).all(|overlap| overlap.closeness < 0.9));
        assert_eq!(overlaps, catalog.overlaps(&readers()).unwrap().all());
        let position = catalog.position(&ToolId::new("find_b")).unwrap();
        assert_eq!(catalog.overlaps(&readers()).unwrap().of(position)[0], overlaps[0]);
    }

    #[tokio::test]
    async fn cards_that_nobody_sees_together_are_no_pair() {
        let what = "Shows where the parcels are";
        let cards = vec![card("find_a", what, &["acme"]), card("find_b", what, &["globex"]), card("find_c", what, &[])];
        let found = among_others(cards).await.overlaps(&readers()).unwrap().all();
        let mut pairs: Vec<String> = found
            .iter()
            .filter(|o| o.closeness > 0.9)
            .map(|o| o.tools.clone().map(|id| id.to_string()).join(" "))
            .collect();
        pairs.sort();
        assert_eq!(pairs, ["find_a find_c", "find_b find_c"]);
    }

    #[tokio::test]
    async fn few_cards_and_no_encoder_break_nothing() {
        let same = [card("a", "查快递", &[]), card("b", "查快递", &[])];
        let all = async |cards: &[Value], encoders: Encoders| {
            catalog(cards, encoders).await.overlaps(&readers()).map(|overlaps| overlaps.all())
        };
        assert!(all(&same, Encoders::hashing(16)).await.unwrap()[0].closeness > 0.5);
        assert_eq!(all(&same, Encoders::none()).await, None);
        assert_eq!(all(&same[..1], Encoders::hashing(16)).await, Some(Vec::new()));
        assert_eq!(all(&[], Encoders::hashing(16)).await, Some(Vec::new()));
    }

    #[tokio::test]
    async fn landmarks_lead_to_the_pairs_that_comparing_all_finds() {
        let nouns = ["parcel", "invoice", "refund", "coupon", "review", "ticket", "address", "订单"];
        let mut cards = Vec::new();
        for n in 0..200 {
            let (noun, other) = (nouns[n % nouns.len()], nouns[n / 3 % nouns.len()]);
            cards.push(card(&format!("t{n:03}"), &format!("{noun} {other} {}", n % 37), &[]));
        }
        // Fifty pairs of equal cards.
        for n in 0..50 {
            let what = cards[n * 4]["description"]["what"].as_str().unwrap().to_owned();
            cards.push(card(&format!("t{:03}", n * 4 + 500), &what, &[]));
        }
        let catalog = catalog(&cards, Encoders::hashing(48)).await;
        let rows = &catalog.dense["hashing"];
        let (all, some) = (neighbours(rows, 250, 1_000), neighbours(rows, 250, 10));
        assert_eq!(some, neighbours(rows, 250, 10));
        let mut near: Vec<_> = all.iter().collect();
        near.sort_by(|[a, b], [c, d]| centroids(rows, *c, *d).total_cmp(&centroids(rows, *a, *b)));
        near.truncate(60);
        let found = near.iter().filter(|pair| some.contains(**pair)).count();
        assert!(near.len() == 60 && found >= 57, "{found} of {}", near.len());
    }

    proptest! {
        #[test]
        fn the_best_are_kept_whatever_the_order(values in prop::collection::vec((0u8..20, 0usize..40), 0..60)) {
            let mut expected: std::collections::BTreeMap<usize, f32> = Default::default();
            for (value, tool) in &values {
                expected.entry(*tool).or_insert(f32::from(*value));
            }
            let mut best = Best::default();
            expected.iter().rev().for_each(|(tool, value)| best.offer(*value, *tool));
            let mut sorted: Vec<(f32, usize)> = expected.into_iter().map(|(tool, value)| (value, tool)).collect();
            sorted.sort_by(|x, y| y.0.total_cmp(&x.0).then(x.1.cmp(&y.1)));
            sorted.truncate(NEIGHBOURS);
            prop_assert_eq!(best.0, sorted);
        }
    }
}
