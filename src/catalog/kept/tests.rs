//! A catalog that grew by changes is the one that is built from scratch.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::catalog::{Catalog, CatalogBuilder};
use crate::embed::Encoders;
use crate::index::{Mode, Settings};
use crate::registry::{Diff, diff, from_values, overlay};
use crate::text::normalise;

const SUBJECTS: [&str; 6] =
    ["订单 order", "退款 refund money", "快递物流 parcel", "优惠券 coupon", "發票 invoice", "weather 天气"];
const ACTS: [&str; 5] = ["查询 look up", "取消 cancel", "修改 change the address", "list everything", "申请 request"];
const QUERIES: [&str; 8] = [
    "where is my parcel",
    "我的快弟到那了",
    "取消订单",
    "tuikuan zenme hai mei dao",
    "refnd my monye",
    "tool_3 and tool_11",
    "發票",
    "cancel the order for 优惠券",
];

/// What a card is made of: subject, act, how many wordings, which tool it sends to, and an odd schema.
type Parts = (usize, usize, usize, Option<usize>, u8);

fn card(n: usize, (subject, act, wordings, border, odd): &Parts) -> Value {
    let mut card = json!({
        "name": format!("tool_{n}"),
        "description": {
            "what": format!("{} {}", ACTS[*act], SUBJECTS[*subject]),
            "when_to_use": (0..*wordings).map(|w| format!("{} {w}", SUBJECTS[(subject + w) % 6])).collect::<Vec<_>>(),
        },
        "parameters": {"type": "object", "properties": {"kind": {"type": "string", "enum": [ACTS[*act], "已完成"]}}},
        "side_effect": "read", "timeout_ms": 10, "permissions": [],
    });
    if let Some(border) = border {
        let border = json!([{"case": format!("for {}", SUBJECTS[(subject + 1) % 6]), "use": format!("tool_{border}")}]);
        card["description"]["when_not_to_use"] = border;
    }
    if *odd == 0 {
        // Valid as JSON Schema only for those who do not look into it.
        card["parameters"]["properties"]["kind"]["pattern"] = json!("(");
    }
    card
}

#[derive(Debug, Clone)]
enum Step {
    Put(Vec<(usize, Parts)>),
    Remove(Vec<usize>),
    /// Equal cards, read once more.
    ReadAgain,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let parts = (0..6usize, 0..5usize, 0..3usize, prop::option::weighted(0.3, 0..14usize), 0..20u8);
    let put = prop::collection::vec((0..14usize, parts), 1..8).prop_map(Step::Put);
    let remove = prop::collection::vec(0..14usize, 1..4).prop_map(Step::Remove);
    prop::collection::vec(prop_oneof![4 => put, 2 => remove, 1 => Just(Step::ReadAgain)], 1..7)
}

fn next(current: Registry, step: &Step) -> Registry {
    match step {
        Step::Put(cards) => {
            let cards: BTreeMap<usize, &Parts> = cards.iter().map(|(n, parts)| (*n, parts)).collect();
            overlay(current, from_values(&cards.into_iter().map(|(n, parts)| card(n, parts)).collect::<Vec<_>>()))
        }
        Step::Remove(numbers) => {
            let mut next = current;
            next.cards.retain(|id, _| !numbers.iter().any(|n| id.as_str() == format!("tool_{n}")));
            next
        }
        Step::ReadAgain => {
            let mut next = current;
            next.cards.values_mut().for_each(|card| *card = Arc::new(ToolCard::clone(card)));
            next
        }
    }
}

