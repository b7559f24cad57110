//! `pointsman doctor` against endpoints of every kind: what it finds, what it advises, its exit code.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pointsman::config::{Loaded, Sources};
use pointsman::decide::llm::AnswerMode;
use pointsman::decide::llm::probe::{Advice, Check, Grade, Options, Refusal, Report, examine};
use regex::Regex;
use serde_json::{Value, json};

use crate::support::cli::pointsman;
use crate::support::scripted_llm::{ScriptedLlm, Step, body, call, hang, raw, status, status_with, text};

const KEY: &str = "sk-never-shown";

/// An endpoint that can do everything.
fn able(head: &str, asked: &Value) -> Step {
    if head.starts_with("GET ") {
        return body(json!({"data": [{"id": "scripted"}, {"id": "another"}]}));
    }
    let said = said(asked);
    let of_parcel = said.contains("SF1234567890");
    let answer = if asked.get("tools").is_some() {
        let names: Vec<&str> =
            asked["tools"].as_array().unwrap().iter().filter_map(|tool| tool["function"]["name"].as_str()).collect();
        match (of_parcel, names.contains(&"track_parcel")) {
            (true, true) => call("track_parcel", json!({"tracking_no": "SF1234567890"})),
            (false, true) => call("no_tool", json!({})),
            (_, false) => text("OK"),
        }
    } else if asked.get("response_format").is_some() {
        text(&json_answer(asked, of_parcel))
    } else if said.contains("Count from 1") {
        text("1, 2, 3")
    } else {
        text("OK")
    };
    with_logprobs(asked, answer)
}

fn json_answer(asked: &Value, of_parcel: bool) -> String {
    let schema = asked["response_format"]["json_schema"]["schema"].to_string();
    if schema.contains("parcel_q7") {
        return json!({"choice": if of_parcel { "parcel_q7" } else { "no_tool" }, "note": "short"}).to_string();
    }
    let name = if of_parcel { "track_parcel" } else { "no_tool" };
    let arguments = if of_parcel { json!({"tracking_no": "SF1234567890"}) } else { json!({}) };
    // All at once, the name alone, or the arguments alone.
    match (schema.contains("\"action\""), schema.contains("\"tool\"")) {
        (true, _) => json!({"action": name, "arguments": arguments}),
        (false, true) => json!({"tool": name}),
        (false, false) => arguments,
    }
    .to_string()
}

fn said(asked: &Value) -> String {
    let last = asked["messages"].as_array().and_then(|messages| messages.last()).unwrap_or(&Value::Null);
    last["content"].as_str().unwrap_or_default().to_owned()
}

/// Probabilities stand beside every answer of whoever asks for them.
fn with_logprobs(asked: &Value, step: Step) -> Step {
    let Step::Respond { body: bytes, .. } = &step else { return step };
    let mut answer: Value = serde_json::from_slice(bytes).unwrap();
    answer["usage"] = json!({"prompt_tokens": asked.to_string().len() / 4, "completion_tokens": 8});
    if asked["logprobs"] == true {
        let top: Vec<Value> = (0..20).map(|n| json!({"token": n.to_string(), "logprob": -1.0})).collect();
        answer["choices"][0]["logprobs"] = json!({"content": [{"token": "x", "logprob": -0.5, "top_logprobs": top}]});
    }
    body(answer)
}

fn options() -> Options {
    Options { patience: Duration::from_secs(20), quick: false, deadline: Duration::from_secs(30) }
}

async fn report_of(llm: &ScriptedLlm, options: Options) -> Report {
    report_at(llm.url(), options).await
}

async fn report_at(url: &str, options: Options) -> Report {
    let flags = [("llm.base_url", url), ("llm.model", "scripted"), ("llm.api_key", KEY)];
    let flags = flags.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let settings = Loaded::load(&Sources { flags, ..Sources::default() }).unwrap().settings.pipeline.llm.unwrap();
    let report = examine(&settings, &settings.endpoints[0], &options, &|_| {}).await.unwrap();
    assert_eq!(
        report.findings.iter().map(|finding| finding.check).collect::<Vec<_>>(),
        Check::ALL,
        "every check, in order"
    );
    assert!(!format!("{report:?}").contains(KEY));
    report
}

