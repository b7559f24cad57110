//! Tools of servers that list them themselves: over streamable HTTP and over standard streams, in all their moods.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pointsman::config::Settings;
use pointsman::execute::mcp::{ListError, ToolServer, list_once};
use pointsman::execute::{HttpTarget, McpTarget, Secret, Target};
use pointsman::pipeline::{LiveSource, Router, StartError};
use pointsman::server::proto::{GetRequest, ListRequest, ReloadRequest, ToolSummary};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::support::RegistryFile;
use crate::support::mcp_server::{ListFault, McpServer};
use crate::support::server::{TestServer, candidates, settings};

const PATIENCE: Duration = Duration::from_secs(60);

fn tool(name: &str, what: &str) -> Value {
    json!({"name": name, "description": what, "inputSchema": {"type": "object", "properties": {}}})
}

fn url(url: &str) -> McpTarget {
    McpTarget::Url(HttpTarget { base_url: url.into(), headers: Vec::new(), allow_private: true })
}

fn source(name: &str, place: McpTarget) -> LiveSource {
    LiveSource {
        name: name.into(),
        server: ToolServer { place, timeout: PATIENCE },
        target: None,
        domain: None,
        permissions: Vec::new(),
        trust_hints: false,
        required: false,
        refresh: Duration::ZERO,
    }
}

/// One card from a file, and these sources.
fn serving(file: &RegistryFile, sources: impl IntoIterator<Item = LiveSource>) -> Settings {
    let mut settings = settings(&[&file.path]);
    settings.pipeline.live = sources.into_iter().collect();
    settings
}

async fn tools(server: &TestServer) -> Vec<ToolSummary> {
    server.registry().list(ListRequest::default()).await.unwrap().into_inner().tools
}

async fn names(server: &TestServer) -> Vec<String> {
    tools(server).await.into_iter().map(|tool| tool.name).collect()
}

/// What is told but for what imported cards leave open.
fn notices(server: &TestServer) -> Vec<String> {
    told(&server.app.router().unwrap().registry().1.notices)
}

fn told(notices: &[String]) -> Vec<String> {
    notices.iter().filter(|notice| !notice.contains(" imported cards ")).cloned().collect()
}

/// Waits until the names of the tools are these.
async fn until_served(server: &TestServer, expected: &[&str]) {
    let served = async {
        while names(server).await != expected {
            sleep(Duration::from_millis(10)).await;
        }
    };
    if timeout(PATIENCE, served).await.is_err() {
        assert_eq!(names(server).await, expected);
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = async {
        while !holds() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(timeout(PATIENCE, waited).await.is_ok(), "{what}");
}

/// The server in `tests/data/mcp`, run by a folder of its own.
pub struct Program {
    folder: TempDir,
}

impl Program {
    /// `None`, with a word on it, where there is no Python.
    pub fn of(tools: &[Value]) -> Option<Self> {
        let found = Command::new("python3").env("PATH", "/usr/local/bin:/usr/bin:/bin").arg("--version").output();
        if !found.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: there is no python3 in /usr/local/bin, /usr/bin or /bin");
            return None;
        }
        let program = Self { folder: TempDir::new().unwrap() };
        program.set_tools(tools);
        Some(program)
    }

    fn set_tools(&self, tools: &[Value]) {
        let path = self.folder.path().join("tools.json");
        let new = self.folder.path().join("tools.new");
        std::fs::write(&new, json!(tools).to_string()).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    /// Its command line.
    pub fn command(&self, mode: &str) -> Vec<String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/mcp/stdio_server.py");
        let folder = self.folder.path().display().to_string();
        ["python3".to_owned(), script.display().to_string(), folder, mode.to_owned()].to_vec()
    }

    fn target(&self, mode: &str) -> McpTarget {
        let args = self.command(mode).split_off(1);
        let env = vec![("DESK_TOKEN".to_owned(), Secret("对".into()))];
        McpTarget::Command { program: "python3".into(), args, env }
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.folder.path().join(name)).ok()
    }

    fn process(&self) -> PathBuf {
        Path::new("/proc").join(self.read("pid").unwrap())
    }
}

