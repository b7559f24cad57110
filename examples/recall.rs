//! How many of the ten nearest rows the graph finds, on the cards of labelled sets and variations of them.
//!
//! `make recall SETS=folder` builds and runs it. Each folder in `SETS` holds `tools.jsonl` or `registry.yaml`, and may
//! hold `queries.dev.jsonl`. The cards are embedded first, which takes long; vectors are kept under `target/`, or in
//! the store that `POINTSMAN_STORE__PATH` names.

// A sample program: what it needs from its surroundings is read where it is used.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use comfy_table::{Table, presets};
use pointsman::catalog::CatalogBuilder;
use pointsman::config::{Loaded, Sources};
use pointsman::embed::Encoders;
use pointsman::index::{DenseIndex, Mode, Settings};
use pointsman::store::Store;
use pointsman::types::{Deadline, Vector};
use pointsman::{pipeline, registry, text};

/// Most utterances of one set.
const UTTERANCES: usize = 60;
/// Queries that are variations of cards.
const NEAR_CARDS: usize = 300;
/// What is asked for: the figure itself, and what ranking asks for.
const ASKED: [usize; 2] = [10, 256];

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: recall SETS [ROWS]";
    let sets = PathBuf::from(arguments.next().context(usage)?);
    let rows = arguments.next().map_or(Ok(50_000), |rows| rows.parse()).context(usage)?;
    let settings = settings()?;
    let store = match &settings.store {
        Some(path) => Store::open(path)?,
        None => Store::in_memory()?,
    };
    let encoders = Arc::new(Encoders::load(&settings.embed, Arc::new(store))?);
    let mut collected = collect(&sets, &encoders).await?;
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "encoder",
        "rows, real",
        "rows",
        "queries",
        "asked for",
        "recall@10",
        "worst",
        "graph ms",
        "scan ms",
    ]);
    for (encoder, vectors) in &mut collected {
        measure(encoder, vectors, rows, &mut table)?;
    }
    println!("{table}");
    Ok(())
}

fn settings() -> Result<pipeline::Settings> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut flags = vec![("embed.models_dir".to_owned(), root.join("models").display().to_string())];
    let runtime = std::fs::read_dir(root.join(".runtime/onnxruntime"));
    if let Some(library) = runtime.into_iter().flatten().flatten().next() {
        flags.push(("embed.onnxruntime".to_owned(), library.path().display().to_string()));
    }
    let env: BTreeMap<String, String> = std::env::vars().filter(|(name, _)| name.starts_with("POINTSMAN_")).collect();
    if !env.contains_key("POINTSMAN_STORE__PATH") {
        flags.push(("store.path".to_owned(), root.join("target/recall-vectors.db").display().to_string()));
    }
    let loaded = Loaded::load(&Sources { file: None, env, flags }).map_err(|problems| anyhow::anyhow!("{problems}"))?;
    Ok(loaded.settings.pipeline)
}

#[derive(Default)]
struct Vectors {
    rows: Vec<Vector>,
    utterances: Vec<Vector>,
}

/// The rows a catalog of each set has, and some of its utterances, by encoder.
async fn collect(sets: &Path, encoders: &Arc<Encoders>) -> Result<BTreeMap<String, Vectors>> {
    let mut collected: BTreeMap<String, Vectors> = BTreeMap::new();
    let builder =
        CatalogBuilder::new(Arc::clone(encoders), Settings { mode: Mode::Exact, exact_up_to: 0, recall_sample: 0.0 });
    let mut folders: Vec<PathBuf> = std::fs::read_dir(sets)?.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    for folder in folders {
        let files = ["tools.jsonl", "registry.yaml"].map(|name| folder.join(name));
        let Some(cards) = files.into_iter().find(|file| file.is_file()) else { continue };
        eprintln!("{}", cards.display());
        let (catalog, _) = builder.build(registry::load(&[cards], &[])?, 1, &|_, _| {}).await?;
        for (encoder, dense) in &catalog.dense {
            let rows = (0..dense.index.len()).map(|row| dense.index.row(row).clone());
            collected.entry(encoder.clone()).or_default().rows.extend(rows);
        }
        let Ok(lines) = std::fs::read_to_string(folder.join("queries.dev.jsonl")) else { continue };
        let lines: Vec<&str> = lines.lines().collect();
        for line in lines.iter().step_by(lines.len().div_ceil(UTTERANCES).max(1)) {
            let row: serde_json::Value = serde_json::from_str(line)?;
            let Ok(query) = text::normalise(row["query"].as_str().unwrap_or_default()) else { continue };
            let encoder = encoders.for_language(query.language).context("no encoder is set")?;
            let deadline = Deadline::after(Duration::from_secs(60));
            let vector = encoder.embed_query(&query.retrieval_text(), deadline).await?.vector;
            collected.entry(encoder.name().to_owned()).or_default().utterances.push(vector);
        }
    }
    Ok(collected)
}

