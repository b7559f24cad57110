//! What becomes of an answer: a choice, an end, or one more question.
//!
//! Owns: when the model is asked again and with which words, and how it ends when asking again does not help.
//! Does not know: how a question travels, or what makes arguments valid (the caller passes that in).
//!
//! Bounds: `max_repairs` re-asks in all; at most one each for an unknown tool, for text instead of a choice and for
//! several calls where one was asked for; none after the same unusable answer twice, nor for a problem that neither
//! other arguments nor time can cure.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::super::Verdict;
use super::answer::{Arguments, Completion, RawCall};
use super::metrics::{self, Fault};
use super::prompt::clip;
use super::shortlist::{Named, Shortlist};
use super::wording::Wording;
use crate::catalog::Tool;
use crate::decision::{HandoffReason, NoToolReason, Repair};
use crate::tool::canonical_json;
use crate::types::encoding::unescape_pointer;
use crate::types::{FieldProblem, Problem, ProblemCode};

const MAX_NAME: usize = 64;
const MAX_TRANSCRIPT: usize = 2_000;
const MAX_QUESTION: usize = 300;

const NOTE_TEXT: &str = "the model answered with text instead of a choice";
const NOTE_BEST: &str = "the model proposed several calls where one was asked for; the best ranked was taken";
const NOTE_CUT: &str = "the model proposed more calls than asked for; the first ones were taken";
const NOTE_CONTROL: &str = "the model declined or asked beside proposing a call; the call was taken";
const NOTE_SAME: &str = "the model gave the same unusable answer twice";

/// Checks arguments of one tool and makes the caller's kind of proposal of them.
pub(super) type Check<'c, V> = dyn Fn(&Tool, Map<String, Value>) -> Result<V, Box<Problem>> + Sync + 'c;

/// What follows from an answer.
#[derive(Debug)]
pub(super) enum Step<V> {
    /// Never empty, at most `max_calls`.
    Calls(Vec<V>),
    End(Verdict),
    /// The answer as it goes into the conversation, and what is wrong with it.
    ReAsk {
        answer: String,
        complaint: String,
    },
}

/// The state of one decision between answers.
#[derive(Debug)]
pub(super) struct Dialogue<'a> {
    list: &'a Shortlist<'a>,
    wording: &'a Wording,
    max_calls: usize,
    max_repairs: u32,
    answers: u32,
    reasks: u32,
    met: BTreeSet<Fault>,
    seen: BTreeSet<String>,
    /// Where an unusable answer leaves us if nobody can be asked again.
    fallback: Option<Verdict>,
    pub repairs: Vec<Repair>,
    pub notes: Vec<&'static str>,
    /// The end was concluded from text.
    pub from_text: bool,
}

struct Unfit {
    fault: Fault,
    problem: Box<Problem>,
    end: Box<Verdict>,
}

impl<'a> Dialogue<'a> {
    pub fn new(list: &'a Shortlist<'a>, wording: &'a Wording, max_calls: usize, max_repairs: u32) -> Self {
        Self {
            list,
            wording,
            max_calls: max_calls.max(1),
            max_repairs,
            answers: 0,
            reasks: 0,
            met: BTreeSet::new(),
            seen: BTreeSet::new(),
            fallback: None,
            repairs: Vec::new(),
            notes: Vec::new(),
            from_text: false,
        }
    }

