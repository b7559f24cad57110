//! What a cache hit costs inside the router, beside the same request decided anew.

mod support;

use criterion::{Criterion, criterion_group, criterion_main};
use support::{UTTERANCE, caller, deadline, request, runtime, shop};

fn cache(criterion: &mut Criterion) {
    let runtime = runtime();
    let caller = caller();
    let router = runtime.block_on(shop(&[("cache.min_confidence".to_owned(), "0".to_owned())]));
    let mut group = criterion.benchmark_group("cache");
    for (name, no_cache) in [("hit", false), ("off", true)] {
        let mut request = request(UTTERANCE);
        request.no_cache = no_cache;
        group.bench_function(name, |bench| {
            bench.to_async(&runtime).iter(|| router.route(request.clone(), &caller, deadline()));
        });
    }
    group.finish();
}

criterion_group!(benches, cache);
criterion_main!(benches);
