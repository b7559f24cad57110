use super::*;
use crate::decide::llm::AnswerMode;
use crate::decide::llm::testing::shop;
use crate::text::Language;
use crate::types::FieldProblem;

/// Stands in for schema validation: `order_id` is `SO-` and a digit.
fn check(tool: &Tool, arguments: Map<String, Value>) -> Result<String, Box<Problem>> {
    let field = |expected: &str| FieldProblem { path: "/order_id".into(), expected: expected.into(), example: None };
    match arguments.get("order_id").and_then(Value::as_str) {
        Some("forbidden") => {
            let mut problem = Problem::invalid_args("not yours", vec![field("another order")]);
            problem.repairable = false;
            Err(problem.into())
        }
        Some(id) if id.starts_with("SO-") => Ok(format!("{}({id})", tool.id())),
        Some(_) => Err(Problem::invalid_args("invalid arguments", vec![field("SO- and 14 digits")]).into()),
        None => Err(Problem::invalid_args("invalid arguments", vec![field("required")]).into()),
    }
}

/// Calls stay as they are, as many as asked for; beside a refund of `SO-9` nothing else is possible.
fn arrange(max_calls: usize, mut calls: Vec<String>, conflicts: Conflicts) -> Result<Plan<String>, Refusal> {
    let excludes = calls.iter().any(|call| call == "execute_refund(SO-9)");
    if excludes && calls.len() > 1 && conflicts == Conflicts::Refuse {
        return Err(Refusal::Conflict { first: ToolId::new("execute_refund"), second: ToolId::new("get_order") });
    }
    calls.truncate(max_calls);
    Ok(Plan { calls, notes: Vec::new() })
}

fn call(name: &str, arguments: Value) -> RawCall {
    let arguments = match arguments {
        Value::Object(map) => Arguments::Object(map),
        other => Arguments::Unreadable(other.to_string()),
    };
    RawCall { name: name.into(), arguments }
}

fn calls(calls: &[RawCall]) -> Completion {
    Completion { calls: calls.to_vec(), ..Completion::default() }
}

fn one(name: &str, arguments: Value) -> Completion {
    calls(&[call(name, arguments)])
}

fn text(text: &str) -> Completion {
    Completion { text: text.into(), ..Completion::default() }
}

/// Plays answers until it ends; one word per re-ask, then the end, then the notes.
fn play_with(max_calls: usize, max_repairs: u32, answers: &[Completion]) -> String {
    let shop = shop();
    let tools = shop.tools();
    let list = Shortlist::new(&shop.request("hi", &tools), 128, AnswerMode::Functions);
    let mut dialogue = Dialogue::new(&list, Wording::of(Language::En), max_calls, max_repairs);
    let plan = |calls, conflicts| arrange(max_calls, calls, conflicts);
    let checks = Checks { arguments: &check, plan: &plan };
    let mut log = Vec::new();
    for answer in answers {
        match dialogue.step(answer, &checks) {
            Step::Calls(proposals) => log.push(proposals.join("+")),
            Step::End(verdict) => log.push(match verdict {
                Verdict::Clarify { tool, arguments, missing, fields, question } => format!(
                    "clarify {} {} missing {missing:?} fields {:?} {question:?}",
                    tool.map_or("-".into(), |tool| tool.to_string()),
                    Value::Object(arguments),
                    fields.iter().map(|f| &f.expected).collect::<Vec<_>>(),
                ),
                Verdict::NoTool(reason) => format!("no_tool {}", reason.as_str()),
                Verdict::Handoff(reason) => format!("handoff {}", reason.as_str()),
                Verdict::Call(_) => unreachable!("calls are a step of their own"),
            }),
            Step::ReAsk { .. } => {
                log.push(dialogue.repairs.last().unwrap().problem.status.clone());
                continue;
            }
        }
        break;
    }
    log.join(" | ")
}

#[track_caller]
fn play(answers: &[Completion], expect: &str) {
    assert_eq!(play_with(1, 2, answers), expect);
}

fn id(id: &str) -> Value {
    json!({"order_id": id})
}

#[test]
fn a_good_answer_is_taken() {
    play(&[one("get_order", id("SO-1"))], "get_order(SO-1)");
    play(&[one("functions.get_order", id("SO-1"))], "get_order(SO-1)");
}

