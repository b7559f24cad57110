//! The command line: the shape of its answers, its exit codes, its messages.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::cli::{self, WORDS_ALONE};
use crate::support::{RegistryFile, shop};

const ORDER: &str = "SO-20260418000736";

fn shop_file() -> String {
    shop().display().to_string()
}

/// Routes by words alone over the sample registry.
fn route(more: &[&str]) -> (i32, String, String) {
    let file = shop_file();
    let fixed = ["route", "--registry", &file, "--set", "log.decisions=off"];
    cli::run(&[&fixed[..], &WORDS_ALONE[..], more].concat())
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap_or_else(|| panic!("no object: {value}")).keys().map(String::as_str).collect()
}

#[test]
fn route_prints_one_json_object_with_every_key() {
    let cases = [
        (format!("get_order {ORDER}"), "call"),
        ("催一下发货".to_owned(), "clarify"),
        ("zzz qqq".to_owned(), "no_tool"),
    ];
    for (utterance, kind) in &cases {
        let (code, out, err) = route(&["--format", "json", utterance]);
        assert_eq!(code, 0, "{err}");
        assert_eq!(out.lines().count(), 1, "{out}");
        let answer: Value = serde_json::from_str(&out).unwrap();
        let top = [
            "decision_id",
            "catalog_version",
            "index",
            "outcome",
            "decided_by",
            "confidence",
            "degraded",
            "candidates",
            "timings_ms",
            "tokens",
        ];
        assert_eq!(keys(&answer), BTreeSet::from(top));
        let outcome = &answer["outcome"];
        let inner = ["kind", "tool", "arguments", "calls", "missing", "question", "pending", "reason", "message"];
        assert_eq!(keys(outcome), BTreeSet::from(inner));
        assert_eq!(keys(&answer["tokens"]), BTreeSet::from(["prompt", "completion"]));
        assert!(answer["timings_ms"]["total"].is_number() && answer["confidence"].is_number());
        assert_eq!((&answer["index"], &answer["degraded"]), (&json!("exact"), &json!(["lexical_only"])));
        let candidates = answer["candidates"].as_array().unwrap();
        assert!(candidates.iter().all(|c| keys(c) == BTreeSet::from(["tool", "score", "signals"])), "{candidates:?}");
        let rank = |c: &Value| (-c["score"].as_f64().unwrap(), c["tool"].as_str().unwrap().to_owned());
        assert!(candidates.windows(2).all(|pair| rank(&pair[0]) < rank(&pair[1])), "{candidates:?}");

        assert_eq!(outcome["kind"], *kind, "{utterance}");
        let null = |names: &[&str]| names.iter().all(|name| outcome[name].is_null());
        match *kind {
            "call" => {
                assert_eq!(outcome["tool"], "get_order");
                assert_eq!(outcome["arguments"]["order_id"], ORDER);
                assert_eq!(outcome["calls"][0]["arguments"], outcome["arguments"]);
                assert!(null(&["question", "pending", "reason", "message"]), "{outcome}");
                assert_eq!(outcome["missing"], json!([]));
            }
            "clarify" => {
                assert_eq!((&outcome["tool"], &outcome["missing"]), (&json!("urge_shipment"), &json!(["order_id"])));
                assert!(outcome["question"].is_string() && outcome["pending"].is_string(), "{outcome}");
                assert_eq!(outcome["calls"], json!([]));
                assert!(null(&["reason"]), "{outcome}");
            }
            _ => {
                assert_eq!(outcome["reason"], "nothing_fits");
                assert!(null(&["tool", "arguments", "question", "pending"]), "{outcome}");
            }
        }
    }
}

#[test]
fn route_prints_text_for_people_and_takes_every_flag() {
    let (code, out, err) = route(&[&format!("get_order {ORDER}")]);
    assert_eq!(code, 0, "{err}");
    for line in
        ["outcome      call\n", "tool         get_order\n", &format!("arguments    {{\"order_id\":\"{ORDER}\"}}")]
    {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(out.contains("order_id from utterance") && out.contains("degraded     lexical_only"), "{out}");
    assert!(!out.contains('\u{1b}'), "no colours where no terminal is");

    let history = RegistryFile::new(
        "turns.json",
        &json!([{"role": "user", "content": format!("取消订单 {ORDER}")},
                {"role": "tool", "content": json!({"tool": "preview_cancel_order", "ok": true,
                    "data": {"order_id": ORDER, "confirm_token": "ct_4f0c2a9be17d6358"}}).to_string()}])
        .to_string(),
    );
    let flags =
        ["--history", history.as_str(), "--domain", "orders", "--session-id", "s", "--max-calls", "2", "--no-cache"];
    let (code, out, err) = route(&[&flags[..], &["--tool", "cancel_order", "yes, go ahead"]].concat());
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("tool         cancel_order") && out.contains("needs confirmation"), "{out}");
    let (code, out, _) = route(&["--tag", "no such tag", "where is my parcel"]);
    assert_eq!(code, 0);
    assert!(out.contains("no_tool") && out.contains("nothing_eligible"), "{out}");
}

