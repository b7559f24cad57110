//! Changing the catalog while it serves: one of 10,000 cards changed, 100 cards added, each with a text to embed.

mod support;

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use support::{runtime, varied};

fn card(name: &str, what: &str) -> Value {
    json!({
        "name": name, "description": {"what": what}, "parameters": {"type": "object", "properties": {}},
        "side_effect": "read", "timeout_ms": 1000, "permissions": [],
    })
}

fn reindex(criterion: &mut Criterion) {
    let runtime = runtime();
    let mut group = criterion.benchmark_group("reindex");
    group.sample_size(10);
    varied::prepare(10_000);
    // A text from an earlier run must not come from the store.
    let router = runtime.block_on(varied::start(10_000, &[("index.mode", "exact")]));
    let stamp = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let mut round = 0u64;
    group.bench_function("1 of 10000 changed", |bench| {
        bench.to_async(&runtime).iter(|| {
            round += 1;
            let changed = vec![card("bench_changed", &format!("Report the state of valve {stamp} {round}"))];
            let router = &router;
            async move { router.put(changed).await.map(|change| change.embedded_texts) }
        });
    });
    group.bench_function("100 new", |bench| {
        bench.to_async(&runtime).iter(|| {
            round += 1;
            let new = (0..100)
                .map(|n| card(&format!("bench_new_{n}"), &format!("Read sensor {n} {stamp} {round}")))
                .collect();
            let router = &router;
            async move { router.put(new).await.map(|change| change.embedded_texts) }
        });
    });
    group.finish();
    let names = (0..100).map(|n| format!("bench_new_{n}")).chain(["bench_changed".to_owned()]).collect();
    runtime.block_on(router.delete(names)).expect("bench cards can be removed");
}

criterion_group!(benches, reindex);
criterion_main!(benches);