    /// Takes one answer.
    pub fn step<V>(&mut self, completion: &Completion, check: &Check<'_, V>) -> Step<V> {
        self.answers += 1;
        self.from_text = false;
        let transcript = transcript(completion);
        let unfit = match self.judge(completion, &transcript, check) {
            Ok(step) => return step,
            Err(unfit) => unfit,
        };
        metrics::repair(unfit.fault);
        if unfit.fault == Fault::TextAnswer {
            self.note(NOTE_TEXT);
            self.from_text = true;
        }
        let may_help = unfit.problem.repairable || unfit.problem.retryable;
        let again = may_help && self.may_reask(unfit.fault, &transcript);
        if self.seen.contains(&transcript) {
            self.note(NOTE_SAME);
        }
        let complaint = format!("{}\n{}\n{}", self.wording.reask, body_of(&unfit.problem), self.wording.reask_end);
        self.repairs.push(Repair { attempt: self.answers, problem: *unfit.problem });
        self.met.insert(unfit.fault);
        self.seen.insert(transcript.clone());
        if !again {
            return Step::End(*unfit.end);
        }
        self.reasks += 1;
        self.fallback = matches!(*unfit.end, Verdict::Clarify { .. }).then_some(*unfit.end);
        Step::ReAsk { answer: clip(&transcript, MAX_TRANSCRIPT), complaint }
    }

    /// The end when the next question cannot be asked: the question to the user that the last answer allows, if any.
    pub fn give_up(&mut self) -> Option<Verdict> {
        self.fallback.take()
    }

    fn may_reask(&self, fault: Fault, transcript: &str) -> bool {
        let again = match fault {
            Fault::InvalidArguments => true,
            Fault::UnknownTool | Fault::TextAnswer | Fault::SeveralCalls => !self.met.contains(&fault),
        };
        again && self.reasks < self.max_repairs && !self.seen.contains(transcript)
    }

    fn note(&mut self, note: &'static str) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn judge<V>(&mut self, completion: &Completion, transcript: &str, check: &Check<'_, V>) -> Result<Step<V>, Unfit> {
        if completion.calls.is_empty() {
            return Err(self.text_answer(&completion.text));
        }
        let mut chosen: Vec<(&Tool, &Arguments)> = Vec::new();
        let (mut declines, mut question) = (false, None);
        for call in &completion.calls {
            match self.list.resolve(&call.name) {
                Some(Named::Tool(tool)) => {
                    if !chosen.iter().any(|(other, given)| other.id() == tool.id() && **given == call.arguments) {
                        chosen.push((tool, &call.arguments));
                    }
                }
                Some(Named::None) => declines = true,
                Some(Named::Ask) => question = question.or(Some(&call.arguments)),
                None => return Err(self.unknown_tool(&call.name)),
            }
        }
        let beside = declines || question.is_some();
        if chosen.is_empty() {
            // Asking is the more careful of the two.
            let verdict = question.map(|arguments| self.question(arguments));
            return Ok(Step::End(verdict.unwrap_or(Verdict::NoTool(NoToolReason::NothingFits))));
        }
        if self.max_calls == 1 && (chosen.len() > 1 || beside) {
            if self.may_reask(Fault::SeveralCalls, transcript) {
                return Err(several_calls());
            }
            if chosen.len() > 1 {
                self.note(NOTE_BEST);
            }
            // Stable, so of two calls of one tool the first stays.
            chosen.sort_by_key(|(tool, _)| self.list.rank(tool.id()));
        } else if chosen.len() > self.max_calls {
            self.note(NOTE_CUT);
        }
        if beside {
            self.note(NOTE_CONTROL);
        }
        chosen.truncate(self.max_calls);
        let proposals = chosen.into_iter().map(|(tool, arguments)| {
            let checked = match arguments {
                Arguments::Object(map) => check(tool, map.clone()),
                Arguments::Unreadable(_) => Err(unreadable().into()),
            };
            checked.map_err(|problem| invalid_arguments(tool, arguments, problem))
        });
        Ok(Step::Calls(proposals.collect::<Result<_, _>>()?))
    }

    fn unknown_tool(&self, name: &str) -> Unfit {
        Unfit {
            fault: Fault::UnknownTool,
            problem: Problem::unknown_tool(&clip(name, MAX_NAME), &self.list.names()).into(),
            end: Verdict::Handoff(HandoffReason::FuseBlown).into(),
        }
    }

