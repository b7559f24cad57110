//! How the catalog bears size: one table, each line measured in a process of its own.
//!
//! `cargo bench --bench scale` runs every part, `cargo bench --bench scale -- ready change` those named. Five hundred
//! cards are embedded; the vectors of all others vary theirs, so that a store for 50,000 cards takes seconds to make.

mod support;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use comfy_table::Table;
use pointsman::pipeline::Router;
use pointsman::types::IndexKind;
use serde_json::{Value, json};
use support::varied::{self, card, start};
use support::{caller, deadline, request, runtime};

const PARTS: &[&str] = &["ready", "change", "graph", "memory", "reindex"];
const THOUSAND: usize = 1_000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if let [part, of] = words.as_slice()
        && part == "measure"
    {
        return measure(of);
    }
    varied::prepare(50 * THOUSAND);
    let mut table = Table::new();
    table.set_header(["what", "measured"]);
    let this = std::env::current_exe().expect("the bench knows its own file");
    for part in PARTS.iter().filter(|part| words.is_empty() || words.iter().any(|word| word == *part)) {
        let output = Command::new(&this).args(["measure", part]).output().expect("the bench can run itself");
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{part} failed");
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            eprintln!("{line}");
            let (what, measured) = line.split_once(": ").unwrap_or((line, ""));
            table.add_row([what, measured]);
        }
    }
    println!("{table}");
}

fn measure(part: &str) {
    let runtime = runtime();
    match part {
        "ready" => runtime.block_on(ready()),
        "change" => runtime.block_on(change()),
        "graph" => runtime.block_on(graph()),
        "memory" => runtime.block_on(memory()),
        "reindex" => runtime.block_on(reindex()),
        other => panic!("there is no part `{other}`"),
    }
}

async fn ready() {
    let begun = Instant::now();
    let _router = start(10 * THOUSAND, &[]).await;
    println!("10,000 cards from the embedding store, program start to ready: {:.2} s", begun.elapsed().as_secs_f64());
}

async fn change() {
    let router = start(10 * THOUSAND, &[("index.mode", "exact")]).await;
    report_changes(&router, "exact").await;
}

async fn graph() {
    let begun = Instant::now();
    let router = start(10 * THOUSAND, &[("index.exact_up_to", "5000")]).await;
    until_graph(&router).await;
    println!("10,000 cards, graphs of both encoders built in the background: {:.0} s", begun.elapsed().as_secs_f64());
    report_changes(&router, "graph with an exact remainder").await;
}

/// Puts one card again and again; what changes is no text, so that nothing is embedded, then a text.
async fn report_changes(router: &Arc<Router>, index: &str) {
    for (kind, is_text) in [("without its embedding", false), ("with it", true)] {
        let mut took = Vec::new();
        for round in 0..21u64 {
            let mut card = card(17, 7 * round);
            card["timeout_ms"] = json!(1_000 + round);
            if is_text {
                let stamp = std::process::id();
                card["description"]["what"] = json!(format!("Report the state of valve {stamp} {round}"));
            }
            let begun = Instant::now();
            let change = router.put(vec![card]).await.expect("the card can be served");
            // The first one may bring a text of its own.
            if round > 0 {
                took.push(begun.elapsed());
            }
            assert_eq!(change.changed.len() + change.added.len(), 1);
            let seen = router.route(request("valve"), &caller(), deadline()).await.expect("an answer");
            assert_eq!(seen.catalog_version, change.catalog_version);
        }
        let (median, worst) = (quantile(&mut took, 0.5), quantile(&mut took, 1.0));
        println!(
            "1 of 10,000 cards changed, {index}, {kind}: median {} ms, worst {} ms",
            median.as_millis(),
            worst.as_millis()
        );
    }
}

async fn until_graph(router: &Arc<Router>) {
    while router.route(request("order"), &caller(), deadline()).await.expect("an answer").index != IndexKind::Hnsw {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn memory() {
    let few = start(varied::EMBEDDED, &[]).await;
    let before = resident();
    drop(few);
    let begun = Instant::now();
    let router = start(50 * THOUSAND, &[]).await;
    let cards = (50 * THOUSAND - varied::EMBEDDED) as f64;
    let per_card = |bytes: u64| bytes.saturating_sub(before) as f64 / cards / 1024.0;
    println!("50,000 cards, ready with the exact scan: {:.1} s", begun.elapsed().as_secs_f64());
    println!("50,000 cards, resident memory per card: {:.1} KiB", per_card(resident()));
    let begun = Instant::now();
    until_graph(&router).await;
    println!("50,000 cards, graphs of both encoders built in the background: {:.0} s", begun.elapsed().as_secs_f64());
    println!("50,000 cards, resident memory per card with graphs: {:.1} KiB", per_card(resident()));
}

/// Bytes this process has in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
}

const UTTERANCES: [&str; 6] = [
    "where is my parcel",
    "我的快递到哪了",
    "book a table for two tonight",
    "查一下北京明天的天气",
    "convert 100 dollars to euros",
    "播放一首轻音乐",
];

/// Answers for as long as `go_on` says, one after the other with pauses.
async fn answers(router: &Arc<Router>, go_on: impl Fn() -> bool) -> Vec<Duration> {
    let mut took = Vec::new();
    while go_on() {
        let begun = Instant::now();
        let utterance = UTTERANCES[took.len() % UTTERANCES.len()];
        router.route(request(utterance), &caller(), deadline()).await.expect("an answer");
        took.push(begun.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    took
}

async fn reindex() {
    const LASTS: Duration = Duration::from_secs(30);
    let router = start(10 * THOUSAND, &[("index.mode", "exact")]).await;
    let for_a_while = || {
        let begun = Instant::now();
        move || begun.elapsed() < LASTS
    };
    // What the first requests set up is no part of it.
    for utterance in UTTERANCES {
        router.route(request(utterance), &caller(), deadline()).await.expect("an answer");
    }
    let mut before = answers(&router, for_a_while()).await;
    // Every card with a text of its own that no store holds: more than can be embedded while this measures.
    let stamp = std::process::id();
    let others: Vec<Value> = (0..10 * THOUSAND)
        .map(|n| {
            let mut card = card(n, 0);
            let what = format!("{} {stamp}", card["description"]["what"].as_str().unwrap_or_default());
            card["description"]["what"] = json!(what);
            card
        })
        .collect();
    let running = {
        let router = Arc::clone(&router);
        tokio::spawn(async move { router.replace(others).await.map(|change| change.embedded_texts) })
    };
    let mut during = answers(&router, for_a_while()).await;
    assert!(!running.is_finished(), "the reindex ended while it was measured");
    running.abort();
    let mut p99 = Vec::new();
    for (name, took) in [("before", &mut before), ("during", &mut during)] {
        let (median, high) = (quantile(took, 0.5), quantile(took, 0.99));
        p99.push(high.as_secs_f64());
        println!(
            "Route {name} a full reindex of 10,000 cards ({} answers): median {:.1} ms, p99 {:.1} ms",
            took.len(),
            median.as_secs_f64() * 1e3,
            high.as_secs_f64() * 1e3
        );
    }
    println!("Route, p99 during over p99 before: {:.2}", p99[1] / p99[0]);
}

fn quantile(took: &mut [Duration], share: f64) -> Duration {
    took.sort_unstable();
    let at = ((took.len() as f64 * share).ceil() as usize).clamp(1, took.len());
    took[at - 1]
}