#[tokio::test]
async fn tools_of_both_transports_are_served_beside_those_of_files() {
    let file = RegistryFile::of(&["track_parcel"]);
    let desk =
        McpServer::of((0..7).map(|n| tool(&format!("desk_{n}"), "desk")).chain([tool("search", "a")]).collect()).await;
    desk.per_page(3);
    let mut sources = vec![source("desk", url(desk.url()))];
    let mut expected: Vec<String> = (0..7).map(|n| format!("desk_{n}")).collect();
    let program = Program::of(&[tool("search", "b"), tool("查询库存", "查询商品的库存数量")]);
    if let Some(program) = &program {
        sources.push(source("仓库", program.target("plain")));
        expected.extend(["desk/search", "仓库/search", "查询库存"].map(str::to_owned));
    } else {
        expected.push("search".into());
    }
    expected.push("track_parcel".into());
    let server = TestServer::start(serving(&file, sources)).await;
    let mut served = names(&server).await;
    served.sort();
    expected.sort();
    assert_eq!(served, expected);
    assert_eq!(notices(&server), Vec::<String>::new());
    let Some(program) = program else { return };
    let by_name = |tools: &[ToolSummary], name: &str| tools.iter().find(|tool| tool.name == name).unwrap().clone();
    let list = tools(&server).await;
    assert_eq!(by_name(&list, "查询库存").source, "仓库");
    assert_eq!(by_name(&list, "desk/search").source, "desk");
    let answer = server.route("查询商品的库存数量").await.unwrap();
    assert_eq!(candidates(&answer)[0], "查询库存");
    // Of our variables it got the named one and where programs are.
    let env: Value = serde_json::from_str(&program.read("env").unwrap()).unwrap();
    assert_eq!(env["DESK_TOKEN"], "对");
    assert!(env["PATH"].is_string() && env.get("HOME").is_none() && env.get("CARGO_MANIFEST_DIR").is_none(), "{env}");
}

#[tokio::test]
async fn word_of_a_change_is_served_by_the_next_request() {
    let file = RegistryFile::of(&["track_parcel"]);
    let desk = McpServer::of(vec![tool("water_plants", "Water the plants.")]).await;
    let server = TestServer::start(serving(&file, [source("desk", url(desk.url()))])).await;
    until("the session listens", || desk.listeners() == 1).await;
    assert_eq!(desk.listings(), 1, "what was listed at the start is not asked for again");
    let (before, _) = server.app.router().unwrap().registry();
    desk.set_tools(vec![tool("water_plants", "Water the plants."), tool("feed_cat", "Feed the cat. 喂猫")]);
    desk.tell();
    until_served(&server, &["feed_cat", "track_parcel", "water_plants"]).await;
    let answer = server.route("喂猫 feed the cat").await.unwrap();
    assert_eq!(candidates(&answer)[0], "feed_cat");
    assert_ne!(answer.catalog_version, before);
    // Word of nothing new, and another order, make no new version.
    let (before, _) = server.app.router().unwrap().registry();
    desk.set_tools(vec![tool("feed_cat", "Feed the cat. 喂猫"), tool("water_plants", "Water the plants.")]);
    desk.tell();
    until("it was asked again", || desk.listings() == 3).await;
    desk.set_tools(vec![tool("feed_cat", "Feed the cat. 喂猫")]);
    desk.tell();
    until_served(&server, &["feed_cat", "track_parcel"]).await;
    let generation = |version: &str| version.split('-').next().unwrap().to_owned();
    let (after, _) = server.app.router().unwrap().registry();
    let next = |version: &str| (generation(version).trim_start_matches('v').parse::<u64>().unwrap() + 1).to_string();
    assert_eq!(generation(&after).trim_start_matches('v'), next(&before));
}

#[tokio::test]
async fn a_reload_asks_servers_that_say_nothing() {
    let file = RegistryFile::of(&["track_parcel"]);
    let desk = McpServer::of(vec![tool("water_plants", "Water the plants.")]).await;
    let server = TestServer::start(serving(&file, [source("desk", url(desk.url()))])).await;
    let reload = async || server.registry().reload(ReloadRequest {}).await.unwrap().into_inner();
    desk.set_tools(vec![tool("feed_cat", "喂猫")]);
    let change = reload().await;
    assert_eq!((change.added, change.removed), (vec!["feed_cat".to_owned()], vec!["water_plants".to_owned()]));
    assert_eq!(names(&server).await, ["feed_cat", "track_parcel"]);
    // One that is down does not hold it up, and is asked at once rather than after its pause.
    desk.set_fault(Some(ListFault::Down));
    let change = reload().await;
    assert!(change.removed.is_empty() && told(&change.notices)[0].contains("503"), "{change:?}");
    reload().await;
    desk.forget();
    desk.set_tools(vec![tool("walk_dog", "Walk the dog.")]);
    desk.set_fault(None);
    let change = reload().await;
    assert_eq!((change.added, told(&change.notices)), (vec!["walk_dog".to_owned()], Vec::new()));
}

