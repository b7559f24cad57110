//! Many requests at once against an endpoint that fails in every way it can.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pointsman::decision::{DecidedBy, Decision, Degraded};
use pointsman::pipeline::{RouteError, RouteRequest, Router};
use pointsman::types::{Caller, Deadline};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::cache::until;
use crate::support::scripted_llm::{ScriptedLlm, Step, body, call, half_body, hang, raw, status, status_with, text};
use crate::support::server::llm_settings;
use crate::support::shop::uncached;

const ROUTES: usize = 2_000;
const IN_FLIGHT: usize = 64;
const PLACES: usize = 32;
const QUEUE: usize = 64;
const DEADLINE: Duration = Duration::from_secs(20);
/// How far beyond its deadline a request may end on a busy machine. Nothing is to hang, however slow it is.
const GRACE: Duration = Duration::from_secs(3);

/// What the endpoint is like at present.
const MIXED: usize = 0;
const BROKEN: usize = 1;
const WELL: usize = 2;
const SILENT: usize = 3;

fn step(phase: usize, number: usize, request: &Value) -> Step {
    match phase {
        MIXED if number % 10 < 3 => fault(number / 10 * 3 + number % 10),
        BROKEN => fault(number % 6),
        SILENT => hang(),
        _ => good(number, request),
    }
}

/// Every kind in turn. The first six count against the endpoint and cost no time.
fn fault(number: usize) -> Step {
    match number % 10 {
        0 => status(500),
        1 => status_with(429, &[("retry-after-ms", "20")], "slow down"),
        2 => half_body(),
        3 => raw("<html>502 Bad Gateway</html>"),
        4 => body(json!({"error": {"message": "overloaded", "code": 529}})),
        5 => status(503),
        6 => hang(),
        7 => text("我来看一下。"),
        8 => call("python", json!({"code": "1"})),
        _ => raw(""),
    }
}

/// Answers of several kinds, each among what is offered.
fn good(number: usize, request: &Value) -> Step {
    let offered = |name: &str| {
        let tools = request["tools"].as_array().into_iter().flatten();
        tools.into_iter().any(|tool| tool["function"]["name"] == name)
    };
    match number % 3 {
        0 if offered("track_shipment") => call("track_shipment", json!({"order_id": "SO-20260418000736"})),
        1 if offered("get_account_overview") => call("get_account_overview", json!({})),
        _ => call("no_tool", json!({"reason": "small talk"})),
    }
}

fn utterance(number: usize) -> RouteRequest {
    let id = 20_260_418_000_000_u64 + number as u64;
    uncached(&match number % 4 {
        0 => format!("where is SO-{id}"),
        1 => format!("SO-{id} 到哪了"),
        2 => format!("我有多少积分 {number}"),
        _ => format!("tell me a joke, number {number}"),
    })
}

struct Soak {
    llm: ScriptedLlm,
    phase: Arc<AtomicUsize>,
    router: Arc<Router>,
}

impl Soak {
    async fn start(hedge: bool) -> Self {
        let phase = Arc::new(AtomicUsize::new(WELL));
        let now = Arc::clone(&phase);
        let script = move |number: usize, request: &Value| step(now.load(Ordering::SeqCst), number, request);
        let llm = ScriptedLlm::start_with(script).await;
        let (places, queue) = (PLACES.to_string(), QUEUE.to_string());
        let flags = [
            ("prefilter.signals", "lexical"),
            ("llm.concurrency", places.as_str()),
            ("llm.queue", queue.as_str()),
            ("llm.timeout_ms", "5000"),
            ("llm.hedge", if hedge { "true" } else { "false" }),
            // With a third of faults six in a row come by chance, and how much is decided locally then is the machine's
            // speed.
            ("llm.breaker_failures", "20"),
            ("llm.breaker_window_ms", "1000"),
            ("llm.max_tokens", "100000"),
        ];
        let settings = llm_settings(llm.url(), &flags).pipeline;
        // The local decider's first run compiles its patterns, which in a build for tests holds up everything else.
        let without_llm = pointsman::pipeline::Settings { llm: None, ..settings.clone() };
        let local = Router::start(without_llm, &|_, _| {}).await.unwrap();
        for number in 0..4 {
            let decided = local.route(utterance(number), &Caller::local(), Deadline::after(DEADLINE)).await;
            assert_eq!(decided.unwrap().decided_by, DecidedBy::Local);
        }
        let router = Router::start(settings, &|_, _| {}).await.unwrap();
        Self { llm, phase, router }
    }

    fn turn(&self, phase: usize) {
        self.phase.store(phase, Ordering::SeqCst);
    }

    async fn route(&self, number: usize) -> Result<Decision, RouteError> {
        self.router.route(utterance(number), &Caller::local(), Deadline::after(DEADLINE)).await
    }