#[test]
fn an_unknown_tool_is_asked_about_once() {
    play(&[one("python", json!({})), one("get_order", id("SO-1"))], "unknown_tool | get_order(SO-1)");
    play(&[one("python", json!({})), one("bash", json!({}))], "unknown_tool | handoff fuse_blown");
}

#[test]
fn invalid_arguments_are_asked_about_twice_then_the_user_is() {
    let bad = |text: &str| one("get_order", json!({"order_id": text, "fields": ["amount"], "made_up": 1}));
    play(&[bad("1"), one("get_order", id("SO-1"))], "bad_params | get_order(SO-1)");
    play(
        &[bad("1"), bad("2"), bad("3"), bad("4")],
        r#"bad_params | bad_params | clarify get_order {"fields":["amount"]} missing ["order_id"] fields ["SO- and 14 digits"] None"#,
    );
    play(
        &[one("get_order", json!({})), one("get_order", json!({}))],
        r#"bad_params | clarify get_order {} missing ["order_id"] fields [] None"#,
    );
}

#[test]
fn the_same_wrong_answer_ends_it_early() {
    let bad = one("get_order", id("1"));
    let end = r#"clarify get_order {} missing ["order_id"] fields ["SO- and 14 digits"] None"#;
    play(&[bad.clone(), bad.clone(), bad.clone()], &format!("bad_params | {end}"));
    // Not only twice in a row.
    play(&[bad.clone(), one("get_order", id("2")), bad], &format!("bad_params | bad_params | {end}"));
}

#[test]
fn what_nothing_can_cure_is_not_asked_about() {
    let end = r#"clarify get_order {} missing ["order_id"] fields ["another order"] None"#;
    play(&[one("get_order", id("forbidden"))], end);
}

#[test]
fn broken_arguments_are_asked_about_and_never_run() {
    let broken = one("get_order", json!("{\"order_id\": \"SO-"));
    play(&[broken.clone(), one("get_order", id("SO-1"))], "bad_params | get_order(SO-1)");
    play(&[broken.clone(), broken], "bad_params | handoff fuse_blown");
}

#[test]
fn text_is_asked_about_once_and_never_passed_on() {
    play(&[text("Hello!"), one("get_order", id("SO-1"))], "text_answer | get_order(SO-1)");
    play(&[text("Hello!"), text("Hi there.")], "text_answer | no_tool nothing_fits");
    play(
        &[text("哪个订单？"), text("请问是哪个订单？")],
        r#"text_answer | clarify - {} missing [] fields [] Some("Could you say more precisely what you need?")"#,
    );
    play(&[text(""), text(" \n")], "text_answer | no_tool nothing_fits");
}

#[test]
fn declining_and_asking_are_choices() {
    play(&[one("no_tool", json!({"reason": "small talk"}))], "no_tool nothing_fits");
    play(&[one("no_tool", json!("broken"))], "no_tool nothing_fits");
    play(
        &[one(
            "ask_user",
            json!({"tool": "get_order", "missing": ["order_id", "mood"], "question": " Which\norder? ",
            "arguments": {"fields": ["amount"], "mood": "bad"}}),
        )],
        r#"clarify get_order {"fields":["amount"]} missing ["order_id"] fields [] Some("Which order?")"#,
    );
    play(
        &[one("ask_user", json!({"tool": "get_order", "missing": "nonsense"}))],
        r#"clarify get_order {} missing ["order_id"] fields [] None"#,
    );
    play(
        &[one("ask_user", json!({"tool": "python", "missing": ["x"]}))],
        r#"clarify - {} missing [] fields [] Some("Could you say more precisely what you need?")"#,
    );
}

#[test]
fn of_several_calls_the_best_ranked_is_taken_after_asking() {
    let several =
        calls(&[call("execute_refund", id("SO-1")), call("preview_refund", id("SO-1")), call("get_order", id("SO-2"))]);
    play(&[several.clone(), one("preview_refund", id("SO-1"))], "several_calls | preview_refund(SO-1)");
    play(&[several.clone(), several.clone()], "several_calls | preview_refund(SO-1)");
    let same = calls(&[call("get_order", id("SO-1")), call("get_order", id("SO-1"))]);
    play(&[same], "get_order(SO-1)");
    let both = calls(&[call("no_tool", json!({})), call("get_order", id("SO-1"))]);
    play(&[both.clone(), both], "several_calls | get_order(SO-1)");
    assert_eq!(play_with(1, 0, std::slice::from_ref(&several)), "preview_refund(SO-1)");
    assert_eq!(play_with(2, 2, std::slice::from_ref(&several)), "execute_refund(SO-1)+preview_refund(SO-1)");
    assert_eq!(play_with(5, 2, &[several]), "execute_refund(SO-1)+preview_refund(SO-1)+get_order(SO-2)");
}