#[tokio::test]
async fn a_program_is_heard_ended_and_started_again() {
    let Some(program) = Program::of(&[tool("water_plants", "Water the plants.")]) else { return };
    let file = RegistryFile::of(&["track_parcel"]);
    let server = TestServer::start(serving(&file, [source("desk", program.target("plain"))])).await;
    program.set_tools(&[tool("feed_cat", "Feed the cat.")]);
    until_served(&server, &["feed_cat", "track_parcel"]).await;
    if !Path::new("/proc/self").exists() {
        return;
    }
    let first = program.process();
    let kill = format!("kill -9 {}", program.read("pid").unwrap());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    assert_eq!(names(&server).await, ["feed_cat", "track_parcel"], "what it listed last is served");
    until("it was started again", || program.process() != first && notices(&server).is_empty()).await;
    let second = program.process();
    assert!(second.exists());
    server.stop();
    server.stopped().await.unwrap();
    until("no program outlives the server", || !second.exists()).await;
}

#[tokio::test]
async fn a_server_that_is_gone_keeps_its_tools_and_is_found_again() {
    let file = RegistryFile::of(&["track_parcel"]);
    let desk = McpServer::of(vec![tool("water_plants", "Water the plants.")]).await;
    let mut live = source("desk", url(desk.url()));
    live.refresh = Duration::from_millis(50);
    let server = TestServer::start(serving(&file, [live])).await;
    desk.set_fault(Some(ListFault::Down));
    until("it is told of", || !notices(&server).is_empty()).await;
    let is_told = |notices: &[String]| {
        notices[0].starts_with("live source `desk`: ")
            && notices[0].ends_with("; the 1 tools it listed last are served")
    };
    assert!(is_told(&notices(&server)), "{:?}", notices(&server));
    let change = server.registry().reload(ReloadRequest {}).await.unwrap().into_inner();
    assert!(change.removed.is_empty() && is_told(&told(&change.notices)), "{change:?}");
    let answer = server.route("water the plants").await.unwrap();
    assert_eq!(candidates(&answer)[0], "water_plants");
    desk.forget();
    desk.set_tools(vec![tool("feed_cat", "Feed the cat.")]);
    desk.set_fault(None);
    until_served(&server, &["feed_cat", "track_parcel"]).await;
    assert_eq!(notices(&server), Vec::<String>::new());
    // Without a word the list is asked for from time to time.
    desk.set_tools(vec![tool("walk_dog", "Walk the dog.")]);
    until_served(&server, &["track_parcel", "walk_dog"]).await;
}

#[tokio::test]
async fn a_start_without_the_server_serves_what_it_listed_before() {
    let file = RegistryFile::of(&["track_parcel"]);
    let folder = TempDir::new().unwrap();
    let desk = McpServer::of(vec![tool("water_plants", "浇花")]).await;
    let kept = |place: McpTarget, required: bool| {
        let mut settings = serving(&file, [LiveSource { required, ..source("desk", place) }]);
        settings.pipeline.store = Some(folder.path().join("store.db"));
        settings
    };
    let server = TestServer::start(kept(url(desk.url()), true)).await;
    server.stop();
    server.stopped().await.unwrap();

    desk.set_fault(Some(ListFault::Down));
    let server = TestServer::start(kept(url(desk.url()), false)).await;
    assert_eq!(names(&server).await, ["track_parcel", "water_plants"]);
    assert!(notices(&server)[0].contains("the 1 tools it listed last are served"), "{:?}", notices(&server));
    // It comes up later.
    desk.set_tools(vec![tool("feed_cat", "喂猫")]);
    desk.set_fault(None);
    until_served(&server, &["feed_cat", "track_parcel"]).await;
    server.stop();
    server.stopped().await.unwrap();

    desk.set_fault(Some(ListFault::Down));
    let refused = Router::start(kept(url(desk.url()), true).pipeline, &|_, _| {}).await.err().unwrap();
    assert!(matches!(&refused, StartError::Live(_)), "{refused}");
    assert_eq!(refused.to_string(), "live source `desk`: the server answers with HTTP status 503");
    // Another server under the same name has listed nothing yet.
    let server = TestServer::start(kept(url("http://127.0.0.1:9/mcp"), false)).await;
    assert_eq!(names(&server).await, ["track_parcel"]);
    let expected = "live source `desk`: cannot connect: the server cannot be reached; none of its tools are known";
    let gone = "1 tools that were served before this start are there no more: feed_cat";
    assert_eq!(notices(&server), [expected, gone]);
}

