//! The executor against a server that follows a script, mostly with tokio's clock paused.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::*;
use crate::tool::{HttpRun, SideEffect};
use crate::types::Body;

/// What happens to one request.
#[derive(Clone)]
enum Step {
    /// All of the response as it goes over the wire.
    Say(String),
    /// Says it and closes.
    SayAndClose(String),
    Hang,
}

fn status(status: u16, headers: &str, body: &str) -> Step {
    Step::Say(format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len()))
}

fn ok(body: &str) -> Step {
    status(200, "", body)
}

/// Each request takes the next step; the last one repeats.
struct Server {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
    /// Clients that went away while they were kept waiting.
    left: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start(steps: impl IntoIterator<Item = Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/api", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let (connections, left): (Arc<AtomicUsize>, Arc<AtomicUsize>) = Default::default();
        let steps: Vec<Step> = steps.into_iter().collect();
        let shared = (requests.clone(), connections.clone(), left.clone());
        let task = tokio::spawn(async move {
            let (requests, connections, left) = shared;
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, steps.clone(), requests.clone(), left.clone()));
            }
        });
        Self { url, requests, connections, left, task }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    fn calls(&self) -> usize {
        self.requests().len()
    }

    fn target(&self) -> HttpTarget {
        HttpTarget { base_url: self.url.clone(), headers: Vec::new(), allow_private: true }
    }

    fn executors(&self) -> Executors {
        executors(self.target())
    }
}

async fn serve(mut stream: TcpStream, steps: Vec<Step>, requests: Arc<Mutex<Vec<String>>>, left: Arc<AtomicUsize>) {
    while let Some(request) = read_request(&mut stream).await {
        let at = {
            let mut requests = requests.lock().unwrap();
            requests.push(request);
            requests.len() - 1
        };
        match &steps[at.min(steps.len() - 1)] {
            Step::Say(text) => stream.write_all(text.as_bytes()).await.unwrap(),
            Step::SayAndClose(text) => return stream.write_all(text.as_bytes()).await.unwrap(),
            Step::Hang => {
                let mut rest = [0; 64];
                while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
                left.fetch_add(1, Ordering::SeqCst);
                return;
            }
        }
    }
}

/// Head and body of the next request; `None` when the client is gone.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut text = String::new();
    loop {
        let length =
            || text.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if let Some((_, body)) = text.split_once("\r\n\r\n")
            && body.len() >= length().unwrap_or(0usize)
        {
            return Some(text);
        }
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        text.push_str(std::str::from_utf8(&chunk[..read]).unwrap());
    }
}

fn executors(target: HttpTarget) -> Executors {
    let targets = [("shop".to_owned(), Target::Http(target))].into();
    Executors::new(Settings {
        targets,
        default_timeout: Duration::from_secs(10),
        max_answer_bytes: 1_000,
        retries: 1,
        breaker_failures: 6,
        breaker_window: Duration::from_secs(30),
    })
    .unwrap()
}

fn card(side_effect: SideEffect, idempotent: bool) -> ToolCard {
    let run = HttpRun { target: "shop".into(), method: "POST".into(), path: "/orders/{id}".into(), query: Vec::new() };
    let mut card = ToolCard::reading("tool", json!({"type": "object"}));
    card.side_effect = side_effect;
    card.idempotent = idempotent;
    card.run = Some(Run::Http(run));
    card.timeout = Some(Duration::from_secs(3));
    card
}

fn read() -> ToolCard {
    card(SideEffect::Read, true)
}

fn write() -> ToolCard {
    card(SideEffect::Write, true)
}

fn destroy() -> ToolCard {
    card(SideEffect::Destructive, false)
}

fn job(card: ToolCard) -> Job {
    let arguments = json!({"id": "SO-1", "note": "坏了"}).as_object().unwrap().clone();
    Job { card: Arc::new(card), arguments, key: Some("k-1".into()), deadline: Deadline::after(Duration::from_secs(60)) }
}

#[track_caller]
fn answer(ran: Ran) -> ToolAnswer {
    match ran.end {
        End::Answered(answer) => answer,
        other => panic!("no answer: {other:?}"),
    }
}

#[track_caller]
fn lost(ran: Ran) -> Problem {
    match ran.end {
        End::Lost(problem) => problem,
        other => panic!("not lost: {other:?}"),
    }
}

#[track_caller]
fn not_started(ran: Ran) -> Problem {
    assert_eq!(ran.attempts, 0);
    match ran.end {
        End::NotStarted(problem) => problem,
        other => panic!("started: {other:?}"),
    }
}