    /// `count` routes, `IN_FLIGHT` at a time; how they ended, by kind.
    async fn run(&self, count: usize) -> BTreeMap<String, usize> {
        let next = Arc::new(AtomicUsize::new(0));
        let mut workers = JoinSet::new();
        for _ in 0..IN_FLIGHT {
            let (next, router) = (Arc::clone(&next), Arc::clone(&self.router));
            workers.spawn(async move {
                let mut ended: BTreeMap<String, usize> = BTreeMap::new();
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= count {
                        return ended;
                    }
                    let began = Instant::now();
                    let result = router.route(utterance(number), &Caller::local(), Deadline::after(DEADLINE)).await;
                    assert!(began.elapsed() < DEADLINE + GRACE, "{number}: {result:?}");
                    *ended.entry(kind(&result)).or_default() += 1;
                    if matches!(result, Err(RouteError::Overloaded)) {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
            });
        }
        let mut all: BTreeMap<String, usize> = BTreeMap::new();
        for (kind, count) in workers.join_all().await.into_iter().flatten() {
            *all.entry(kind).or_default() += count;
        }
        all
    }
}

fn kind(result: &Result<Decision, RouteError>) -> String {
    match result {
        Ok(decision) => {
            let by = decision.decided_by;
            assert_eq!(decision.degraded.contains(&Degraded::LlmUnavailable), by == DecidedBy::Local, "{decision:?}");
            assert!(decision.trace.llm_calls <= 5, "{decision:?}");
            format!("{} by {}", decision.outcome.kind(), by.as_str())
        }
        Err(RouteError::Overloaded) => "overloaded".into(),
        Err(RouteError::Deadline) => "deadline".into(),
        Err(error @ (RouteError::Invalid(_) | RouteError::Internal(_))) => panic!("{error:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_routes_with_a_third_of_faults_leave_nothing_behind() {
    let soak = Arc::new(Soak::start(false).await);
    let quiet = || soak.llm.connections() == 0 && soak.llm.in_work() == 0;
    assert!(kind(&soak.route(0).await).ends_with("by llm"));
    until(quiet).await;
    let tasks = Handle::current().metrics().num_alive_tasks();

    soak.turn(MIXED);
    let ended = soak.run(ROUTES).await;
    println!("{ended:?} in {} requests", soak.llm.calls());
    assert_eq!(ended.values().sum::<usize>(), ROUTES);
    let by_llm: usize = ended.iter().filter(|(kind, _)| kind.ends_with("by llm")).map(|(_, count)| count).sum();
    assert!(by_llm > ROUTES / 2, "{ended:?}");
    // An exchange given up here stays open there until the endpoint notices, and its place is taken meanwhile.
    assert!(soak.llm.peak() <= PLACES + soak.llm.hung_up(), "{}", soak.llm.peak());
    until(|| quiet() && Handle::current().metrics().num_alive_tasks() <= tasks).await;

    // Nothing but faults opens the breaker: from then on nothing is sent.
    soak.turn(BROKEN);
    let before = soak.llm.calls();
    let ended = soak.run(200).await;
    assert!(ended.keys().all(|kind| kind.ends_with("by local")), "{ended:?}");
    let sent = soak.llm.calls() - before;
    println!("{sent} requests to a broken endpoint in 200 routes");
    assert!(sent < 200, "{sent}");

    // A good probe closes it, and the whole of the endpoint is used again.
    soak.turn(WELL);
    until_well(&soak).await;
    let ended = soak.run(200).await;
    assert!(ended.keys().all(|kind| kind.ends_with("by llm")), "{ended:?}");

    // Every place and every place in the queue is there, and no more.
    soak.turn(SILENT);
    until(quiet).await;
    let hung_up = soak.llm.hung_up();
    let refused = Arc::new(AtomicUsize::new(0));
    let mut holding = JoinSet::new();
    for number in 0..PLACES + QUEUE + 8 {
        let (soak, refused) = (Arc::clone(&soak), Arc::clone(&refused));
        holding.spawn(async move {
            if let Err(RouteError::Overloaded) = soak.route(number).await {
                refused.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    until(|| soak.llm.in_work() == PLACES && refused.load(Ordering::SeqCst) == 8).await;
    holding.shutdown().await;
    until(|| soak.llm.hung_up() == hung_up + PLACES).await;
    until(|| quiet() && Handle::current().metrics().num_alive_tasks() <= tasks).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hedged_routes_leave_nothing_behind_either() {
    let soak = Soak::start(true).await;
    let quiet = || soak.llm.connections() == 0 && soak.llm.in_work() == 0;
    soak.run(100).await;
    until(quiet).await;
    let tasks = Handle::current().metrics().num_alive_tasks();
    soak.turn(MIXED);
    let ended = soak.run(400).await;
    println!("{ended:?} in {} requests", soak.llm.calls());
    assert_eq!(ended.values().sum::<usize>(), 400);
    assert!(soak.llm.hung_up() > 0 && soak.llm.peak() <= PLACES + soak.llm.hung_up());
    until(|| quiet() && Handle::current().metrics().num_alive_tasks() <= tasks).await;
    soak.turn(WELL);
    until_well(&soak).await;
}

/// Routes until the model decides again.
async fn until_well(soak: &Soak) {
    for number in 0.. {
        let decided = soak.route(number).await.unwrap();
        if decided.decided_by == DecidedBy::Llm {
            return;
        }
        assert!(number < 200, "the breaker stays open: {:?}", decided.outcome);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
