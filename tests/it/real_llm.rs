//! A real model behind the real router: what holds for every answer, and how often the choice is right.
//!
//! Ignored by default. `make test-llm` starts a small model where one can be had, or takes the endpoint named by
//! `POINTSMAN_TEST_LLM_URL` and `POINTSMAN_TEST_LLM_MODEL`; `POINTSMAN_TEST_LLM_MODE` picks the answer mode, by default the
//! one for small models, and `POINTSMAN_TEST_LLM_CARD_TOKENS` how far cards are shortened.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use pointsman::args::{Origin, validate};
use pointsman::catalog::Tool;
use pointsman::decision::{DecidedBy, Decision, Outcome};
use pointsman::pipeline::RouteRequest;
use pointsman::registry;
use pointsman::text::normalise;
use pointsman::types::{Caller, Deadline, ToolId};
use serde_json::{Map, Value};

use crate::support::shop::{Row, Shop, rows};

/// A model on one processor reads some tens of tokens a second.
const DEADLINE: Duration = Duration::from_secs(300);
/// What the small model of `make test-llm` reaches with a margin; docs/LLM.md has the figures.
const FLOOR: usize = 14;

struct Endpoint {
    url: String,
    model: String,
    mode: String,
    card_tokens: String,
}

impl Endpoint {
    fn from_environment() -> Option<Self> {
        let var = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        Some(Self {
            url: var("POINTSMAN_TEST_LLM_URL")?,
            model: var("POINTSMAN_TEST_LLM_MODEL").unwrap_or_else(|| "qwen".into()),
            mode: var("POINTSMAN_TEST_LLM_MODE").unwrap_or_else(|| "choose_then_fill".into()),
            // The small model reads 4,096 tokens at most.
            card_tokens: var("POINTSMAN_TEST_LLM_CARD_TOKENS").unwrap_or_else(|| "1500".into()),
        })
    }

