//! One text and a batch of 32, per encoder.

mod support;

use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use pointsman::embed::Encoders;
use pointsman::store::Store;
use support::{deadline, runtime, settings};

fn embed(criterion: &mut Criterion) {
    let runtime = runtime();
    let _entered = runtime.enter();
    let store = Arc::new(Store::in_memory().expect("SQLite works in memory"));
    let encoders = Encoders::load(&settings(&[]).embed, store).expect("encoders load; run `make setup` first");
    let mut group = criterion.benchmark_group("embed");
    for encoder in encoders.all() {
        let text = "where is the parcel of my last order 我上一单的快递到哪了";
        group.bench_function(BenchmarkId::new(encoder.name(), 1), |bench| {
            bench.to_async(&runtime).iter(|| encoder.embed_query(text, deadline()));
        });
        let mut round = 0u64;
        group.sample_size(20).bench_function(BenchmarkId::new(encoder.name(), 32), |bench| {
            bench.to_async(&runtime).iter(|| {
                round += 1; // new texts each time, or the stored vectors would answer
                let texts: Vec<String> = (0..32).map(|nth| format!("{text} {round} {nth}")).collect();
                async move { encoder.embed_documents(&texts, &|_, _| {}).await.map(|documents| documents.vectors.len()) }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, embed);
criterion_main!(benches);
