//! Tuning on a small catalog in which the words of a name, in any order, decide and everything else misleads.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::cases::Case;
use super::point::Point;
use super::*;
use crate::catalog::{Catalog, CatalogBuilder};
use crate::embed::Encoders;
use crate::evaluate::rows::row;
use crate::evaluate::tools::Tools;
use crate::index::Mode;
use crate::pipeline::Reading;
use crate::registry;
use crate::retrieve::{self, Embedded, Gaps, Narrowing, eligible};
use crate::text::normalise;
use crate::types::{Caller, Deadline};

const ACTS: [&str; 6] = ["open", "paint", "weigh", "sort", "wash", "count"];
const THINGS: [&str; 6] = ["barrel", "window", "ladder", "kettle", "basket", "lantern"];
const ENCODER: &str = "hashing";

/// A word that only the description of tool `at` has.
fn own_word(at: usize) -> String {
    format!(
        "{}{}uru",
        ["zam", "kel", "vot", "rin", "pag", "des"][at % 6],
        ["bo", "cha", "li", "mek", "no", "su"][at / 6]
    )
}

fn tools() -> Vec<Value> {
    let tool = |at: usize| {
        json!({"name": format!("{}_{}", ACTS[at % 6], THINGS[at / 6]), "version": 1, "timeout_ms": 10, "permissions": [],
            "side_effect": "read", "description": format!("About {} and {}.", own_word(at), own_word((at + 7) % 36))})
    };
    (0..36).map(tool).collect()
}

/// The right tool is told by its name alone; the other words belong to eight wrong ones.
fn label(set: usize, at: usize) -> Value {
    let others: Vec<String> = (1..=8).map(|step| own_word((at + 4 * step + set) % 36)).collect();
    let (act, thing) = (ACTS[at % 6], THINGS[at / 6]);
    let query = match at % 3 {
        0 => format!("{} {} a {thing} to {act}", others[..4].join(" "), others[4..].join(" ")),
        1 => format!("a {thing} {} which I {act} {}", others[..4].join(" "), others[4..].join(" ")),
        _ => format!("show me {}, and then tell me which {thing} I should {act}", others.join(" ")),
    };
    json!({"id": format!("{set}-{at}"), "query": query, "gold": [format!("{act}_{thing}")]})
}

async fn sets() -> BTreeMap<String, Vec<Case>> {
    let encoders = Arc::new(Encoders::hashing(64));
    let index = crate::index::Settings { mode: Mode::Auto, exact_up_to: 1_000, recall_sample: 0.0 };
    let registry = registry::merge(registry::Registry::default(), registry::from_values(&tools()));
    let builder = CatalogBuilder::new(Arc::clone(&encoders), index);
    let catalog: Arc<Catalog> = Arc::new(builder.build(registry, 1, &|_, _| ()).await.unwrap().0);
    let tools = Tools::new(&catalog.registry, &BTreeMap::new(), &[]);
    let mut sets = BTreeMap::new();
    for set in 0..3 {
        let mut cases = Vec::new();
        for at in 0..36 {
            let label = row(label(set, at));
            let query = normalise(&label.query).unwrap();
            let mut texts = vec![query.retrieval_text()];
            texts.extend(query.clauses());
            let encoder = encoders.for_language(query.language).unwrap();
            let vectors =
                encoder.embed_queries(&texts, Deadline::after(std::time::Duration::from_secs(60))).await.unwrap();
            let mut vectors = vectors.into_iter().map(|embedded| embedded.vector);
            let (whole, fusion) = (vectors.next().unwrap(), Fusion::WORDS);
            let embedded = Some(Embedded { encoder: ENCODER.into(), whole, clauses: vectors.collect(), fusion });
            let eligible = eligible(&catalog, &Caller::local(), &Narrowing::default(), &[]);
            let context = retrieve::context(&catalog, &query, &[], &eligible);
            let reading = Reading { catalog: Arc::clone(&catalog), query, eligible, context, embedded };
            cases.push(Case::new(label, reading, &tools).unwrap());
        }
        sets.insert(format!("set-{set}"), cases);
    }
    sets
}

fn tuned(sets: &BTreeMap<String, Vec<Case>>) -> Tuned {
    let encoders = vec![cross::tuning(ENCODER, sets, &mut || ()).unwrap()];
    Tuned { limit: 36, seed: 0, encoders, notices: Vec::new() }
}

