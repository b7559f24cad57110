//! An OpenAI-compatible endpoint that follows a script.
//!
//! Each request takes the next step and the last one repeats, or a function makes the step of each request. Plain TCP,
//! so that a response can also stop half way.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// What happens to one request.
#[derive(Debug, Clone)]
pub enum Step {
    Respond {
        status: u16,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    },
    /// Announces a body and sends half of it.
    HalfBody,
    /// Never answers; notices when the client goes away.
    Hang,
    Delay(Duration, Box<Step>),
}

pub fn status(status: u16) -> Step {
    status_with(status, &[], r#"{"error":{"message":"scripted","type":"scripted"}}"#)
}

pub fn status_with(status: u16, headers: &[(&str, &str)], body: &str) -> Step {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Step::Respond { status, headers, body: body.as_bytes().to_vec() }
}

/// Status 200 with a JSON body.
pub fn body(body: Value) -> Step {
    raw(&body.to_string())
}

/// Status 200 with any body.
pub fn raw(text: &str) -> Step {
    status_with(200, &[], text)
}

pub fn half_body() -> Step {
    Step::HalfBody
}

pub fn hang() -> Step {
    Step::Hang
}

pub fn delay(milliseconds: u64, step: Step) -> Step {
    Step::Delay(Duration::from_millis(milliseconds), Box::new(step))
}

/// A completion that calls one function.
pub fn call(name: &str, arguments: Value) -> Step {
    calls(&[(name, arguments)])
}

/// A completion that calls several functions.
pub fn calls(calls: &[(&str, Value)]) -> Step {
    let call = |(index, (name, arguments)): (usize, &(&str, Value))| {
        // A string stands for itself, so that broken JSON can be scripted.
        let arguments = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
        json!({"id": format!("call_{index}"), "type": "function", "function": {"name": name, "arguments": arguments}})
    };
    let calls: Vec<Value> = calls.iter().enumerate().map(call).collect();
    completion(json!({"role": "assistant", "content": null, "tool_calls": calls}), "tool_calls")
}

/// A completion of text alone.
pub fn text(text: &str) -> Step {
    completion(json!({"role": "assistant", "content": text}), "stop")
}

fn completion(message: Value, finish_reason: &str) -> Step {
    body(json!({
        "id": "chatcmpl-scripted", "object": "chat.completion", "created": 1_700_000_000, "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }))
}

/// Makes the step of a request from its number (from 0) and itself.
type Script = dyn Fn(usize, &Request) -> Step + Send + Sync;

#[derive(Debug, Default)]
struct Record {
    requests: Mutex<Vec<Request>>,
    open: AtomicUsize,
    connections: AtomicUsize,
    peak: AtomicUsize,
    hung_up: AtomicUsize,
}

#[derive(Debug, Clone)]
struct Request {
    headers: String,
    body: Value,
    bytes: Vec<u8>,
}

/// The running endpoint; stops when dropped.
#[derive(Debug)]
pub struct ScriptedLlm {
    url: String,
    record: Arc<Record>,
    server: JoinHandle<()>,
}

impl ScriptedLlm {
    pub async fn start(steps: impl IntoIterator<Item = Step>) -> Self {
        let steps: Vec<Step> = steps.into_iter().collect();
        assert!(!steps.is_empty(), "a script needs a step");
        Self::run(Arc::new(move |number: usize, _: &Request| {
            steps.get(number).or(steps.last()).expect("checked at the start").clone()
        }))
        .await
    }

    /// `script` makes the step of each request, from its number (from 0) and its body.
    pub async fn start_with(script: impl Fn(usize, &Value) -> Step + Send + Sync + 'static) -> Self {
        Self::run(Arc::new(move |number: usize, request: &Request| script(number, &request.body))).await
    }

    /// `respond` makes the step of each request, from its head and its body.
    pub async fn answering(respond: impl Fn(&str, &Value) -> Step + Send + Sync + 'static) -> Self {
        Self::run(Arc::new(move |_: usize, request: &Request| respond(&request.headers, &request.body))).await
    }

    async fn run(script: Arc<Script>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let record = Arc::new(Record::default());
        let server = tokio::spawn(serve(listener, script, Arc::clone(&record)));
        Self { url, record, server }
    }

    /// Base URL, ending in `/v1`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Requests that have come in.
    pub fn calls(&self) -> usize {
        self.record.requests.lock().unwrap().len()
    }

    /// Their bodies, in order.
    pub fn requests(&self) -> Vec<Value> {
        self.record.requests.lock().unwrap().iter().map(|request| request.body.clone()).collect()
    }

    /// Their bodies as they came, in order.
    pub fn bodies(&self) -> Vec<Vec<u8>> {
        self.record.requests.lock().unwrap().iter().map(|request| request.bytes.clone()).collect()
    }

    /// Their request lines and headers, in order.
    pub fn heads(&self) -> Vec<String> {
        self.record.requests.lock().unwrap().iter().map(|request| request.headers.clone()).collect()
    }

    /// Most requests that were in work at the same time.
    pub fn peak(&self) -> usize {
        self.record.peak.load(Ordering::SeqCst)
    }

    /// Connections that are open now.
    pub fn connections(&self) -> usize {
        self.record.connections.load(Ordering::SeqCst)
    }

    /// Requests in work now.
    pub fn in_work(&self) -> usize {
        self.record.open.load(Ordering::SeqCst)
    }

    /// Requests whose client went away while they hung.
    pub fn hung_up(&self) -> usize {
        self.record.hung_up.load(Ordering::SeqCst)
    }
}

impl Drop for ScriptedLlm {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, script: Arc<Script>, record: Arc<Record>) {
    // Aborted together with this task.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        record.connections.fetch_add(1, Ordering::SeqCst);
        let (script, record) = (Arc::clone(&script), Arc::clone(&record));
        connections.spawn(async move {
            answer(stream, script, &record).await;
            record.connections.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// One request per connection. A client that breaks off ends it.
async fn answer(mut stream: TcpStream, script: Arc<Script>, record: &Record) {
    let Some(request) = read_request(&mut stream).await else { return };
    let step = {
        let mut requests = record.requests.lock().unwrap();
        let step = script(requests.len(), &request);
        requests.push(request);
        step
    };
    let open = record.open.fetch_add(1, Ordering::SeqCst) + 1;
    record.peak.fetch_max(open, Ordering::SeqCst);
    play(&mut stream, &step, record).await;
    record.open.fetch_sub(1, Ordering::SeqCst);
    let _ = stream.shutdown().await;
}

async fn play(stream: &mut TcpStream, mut step: &Step, record: &Record) {
    while let Step::Delay(time, next) = step {
        tokio::time::sleep(*time).await;
        step = next;
    }
    match step {
        Step::Respond { status, headers, body } => {
            let mut head =
                format!("HTTP/1.1 {status} Scripted\r\ncontent-length: {}\r\nconnection: close\r\n", body.len());
            for (name, value) in headers {
                head += &format!("{name}: {value}\r\n");
            }
            let _ = stream.write_all(format!("{head}\r\n").as_bytes()).await;
            let _ = stream.write_all(body).await;
        }
        Step::HalfBody => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 400\r\n\r\n";
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(br#"{"id":"chatcmpl-scripted","choices":[{"index":0,"mess"#).await;
        }
        Step::Hang => {
            while stream.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {}
            record.hung_up.fetch_add(1, Ordering::SeqCst);
        }
        Step::Delay(..) => unreachable!("delays are taken off above"),
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let mut length = None;
    loop {
        let head_end = bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4);
        if let Some(start) = head_end {
            let head = String::from_utf8_lossy(&bytes[..start]).into_owned();
            let wanted = *length.get_or_insert_with(|| content_length(&head));
            if bytes.len() >= start + wanted {
                let bytes = bytes[start..start + wanted].to_vec();
                let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                return Some(Request { headers: head, body, bytes });
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

fn content_length(head: &str) -> usize {
    let value = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    };
    head.lines().find_map(value).unwrap_or(0)
}
