//! Files that change while the server runs: what is read again, and what is not.

use std::os::unix::fs::symlink;
use std::time::Duration;

use pointsman::server::proto::ListRequest;
use pointsman::server::proto::registry_client::RegistryClient;
use tonic::transport::Channel;

use crate::support::cli::{Served, WORDS_ALONE};
use crate::support::server::{TestServer, settings};
use crate::support::{RegistryFile, native};

const OFTEN: Option<Duration> = Some(Duration::from_millis(20));

async fn names(registry: &RegistryClient<Channel>) -> Vec<String> {
    let list = registry.clone().list(ListRequest::default()).await.unwrap().into_inner();
    list.tools.into_iter().map(|tool| tool.name).collect()
}

async fn until(what: &str, mut wanted: impl AsyncFnMut() -> bool) {
    for _ in 0..1_000 {
        if wanted().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never came: {what}");
}

#[tokio::test]
async fn a_changed_file_is_read_again_by_itself() {
    let registry = RegistryFile::of(&["track_parcel"]);
    let mut settings = settings(&[&registry.path]);
    settings.server.watch = OFTEN;
    let server = TestServer::start(settings).await;
    let client = server.registry();
    registry.write(&native(&["track_parcel", "浇花"]));
    until("a write", async || names(&client).await == ["track_parcel", "浇花"]).await;
    // As editors do it: a new file under the old name.
    let next = registry.path.with_extension("next");
    std::fs::write(&next, native(&["water_plants"])).unwrap();
    std::fs::rename(&next, &registry.path).unwrap();
    until("a rename", async || names(&client).await == ["water_plants"]).await;
    assert!(server.route("track_parcel").await.unwrap().candidates.iter().all(|one| one.tool != "track_parcel"));
}

#[tokio::test]
async fn a_mounted_folder_that_is_swapped_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (version, tools) in [("1", ["first"]), ("2", ["second"])] {
        std::fs::create_dir(at(version)).unwrap();
        std::fs::write(at(version).join("registry.yaml"), native(&tools)).unwrap();
    }
    // As mounted configuration is laid out: the name leads to `..data`, and that to the version.
    symlink("1", at("..data")).unwrap();
    symlink("..data/registry.yaml", at("registry.yaml")).unwrap();
    let mut settings = settings(&[at("registry.yaml")]);
    settings.server.watch = OFTEN;
    let server = TestServer::start(settings).await;
    assert_eq!(names(&server.registry()).await, ["first"]);
    symlink("2", at("..data_tmp")).unwrap();
    std::fs::rename(at("..data_tmp"), at("..data")).unwrap();
    until("a swap", async || names(&server.registry()).await == ["second"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_used_is_said_once_and_the_catalog_stays() {
    let registry = RegistryFile::of(&["track_parcel"]);
    let rule = "rules:\n  - {id: a, when: {any: [包裹]}, then: {pin: track_parcel}, utterances: [包裹]}\n";
    let rules = RegistryFile::new("rules.yaml", rule);
    let free = "policy: test\nversion: 1\nrules:\n  - {id: free, about: all, tools: [track_parcel], then: allow}\n";
    let policy = RegistryFile::new("policy.yaml", free);
    let policy_key = format!("gate.policy={}", policy.as_str());
    let watched = ["--set", "registry.watch=true", "--set", "registry.watch_interval_ms=20"];
    let files = ["--registry", registry.as_str(), "--rules", rules.as_str(), "--set", &policy_key];
    let served = Served::start(&[&files[..], &watched[..], &WORDS_ALONE[..]].concat());
    let failed = async |times: u32| {
        let line = format!("pointsman_catalog_reloads_total{{result=\"failed\"}} {times}\n");
        until(&line, async || served.http_get("/metrics").await.contains(&line)).await;
        assert_eq!(names(&served.registry()).await, ["track_parcel"]);
    };
    registry.write("tools: [");
    failed(1).await;
    std::fs::remove_file(&registry.path).unwrap();
    failed(2).await;
    registry.write(&native(&["track_parcel"]));
    rules.write("rules: 7\n");
    failed(3).await;
    rules.write(rule);
    policy.write("rules: 7\n");
    failed(4).await;
    policy.write(free);
    registry.write(&native(&["track_parcel", "water_plants"]));
    until("the next good content", async || names(&served.registry()).await.len() == 2).await;
    served.signal("TERM");
    let (code, log) = served.wait();
    assert_eq!(code, 0, "{log}");
    assert_eq!(log.matches("files have changed and cannot be used").count(), 4, "{log}");
    assert!(log.contains("registry.yaml") && log.contains("rules.yaml") && log.contains("policy.yaml"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_can_be_switched_off() {
    let registry = RegistryFile::of(&["track_parcel"]);
    let off = ["--set", "registry.watch=false", "--set", "registry.watch_interval_ms=20"];
    let served = Served::start(&[&["--registry", registry.as_str()], &off[..], &WORDS_ALONE[..]].concat());
    registry.write(&native(&["water_plants"]));
    // A signal reads it all the same; before that nobody has.
    assert_eq!(names(&served.registry()).await, ["track_parcel"]);
    served.signal("HUP");
    until("the signal", async || names(&served.registry()).await == ["water_plants"]).await;
    served.signal("TERM");
    let (_, log) = served.wait();
    assert!(!log.contains("files have changed"), "{log}");
}