    /// Text is never passed on: at most it tells that the model wanted to know something.
    fn text_answer(&self, text: &str) -> Unfit {
        let end = match text.trim_end().chars().next_back() {
            None => Verdict::Handoff(HandoffReason::FuseBlown),
            Some('?' | '？') => Verdict::Clarify {
                tool: None,
                arguments: Map::new(),
                missing: Vec::new(),
                fields: Vec::new(),
                question: Some(self.wording.unclear.clone()),
            },
            Some(_) => Verdict::NoTool(NoToolReason::NothingFits),
        };
        let allowed = format!("choose one of: {}", self.list.names().join(", "));
        let problem = malformed("text_answer", ProblemCode::UnknownTool, "the answer calls no function", Some(allowed));
        Unfit { fault: Fault::TextAnswer, problem: problem.into(), end: end.into() }
    }

    fn question(&self, arguments: &Arguments) -> Verdict {
        let empty = Map::new();
        let given = match arguments {
            Arguments::Object(map) => map,
            Arguments::Unreadable(_) => &empty,
        };
        let tool = given.get("tool").and_then(Value::as_str).and_then(|name| match self.list.resolve(name)? {
            Named::Tool(tool) => Some(tool),
            Named::None | Named::Ask => None,
        });
        let mut missing: Vec<String> = match given.get("missing") {
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            Some(Value::String(name)) => vec![name.clone()],
            Some(_) | None => Vec::new(),
        };
        let mut known = given.get("arguments").and_then(Value::as_object).cloned().unwrap_or_default();
        if let Some(tool) = tool {
            let fields = Fields::of(tool);
            known.retain(|name, _| fields.has(name) && !missing.contains(name));
            missing.retain(|name| fields.has(name));
            if missing.is_empty() {
                missing =
                    fields.required.iter().filter(|name| !known.contains_key(**name)).map(|n| (*n).into()).collect();
            }
            fields.sort(&mut missing);
        } else {
            // Without a tool there is nothing these could belong to.
            known.clear();
            missing.clear();
        }
        let words = given.get("question").and_then(Value::as_str).unwrap_or_default();
        let words = clip(&words.split_whitespace().collect::<Vec<_>>().join(" "), MAX_QUESTION);
        let unclear = missing.is_empty().then(|| self.wording.unclear.clone());
        Verdict::Clarify {
            tool: tool.map(|tool| tool.id().clone()),
            arguments: known,
            missing,
            fields: Vec::new(),
            question: if words.is_empty() { unclear } else { Some(words) },
        }
    }
}

fn invalid_arguments(tool: &Tool, given: &Arguments, problem: Box<Problem>) -> Unfit {
    let end = ask_for_fields(tool, given, &problem).unwrap_or(Verdict::Handoff(HandoffReason::FuseBlown));
    Unfit { fault: Fault::InvalidArguments, problem, end: end.into() }
}

/// The tool is clear, some of its arguments are not: the user may know. `None` if no argument is at fault by name.
fn ask_for_fields(tool: &Tool, given: &Arguments, problem: &Problem) -> Option<Verdict> {
    let fields = Fields::of(tool);
    let mut missing: Vec<String> = Vec::new();
    for name in problem.fields.iter().map(|field| top_level(&field.path)) {
        if fields.has(&name) && !missing.contains(&name) {
            missing.push(name);
        }
    }
    if missing.is_empty() {
        return None;
    }
    fields.sort(&mut missing);
    let mut arguments = match given {
        Arguments::Object(map) => map.clone(),
        Arguments::Unreadable(_) => Map::new(),
    };
    // What the user gave in a form that does not fit, as opposed to what nobody gave.
    let misfits: Vec<FieldProblem> =
        problem.fields.iter().filter(|field| arguments.contains_key(&top_level(&field.path))).cloned().collect();
    arguments.retain(|name, _| fields.has(name) && !missing.contains(name));
    Some(Verdict::Clarify { tool: Some(tool.id().clone()), arguments, missing, fields: misfits, question: None })
}

/// Names of a tool's arguments.
struct Fields<'t> {
    /// `None` when the schema does not list them.
    known: Option<&'t Map<String, Value>>,
    required: Vec<&'t str>,
}