#[tokio::test]
async fn settings_that_cannot_be_used_stop_the_start() {
    let file = RegistryFile::of(&["track_parcel"]);
    for (place, expected) in [
        (url("ftp://desk.example"), "base_url must start with http"),
        (McpTarget::Command { program: String::new(), args: Vec::new(), env: Vec::new() }, "the command is empty"),
    ] {
        let refused = Router::start(serving(&file, [source("desk", place)]).pipeline, &|_, _| {}).await.err().unwrap();
        assert!(refused.to_string().contains(expected), "{refused}");
    }
}

#[tokio::test]
async fn the_operator_says_what_the_tools_of_a_server_may() {
    let file = RegistryFile::of(&["track_parcel"]);
    let mut hinted = tool("water_plants", "Water the plants.");
    hinted["annotations"] = json!({"readOnlyHint": true});
    // What is no part of the protocol changes nothing.
    hinted["permissions"] = json!([]);
    hinted["side_effect"] = json!("read");
    let desk = McpServer::of(vec![hinted]).await;
    let side_effect = async |trust_hints: bool| {
        let live = LiveSource { trust_hints, domain: Some("garden".into()), ..source("desk", url(desk.url())) };
        let server = TestServer::start(serving(&file, [live])).await;
        let got = server.registry().get(GetRequest { name: "water_plants".into() }).await.unwrap().into_inner();
        let summary = got.summary.unwrap();
        assert_eq!(summary.domain, "garden");
        summary.side_effect
    };
    assert_eq!((side_effect(false).await.as_str(), side_effect(true).await.as_str()), ("destructive", "read"));

    let live = LiveSource { permissions: vec!["garden:water".into()], ..source("desk", url(desk.url())) };
    let mut limited = serving(&file, [live]);
    let with = |limited: &mut Settings, scopes: &[&str]| {
        let flags = vec![("server.scopes".to_owned(), scopes.join(","))];
        let sources = pointsman::config::Sources { flags, ..Default::default() };
        limited.server = pointsman::config::Loaded::load(&sources).unwrap().settings.server;
    };
    with(&mut limited, &["orders:read"]);
    let server = TestServer::start(limited.clone()).await;
    let answer = server.route("water the plants").await.unwrap();
    assert!(!candidates(&answer).contains(&"water_plants"), "{answer:?}");
    with(&mut limited, &["garden:water"]);
    let server = TestServer::start(limited).await;
    let answer = server.route("water the plants").await.unwrap();
    assert_eq!(candidates(&answer)[0], "water_plants");
}

#[tokio::test]
async fn a_target_runs_the_tools_that_it_lists() {
    let file = RegistryFile::of(&["track_parcel"]);
    let desk = McpServer::of(vec![tool("text", "Says something."), tool("words", "Says nothing.")]).await;
    let live = LiveSource { target: Some("desk".into()), ..source("desk", url(desk.url())) };
    let mut settings = serving(&file, [live]);
    settings.pipeline.execute.targets.insert("desk".into(), Target::Mcp(url(desk.url())));
    let server = TestServer::start(settings).await;
    let (_, registry) = server.app.router().unwrap().registry();
    let runs = |name: &str| {
        let card = registry.cards.values().find(|card| card.name == name).unwrap();
        card.run.as_ref().map(|run| run.target().to_owned())
    };
    assert_eq!((runs("text").as_deref(), runs("track_parcel")), (Some("desk"), None));
}

/// The error of one listing, which has to come within its time.
async fn fault(server: &ToolServer) -> ListError {
    timeout(PATIENCE, list_once(server)).await.unwrap().unwrap_err()
}

