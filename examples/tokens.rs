//! How many tokens a prompt takes: all cards as they were written, all cards compressed, a shortlist of eight.
//!
//! `cargo run --example tokens -- [REGISTRY] [--tokenizer URL]`. Without a registry it takes the shop's; larger catalogs
//! are its cards again under changed names. Counts are estimates, or a model's own with the `/tokenize` address of a
//! llama.cpp server, such as `http://127.0.0.1:8080/tokenize`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use comfy_table::{Table, presets};
use pointsman::catalog::Tool;
use pointsman::config::{Loaded, Sources};
use pointsman::decide::Request;
use pointsman::decide::confidence::Model;
use pointsman::decide::llm::{AnswerMode, Settings, prompt_text};
use pointsman::text::estimate_tokens;
use pointsman::tool::{Boundary, ToolCard};
use pointsman::types::{Candidate, Evidence, Score, ToolId};
use pointsman::{registry, text};
use serde_json::{Map, Value, json};

const CATALOGS: [usize; 2] = [200, 1_000];
const SHORTLIST: usize = 8;
const UTTERANCE: &str = "refund order SO-20260418000736 please";

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
    let mut path = format!("{}/examples/shop/registry.yaml", env!("CARGO_MANIFEST_DIR"));
    let mut tokenizer = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--tokenizer" => tokenizer = Some(arguments.next().context("--tokenizer needs an address")?),
            _ => path = argument,
        }
    }
    let cards = cards(Path::new(&path))?;
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "cards",
        "mode",
        "all in full",
        "all compressed",
        "shortlist of 8",
        "saving",
        "estimate / count",
    ]);
    for count in std::iter::once(cards.len()).chain(CATALOGS) {
        let tools = catalog(&cards, count)?;
        let all: Vec<&Tool> = tools.iter().collect();
        let full = full_text(&all);
        for (name, mode) in [
            ("functions", AnswerMode::Functions),
            ("json_schema", AnswerMode::JsonSchema),
            ("choose_then_fill", AnswerMode::ChooseThenFill),
        ] {
            let texts = [full.clone(), prompt(&all, mode)?, prompt(&all[..SHORTLIST.min(all.len())], mode)?];
            let mut counts = Vec::new();
            for text in &texts {
                counts.push(match &tokenizer {
                    Some(url) => tokenize(url, text).await?,
                    None => estimate_tokens(text),
                });
            }
            let saving = 100.0 * (1.0 - counts[2] as f64 / counts[0] as f64);
            let ratio = estimate_tokens(&texts[2]) as f64 / counts[2] as f64;
            let mut row = vec![count.to_string(), name.to_owned()];
            row.extend(counts.iter().map(usize::to_string));
            row.extend([format!("{saving:.1} %"), format!("{ratio:.2}")]);
            table.add_row(row);
        }
    }
    println!("{table}");
    Ok(())
}

fn cards(path: &Path) -> Result<Vec<ToolCard>> {
    let registry = registry::load(&[path.to_owned()], &[])?;
    anyhow::ensure!(!registry.cards.is_empty(), "{} holds no usable card", path.display());
    Ok(registry.cards.values().map(|card| ToolCard::clone(card)).collect())
}

/// `count` tools: the cards, then the same again under other names, borders included.
fn catalog(cards: &[ToolCard], count: usize) -> Result<Vec<Tool>> {
    let mut tools = Vec::new();
    for number in 0..count {
        let (card, round) = (&cards[number % cards.len()], number / cards.len());
        let mut card = card.clone();
        if round > 0 {
            let renamed = |name: &str| format!("{name}_{round}");
            card.id = ToolId::new(renamed(card.id.as_str()));
            card.name = renamed(&card.name);
            for border in &mut card.description.when_not_to_use {
                border.use_tool = border.use_tool.as_deref().map(renamed);
            }
        }
        tools.push(Tool::new(Arc::new(card))?);
    }
    tools.sort_by(|a, b| a.id().cmp(b.id()));
    Ok(tools)
}

/// What is sent without a router: the rules are the same, every card is a function with everything its author wrote.
fn full_text(tools: &[&Tool]) -> String {
    let function = |tool: &&Tool| {
        let card = &tool.card;
        let parts = &card.description;
        let border = |border: &Boundary| format!("{} -> {}", border.case, border.use_tool.as_deref().unwrap_or("-"));
        let mut text = vec![parts.what.clone()];
        text.extend(parts.when_to_use.iter().cloned());
        text.extend(parts.when_not_to_use.iter().map(border));
        text.extend(parts.returns.iter().chain(&card.examples).cloned());
        let function = json!({"name": tool.alias, "description": text.join("\n"), "parameters": card.parameters});
        json!({"type": "function", "function": function}).to_string()
    };
    let rules = prompt(&tools[..1], AnswerMode::Functions).unwrap_or_default();
    let rules: String = rules.lines().filter(|line| !line.starts_with("{\"function\"")).collect::<Vec<_>>().join("\n");
    std::iter::once(rules).chain(tools.iter().map(function)).collect::<Vec<_>>().join("\n")
}

fn prompt(tools: &[&Tool], mode: AnswerMode) -> Result<String> {
    let query = text::normalise(UTTERANCE)?;
    let candidate =
        |tool: &&Tool| Candidate { tool: tool.id().clone(), score: Score::new(0.0), signals: BTreeMap::new() };
    let candidates: Vec<Candidate> = tools.iter().map(candidate).collect();
    let request = Request {
        query: &query,
        tenant: "",
        history: &[],
        session: &Map::<String, Value>::new(),
        tools,
        candidates: &candidates,
        evidence: &Evidence::default(),
        model: Model::WORDS,
        max_calls: 1,
    };
    let settings = settings(mode, tools.len())?;
    Ok(prompt_text(&request, &settings.endpoints[0], &settings))
}

/// Room for all `tools`, and nothing shortened.
fn settings(mode: AnswerMode, tools: usize) -> Result<Settings> {
    let max_tools = (tools + 2).to_string();
    let flags = [("llm.base_url", "http://127.0.0.1/v1"), ("llm.model", "none"), ("llm.card_tokens", "0")];
    let flags = flags.into_iter().chain([("llm.max_tools", max_tools.as_str())]);
    let flags = flags.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let loaded = Loaded::load(&Sources { flags, ..Sources::default() })?;
    let mut settings = loaded.settings.pipeline.llm.context("a base URL is set")?;
    settings.endpoints[0].mode = mode;
    Ok(settings)
}

/// The model's own count.
async fn tokenize(url: &str, text: &str) -> Result<usize> {
    let request = reqwest::Client::builder().no_proxy().build()?.post(url);
    let body = json!({"content": text}).to_string();
    let response = request.header("content-type", "application/json").body(body).send().await?.error_for_status()?;
    let answer: Value = serde_json::from_slice(&response.bytes().await?)?;
    Ok(answer["tokens"].as_array().context("the answer holds no tokens")?.len())
}