#[test]
fn what_cannot_be_used_is_named_with_file_line_and_remedy() {
    let check = |args: &[&str], expected: &[&str]| {
        let (code, out, err) = cli::run(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        for part in expected {
            assert!(err.contains(part), "{args:?}: `{part}` is not in {err}");
        }
    };
    let file = shop_file();
    // Encoders that are not there: what is missing, and both ways out.
    let lost = ["route", "--registry", &file, "--models", "does/not/exist", "where is my parcel"];
    check(&lost, &["does/not/exist", "manifest.toml", "models folder"]);
    let lost = ["route", "--registry", &file, "--onnxruntime", "does/not/exist.so", "where is my parcel"];
    check(&lost, &["does/not/exist.so", "make setup"]);

    let broken = RegistryFile::new("broken.yaml", "registry: x\ntools:\n  - name: a\n   bad: indent\n");
    check(&["route", "--registry", broken.as_str(), "x"], &["broken.yaml:4"]);
    let broken = RegistryFile::new("broken.json", "{\"tools\": [\n  {\"name\": }\n]}");
    check(&["route", "--registry", broken.as_str(), "x"], &["broken.json:2"]);
    let broken = RegistryFile::new("registry.txt", "tools");
    check(&["route", "--registry", broken.as_str(), "x"], &["registry.txt", ".yaml"]);

    let config = RegistryFile::new("bad.toml", "[cache]\ncapasity = 5\n\n[route]\ndeadline_ms = \"soon\"\n");
    check(&["config", "check", "--config", config.as_str()], &["bad.toml:2", "capacity", "bad.toml:5", "deadline_ms"]);
    check(&["config", "check", "--config", "does/not/exist.toml"], &["does/not/exist.toml"]);
    check(&["config", "check", "--set", "cache.min_confidence=2"], &["cache.min_confidence", "flag"]);
    check(&["route", "--set", "nonsense", "x"], &["KEY=VALUE"]);
    check(&["route", "--format", "xml", "x"], &["xml", "json"]);
    check(&["route"], &["UTTERANCE"]);
    check(&["no-such-command"], &["no-such-command"]);
    check(&["route", "--registry", &file, "--max-calls", "1000", "x"], &["max_calls"]);

    let queries = RegistryFile::new("queries.jsonl", "{\"query\": \"x\", \"gold\": [\"get_order\"]}\n{\"query\": 7}\n");
    let eval = ["eval", "--registry", &file, "--queries", queries.as_str()];
    check(&[&eval[..], &WORDS_ALONE[..]].concat(), &["queries.jsonl", "2"]);
    check(&["eval", "--registry", &file, "--queries", "does/not/exist.jsonl"], &["does/not/exist.jsonl"]);
    check(&["eval", "--queries", queries.as_str()], &["--registry"]);
    check(&["eval", "--registry", &file], &["--queries"]);
}

#[test]
fn the_configuration_is_printed_with_where_it_came_from() {
    let config = RegistryFile::new("point.toml", "[cache]\ncapacity = 5\n");
    let mut program = cli::pointsman();
    program.args([
        "config",
        "print",
        "--format",
        "json",
        "--config",
        config.as_str(),
        "--set",
        "route.max_in_flight=7",
    ]);
    program.env("POINTSMAN_LLM__MODEL", "m").env("POINTSMAN_LLM__API_KEY", "sk-secret");
    program.env("POINTSMAN_LLM__BASE_URL", "http://127.0.0.1:1/v1");
    let output = program.output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("sk-secret"), "{text}");
    let printed: Value = serde_json::from_str(&text).unwrap();
    let check = |section: &str, key: &str, value: Value, origin: &str| {
        let entry = &printed[section][key];
        assert_eq!(entry["value"], value, "{section}.{key}");
        assert!(entry["origin"].as_str().unwrap().contains(origin), "{entry}");
    };
    check("cache", "capacity", json!(5), "point.toml:2");
    check("route", "max_in_flight", json!(7), "flag");
    check("llm", "model", json!("m"), "POINTSMAN_LLM__MODEL");
    check("cache", "enabled", json!(true), "default");
    assert!(printed["llm"]["api_key"]["origin"].as_str().unwrap().contains("POINTSMAN_LLM__API_KEY"));

    let (code, out, err) = cli::run(&["config", "check", "--config", config.as_str()]);
    assert_eq!((code, out.as_str()), (0, "the configuration is usable\n"), "{err}");
    let (code, out, _) = cli::run(&["config", "print", "--config", config.as_str()]);
    assert_eq!(code, 0);
    assert!(out.contains("[cache]") && out.contains("capacity = 5"), "{out}");
}

