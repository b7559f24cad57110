//! Starts a server with sample tools, routes ten utterances over gRPC, prints a table, stops the server.
//!
//! `make demo` builds everything and runs it. By hand: `cargo run --release --example demo`, after
//! `cargo build --release`. `POINTSMAN_BIN` names another program than `target/release/pointsman`; every other
//! `POINTSMAN_…` variable reaches the server, so `POINTSMAN_LLM__BASE_URL` makes it ask that LLM.

// A sample program: what it needs from its surroundings is read where it is used.
#![allow(clippy::disallowed_methods)]

use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use comfy_table::{ContentArrangement, Table, presets};
use pointsman::server::proto::route_response::Outcome;
use pointsman::server::proto::router_client::RouterClient;
use pointsman::server::proto::turn::Role;
use pointsman::server::proto::{RouteRequest, RouteResponse, Turn};

const REGISTRY: &str = "examples/shop/registry.yaml";
/// The first start embeds every card.
const START_TIMEOUT: Duration = Duration::from_secs(120);

const UTTERANCES: [&str; 10] = [
    "我的快递到哪了",
    "where is parcel SF1234567890",
    "SKU-FG9EKA还有现货吗",
    "what is the status of order SO-20260418000736",
    // A required argument is missing: the answer is a question.
    "催一下发货",
    "could you send me the invoice file",
    // No tool fits.
    "给我讲个笑话",
    "how far is my refund for SO-20260101915331",
    // The same once more: the cache answers, where the first answer was sure enough to enter it.
    "我的快递到哪了",
    // Goes on from the turns in `earlier_turns`.
    "那帮我撤了吧",
];

fn earlier_turns(utterance: &str) -> Vec<Turn> {
    if utterance != UTTERANCES[9] {
        return Vec::new();
    }
    let turn = |role: Role, content: &str| Turn { role: role.into(), content: content.into() };
    let result = r#"{"tool":"get_refund_status","ok":true,"data":[{"order_id":"SO-20260101915331","stage":"待寄回"}]}"#;
    vec![
        turn(Role::User, "SO-20260101915331 的退货到哪一步了"),
        turn(Role::Tool, result),
        turn(Role::Assistant, "退货申请已通过，等待您寄回。"),
    ]
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let mut server = Server::start()?;
    println!("serving {REGISTRY} on {}\n", server.address);
    let mut client = RouterClient::connect(format!("http://{}", server.address)).await?;
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        table.set_width(150); // not a terminal
    }
    table.set_header(["utterance", "outcome", "tool", "arguments", "decided by", "confidence", "ms"]);
    for utterance in UTTERANCES {
        let request =
            RouteRequest { utterance: utterance.into(), history: earlier_turns(utterance), ..RouteRequest::default() };
        let since = Instant::now();
        let answer = client.route(request).await?.into_inner();
        table.add_row(row(utterance, &answer, since.elapsed()));
    }
    println!("{table}\n");
    server.stop()
}

fn row(utterance: &str, answer: &RouteResponse, took: Duration) -> [String; 7] {
    // What an orchestrator does with an answer: four branches.
    let (outcome, tool, arguments) = match &answer.outcome {
        Some(Outcome::Call(call)) => {
            let (tools, arguments): (Vec<_>, Vec<_>) =
                call.calls.iter().map(|call| (call.tool.as_str(), call.arguments_json.as_str())).unzip();
            ("call".into(), tools.join("\n"), arguments.join("\n"))
        }
        Some(Outcome::Clarify(ask)) => {
            (format!("clarify: {}", ask.question), ask.tool.clone(), ask.arguments_json.clone())
        }
        Some(Outcome::NoTool(none)) => (format!("no_tool: {}", none.reason), String::new(), String::new()),
        Some(Outcome::Handoff(handoff)) => (format!("handoff: {}", handoff.message), String::new(), String::new()),
        None => ("an outcome this client does not know".into(), String::new(), String::new()),
    };
    let confidence = format!("{:.2}", answer.confidence);
    let ms = format!("{:.1}", took.as_secs_f64() * 1000.0);
    [utterance.into(), outcome, tool, arguments, answer.decided_by.clone(), confidence, ms]
}

/// The server as a child process; it does not outlive the demo.
struct Server {
    child: Child,
    address: String,
    log: PathBuf,
}

impl Server {
    fn start() -> Result<Self, Box<dyn Error>> {
        let program = std::env::var_os("POINTSMAN_BIN").unwrap_or_else(|| "target/release/pointsman".into());
        let log = std::env::temp_dir().join(format!("pointsman-demo-{}.log", std::process::id()));
        let child = Command::new(&program)
            .env_remove("POINTSMAN_BIN") // ours; the server would take it for a setting
            .args(["serve", "--registry", REGISTRY, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"])
            .env("POINTSMAN_STORE__PATH", ":memory:") // sample data leaves nothing behind
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .spawn()
            .map_err(|err| format!("cannot run {}: {err}; build it with `make build`", program.display()))?;
        let mut server = Self { child, address: String::new(), log };
        let lines = lines(&mut server.child);
        let since = Instant::now();
        while let Ok(line) = lines.recv_timeout(START_TIMEOUT.saturating_sub(since.elapsed())) {
            if let Some(address) = line.strip_prefix("grpc listening on ") {
                server.address = address.to_owned();
                return Ok(server);
            }
        }
        let _ = server.child.kill();
        let log = std::fs::read_to_string(&server.log).unwrap_or_default();
        Err(format!("the server did not start; it says:\n{log}").into())
    }

    /// SIGTERM, so that the server drains; its exit code is the demo's.
    fn stop(&mut self) -> Result<(), Box<dyn Error>> {
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        Err(format!("the server ended with {status}; it says:\n{log}").into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.log);
    }
}

/// What the server prints, line by line, read on a thread so that waiting for it can end.
fn lines(child: &mut Child) -> Receiver<String> {
    let (send, receive) = sync_channel(16);
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
    }
    receive
}
