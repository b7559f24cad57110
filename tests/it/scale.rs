//! More tools than are scanned: the graph behind the catalog, and how its recall is watched.

use crate::support::RegistryFile;
use crate::support::cli::Served;
use crate::support::server::ask;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_graph_takes_over_and_its_recall_is_exported() {
    let names: Vec<String> = (0..700).map(|n| format!("water_plant_{n}")).collect();
    let registry = RegistryFile::of(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut flags = vec!["--registry", registry.as_str()];
    for setting in ["embed.encoders=minilm-l6-en", "index.exact_up_to=500", "index.recall_sample=1"] {
        flags.extend(["--set", setting]);
    }
    let served = tokio::task::block_in_place(|| Served::start(&flags));
    let mut router = served.router();
    loop {
        let answer = router.route(ask("water_plant_123")).await.unwrap().into_inner();
        assert_eq!(answer.candidates[0].tool, "water_plant_123");
        match answer.index.as_str() {
            "exact" => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            index => break assert_eq!(index, "hnsw"),
        }
    }
    for number in 0..20 {
        router.route(ask(&format!("give water to plant {number}"))).await.unwrap();
    }
    // Searches are repeated behind the answers.
    let metrics = loop {
        let metrics = served.http_get("/metrics").await;
        if metrics.contains("pointsman_index_recall_samples_total{result=\"measured\"}") {
            break metrics;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let value = |name: &str| -> f64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{metrics}"));
        line.trim().parse().unwrap()
    };
    assert_eq!(value("pointsman_index_graphs_total{result=\"ready\"}"), 1.0);
    assert!(value("pointsman_index_recall_ratio") >= 0.9, "{metrics}");
    assert!(value("pointsman_index_recall_rows_total{result=\"found\"}") >= 10.0);
}
