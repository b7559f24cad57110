//! What the LLM stage adds to a request of its own: `Llm::decide` among eight tools beside a bare POST of the very same
//! body to the same server, which answers at once and keeps its connections.

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use pointsman::catalog::Tool;
use pointsman::config::{Loaded, Sources};
use pointsman::decide::llm::{Llm, Settings};
use pointsman::decide::{Request, Verdict, confidence::Model};
use pointsman::registry;
use pointsman::text::{Query, normalise};
use pointsman::types::{Candidate, Evidence, Score};
use serde_json::{Map, json};
use support::{SHOP, UTTERANCE, deadline, runtime};

const TOOLS: usize = 8;
/// Needs no argument.
const RIGHT: &str = "get_account_overview";

/// The server with the last body it was sent.
struct Server {
    url: String,
    last: Arc<Mutex<Vec<u8>>>,
}

async fn server() -> Server {
    let answer = json!({
        "id": "1", "object": "chat.completion", "created": 0, "model": "scripted",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": null,
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": RIGHT, "arguments": "{}"}}]}}],
        "usage": {"prompt_tokens": 1500, "completion_tokens": 20},
    })
    .to_string();
    let last = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&last);
    let app = axum::Router::new().fallback(move |body: axum::body::Bytes| {
        *kept.lock().expect("nothing panics while it is held") = body.to_vec();
        std::future::ready(([("content-type", "application/json")], answer.clone()))
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
    let url = format!("http://{}/v1", listener.local_addr().expect("a bound port has an address"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Server { url, last }
}

fn settings(url: &str) -> Settings {
    let flags = [("llm.base_url", url), ("llm.model", "scripted")];
    let flags = flags.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let loaded = Loaded::load(&Sources { flags, ..Sources::default() }).expect("bench settings are valid");
    loaded.settings.pipeline.llm.expect("a base URL is set")
}

/// The right tool and the first others, in id order.
fn tools() -> Vec<Tool> {
    let cards = registry::load(&[SHOP.into()], &[]).expect("the sample registry loads").cards;
    let (right, others): (Vec<_>, Vec<_>) = cards.into_iter().partition(|(id, _)| id.as_str() == RIGHT);
    let mut cards: Vec<_> = right.into_iter().chain(others.into_iter().take(TOOLS - 1)).collect();
    cards.sort_by(|(a, _), (b, _)| a.cmp(b));
    cards.into_iter().map(|(_, card)| Tool::new(card).expect("the sample cards are valid")).collect()
}

fn ranked(tools: &[Tool]) -> Vec<Candidate> {
    let candidate = |(rank, tool): (usize, &Tool)| Candidate {
        tool: tool.id().clone(),
        score: Score::new(2.0 - rank as f32),
        signals: BTreeMap::new(),
    };
    tools.iter().enumerate().map(candidate).collect()
}

fn llm(criterion: &mut Criterion) {
    let runtime = runtime();
    let server = runtime.block_on(server());
    let llm = Llm::new(settings(&server.url)).expect("bench settings are valid");
    let tools = tools();
    let shown: Vec<&Tool> = tools.iter().collect();
    let candidates = ranked(&tools);
    let query: Query = normalise(UTTERANCE).expect("the utterance is short");
    let (evidence, session) = (Evidence::default(), Map::new());
    let request = Request {
        tenant: "bench",
        query: &query,
        history: &[],
        session: &session,
        tools: &shown,
        candidates: &candidates,
        evidence: &evidence,
        model: Model::WORDS,
        max_calls: 1,
    };
    let answer = runtime.block_on(llm.decide(&request, deadline())).expect("the server answers");
    assert!(matches!(&answer.verdict, Verdict::Call(calls) if calls[0].tool.as_str() == RIGHT), "{:?}", answer.verdict);
    let body = server.last.lock().expect("nothing panics while it is held").clone();
    let address = format!("{}/chat/completions", server.url);
    let client = reqwest::Client::builder().no_proxy().build().expect("a client can be built");

    let mut group = criterion.benchmark_group("llm");
    group.bench_function("bare POST", |bench| {
        bench.to_async(&runtime).iter_batched(
            || body.clone(),
            |body| {
                let request = client.post(&address).header("content-type", "application/json").body(body);
                async move { request.send().await.expect("the server answers").bytes().await.expect("in full").len() }
            },
            BatchSize::SmallInput,
        );
    });
    group.bench_function("decide", |bench| {
        bench.to_async(&runtime).iter(|| llm.decide(&request, deadline()));
    });
    group.finish();
}

criterion_group!(benches, llm);
criterion_main!(benches);