/// The report about an endpoint that differs from an able one where `odd` says so.
async fn examined(odd: impl Fn(&str, &Value) -> Option<Step> + Send + Sync + 'static) -> (ScriptedLlm, Report) {
    let llm = ScriptedLlm::answering(move |head, asked| odd(head, asked).unwrap_or_else(|| able(head, asked))).await;
    let report = report_of(&llm, options()).await;
    (llm, report)
}

#[track_caller]
fn found(report: &Report, check: Check, grade: Grade, part: &str) {
    let finding = report.finding(check).unwrap();
    assert_eq!(finding.grade, grade, "{finding:?}");
    assert!(finding.remark.contains(part), "`{part}` is not in {finding:?}");
}

#[track_caller]
fn advice(report: &Report) -> &Advice {
    report.result.as_ref().unwrap_or_else(|refusal| panic!("{refusal:?}: {report:?}"))
}

#[track_caller]
fn refusal(report: &Report) -> &Refusal {
    report.result.as_ref().unwrap_err()
}

#[tokio::test]
async fn an_able_endpoint_serves_by_functions() {
    let (llm, report) = examined(|_, _| None).await;
    for finding in &report.findings {
        assert_eq!(finding.grade, Grade::Yes, "{finding:?}");
    }
    let found = advice(&report);
    assert_eq!((found.mode, found.logprobs, found.seed, found.max_tools), (AnswerMode::Functions, true, Some(7), 64));
    assert!((5..=120).contains(&found.timeout.as_secs()), "{found:?}");
    assert!(llm.heads().iter().all(|head| head.contains(KEY)), "the key goes with every request");
    assert_eq!(llm.peak(), 1, "one request at a time");
    assert!(llm.calls() <= 30, "{} requests", llm.calls());
}

#[tokio::test]
async fn quick_leaves_out_the_long_prompts() {
    let llm = ScriptedLlm::answering(able).await;
    let report = report_of(&llm, Options { quick: true, ..options() }).await;
    found(&report, Check::MaxTools, Grade::Skipped, "--quick");
    assert!(llm.requests().iter().all(|asked| asked["tools"].as_array().is_none_or(|tools| tools.len() < 16)));
    assert_eq!(advice(&report).max_tools, 64);
}

#[tokio::test]
async fn the_advice_loads_as_a_configuration() {
    let (_llm, mut report) = examined(|_, _| None).await;
    let advice = report.result.as_mut().unwrap();
    advice.deadline = Some(Duration::from_secs(240));
    let advised = advice.timeout;
    let odd = "na\"me\\with\nall";
    let toml = advice.to_toml("http://127.0.0.1:1/v1", odd, 0);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pointsman.toml");
    std::fs::write(&file, &toml).unwrap();
    let settings =
        Loaded::load(&Sources { file: Some(file), ..Sources::default() }).unwrap_or_else(|err| panic!("{err}\n{toml}"));
    let pipeline = settings.settings.pipeline;
    assert_eq!(pipeline.deadline, Duration::from_secs(240));
    let llm = pipeline.llm.unwrap();
    assert_eq!((llm.endpoints[0].model.as_str(), llm.endpoints[0].mode), (odd, AnswerMode::Functions));
    assert!(llm.endpoints[0].logprobs);
    assert_eq!((llm.timeout, llm.seed, llm.temperature), (advised, Some(7), Some(0.0)));
}

#[tokio::test]
async fn without_functions_a_schema_serves() {
    let (llm, report) = examined(|_, asked| asked.get("tools").map(|_| status(400))).await;
    found(&report, Check::Tools, Grade::No, "HTTP status 400");
    found(&report, Check::ToolChoice, Grade::Skipped, "do not work");
    found(&report, Check::ParallelToolCalls, Grade::Skipped, "do not work");
    found(&report, Check::MaxTools, Grade::Skipped, "do not work");
    found(&report, Check::Decision, Grade::Yes, "json_schema: 3 of 3");
    assert_eq!(advice(&report).mode, AnswerMode::JsonSchema);
    assert!(
        llm.requests().iter().filter(|asked| asked.get("tools").is_some()).count() <= 2,
        "not asked again and again"
    );
}

