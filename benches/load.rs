//! Throughput of `Route` over loopback gRPC from 1, 8 and 64 clients at a time; the three ways a decision is made.

mod support;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pointsman::server::proto::{self, router_client::RouterClient};
use support::{UTTERANCE, cases, runtime, served_shop};

/// Requests each client sends in one measured round.
const EACH: usize = 4;

fn load(criterion: &mut Criterion) {
    let runtime = runtime();
    let mut group = criterion.benchmark_group("load");
    group.sample_size(15);
    for (name, flags, cached) in runtime.block_on(cases()) {
        let url = runtime.block_on(served_shop(&flags));
        let wire = proto::RouteRequest {
            utterance: UTTERANCE.into(),
            options: Some(proto::RouteOptions { no_cache: !cached, max_calls: 1 }),
            ..Default::default()
        };
        for clients in [1usize, 8, 64] {
            let connected: Vec<_> = (0..clients)
                .map(|_| runtime.block_on(RouterClient::connect(url.clone())).expect("the server is ready"))
                .collect();
            group.throughput(Throughput::Elements((clients * EACH) as u64));
            group.bench_function(BenchmarkId::new(name, clients), |bench| {
                bench.to_async(&runtime).iter(|| {
                    let tasks: Vec<_> = connected
                        .iter()
                        .cloned()
                        .map(|mut client| {
                            let wire = wire.clone();
                            tokio::spawn(async move {
                                for _ in 0..EACH {
                                    client.route(wire.clone()).await.expect("every request is answered");
                                }
                            })
                        })
                        .collect();
                    async move {
                        for task in tasks {
                            task.await.expect("clients do not panic");
                        }
                    }
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, load);
criterion_main!(benches);