#[tokio::test]
async fn a_planted_signal_is_found_and_written_whatever_the_order() {
    let mut sets = sets().await;
    let tuned_once = tuned(&sets);
    let tuning = &tuned_once.encoders[0];
    for figures in &tuning.sets {
        let held_out = figures.held_out.unwrap();
        assert!(figures.tuned.at_5 > figures.untuned.at_5 + 0.1, "{}", tuned_once.to_text());
        assert!(held_out.at_5 > figures.untuned.at_5 + 0.1, "{}", tuned_once.to_text());
    }
    let fusion = tuning.fusion;
    assert!((fusion.dense_centroid + fusion.dense_best + fusion.lexical - 1.0).abs() < 0.002, "{fusion:?}");
    assert!(fusion.name_cover > Fusion::UNTUNED.name_cover && fusion.dense_by_length <= 0.0, "{fusion:?}");
    assert!(fusion.gap.of_90 <= fusion.gap.of_95 && fusion.gap.of_95 <= fusion.gap.of_98, "{fusion:?}");
    assert_eq!(tuning.fitted_rows + tuning.gap_rows, 108);
    assert!(tuning.gap_rows > 20, "{}", tuning.gap_rows);
    let longest = tuning.shortlists.last().unwrap();
    assert!(longest.longest == 20 && longest.covered >= tuning.shortlists[1].covered, "{longest:?}");

    let again = tuned(&sets);
    assert_eq!((again.to_text(), again.to_json()), (tuned_once.to_text(), tuned_once.to_json()));
    // A set with fewer rows is another run, the only set has none to be held out.
    sets.retain(|name, _| name == "set-1");
    let alone = tuned(&sets);
    assert_eq!((alone.encoders[0].sets[0].held_out, alone.encoders[0].held_out_shortlists.len()), (None, 0));

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(ENCODER).join("manifest.toml");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "# kept\nname = \"hashing\"\n\n[fusion]\nold = 1\n\n# kept too\n[prefix]\nquery = \"\"\n")
        .unwrap();
    assert_eq!(write(&tuned_once, folder.path()).unwrap(), std::slice::from_ref(&file));
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.starts_with("# kept\nname = \"hashing\"\n\n[fusion]\n# Found by `pointsman tune --limit 36 --seed 0`")
    );
    assert!(
        text.contains("#   set-0 36, set-1 36, set-2 36\n") && text.ends_with("# kept too\n[prefix]\nquery = \"\"\n")
    );
    let table: toml::Table = toml::from_str(&text).unwrap();
    let named = table["fusion"].as_table().unwrap();
    let named = named.iter().map(|(name, value)| (name.clone(), value.as_float().unwrap())).collect();
    assert_eq!(Fusion::from_named(&named), Ok(fusion));
    write(&tuned_once, folder.path()).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    std::fs::remove_file(&file).unwrap();
    let error = write(&tuned_once, folder.path()).unwrap_err();
    assert!(error.is_input() && error.to_string().starts_with("hashing: cannot read"), "{error}");
}

#[tokio::test]
async fn the_copy_of_the_fusion_ranks_as_the_prefilter_does() {
    let none = Gaps { of_90: 0.0, of_95: 0.0, of_98: 0.0, of_99: 0.0 };
    let points = [
        Point { weights: [0.3, 0.2, -0.2, 0.5, 0.1, 0.05, 0.1], clause: 0.4, crowding: 0.3 },
        Point { weights: [0.0, 0.6, 0.0, 0.4, 0.0, 0.2, 0.0], clause: 0.0, crowding: 0.0 },
        Point { weights: [0.1, 0.1, -0.9, 0.8, 0.3, 0.0, 0.0], clause: 0.6, crowding: 0.15 },
    ];
    let sets = sets().await;
    let mut with_clauses = 0;
    for case in &sets["set-0"] {
        for point in points {
            let scored = case.score(point.fusion(none)).unwrap();
            with_clauses +=
                usize::from(scored.signals.iter().any(|signal| signal.kind == crate::types::Signal::Clause));
            // All tools are looked at in so small a catalog; equal scores may change places by rounding.
            for (at, real) in case.ranking(&point).into_iter().zip(&scored.order) {
                let (copy, real) = (scored.fused[at].get(), scored.fused[*real].get());
                assert!((copy - real).abs() < 1e-4, "{point:?}: {copy} {real}");
            }
        }
    }
    assert!(with_clauses > 10, "{with_clauses}");
}