#[tokio::test]
async fn calls_in_the_text_are_worth_less_than_a_schema() {
    let in_text = |_: &str, asked: &Value| {
        asked.get("tools")?;
        let (name, arguments) = match said(asked).contains("SF1234567890") {
            true => ("track_parcel", json!({"tracking_no": "SF1234567890"})),
            false => ("no_tool", json!({})),
        };
        Some(text(&json!({"name": name, "arguments": arguments}).to_string()))
    };
    let (_llm, report) = examined(in_text).await;
    found(&report, Check::Tools, Grade::Partly, "in the text");
    found(&report, Check::ToolChoice, Grade::Partly, "in the text");
    assert_eq!(advice(&report).mode, AnswerMode::JsonSchema);
    // Where there is no schema, they serve.
    let (_llm, report) = examined(move |head, asked| match asked.get("response_format") {
        Some(_) => Some(status(400)),
        None => in_text(head, asked),
    })
    .await;
    found(&report, Check::JsonSchema, Grade::No, "400");
    found(&report, Check::Decision, Grade::Yes, "functions: 3 of 3");
    assert_eq!((advice(&report).mode, advice(&report).logprobs), (AnswerMode::Functions, false));
}

/// A model that calls nothing and writes no arguments may still name the tool.
#[tokio::test]
async fn a_name_alone_is_the_last_resort() {
    let (_llm, report) = examined(|_, asked| {
        let schema = asked["response_format"].to_string();
        let whole = schema.contains("parcel_q7") || schema.contains("\"action\"");
        (asked.get("tools").is_some() || whole).then(|| text("I am only a small model."))
    })
    .await;
    found(&report, Check::Tools, Grade::No, "no call");
    found(&report, Check::JsonSchema, Grade::No, "ignored");
    found(&report, Check::Decision, Grade::Yes, "choose_then_fill: 3 of 3");
    assert_eq!(advice(&report).mode, AnswerMode::ChooseThenFill);
}

#[tokio::test]
async fn a_refused_or_ignored_schema_is_told_apart() {
    let (_llm, report) =
        examined(|_, asked| asked.get("response_format").map(|_| status_with(400, &[], "response_format"))).await;
    found(&report, Check::JsonSchema, Grade::No, "named in the complaint");
    assert_eq!(advice(&report).mode, AnswerMode::Functions);
    let (_llm, report) =
        examined(|_, asked| asked.get("response_format").map(|_| text("Your parcel is on its way."))).await;
    found(&report, Check::JsonSchema, Grade::No, "ignored");
    let free = r#"{"choice": "Parcel tracking", "note": "x"}"#;
    let (_llm, report) = examined(move |_, asked| asked.get("response_format").map(|_| text(free))).await;
    found(&report, Check::JsonSchema, Grade::No, "ignores the schema");
    let long = r#"{"choice": "parcel_q7", "note": "a note that goes on and on without an end"}"#;
    let (_llm, report) =
        examined(move |_, asked| asked["response_format"].to_string().contains("parcel_q7").then(|| text(long))).await;
    found(&report, Check::JsonSchema, Grade::Partly, "not bounded");
}

#[tokio::test]
async fn missing_probabilities_are_not_asked_for() {
    let (_llm, report) =
        examined(|_, asked| (asked["logprobs"] == true).then(|| able("POST", &without(asked, "logprobs")))).await;
    found(&report, Check::Logprobs, Grade::No, "not with plain; not with json_schema; not with functions");
    assert!(!advice(&report).logprobs);
    let (_llm, report) =
        examined(|_, asked| (asked["logprobs"] == true && asked.get("tools").is_some()).then(|| status(400))).await;
    found(
        &report,
        Check::Logprobs,
        Grade::Partly,
        "with plain, json_schema, 20 alternatives; functions: HTTP status 400",
    );
    assert!(!advice(&report).logprobs, "not in the answers of the mode advised");
}

fn without(asked: &Value, key: &str) -> Value {
    let mut asked = asked.clone();
    asked.as_object_mut().unwrap().remove(key);
    asked
}