impl<'t> Fields<'t> {
    fn of(tool: &'t Tool) -> Self {
        let schema = tool.schema.raw();
        let required = schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        Self {
            known: schema.get("properties").and_then(Value::as_object),
            required: required.iter().filter_map(Value::as_str).collect(),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.known.is_none_or(|known| known.contains_key(name))
    }

    /// Required ones first, in schema order.
    fn sort(&self, names: &mut [String]) {
        names.sort_by_key(|name| self.required.iter().position(|r| r == name).unwrap_or(usize::MAX));
    }
}

/// The argument that a JSON pointer leads into.
fn top_level(pointer: &str) -> String {
    let first = pointer.trim_start_matches('/').split('/').next().unwrap_or_default();
    unescape_pointer(first)
}

fn unreadable() -> Problem {
    let field = FieldProblem { path: String::new(), expected: "a JSON object".into(), example: None };
    Problem::invalid_args("the arguments are not a JSON object", vec![field])
}

fn several_calls() -> Unfit {
    let message = "exactly one call was asked for";
    Unfit {
        fault: Fault::SeveralCalls,
        problem: malformed(
            "several_calls",
            ProblemCode::InvalidArgs,
            message,
            Some("keep the one that comes first".into()),
        )
        .into(),
        end: Verdict::Handoff(HandoffReason::FuseBlown).into(),
    }
}

fn malformed(status: &str, code: ProblemCode, message: &str, suggestion: Option<String>) -> Problem {
    Problem {
        status: status.into(),
        code,
        message: message.into(),
        fields: Vec::new(),
        retryable: false,
        repairable: true,
        retry_after_ms: None,
        next: None,
        suggestion,
    }
}

fn body_of(problem: &Problem) -> String {
    serde_json::to_string(problem).expect("a problem holds only JSON-representable data")
}

/// An answer as text: equal answers give equal texts, whatever ids or white space the endpoint added.
fn transcript(completion: &Completion) -> String {
    let call = |call: &RawCall| {
        let arguments = match &call.arguments {
            Arguments::Object(map) => Value::Object(map.clone()),
            Arguments::Unreadable(text) => Value::String(text.clone()),
        };
        canonical_json(&json!({"name": call.name, "arguments": arguments}))
    };
    if completion.calls.is_empty() {
        return completion.text.trim().to_owned();
    }
    completion.calls.iter().map(call).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::llm::AnswerMode;
    use crate::decide::llm::testing::shop;
    use crate::text::Language;

    /// Stands in for schema validation: `order_id` is `SO-` and a digit.
    fn check(tool: &Tool, arguments: Map<String, Value>) -> Result<String, Box<Problem>> {
        let field =
            |expected: &str| FieldProblem { path: "/order_id".into(), expected: expected.into(), example: None };
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
        let mut log = Vec::new();
        for answer in answers {
            match dialogue.step(answer, &check) {
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
        play(&[text(""), text("")], "text_answer | handoff fuse_blown");
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
        let several = calls(&[
            call("execute_refund", id("SO-1")),
            call("preview_refund", id("SO-1")),
            call("get_order", id("SO-2")),
        ]);
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
        let step = dialogue.step(&one(&"长".repeat(500), json!({})), &check);
        let Step::ReAsk { answer, complaint } = step else { panic!("{step:?}") };
        assert!(answer.chars().count() <= MAX_TRANSCRIPT + 1 && complaint.chars().count() < 1_000);
        for part in ["问题如下", "UNKNOWN_TOOL", "choose one of: ", "get_order", "no_tool", "ask_user"] {
            assert!(complaint.contains(part), "{part}: {complaint}");
        }
        assert!(dialogue.give_up().is_none());
        dialogue.step(&one("get_order", id("1")), &check);
        assert!(matches!(dialogue.give_up(), Some(Verdict::Clarify { .. })));
    }

    #[test]
    fn pointers_lead_to_arguments() {
        let of = |pointer: &str| top_level(pointer);
        assert_eq!([of("/a/b/0"), of("/x~1y"), of("a"), of("")], ["a", "x/y", "a", ""]);
    }
}
