//! Starts a server with sample tools and a small shop they run at, routes ten utterances over gRPC, takes one refund
//! through the gate, prints two tables, stops the server.
//!
//! `make demo` builds everything and runs it. By hand: `cargo run --release --example demo`, after
//! `cargo build --release`. `POINTSMAN_BIN` names another program than `target/release/pointsman`; every other
//! `POINTSMAN_…` variable reaches the server, so `POINTSMAN_LLM__BASE_URL` makes it ask that LLM.

// A sample program: what it needs from its surroundings is read where it is used.
#![allow(clippy::disallowed_methods)]

#[path = "shop/backend/shop/mod.rs"]
mod shop;

use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use comfy_table::{ContentArrangement, Table, presets};
use pointsman::server::proto::gate_client::GateClient;
use pointsman::server::proto::invoke_response::Verdict;
use pointsman::server::proto::route_response::Outcome;
use pointsman::server::proto::router_client::RouterClient;
use pointsman::server::proto::turn::Role;
use pointsman::server::proto::{InvokeRequest, RouteRequest, RouteResponse, Turn, Wish};
use serde_json::{Value, json};
use shop::{DELIVERED, Options, Shop, UNSENT};
use tonic::transport::Channel;

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
    let shop = Shop::start("127.0.0.1:0", Options::default()).await?;
    let mut server = Server::start(&shop.url())?;
    println!("serving {REGISTRY} on {}\n", server.address);
    let address = format!("http://{}", server.address);
    let mut client = RouterClient::connect(address.clone()).await?;
    let mut table = table(["utterance", "outcome", "tool", "arguments", "decided by", "confidence", "ms"]);
    for utterance in UTTERANCES {
        let request =
            RouteRequest { utterance: utterance.into(), history: earlier_turns(utterance), ..RouteRequest::default() };
        let since = Instant::now();
        let answer = client.route(request).await?.into_inner();
        table.add_row(row(utterance, &answer, since.elapsed()));
    }
    println!("{table}\n");
    refund(GateClient::connect(address).await?, &shop).await?;
    server.stop()
}

fn table<const COLUMNS: usize>(header: [&str; COLUMNS]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        table.set_width(150); // not a terminal
    }
    table.set_header(header);
    table
}

/// A refund from end to end: each step is one `Invoke`, and the shop counts what really happened.
async fn refund(mut gate: GateClient<Channel>, shop: &Shop) -> Result<(), Box<dyn Error>> {
    let mut table = table(["a refund, step by step", "verdict", "what came back", "refunds paid"]);
    let mut invoke = async |step: &str, tool: &str, arguments: Value| -> Result<(String, Value), Box<dyn Error>> {
        let wish = Wish {
            tool: tool.into(),
            arguments_json: arguments.to_string(),
            session_id: "demo".into(),
            ..Wish::default()
        };
        let answer = gate.invoke(InvokeRequest { wish: Some(wish) }).await?.into_inner();
        let (verdict, body) = told(answer.verdict)?;
        let shown = body.get("data").unwrap_or(&body).to_string();
        table.add_row([step, &verdict, &shown, &shop.count("execute_refund").effects.to_string()]);
        Ok((verdict, body))
    };
    let order = json!({"order_id": DELIVERED});
    let (_, preview) =
        invoke("preview 30 yuan", "preview_refund", json!({"order_id": DELIVERED, "amount": 30})).await?;
    let token = preview["data"]["confirm_token"].as_str().ok_or("the preview handed out no token")?;
    let pay = json!({"order_id": DELIVERED, "confirm_token": token});
    let steps = [
        ("without a token", order, "refused"),
        ("with an invented token", json!({"order_id": DELIVERED, "confirm_token": "ct_0000000000000000"}), "refused"),
        ("for another order", json!({"order_id": UNSENT, "confirm_token": token}), "refused"),
        ("with another amount", json!({"order_id": DELIVERED, "confirm_token": token, "amount": 300}), "refused"),
        ("as it was shown", pay.clone(), "succeeded"),
        ("the same once more", pay, "replayed"),
    ];
    for (step, arguments, expected) in steps {
        let (verdict, body) = invoke(step, "execute_refund", arguments).await?;
        if verdict != expected {
            return Err(format!("{step}: {verdict} where {expected} was expected: {body}").into());
        }
    }
    println!("{table}\n");
    match shop.count("execute_refund").effects {
        1 => Ok(()),
        paid => Err(format!("{paid} refunds were paid").into()),
    }
}

/// What an orchestrator does with an answer of the gate.
fn told(verdict: Option<Verdict>) -> Result<(String, Value), Box<dyn Error>> {
    Ok(match verdict {
        Some(Verdict::Outcome(outcome)) => {
            let state = outcome.call.map(|call| call.state).unwrap_or_default();
            let verdict = if outcome.replayed { "replayed".into() } else { state };
            (verdict, serde_json::from_str(&outcome.result_json)?)
        }
        Some(Verdict::Refused(problem)) => {
            let next = problem.next.map(|next| next.tool).unwrap_or_default();
            ("refused".into(), json!({"code": problem.code, "message": problem.message, "next": next}))
        }
        Some(Verdict::Confirm(consent) | Verdict::Propose(consent)) => {
            ("confirm".into(), json!({"tool": consent.tool, "arguments": consent.arguments_json}))
        }
        Some(Verdict::InFlight(call)) => ("in flight".into(), json!({"call": call.call_id})),
        Some(Verdict::Handoff(handoff)) => ("handoff".into(), json!({"message": handoff.message})),
        None => ("an answer this client does not know".into(), Value::Null),
    })
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
    fn start(shop: &str) -> Result<Self, Box<dyn Error>> {
        let program = std::env::var_os("POINTSMAN_BIN").unwrap_or_else(|| "target/release/pointsman".into());
        let log = std::env::temp_dir().join(format!("pointsman-demo-{}.log", std::process::id()));
        let child = Command::new(&program)
            .env_remove("POINTSMAN_BIN") // ours; the server would take it for a setting
            .args(["serve", "--registry", REGISTRY, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"])
            .env("POINTSMAN_STORE__PATH", ":memory:") // sample data leaves nothing behind
            // Where the cards' `target: shop` is; addresses of this machine have to be allowed.
            .env("POINTSMAN_EXECUTE__TARGETS", format!("{{shop = {{base_url = \"{shop}\", allow_private = true}}}}"))
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
