//! One `Route`: in process and over loopback gRPC; answered by the cache, the local decider and a scripted LLM.

mod support;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use pointsman::server::proto::{self, router_client::RouterClient};
use support::{UTTERANCE, caller, cases, deadline, request, runtime, served_shop, shop};

fn route(criterion: &mut Criterion) {
    let runtime = runtime();
    let caller = caller();
    let mut group = criterion.benchmark_group("route");
    for (name, flags, cached) in runtime.block_on(cases()) {
        let router = runtime.block_on(shop(&flags));
        let mut request = request(UTTERANCE);
        request.no_cache = !cached;
        group.bench_function(BenchmarkId::new("in process", name), |bench| {
            bench.to_async(&runtime).iter(|| router.route(request.clone(), &caller, deadline()));
        });
        let url = runtime.block_on(served_shop(&flags));
        let client = runtime.block_on(RouterClient::connect(url)).expect("the server is ready");
        let wire = proto::RouteRequest {
            utterance: UTTERANCE.into(),
            options: Some(proto::RouteOptions { no_cache: !cached, max_calls: 1 }),
            ..Default::default()
        };
        group.bench_function(BenchmarkId::new("grpc", name), |bench| {
            bench.to_async(&runtime).iter(|| {
                let (mut client, wire) = (client.clone(), wire.clone());
                async move { client.route(wire).await.map(|answer| answer.into_inner().decided_by) }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, route);
criterion_main!(benches);