fn measure(encoder: &str, vectors: &mut Vectors, count: usize, table: &mut Table) -> Result<()> {
    let mut numbers = Numbers(11);
    let real = vectors.rows.len().min(count);
    let mut rows = std::mem::take(&mut vectors.rows);
    rows.truncate(count);
    while rows.len() < count {
        let variation = numbers.variation(&rows[..real], rows.len() % real);
        rows.push(variation);
    }
    let near: Vec<Vector> = (0..NEAR_CARDS)
        .map(|_| {
            let row = numbers.below(count);
            numbers.variation(&rows, row)
        })
        .collect();
    let index = |mode| Settings { mode, exact_up_to: 0, recall_sample: 0.0 };
    let exact = DenseIndex::build(rows.clone(), &index(Mode::Exact))?;
    let since = Instant::now();
    let graph = DenseIndex::build(rows, &index(Mode::Hnsw))?;
    eprintln!("{encoder}: a graph of {count} rows in {:.0} s", since.elapsed().as_secs_f64());
    for (kind, queries) in [("utterances", &vectors.utterances), ("near a card", &near)] {
        for asked in ASKED {
            let (mut found, mut worst, mut times) = (0, 10, [Duration::ZERO; 2]);
            for query in queries {
                let [expect, got] = [&exact, &graph].map(|index| {
                    let since = Instant::now();
                    (index.search(query, asked, &|_| true), since.elapsed())
                });
                times = [times[0] + expect.1, times[1] + got.1];
                let (expect, got) = (expect.0?, got.0?);
                let hits = expect.iter().take(10).filter(|hit| got.contains(hit)).count();
                found += hits;
                worst = worst.min(hits);
            }
            let [scan, walk] = times.map(|time| format!("{:.1}", time.as_secs_f64() * 1e3 / queries.len() as f64));
            let recall = format!("{:.4}", found as f64 / (10 * queries.len()) as f64);
            table.add_row([
                encoder.to_owned(),
                real.to_string(),
                count.to_string(),
                format!("{} {kind}", queries.len()),
                asked.to_string(),
                recall,
                format!("{worst}/10"),
                walk,
                scan,
            ]);
        }
    }
    Ok(())
}

/// SplitMix64.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// In `[0, 1)`.
    fn part(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u32 << 24) as f32
    }

    /// Another tool like the one in `row`: some of another card's direction, and noise a fifth as long as the vector.
    fn variation(&mut self, rows: &[Vector], row: usize) -> Vector {
        let (own, other) = (rows[row].as_slice(), rows[self.below(rows.len())].as_slice());
        let share = 0.1 + 0.3 * self.part();
        // Of uniform numbers in [-1, 1), three times the square of the standard deviation is 1.
        let noise = 0.2 * (3.0 / own.len() as f32).sqrt();
        let mixed = own
            .iter()
            .zip(other)
            .map(|(own, other)| (1.0 - share) * own + share * other + noise * (2.0 * self.part() - 1.0));
        Vector::normalised(mixed.collect()).expect("two directions and noise do not cancel out")
    }
}
