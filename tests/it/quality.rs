//! Found tools stay found: a small fixed sample of each labelled set, with the real encoders, against floors.
//!
//! The floors stand a little below what was measured, so that a change of a row or two passes and a loss does not. The
//! whole sets are scored by `make eval`.

use std::path::{Path, PathBuf};

use pointsman::evaluate::{Options, Stage, evaluate};
use serde_json::Value;

use crate::source::{read, root};
use crate::support::cli::{WORDS_ALONE, run};
use crate::support::shop::settings;

/// Set (all share one registry), floors of recall at 5 and of the mean reciprocal rank.
const RANKING: [(&str, f64, f64); 8] = [
    ("acebench-en", 0.91, 0.85),
    ("acebench-zh", 0.87, 0.83),
    ("bfcl", 0.91, 0.84),
    ("callnavi", 0.93, 0.90),
    ("crosswoz-zh", 0.95, 0.93),
    ("metatool", 0.66, 0.49),
    ("seal-tools", 0.90, 0.95),
    ("stabletoolbench", 0.89, 0.88),
];

/// Figure of the sample shop's whole requests and its floor.
const SHOP: [(&str, f64); 6] = [
    ("/recall/5", 0.88),
    ("/shortlist/hit_rate", 0.93),
    ("/top1", 0.68),
    ("/arguments_exact", 0.68),
    ("/no_tool/precision", 0.30),
    ("/no_tool/recall", 0.20),
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
        confusions: false,
    };
    evaluate(&options, settings, &|_| ()).await.unwrap().to_json()
}

#[track_caller]
fn number(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no figure at {path}"))
}

#[test]
fn a_report_is_written_and_kept_figures_are_not_scored_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    std::fs::create_dir_all(at("sets/商店")).unwrap();
    std::fs::write(
        at("sets/商店/tools.jsonl"),
        "{\"name\":\"track_parcel\",\"description\":\"Track a parcel 查快递\"}\n{\"name\":\"refund\",\"description\":\"退款\"}\n",
    )
    .unwrap();
    std::fs::write(
        at("sets/商店/queries.jsonl"),
        "{\"query\":\"查快递\",\"gold\":[\"track_parcel\"]}\n{\"query\":\"refund ｍｅ\",\"gold\":[\"refund\"]}\n",
    )
    .unwrap();
    let paths = ["sets", "kept", "out/EVALUATION.md"].map(|path| at(path).display().to_string());
    let files = ["docs/eval/plan.toml", "docs/eval/published.toml"];
    let report = |more: &[&str]| {
        let fixed = ["report", "--sets", &paths[0], "--keep", &paths[1], "--out", &paths[2]];
        let about = ["--plan", files[0], "--published", files[1]];
        let (code, out, err) = run(&[&fixed[..], &about[..], &WORDS_ALONE[..], more].concat());
        let scored = err.lines().filter(|line| line.starts_with("商店")).map(str::to_owned).collect::<Vec<_>>();
        (code, out, scored, err)
    };
    let (code, out, scored, _) = report(&[]);
    assert_eq!(
        (code, out.as_str(), scored.as_slice()),
        (0, "", &["商店 prefilter".to_owned(), "商店 route".into()][..])
    );
    let first = read(&at("out/EVALUATION.md"));
    assert!(
        first.contains("`pointsman report --sets SETS`") && first.contains("| 商店 | en, zh | 2 | 2 | **100.0"),
        "{first}"
    );
    assert!(!first.contains(&paths[0]), "the document names a folder of this machine:\n{first}");

    // Cut off after the first run: the other one is scored, the first is not, and the document is the same again.
    let kept = at("kept/商店.json");
    let mut figures: Value = serde_json::from_str(&read(&kept)).unwrap();
    figures["runs"].as_object_mut().unwrap().remove("route");
    std::fs::write(&kept, figures.to_string()).unwrap();
    assert_eq!(report(&[]).2, ["商店 route"]);
    assert_eq!(report(&[]).2, [""; 0]);
    let (before, after) = (first, read(&at("out/EVALUATION.md")));
    let timeless = |text: &str| text.split_once("## Latency").unwrap().0.to_owned();
    assert_eq!(timeless(&before), timeless(&after));

    assert_eq!(report(&["--limit", "1"]).2, ["商店 prefilter", "商店 route"]);
    let (code, _, _, said) = report(&["--only", "nowhere"]);
    assert_eq!(code, 2);
    assert!(said.contains("no labelled set `nowhere`"), "{said}");
}
