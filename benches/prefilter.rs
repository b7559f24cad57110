//! Ranking alone, exact scan and HNSW side by side: 100, 1,000 and 10,000 real cards, a Chinese and an English query.

mod support;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use support::{caller, cards, deadline, request, router, runtime, settings};

fn prefilter(criterion: &mut Criterion) {
    let runtime = runtime();
    let caller = caller();
    let mut group = criterion.benchmark_group("prefilter");
    group.sample_size(30);
    for count in [100, 1_000, 10_000] {
        for mode in ["exact", "hnsw"] {
            let router = runtime.block_on(router(cards(count), settings(&[("index.mode", mode)])));
            for (language, utterance) in
                [("en", "show me the weather in Berlin tomorrow"), ("zh", "帮我查一下明天北京的天气")]
            {
                let request = request(utterance);
                group.bench_function(BenchmarkId::new(format!("{mode}/{language}"), count), |bench| {
                    bench.to_async(&runtime).iter(|| router.rank_top(&request, &caller, deadline(), 8));
                });
            }
        }
    }
    group.finish();
}

criterion_group!(benches, prefilter);
criterion_main!(benches);