#[test]
fn eval_prints_the_figures_by_name() {
    let rows = [
        json!({"query": format!("get_order {ORDER}"), "gold": ["get_order"], "args": {"order_id": ORDER}}),
        json!({"query": "where is my parcel", "gold": ["track_shipment"]}),
        json!({"query": "我有多少积分", "gold": ["get_account_overview"],
               "history": [{"role": "user", "content": "你好"}]}),
        json!({"query": "zzz qqq", "gold": []}),
        json!({"query": "催一下发货", "gold": ["urge_shipment"], "missing": ["order_id"]}),
    ];
    let queries = RegistryFile::new("queries.jsonl", &rows.map(|row| row.to_string()).join("\n"));
    let file = shop_file();
    let eval = |more: &[&str]| {
        let fixed = ["eval", "--registry", &file, "--queries", queries.as_str()];
        let (code, out, err) = cli::run(&[&fixed[..], &WORDS_ALONE[..], more].concat());
        assert_eq!(code, 0, "{err}");
        out
    };
    let figures: Value = serde_json::from_str(&eval(&["--stage", "prefilter", "--format", "json"])).unwrap();
    for name in ["queries", "tools", "recall", "recall_without_history", "mrr", "latency_ms"] {
        assert!(!figures[name].is_null(), "{name}: {figures}");
    }
    assert_eq!(figures["tools"], 26);
    for name in ["recall", "recall_without_history"] {
        assert_eq!(keys(&figures[name]), BTreeSet::from(["1", "3", "5", "8", "10"]));
    }
    assert_eq!(keys(&figures["latency_ms"]), BTreeSet::from(["p50", "p95", "p99"]));
    assert_eq!(figures["recall"]["10"], 1.0, "{figures}");
    assert!(figures.get("top1").is_none(), "{figures}");

    let figures: Value = serde_json::from_str(&eval(&["--stage", "route", "--format", "json", "--seed", "3"])).unwrap();
    assert_eq!(figures["queries"], 5);
    assert_eq!((&figures["no_tool"]["recall"], &figures["clarify"]["recall"]), (&json!(1.0), &json!(1.0)));
    assert!(figures["no_tool"]["precision"].is_number() && figures["clarify"]["precision"].is_number());
    assert!(figures["top1"].is_number());
    assert_eq!(figures["arguments_exact"], 1.0, "{figures}");

    let text = eval(&["--stage", "prefilter", "--limit", "2"]);
    assert!(text.contains("queries 2") && text.contains("recall 5") && text.contains("latency ms"), "{text}");
}

/// The encoders' folders with manifests of their own; the large files are shared.
fn models(into: &std::path::Path) {
    let shipped = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    for encoder in ["minilm-l6-en", "e5-small-zh-en"] {
        std::fs::create_dir(into.join(encoder)).unwrap();
        for entry in std::fs::read_dir(shipped.join(encoder)).unwrap() {
            let (from, to) = (entry.as_ref().unwrap().path(), into.join(encoder).join(entry.unwrap().file_name()));
            if from.extension().is_some_and(|end| end == "toml") || std::fs::hard_link(&from, &to).is_err() {
                std::fs::copy(&from, &to).unwrap();
            }
        }
    }
}

#[test]
fn calibrate_stores_each_model_with_its_encoder() {
    let dir = tempfile::tempdir().unwrap();
    models(dir.path());
    let (file, folder) = (shop_file(), dir.path().display().to_string());
    let queries = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/shop.dev.jsonl");
    let store = format!("store.path={folder}/vectors.db");
    let fixed = ["calibrate", "--registry", &file, "--queries", queries, "--models", &folder, "--set", &store];
    let run = |more: &[&str]| {
        let (code, out, err) = cli::run(&[&fixed[..], &["--limit", "40"], more].concat());
        assert_eq!(code, 0, "{err}");
        (out, err)
    };
    let manifest = dir.path().join("e5-small-zh-en/manifest.toml");
    let before = std::fs::read_to_string(&manifest).unwrap();
    let (shown, err) = run(&[]);
    assert!(err.contains("nothing was written") && !dir.path().join("words.toml").exists(), "{err}");
    assert_eq!(std::fs::read_to_string(&manifest).unwrap(), before);
    for part in [
        "e5-small-zh-en: ",
        "minilm-l6-en: ",
        "words alone: ",
        "expected calibration error",
        "chosen",
        "no_tool_below = ",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }

    let (_, err) = run(&["--write"]);
    assert!(err.contains("e5-small-zh-en/manifest.toml") && err.contains("words.toml"), "{err}");
    let written = std::fs::read_to_string(&manifest).unwrap();
    let table = written.split("[confidence]\n").nth(1).unwrap().split("\n\n[").next().unwrap();
    assert!(shown.contains(table.trim()), "{table}\n{shown}");
    assert!(written.starts_with(before.split("[confidence]").next().unwrap()), "the rest of the manifest stays");
    // What was written is served, and the same rows give the same bytes again.
    let (code, out, err) = cli::run(&["route", "--registry", &file, "--models", &folder, "催一下发货"]);
    assert_eq!(code, 0, "{out}{err}");
    run(&["--write"]);
    assert_eq!(std::fs::read_to_string(&manifest).unwrap(), written);

    std::fs::write(&manifest, written.replace("\nmargin = ", "\nmargn = ")).unwrap();
    let (code, _, err) = cli::run(&["route", "--registry", &file, "--models", &folder, "催一下发货"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("e5-small-zh-en") && err.contains("`margn` is no feature"), "{err}");
}