    async fn shop(&self) -> Shop {
        let patience = DEADLINE.as_millis().to_string();
        let flags = [
            ("llm.base_url", self.url.as_str()),
            ("llm.model", &self.model),
            ("llm.mode", &self.mode),
            ("llm.logprobs", "true"),
            ("llm.card_tokens", &self.card_tokens),
            ("llm.timeout_ms", &patience),
            ("llm.max_completion_tokens", "200"),
            ("llm.concurrency", "1"),
            ("route.deadline_ms", &patience),
        ];
        Shop::start(&flags).await
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a model: make test-llm"]
async fn a_real_model_routes_within_the_rules() {
    let Some(endpoint) = Endpoint::from_environment() else {
        println!("skipped: POINTSMAN_TEST_LLM_URL names no endpoint; `make test-llm` starts one where it can");
        return;
    };
    let shop = endpoint.shop().await;
    let tools = tools();
    let rows = rows(include_str!("../data/real_llm.jsonl"));
    println!("{} in mode {}, {} utterances", endpoint.model, endpoint.mode, rows.len());
    println!(
        "{:13} {:9} {:5} {:>7} {:>5} {:>6} {:>6} {:>6}  answer",
        "row", "kind", "lang", "place", "right", "prompt", "answer", "s"
    );
    let mut tally = Tally::default();
    for row in &rows {
        let request = RouteRequest { history: row.history.clone(), no_cache: true, ..request(row) };
        let started = Instant::now();
        let decision = shop.router.route(request, &Caller::local(), Deadline::after(DEADLINE)).await.unwrap();
        let took = started.elapsed();
        assert!(took <= DEADLINE + Duration::from_secs(1), "{}: {took:?}", row.id);
        check(row, &decision, &tools);
        tally.add(row, &decision, took);
    }
    tally.print();
    assert_eq!(tally.asked, rows.len(), "the model was asked about every row");
    assert!(tally.right >= FLOOR, "{} of {} right, expected at least {FLOOR}", tally.right, rows.len());
}

fn request(row: &Row) -> RouteRequest {
    RouteRequest { utterance: row.utterance.clone(), ..RouteRequest::default() }
}

fn tools() -> BTreeMap<ToolId, Tool> {
    let registry = registry::load(&[crate::support::shop()], &[]).unwrap();
    registry.cards.into_values().map(|card| Tool::new(card).unwrap()).map(|tool| (tool.id().clone(), tool)).collect()
}

/// What holds whatever a model says.
#[track_caller]
fn check(row: &Row, decision: &Decision, tools: &BTreeMap<ToolId, Tool>) {
    let id = &row.id;
    let shown: BTreeSet<&ToolId> = decision.trace.shown.iter().collect();
    let confidence = decision.confidence.get();
    assert!((0.0..=1.0).contains(&confidence), "{id}: {confidence}");
    if decision.decided_by == DecidedBy::Llm {
        assert!(decision.trace.llm_calls >= 1 && decision.tokens.prompt > 0, "{id}: {:?}", decision.tokens);
        assert!(!decision.trace.model.is_empty() && decision.trace.prompt_hash.len() == 16, "{id}");
    }
    match &decision.outcome {
        Outcome::Call { calls } => {
            assert_eq!(calls.len(), 1, "{id}: one call was allowed");
            for call in calls {
                assert!(shown.contains(&call.tool), "{id}: {} was not offered", call.tool);
                let arguments = Value::Object(call.arguments.clone());
                let checked = validate(&tools[&call.tool].schema, &arguments).unwrap();
                assert_eq!(checked.args.as_map(), &call.arguments, "{id}: valid as they are");
                ids_are_grounded(row, &call.arguments, &call.origins, &tools[&call.tool]);
            }
        }
        Outcome::Clarify(clarify) => {
            assert!(clarify.tool.as_ref().is_none_or(|tool| shown.contains(tool)), "{id}: {clarify:?}");
            let length = clarify.question.chars().count();
            assert!((1..=600).contains(&length), "{id}: {}", clarify.question);
        }
        Outcome::NoTool { .. } | Outcome::Handoff { .. } => {}
    }
}

/// A value of a form that nobody makes up stands in the conversation.
#[track_caller]
fn ids_are_grounded(row: &Row, arguments: &Map<String, Value>, origins: &BTreeMap<String, Origin>, tool: &Tool) {
    let mut said = normalise(&row.utterance).unwrap().text.clone();
    row.history.iter().for_each(|turn| said += &turn.content);
    for (name, value) in arguments {
        let is_id = tool.schema.property(name).is_some_and(|property| property.schema.get("pattern").is_some());
        let (Some(text), true) = (value.as_str(), is_id) else { continue };
        assert!(said.contains(text), "{}: {name} = {text} was never said", row.id);
        assert_ne!(origins.get(name), Some(&Origin::Inferred), "{}: {name} = {text}", row.id);
    }
}

#[derive(Default)]
struct Tally {
    rows: usize,
    asked: usize,
    shown: usize,
    right: usize,
    prompt: u64,
    answer: u64,
    calls: u32,
    repairs: usize,
    took: Vec<Duration>,
    /// Place of the right tool in the prompt, from 1; 0 where it is not there. Right ones, rows.
    places: BTreeMap<usize, (usize, usize)>,
    groups: BTreeMap<String, (usize, usize)>,
}

impl Tally {
    fn add(&mut self, row: &Row, decision: &Decision, took: Duration) {
        let text = |key: &str| row.label[key].as_str().unwrap_or_default().to_owned();
        let gold: Vec<&str> = row.label["gold"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let place = decision.trace.shown.iter().position(|tool| gold.contains(&tool.as_str())).map_or(0, |at| at + 1);
        let right = decision.outcome.tool().is_some_and(|tool| gold.contains(&tool.as_str()));
        let count = |cell: &mut (usize, usize)| {
            cell.0 += usize::from(right);
            cell.1 += 1;
        };
        count(self.places.entry(place).or_default());
        count(self.groups.entry(format!("kind {}", text("kind"))).or_default());
        count(self.groups.entry(format!("lang {}", text("lang"))).or_default());
        self.rows += 1;
        self.asked += usize::from(matches!(decision.decided_by, DecidedBy::Llm | DecidedBy::Fallback));
        self.shown += usize::from(place > 0);
        self.right += usize::from(right);
        self.prompt += u64::from(decision.tokens.prompt);
        self.answer += u64::from(decision.tokens.completion);
        self.calls += decision.trace.llm_calls;
        self.repairs += decision.trace.repairs.len();
        self.took.push(took);
        let outcome = &decision.outcome;
        println!(
            "{:13} {:9} {:5} {:>7} {:>5} {:>6} {:>6} {:>6.1}  {} {} ({}; {:.2}{})",
            row.id,
            text("kind"),
            text("lang"),
            format!("{place}/{}", decision.trace.shown.len()),
            if right { "yes" } else { "no" },
            decision.tokens.prompt,
            decision.tokens.completion,
            took.as_secs_f64(),
            outcome.kind(),
            outcome.tool().map_or("-", ToolId::as_str),
            gold.join(" or "),
            decision.confidence.get(),
            decision.degraded.iter().map(|mode| format!("; {}", mode.as_str())).collect::<String>(),
        );
    }

    fn print(&mut self) {
        let share = |(right, of): (usize, usize)| format!("{right} of {of}");
        println!(
            "\nright tool: {}; it was shown in {}",
            share((self.right, self.rows)),
            share((self.shown, self.rows))
        );
        for (group, cell) in &self.groups {
            println!("  {group:15} {}", share(*cell));
        }
        println!("by the place of the right tool in the prompt (0: not shown):");
        for (place, cell) in &self.places {
            println!("  {place:<3} {}", share(*cell));
        }
        self.took.sort_unstable();
        let rows = self.rows.max(1) as u64;
        println!(
            "tokens a decision: prompt {}, answer {}; requests {}, repairs {}; median {:.1} s",
            self.prompt / rows,
            self.answer / rows,
            self.calls,
            self.repairs,
            self.took.get(self.took.len() / 2).map_or(0.0, Duration::as_secs_f64),
        );
    }
}