#[tokio::test]
async fn a_request_carries_arguments_key_and_secret_headers() {
    let server = Server::start([ok(r#"{"done":true}"#)]).await;
    let headers = vec![("X-Api-Key".to_owned(), Secret("s3cret".into()))];
    let executors = executors(HttpTarget { headers, ..server.target() });
    let ran = executors.run(job(destroy())).await;
    assert_eq!(ran.attempts, 1);
    let answer = answer(ran);
    assert_eq!((answer.status, answer.body), (Some(200), Body::Json(json!({"done": true}))));
    let request = &server.requests()[0];
    assert!(request.starts_with("POST /api/orders/SO-1 HTTP/1.1\r\n"), "{request}");
    for part in ["x-api-key: s3cret\r\n", "idempotency-key: k-1\r\n", "\r\n\r\n{\"note\":\"坏了\"}"] {
        assert!(request.contains(part), "{part} in {request}");
    }
    assert!(!format!("{:?}", executors.settings).contains("s3cret"));
}

#[tokio::test]
async fn every_status_is_an_answer_and_redirects_are_not_followed() {
    let elsewhere = Server::start([ok("{}")]).await;
    let location = format!("Location: {}\r\n", elsewhere.url);
    let steps = [
        status(302, &location, ""),
        status(404, "", r#"{"code":"ORDER_NOT_FOUND"}"#),
        status(500, "", "at com.shop.Order"),
        status(429, "Retry-After: 7\r\n", ""),
    ];
    let server = Server::start(steps).await;
    let executors = server.executors();
    for expected in [
        (302, Body::Empty, None),
        (404, Body::Json(json!({"code": "ORDER_NOT_FOUND"})), None),
        (500, Body::Text("at com.shop.Order".into()), None),
        (429, Body::Empty, Some(7_000)),
    ] {
        let answer = answer(executors.run(job(destroy())).await);
        assert_eq!((answer.status.unwrap(), answer.body, answer.retry_after_ms), expected);
    }
    assert_eq!((server.calls(), elsewhere.connections.load(Ordering::SeqCst)), (4, 0));
}

#[tokio::test]
async fn a_long_answer_is_cut() {
    let server = Server::start([ok(&format!("[{}1]", "1,".repeat(2_000)))]).await;
    let answer = answer(server.executors().run(job(read())).await);
    let Body::Text(text) = answer.body else { panic!() };
    assert!(answer.cut && text.len() == 1_000 && text.starts_with("[1,1,"));
}

#[tokio::test]
async fn nobody_listening_means_not_started() {
    let gone = Server::start([Step::Hang]).await.target();
    tokio::task::yield_now().await;
    let executors = executors(gone);
    for card in [read(), write(), destroy()] {
        let problem = not_started(executors.run(job(card)).await);
        assert_eq!((problem.code, problem.retryable), (ProblemCode::Unavailable, true));
    }
}

#[tokio::test]
async fn a_name_with_a_private_address_is_never_connected_to() {
    let server = Server::start([ok("{}")]).await;
    let base_url = server.url.replace("127.0.0.1", "localhost");
    let named = |allow_private| executors(HttpTarget { base_url: base_url.clone(), allow_private, ..server.target() });
    let problem = not_started(named(false).run(job(read())).await);
    assert_eq!((problem.code, problem.retryable), (ProblemCode::NotExecutable, false));
    assert!(!problem.message.contains("localhost"));
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
    answer(named(true).run(job(read())).await);
}

#[tokio::test]
async fn unfit_arguments_and_cards_are_refused_before_anything_is_sent() {
    let server = Server::start([ok("{}")]).await;
    let executors = server.executors();
    let mut unfit = job(write());
    unfit.arguments.insert("id".into(), "..".into());
    let problem = not_started(executors.run(unfit).await);
    assert_eq!((problem.code, problem.fields[0].path.as_str()), (ProblemCode::InvalidArgs, "/id"));
    let mut person = read();
    person.execution = Execution::ProposeOnly;
    let mut caller = read();
    caller.run = None;
    let mut elsewhere = read();
    elsewhere.run = Some(Run::Mcp(McpRun { target: "shop".into(), tool: "x".into() }));
    let mut unknown = read();
    unknown.run = Some(Run::Mcp(McpRun { target: "desk".into(), tool: "x".into() }));
    for card in [person, caller, elsewhere, unknown] {
        assert!(executors.runs(&card).is_err());
        assert_eq!(not_started(executors.run(job(card)).await).code, ProblemCode::NotExecutable);
    }
    let mut late = job(read());
    late.deadline = Deadline::after(Duration::ZERO);
    assert_eq!(not_started(executors.run(late).await).code, ProblemCode::Timeout);
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn silence_half_an_answer_and_a_lost_connection_are_lost_calls() {
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"done\":";
    for (step, code) in [
        (Step::Hang, ProblemCode::Timeout),
        (Step::SayAndClose(half.into()), ProblemCode::Unavailable),
        (Step::SayAndClose(String::new()), ProblemCode::Unavailable),
        (Step::SayAndClose("no HTTP at all\r\n\r\n".into()), ProblemCode::Unavailable),
    ] {
        let server = Server::start([step]).await;
        for card in [read(), write(), destroy()] {
            let reads = card.side_effect == SideEffect::Read;
            let started = Instant::now();
            let problem = lost(server.executors().run(job(card)).await);
            assert_eq!((&problem.code, problem.retryable), (&code, true));
            let suggestion = problem.suggestion.unwrap();
            assert!(suggestion.contains("do not guess") && suggestion.contains("taken effect") != reads);
            let waited = Duration::from_secs(3).as_millis();
            assert!(code != ProblemCode::Timeout || (waited..waited + 3).contains(&started.elapsed().as_millis()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_what_may_be_repeated_is_tried_again() {
    for (card, key, expected) in [
        (read(), false, 2),
        (write(), true, 2),
        (write(), false, 1),
        (card(SideEffect::Write, false), true, 1),
        (destroy(), true, 1),
        (ToolCard { side_effect_declared: false, ..read() }, false, 1),
    ] {
        let server = Server::start([status(503, "", "")]).await;
        let mut job = job(card);
        job.key = job.key.filter(|_| key);
        let ran = server.executors().run(job).await;
        assert_eq!((server.calls(), ran.attempts), (expected, expected as u32));
        assert_eq!(answer(ran).status, Some(503));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_attempt_is_made_up_for_by_success_alone() {
    let gone = || Step::SayAndClose(String::new());
    let run = async |card: ToolCard, steps: Vec<Step>| {
        let server = Server::start(steps).await;
        server.executors().run(job(card)).await
    };
    assert_eq!(answer(run(write(), vec![gone(), ok("{}")]).await).status, Some(200));
    // The second answer says nothing of what the first attempt did.
    assert_eq!(lost(run(write(), vec![gone(), status(409, "", "{}")]).await).code, ProblemCode::Unavailable);
    assert_eq!(answer(run(read(), vec![gone(), status(404, "", "{}")]).await).status, Some(404));
    assert_eq!(lost(run(write(), vec![status(503, "", ""), gone()]).await).code, ProblemCode::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_tried_again_after_the_deadline() {
    let server = Server::start([status(429, "Retry-After: 20\r\n", "")]).await;
    let mut call = job(read());
    call.deadline = Deadline::after(Duration::from_secs(15));
    let started = Instant::now();
    assert_eq!(answer(server.executors().run(call).await).status, Some(429));
    assert!(server.calls() == 1 && started.elapsed() < Duration::from_secs(1));
    let server = Server::start([Step::Hang]).await;
    let executors = server.executors();
    for _ in 0..8 {
        let mut call = job(read());
        call.deadline = Deadline::after(Duration::from_millis(500));
        let problem = lost(executors.run(call).await);
        assert!(problem.message.contains("500 ms"), "{}", problem.message);
    }
    assert!(!executors.is_open(&read()), "callers in a hurry do not blame the tool");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_comes_while_a_session_is_made_means_not_started() {
    let server = Server::start([Step::Hang]).await;
    let mut settings = server.executors().settings;
    settings.targets.insert("desk".into(), Target::Mcp(McpTarget::Url(server.target())));
    let executors = Executors::new(settings).unwrap();
    let mut card = destroy();
    card.run = Some(Run::Mcp(McpRun { target: "desk".into(), tool: "x".into() }));
    for _ in 0..8 {
        let mut call = job(card.clone());
        call.deadline = Deadline::after(Duration::from_millis(500));
        assert_eq!(not_started(executors.run(call).await).code, ProblemCode::Timeout);
    }
    assert!(!executors.is_open(&card));
    for _ in 0..6 {
        assert_eq!(not_started(executors.run(job(card.clone())).await).code, ProblemCode::Unavailable);
    }
    assert!(executors.is_open(&card), "a server that never begins is down");
}

#[tokio::test]
async fn dropping_a_call_closes_its_connection() {
    let server = Server::start([Step::Hang]).await;
    let executors = Arc::new(server.executors());
    let call = tokio::spawn({
        let executors = executors.clone();
        async move { executors.run(job(destroy())).await }
    });
    while server.calls() == 0 {
        tokio::task::yield_now().await;
    }
    call.abort();
    while server.left.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!executors.is_open(&destroy()));
}

#[tokio::test(start_paused = true)]
async fn timeouts_are_the_cards_the_tools_own_or_the_default() {
    let server = Server::start([ok("{}")]).await;
    let executors = server.executors();
    let mut card = read();
    assert_eq!(executors.timeout(&card), Duration::from_secs(3));
    card.timeout = None;
    assert_eq!(executors.timeout(&card), Duration::from_secs(10));
    for _ in 0..20 {
        answer(executors.run(job(card.clone())).await);
    }
    let learned = executors.timeout(&card);
    assert!(learned < Duration::from_secs(1) && learned.as_millis() % 100 == 0, "{learned:?}");
    assert_eq!(executors.timeout(&read()), Duration::from_secs(3));
}
