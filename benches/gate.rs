//! What the gate costs: a write, which is on the disk twice when it is done, a read, and many writes at once.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pointsman::args::validate;
use pointsman::catalog::Tool;
use pointsman::gate::{Ask, Ending, Gate, Policy, Runner, Settings, Verdict};
use pointsman::registry::Registry;
use pointsman::store::Store;
use pointsman::tool::{SideEffect, ToolCard};
use pointsman::types::{Caller, Clock};
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

const PARALLEL: u64 = 32;

struct Bench {
    gate: Gate,
    registry: Arc<Registry>,
    next: AtomicU64,
}

impl Bench {
    fn over(folder: &TempDir) -> Self {
        let settings = Settings {
            token_ttl: Duration::from_secs(600),
            idempotency_ttl: Duration::from_secs(86_400),
            grace: Duration::from_secs(5),
            key_rotation: Duration::from_secs(86_400),
            max_calls: 100_000,
            max_steps: 8,
            turn_budget: Duration::from_secs(60),
        };
        let schema =
            json!({"type": "object", "properties": {"order_id": {"type": "string"}, "note": {"type": "string"}}});
        let read = ToolCard::reading("read", schema.clone());
        let write = ToolCard { side_effect: SideEffect::Write, ..ToolCard::reading("write", schema) };
        let cards = [read, write].into_iter().map(|card| (card.id.clone(), Arc::new(card))).collect();
        let store = Arc::new(Store::open(&folder.path().join("store.db")).expect("a folder that can be written"));
        Self {
            gate: Gate::new(settings, Policy::none(), store, Clock::System).expect("memory"),
            registry: Arc::new(Registry { cards, ..Registry::default() }),
            next: AtomicU64::new(0),
        }
    }

    /// One call from leave to report, another one each time.
    async fn call(&self, tool: &str) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let tool = Tool::new(Arc::clone(&self.registry.cards[tool])).expect("a sound schema");
        let args = json!({"order_id": format!("SO-{number:014}"), "note": "放门口就行"});
        let caller = Caller::local();
        let ask = Ask {
            args: validate(&tool.schema, &args).expect("valid arguments").args,
            tool,
            caller: caller.clone(),
            registry: Arc::clone(&self.registry),
            conversation: "会话".into(),
            turn: String::new(),
            key: None,
            token: None,
            runner: Runner::Caller,
            timeout: Duration::from_secs(3),
        };
        let Verdict::Go(cleared) = self.gate.authorize(ask).await.expect("a store") else { panic!("not let go") };
        let ending = Ending::Succeeded(json!({"ok": true, "data": {"done": true}}));
        let settled = self.gate.settle(&caller, cleared.record.id, ending).await.expect("a store");
        black_box(settled.expect("the report of the runner"));
    }
}

fn gate(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("threads");
    let folder = TempDir::new().expect("a folder");
    let bench = Arc::new(Bench::over(&folder));
    let mut group = criterion.benchmark_group("gate");
    for tool in ["write", "read"] {
        group.bench_function(tool, |bencher| bencher.to_async(&runtime).iter(|| bench.call(tool)));
    }
    group.throughput(Throughput::Elements(PARALLEL));
    for tool in ["write", "read"] {
        group.bench_function(format!("{tool}_by_{PARALLEL}"), |bencher| {
            bencher.to_async(&runtime).iter_custom(|rounds| parallel(Arc::clone(&bench), tool, rounds));
        });
    }
    group.finish();
    for tool in ["write", "read"] {
        runtime.block_on(slow_end(&bench, tool));
    }
}

/// The slow end, which a mean hides: the disk makes some calls wait.
async fn slow_end(bench: &Bench, tool: &str) {
    const CALLS: usize = 2_000;
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let start = Instant::now();
        bench.call(tool).await;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    println!("gate/{tool}: p50 {:?}, p99 {:?} of {CALLS} calls", times[CALLS / 2], times[CALLS * 99 / 100]);
}

async fn parallel(bench: Arc<Bench>, tool: &'static str, rounds: u64) -> Duration {
    let start = Instant::now();
    let mut all = JoinSet::new();
    for _ in 0..PARALLEL {
        let bench = Arc::clone(&bench);
        all.spawn(async move {
            for _ in 0..rounds {
                bench.call(tool).await;
            }
        });
    }
    all.join_all().await;
    start.elapsed()
}

criterion_group!(benches, gate);
criterion_main!(benches);