#[test]
fn calls_that_exclude_each_other_are_asked_about_once() {
    let both = calls(&[call("execute_refund", id("SO-9")), call("get_order", id("SO-2"))]);
    assert_eq!(play_with(5, 2, &[both.clone(), one("get_order", id("SO-2"))]), "conflict | get_order(SO-2)");
    let other = calls(&[call("execute_refund", id("SO-9")), call("get_order", id("SO-3"))]);
    assert_eq!(play_with(5, 2, &[both.clone(), other]), "conflict | execute_refund(SO-9)+get_order(SO-3)");
    assert_eq!(play_with(5, 0, &[both]), "execute_refund(SO-9)+get_order(SO-2)");
}

#[test]
fn an_answer_that_was_cut_off_is_asked_about_once_and_never_half_read() {
    let cut = |completion: Completion| Completion { cut: true, ..completion };
    let half = cut(one("get_order", id("SO-1")));
    play(&[half.clone(), one("get_order", id("SO-1"))], "cut_off | get_order(SO-1)");
    play(&[half.clone(), cut(text("{\"action\": \"get_or"))], "cut_off | handoff fuse_blown");
    // Prose is no answer, however long it would have become.
    let prose = cut(text("让我想想，首先"));
    play(&[half, prose.clone(), one("get_order", id("SO-1"))], "cut_off | text_answer | get_order(SO-1)");
    play(&[prose.clone(), prose], "text_answer | no_tool nothing_fits");
}

#[test]
fn the_tool_that_failed_is_remembered() {
    let shop = shop();
    let tools = shop.tools();
    let list = Shortlist::new(&shop.request("hi", &tools), 128, AnswerMode::Functions);
    let mut dialogue = Dialogue::new(&list, Wording::of(Language::En), 1, 2);
    let plan = |calls, conflicts| arrange(1, calls, conflicts);
    let checks = Checks { arguments: &check, plan: &plan };
    dialogue.step(&one("get_order", json!("{broken")), &checks);
    assert_eq!(dialogue.failed, Some(ToolId::new("get_order")));
    dialogue.step(&one("python", json!({})), &checks);
    assert_eq!(dialogue.failed, None);
}

#[test]
fn re_asks_are_bounded_together() {
    let answers = [text("hm"), one("python", json!({})), one("get_order", id("1")), one("get_order", id("2"))];
    let end = r#"clarify get_order {} missing ["order_id"] fields ["SO- and 14 digits"] None"#;
    play(&answers, &format!("text_answer | unknown_tool | {end}"));
    assert_eq!(play_with(1, 0, &answers[2..]), end);
}

#[test]
fn the_complaint_holds_the_problem_and_the_allowed_names() {
    let shop = shop();
    let tools = shop.tools();
    let list = Shortlist::new(&shop.request("hi", &tools), 128, AnswerMode::Functions);
    let mut dialogue = Dialogue::new(&list, Wording::of(Language::Zh), 1, 2);
    let plan = |calls, conflicts| arrange(1, calls, conflicts);
    let checks = Checks { arguments: &check, plan: &plan };
    let step = dialogue.step(&one(&"长".repeat(500), json!({})), &checks);
    let Step::ReAsk { answer, complaint } = step else { panic!("{step:?}") };
    assert!(answer.chars().count() <= MAX_TRANSCRIPT + 1 && complaint.chars().count() < 1_000);
    for part in ["问题如下", "UNKNOWN_TOOL", "choose one of: ", "get_order", "no_tool", "ask_user"] {
        assert!(complaint.contains(part), "{part}: {complaint}");
    }
    assert!(dialogue.give_up().is_none());
    dialogue.step(&one("get_order", id("1")), &checks);
    assert!(matches!(dialogue.give_up(), Some(Verdict::Clarify { .. })));
}