#[tokio::test]
async fn a_server_that_gives_no_list_is_reported() {
    let desk = McpServer::of(vec![tool("a", "b")]).await;
    let server = |milliseconds| ToolServer { place: url(desk.url()), timeout: Duration::from_millis(milliseconds) };
    let many = |count: usize| json!({"tools": vec![tool("a", "b"); count]});
    for (fault_of, expected) in [
        (ListFault::Down, "the server answers with HTTP status 503"),
        (ListFault::Refuses, "the server refuses with error -32603: database is down"),
        (ListFault::Circles, "page 2 leads back to an earlier one"),
        (ListFault::NeverEnds, "the list has more than 1000 pages"),
        (ListFault::Says(many(10_001)), "the list has more than 10000 tools"),
        (ListFault::Says(json!({"tools": "none"})), "no list of tools: it has no `tools`"),
        (ListFault::Says(json!([])), "no list of tools"),
        (ListFault::Sends(b"<html>".to_vec()), "no list of tools"),
        (
            ListFault::Sends(
                b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[{\"name\":\"caf\xe9\"}]}}".to_vec(),
            ),
            "no list",
        ),
        (ListFault::Sends(vec![b' '; 17 << 20]), "the list has more than 16777216 bytes in one answer"),
    ] {
        desk.set_fault(Some(fault_of));
        let found = fault(&server(50_000)).await.to_string();
        assert!(found.contains(expected), "{expected}: {found}");
    }
    desk.set_fault(Some(ListFault::Hangs));
    assert_eq!(fault(&server(200)).await.to_string(), "no listing within 200 ms");
    desk.set_fault(None);
    assert_eq!(list_once(&server(20_000)).await.unwrap(), [tool("a", "b")]);
}

#[tokio::test]
async fn a_program_that_gives_no_list_is_reported() {
    let absent = McpTarget::Command { program: "/nowhere/mcp".into(), args: Vec::new(), env: Vec::new() };
    let error = fault(&ToolServer { place: absent, timeout: PATIENCE }).await;
    assert!(matches!(error, ListError::Start(_)), "{error}");
    let Some(program) = Program::of(&[tool("a", "退货")]) else { return };
    let server = |mode: &str, milliseconds| ToolServer {
        place: program.target(mode),
        timeout: Duration::from_millis(milliseconds),
    };
    for mode in ["silent", "garbage", "latin"] {
        assert_eq!(fault(&server(mode, 700)).await, ListError::Timeout(Duration::from_millis(700)), "{mode}");
    }
    let endless = fault(&server("endless", 50_000)).await;
    assert!(matches!(endless, ListError::Closed(_)), "{endless}");
    // One that complains without end is not kept waiting by it.
    assert_eq!(list_once(&server("loud", 20_000)).await.unwrap(), [tool("a", "退货")]);
    let place = McpTarget::Command { program: "sh".into(), args: vec!["-c".into(), "exit 4".into()], env: Vec::new() };
    let error = fault(&ToolServer { place, timeout: PATIENCE }).await;
    assert!(matches!(error, ListError::Closed(_)), "{error}");
}

#[tokio::test]
async fn odd_tools_cost_themselves_alone() {
    let file = RegistryFile::of(&["track_parcel"]);
    let desk = McpServer::of(vec![
        tool("twice", "one"),
        tool("twice", "another"),
        tool("same", "the same"),
        tool("same", "the same"),
        tool("novel", &"长".repeat(400_000)),
        json!({"name": "schemaless", "description": "no schema"}),
        json!({"name": 7, "inputSchema": {}}),
        json!("tool"),
        tool("sound", "Works. 正常"),
    ])
    .await;
    let server = TestServer::start(serving(&file, [source("desk", url(desk.url()))])).await;
    let served = names(&server).await;
    for name in ["same", "sound", "track_parcel"] {
        assert!(served.iter().any(|served| served == name), "{name}: {served:?}");
    }
    let (_, registry) = server.app.router().unwrap().registry();
    let mut reported: Vec<&str> = registry.quarantined.iter().map(|card| card.card.as_str()).collect();
    reported.sort_unstable();
    reported.dedup();
    assert!(reported.contains(&"twice") && reported.len() == 4, "{reported:?}");
    assert!(!served.iter().any(|served| served == "novel" || served == "twice"), "{served:?}");
    assert!(registry.quarantined.iter().all(|card| card.source == "desk"));
}