/// Everything a catalog answers with, as text; numbers to the bit.
fn told(catalog: &Catalog) -> Vec<String> {
    let bits = |scores: Vec<f32>| scores.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let mut told = vec![
        format!("{} {:?}", catalog.version.digest, catalog.fingerprint(0..catalog.tools.len())),
        format!(
            "{:?} {}",
            catalog.tools.iter().map(|tool| (tool.id(), &tool.hash, &tool.alias)).collect::<Vec<_>>(),
            catalog.chinese
        ),
        format!("{:?} {:?}", catalog.registry.quarantined, catalog.lexical.terms()),
    ];
    for rows in catalog.dense.values() {
        told.push(format!("{:?} {:?} {:?} {:?}", rows.texts, rows.centroid, rows.borders, rows.owner));
        told.push(format!("{:?} {:?}", rows.unrelated, rows.centre));
        told.extend((0..rows.index.len()).map(|row| format!("{:?}", rows.index.row(row))));
    }
    for text in QUERIES {
        let words = crate::text::terms(text);
        let query = normalise(text).unwrap();
        let shares = [&catalog.name_words, &catalog.purpose_words].map(|index| bits(index.shares(&words)));
        told.push(format!("{:?} {shares:?}", bits(catalog.lexical.scores(&words))));
        told.push(format!("{:?} {:?}", catalog.lexical.coverage(&words, None).to_bits(), catalog.names.named_in(text)));
        for step in 1..3 {
            told.push(format!("{:?}", catalog.typed.read(&query, &|position| position % step == 0)));
        }
    }
    told
}

fn builder(encoders: &Arc<Encoders>) -> CatalogBuilder {
    let settings = Settings { mode: Mode::Exact, exact_up_to: 1_000, recall_sample: 0.0 };
    CatalogBuilder::new(Arc::clone(encoders), settings)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn a_changed_catalog_is_the_one_built_from_scratch(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let encoders = Arc::new(Encoders::hashing(16));
        let changing = builder(&encoders);
        let mut earlier: Option<Arc<Catalog>> = None;
        let mut registry = Registry::default();
        for step in &steps {
            registry = next(registry, step);
            let (catalog, _) =
                runtime.block_on(changing.build_after(earlier.take(), registry.clone(), 1, &|_, _| {})).unwrap();
            let (scratch, _) = runtime.block_on(builder(&encoders).build(registry.clone(), 1, &|_, _| {})).unwrap();
            prop_assert_eq!(told(&catalog), told(&scratch));
            prop_assert_eq!(diff(&catalog.registry, &scratch.registry), Diff::default());
            earlier = Some(Arc::new(catalog));
        }
    }
}

fn many(numbers: std::ops::Range<usize>) -> Registry {
    from_values(&numbers.map(|n| card(n, &(n % 6, n % 5, n % 3, None, 1))).collect::<Vec<_>>())
}

#[test]
fn what_stays_is_not_made_again_and_threads_change_nothing() {
    let registry = many(0..3 * WORTH_A_THREAD);
    let (mut one, mut three) = (Kept::default(), Kept::default());
    let ((alone, _), (together, _)) = (one.prepare(&registry, 1), three.prepare(&registry, 3));
    assert_eq!(alone.len(), registry.cards.len());
    for (a, b) in alone.iter().zip(&together) {
        assert_eq!(
            (a.line(), &a.texts, &a.lexical, &a.purpose_words),
            (b.line(), &b.texts, &b.lexical, &b.purpose_words)
        );
    }
    // One card more: all others are the very same.
    let more = overlay(registry, from_values(&[card(9_999, &(0, 0, 2, Some(1), 1))]));
    let (again, broken) = one.prepare(&more, 1);
    assert!(broken.is_empty());
    let same = again.iter().filter(|card| alone.iter().any(|known| Arc::ptr_eq(known, card))).count();
    assert_eq!((again.len(), same), (alone.len() + 1, alone.len()));
}

#[test]
fn what_changing_cards_leave_behind_is_thrown_away_at_last() {
    let mut kept = Kept::default();
    kept.prepare(&many(0..20), 1);
    let used = kept.terms.len();
    for n in 0..SPARE_TERMS {
        kept.terms.number(&format!("gone {n}"));
    }
    kept.used_terms = used;
    let before = kept.terms.len();
    kept.prepare(&many(0..20), 1);
    assert_eq!(kept.terms.len(), before, "not yet");
    for n in 0..4 * used {
        kept.terms.number(&format!("gone as well {n}"));
    }
    kept.prepare(&many(0..20), 1);
    assert_eq!(kept.terms.len(), used);
}