#[tokio::test]
async fn refused_parameters_are_named_and_left_out() {
    let refuses = |key: &'static str| {
        move |_: &str, asked: &Value| {
            asked.get(key).map(|_| {
                status_with(400, &[], &format!(r#"{{"error":{{"message":"Unsupported parameter: '{key}'"}}}}"#))
            })
        }
    };
    let (_llm, report) = examined(refuses("parallel_tool_calls")).await;
    found(&report, Check::ParallelToolCalls, Grade::No, "named in the complaint");
    found(&report, Check::Decision, Grade::Yes, "functions: 3 of 3");
    assert_eq!(advice(&report).mode, AnswerMode::Functions);

    let (_llm, report) = examined(refuses("seed")).await;
    found(&report, Check::Seed, Grade::No, "named");
    assert_eq!(advice(&report).seed, None);
    assert!(advice(&report).to_toml("http://h/v1", "m", 0).contains("\nseed = \"off\"\n"));
    let (_llm, report) = examined(refuses("temperature")).await;
    found(&report, Check::Temperature, Grade::No, "named");
    found(&report, Check::Seed, Grade::Yes, "3 of 3");
    assert_eq!(advice(&report).temperature, None);
    assert!(advice(&report).to_toml("http://h/v1", "m", 0).contains("\ntemperature = \"off\"\n"));
    let (_llm, report) = examined(refuses("max_completion_tokens")).await;
    found(&report, Check::MaxCompletionTokens, Grade::Partly, "max_tokens is obeyed");

    // A complaint that names nothing leaves nothing to withdraw: that mode does not serve.
    let (_llm, report) = examined(|_, asked| asked.get("parallel_tool_calls").map(|_| status(400))).await;
    found(&report, Check::ParallelToolCalls, Grade::No, "not named in the complaint");
    found(&report, Check::Decision, Grade::Yes, "functions: 0 of 3 right");
    assert_eq!(advice(&report).mode, AnswerMode::JsonSchema);

    let (_llm, report) =
        examined(|_, asked| (asked["tool_choice"] == "required").then(|| status_with(400, &[], "tool_choice"))).await;
    found(&report, Check::ToolChoice, Grade::No, "`auto` is accepted");
    assert_eq!(advice(&report).mode, AnswerMode::Functions);
}

#[tokio::test]
async fn ignored_parameters_are_seen() {
    let two = |_: &str, asked: &Value| {
        let track = |number: &str| ("track_parcel", json!({"tracking_no": number}));
        said(asked)
            .contains("SF1234567891")
            .then(|| crate::support::scripted_llm::calls(&[track("SF1234567890"), track("SF1234567891")]))
    };
    let (_llm, report) = examined(two).await;
    found(&report, Check::ParallelToolCalls, Grade::Partly, "2 calls");
    let (_llm, report) = examined(|_, asked| said(asked).contains("how are you").then(|| text("Fine, and you?"))).await;
    found(&report, Check::ToolChoice, Grade::Partly, "ignored");

    let (_llm, report) = examined(|_, asked| {
        let counts = said(asked).contains("Count from 1");
        counts.then(|| {
            body(
                json!({"choices": [{"message": {"content": "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16"}}]}),
            )
        })
    })
    .await;
    found(&report, Check::MaxCompletionTokens, Grade::No, "max_completion_tokens is ignored; max_tokens is ignored");
    advice(&report);

    let answers = AtomicUsize::new(0);
    let (_llm, report) = examined(move |_, asked| {
        said(asked)
            .contains("the sea")
            .then(|| text(&format!("The sea, take {}.", answers.fetch_add(1, Ordering::SeqCst))))
    })
    .await;
    found(&report, Check::Seed, Grade::Partly, "differ");
    assert_eq!(advice(&report).seed, Some(7));

    let (_llm, report) = examined(|_, asked| {
        asked.get("messages").map(|_| match able("POST", asked) {
            Step::Respond { body: bytes, .. } => {
                let answer: Value = serde_json::from_slice(&bytes).unwrap();
                body(without(&answer, "usage"))
            }
            other => other,
        })
    })
    .await;
    found(&report, Check::Usage, Grade::No, "no token counts");
    advice(&report);
}

#[tokio::test]
async fn the_number_of_tools_stops_at_the_first_refusal() {
    let (llm, report) = examined(|_, asked| (asked["tools"].as_array()?.len() > 64).then(|| status(500))).await;
    found(&report, Check::MaxTools, Grade::Partly, "64 accepted; with 128: HTTP status 500");
    assert!(llm.requests().iter().all(|asked| asked["tools"].as_array().is_none_or(|tools| tools.len() <= 128)));
    assert_eq!(advice(&report).max_tools, 64);
    let (_llm, report) = examined(|_, asked| (asked["tools"].as_array()?.len() > 16).then(|| status(400))).await;
    assert_eq!(advice(&report).max_tools, 16);
}

#[tokio::test]
async fn a_wish_in_chinese_may_be_missed() {
    let (_llm, report) = examined(|_, asked| {
        let chinese = said(asked).contains("快递");
        (chinese && asked.get("tools").is_some()).then(|| call("cancel_order", json!({"order_id": "SF1234567890"})))
    })
    .await;
    found(&report, Check::Chinese, Grade::Partly, "functions choose cancel_order; json_schema chooses parcel_q7");
    found(&report, Check::Decision, Grade::Yes, "functions: 2 of 3 right; json_schema: 3 of 3");
    assert_eq!(advice(&report).mode, AnswerMode::JsonSchema);
}

#[tokio::test]
async fn a_busy_endpoint_is_asked_again() {
    let asked_before = AtomicUsize::new(0);
    let (_llm, report) = examined(move |_, asked| {
        let first = asked.get("temperature").is_some() && asked_before.fetch_add(1, Ordering::SeqCst) == 0;
        first.then(|| status_with(429, &[("retry-after", "0")], "slow down"))
    })
    .await;
    found(&report, Check::Temperature, Grade::Yes, "accepted");
}

#[tokio::test]
async fn what_cannot_serve_is_told_with_a_remedy() {
    type Case = (Vec<Step>, &'static str, &'static str);
    let moved = [("location", "http://127.0.0.1:1/v1")];
    let cases: Vec<Case> = vec![
        (vec![status(401)], "HTTP status 401", "key is not accepted"),
        (vec![status_with(307, &moved, "")], "HTTP status 307", "redirects are not followed"),
        (vec![raw("<html>Welcome</html>")], "not JSON", "no OpenAI-compatible API"),
        (vec![status(404)], "HTTP status 404", "/v1"),
        (vec![body(json!({"error": {"code": 401}}))], "an error in a body", "key is not accepted"),
        (vec![body(json!({"hello": 1}))], "no message", "no OpenAI-compatible API"),
        (vec![status(500)], "HTTP status 500", "log"),
        (vec![Step::HalfBody], "broke off", "proxy"),
        (vec![text("I do not know functions.")], "no answer mode", "JSON schema"),
    ];
    for (steps, reason, remedy) in cases {
        let llm = ScriptedLlm::start(steps.clone()).await;
        let report = report_of(&llm, options()).await;
        let refusal = refusal(&report);
        assert!(refusal.reason.contains(reason) && refusal.remedy.contains(remedy), "{steps:?}: {refusal:?}");
        assert!(llm.requests().len() <= 30, "{steps:?}");
    }
    let report = report_at("http://127.0.0.1:1/v1", options()).await;
    assert_eq!(refusal(&report).reason, "connection failed");
    found(&report, Check::Plain, Grade::Skipped, "not tried");
}

#[tokio::test]
async fn an_endpoint_that_hangs_is_given_up_on() {
    let llm = ScriptedLlm::start([hang()]).await;
    let report = report_of(&llm, Options { patience: Duration::from_millis(200), ..options() }).await;
    assert!(refusal(&report).remedy.contains("--patience"), "{report:?}");
    assert_eq!(llm.calls(), 1, "nothing else is tried");
    // Hanging in one check does not end the others.
    let llm = ScriptedLlm::answering(|head, asked| {
        if asked.get("seed").is_some() && asked.get("tools").is_none() && asked.get("response_format").is_none() {
            hang()
        } else {
            able(head, asked)
        }
    })
    .await;
    let report = report_of(&llm, Options { patience: Duration::from_secs(2), ..options() }).await;
    found(&report, Check::Seed, Grade::Unknown, "no answer within 2.0 s");
    found(&report, Check::Decision, Grade::Yes, "functions: 3 of 3");
}

fn doctor(args: &[&str]) -> (i32, String, String) {
    let output = pointsman().env("POINTSMAN_LLM__API_KEY", KEY).arg("doctor").args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(!out.contains(KEY) && !err.contains(KEY));
    (output.status.code().unwrap_or(-1), out, err)
}

fn set(url: &str) -> Vec<String> {
    let set = |key: &str, value: &str| ["--set".to_owned(), format!("{key}={value}")];
    [set("llm.base_url", url), set("llm.model", "scripted")].concat()
}

fn doctor_at(url: &str, more: &[&str]) -> (i32, String, String) {
    let set = set(url);
    let args: Vec<&str> = set.iter().map(String::as_str).chain(more.iter().copied()).collect();
    doctor(&args)
}

/// Ports, times and what follows from them differ from run to run.
fn masked(text: &str) -> String {
    let port = Regex::new(r"127\.0\.0\.1:\d+").unwrap();
    let time = Regex::new(r" *\d+\.\d+ s").unwrap();
    let timeout = Regex::new(r"timeout_ms = \d+").unwrap();
    let text = time.replace_all(&port.replace_all(text, "HOST:PORT"), " TIME").into_owned();
    timeout.replace_all(&text, "timeout_ms = TIME").into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_report_is_a_table_and_a_piece_of_configuration() {
    let llm = ScriptedLlm::answering(|head, asked| match asked.get("parallel_tool_calls") {
        Some(_) => status_with(400, &[], "Unsupported parameter: parallel_tool_calls"),
        None => able(head, asked),
    })
    .await;
    let (code, out, err) = doctor_at(llm.url(), &[]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    insta::assert_snapshot!("doctor_serves", masked(&out));

    let llm = ScriptedLlm::start([status(401)]).await;
    let (code, out, err) = doctor_at(llm.url(), &[]);
    assert_eq!(code, 1, "{out}");
    insta::assert_snapshot!("doctor_refused", masked(&format!("{out}---\n{err}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn json_has_every_key_and_exit_codes_tell_what_to_do() {
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let llm = ScriptedLlm::answering(able).await;
    let (code, out, _) = doctor_at(llm.url(), &["--format", "json", "--quick"]);
    assert_eq!(code, 0);
    let answer: Value = serde_json::from_str(&out).unwrap();
    let able = &answer["endpoints"][0];
    let top = ["base_url", "checks", "model", "reason", "remedy", "serves", "settings", "toml"];
    assert_eq!(keys(able), top);
    assert_eq!(
        (&able["serves"], &able["settings"]["mode"], &able["reason"]),
        (&json!(true), &json!("functions"), &Value::Null)
    );
    let checks = able["checks"].as_array().unwrap();
    assert_eq!(checks.len(), Check::ALL.len());
    assert!(checks.iter().all(|check| keys(check) == ["check", "remark", "result", "took_ms"]), "{checks:?}");

    let (code, out, err) = doctor_at("http://127.0.0.1:1/v1", &["--format", "json"]);
    assert_eq!(code, 1);
    assert!(err.contains("connection failed") && err.contains("help: check llm.base_url"), "{err}");
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(keys(&answer["endpoints"][0]), top);
    assert_eq!((&answer["endpoints"][0]["serves"], &answer["endpoints"][0]["settings"]), (&json!(false), &Value::Null));

    let (code, out, err) = doctor(&[]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("llm.base_url is not set") && err.contains("--set llm.base_url"), "{err}");
    let (code, _, err) = doctor(&["--set", "llm.base_url=ftp://example.org"]);
    assert!(code == 2 && err.contains("llm.base_url"), "{err}");
    assert_eq!(doctor_at("http://127.0.0.1:1/v1", &["--patience", "0"]).0, 2);
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_ends_it() {
    let llm = ScriptedLlm::start([hang()]).await;
    let mut child = pointsman().arg("doctor").args(set(llm.url())).stdout(std::process::Stdio::null()).spawn().unwrap();
    while llm.calls() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    crate::support::cli::signal(&child, "INT");
    assert_ne!(crate::support::cli::wait(&mut child), 0);
}
