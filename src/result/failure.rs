//! Failures of every kind in the one error body, in words a user may read.

use serde_json::{Map, Value, json};

use super::{Context, safe};
use crate::types::{Body, FieldProblem, Problem, ProblemCode, ToolAnswer, ToolCode};

/// How long to wait after a rate limit that does not say.
const RATE_LIMIT_MS: u64 = 3_000;

/// The failure an answer tells of, by its transport, its status or its body.
pub(super) fn told(answer: &ToolAnswer, context: &Context<'_>) -> Option<Problem> {
    if answer.cut {
        let message = context.say("the answer was too long to be read", "返回内容过长，无法读取");
        let suggestion =
            context.say("ask for less: narrow the conditions or lower the limit", "请缩小条件或减少数量后再查");
        return Some(Problem { suggestion: Some(suggestion), ..odd("too_long", "RESULT_TOO_LONG", message, true) });
    }
    let failed_status = answer.status.filter(|status| !(200..300).contains(status));
    let by_body = match &answer.body {
        Body::Json(body) => Problem::reported(&safe::without_traces(body)),
        Body::Text(_) | Body::Empty => None,
    };
    if failed_status.is_none() && !answer.failed && by_body.is_none() {
        return None;
    }
    let problem = match (by_body, failed_status) {
        (Some(problem), None) => problem,
        (Some(problem), Some(status)) if problem.status == UNCLASSIFIED => classed(problem, status),
        (Some(problem), Some(_)) => problem,
        (None, status) => by_status(status, &answer.body),
    };
    Some(in_words(problem, answer, context))
}

/// What [`Problem::reported`] says of a code it does not know.
const UNCLASSIFIED: &str = "failed";

/// A tool's own code, with what its HTTP status says about calling again.
fn classed(problem: Problem, status: u16) -> Problem {
    let Some(class) = Problem::reported(&json!({"ok": false, "error": {"status": status}})) else { return problem };
    Problem {
        status: class.status,
        retryable: problem.retryable || class.retryable,
        repairable: problem.repairable || class.repairable,
        ..problem
    }
}

fn by_status(status: Option<u16>, body: &Body) -> Problem {
    let mut error = Map::new();
    if let Body::Json(Value::Object(map)) = body {
        let told = map.iter().filter(|(name, _)| *name != "status" && *name != "ok");
        error.extend(told.map(|(name, value)| (name.clone(), safe::without_traces(value))));
    }
    if let Body::Text(text) = body {
        error.insert("message".into(), safe::without_traces(&json!(text)));
    }
    // A page under another address, or nobody there: either way the tool did not answer.
    let status = status.map(|status| if (300..400).contains(&status) { 502 } else { status });
    error.insert("status".into(), json!(status));
    let told = Problem::reported(&json!({"ok": false, "error": error}));
    told.unwrap_or_else(|| odd(UNCLASSIFIED, "FAILED", String::new(), false))
}

/// Only sentences that anybody may read stay; each failure says what to do.
fn in_words(problem: Problem, answer: &ToolAnswer, context: &Context<'_>) -> Problem {
    let limited = problem.status == "rate_limited";
    let retry_after_ms = problem.retry_after_ms.or(answer.retry_after_ms).or(limited.then_some(RATE_LIMIT_MS));
    let (message, suggestion) = standard(&problem.status, context);
    // A bare code is no sentence: what `reported` puts in its place is ours already, but in one language.
    let own = Some(problem.message.as_str()).filter(|message| *message != "the tool failed");
    let message = own.and_then(safe::sentence).map_or(message, str::to_owned);
    let kept = problem.suggestion.as_deref().and_then(safe::sentence).map(str::to_owned);
    let own = context.card.parameters.get("properties").and_then(Value::as_object);
    let is_argument = |field: &FieldProblem| {
        let name = field.path.trim_start_matches('/').split('/').next().unwrap_or_default();
        own.is_some_and(|own| own.contains_key(name)) && safe::sentence(&field.path).is_some()
    };
    let field = |field: FieldProblem| {
        let expected = safe::sentence(&field.expected).unwrap_or_default().to_owned();
        let example = field.example.filter(|example| safe::sentence(example).is_some());
        FieldProblem { expected, example, ..field }
    };
    let next = problem.next.filter(|next| safe::sentence(next.tool.as_str()).is_some()).map(|mut next| {
        next.hint = safe::sentence(&next.hint).unwrap_or_default().to_owned();
        next
    });
    let code = match problem.code {
        // A code has no room for a sentence, but for a key.
        ProblemCode::Tool(code) if safe::sentence(code.as_str()).is_none() => tool_code("FAILED"),
        code => code,
    };
    Problem {
        code,
        message,
        suggestion: Some(kept.unwrap_or(suggestion)),
        fields: problem.fields.into_iter().filter(is_argument).map(field).collect(),
        retry_after_ms,
        next,
        ..problem
    }
}

/// Sentence and suggestion of a class of failures.
fn standard(status: &str, context: &Context<'_>) -> (String, String) {
    let both = |en: [&str; 2], zh: [&str; 2]| (context.say(en[0], zh[0]), context.say(en[1], zh[1]));
    match status {
        "bad_params" => both(
            ["the tool refused the arguments", "mend the named arguments, or ask the user for them"],
            ["工具拒绝了这些参数", "请修正所指出的参数，或向用户询问"],
        ),
        "auth_failed" => both(
            ["the sign-in is no longer valid", "tell the user to sign in again; do not call again"],
            ["登录已失效", "请用户重新登录，不要重复调用"],
        ),
        "permission_denied" => both(
            ["the tool does not allow this", "tell the user who can allow it; do not call again"],
            ["没有权限执行此操作", "请告知用户谁可以授权，不要重复调用"],
        ),
        "not_found" => both(
            ["nothing of this name or number was found", "check the number, or look it up with a searching tool"],
            ["没有找到对应的内容", "请核对编号，或用查询类工具查找"],
        ),
        "too_late" | "conflict" => both(
            ["the state no longer allows this", "tell the user; do not call again"],
            ["当前状态已不允许此操作", "请如实告知用户，不要重复调用"],
        ),
        "rate_limited" => both(
            ["too many calls at the moment", "wait a few seconds, try once more, then tell the user"],
            ["当前调用过于频繁", "请等待几秒再试一次，仍不行就告知用户"],
        ),
        "timeout" => both(
            ["the tool did not answer in time", "say so; do not guess the answer"],
            ["工具没有在规定时间内返回", "请如实说明，不要猜测结果"],
        ),
        "unavailable" => both(
            ["the tool is temporarily not available", "try later or another tool; do not guess the answer"],
            ["工具暂时不可用", "请稍后再试或改用其他工具，不要猜测结果"],
        ),
        _ => both(
            ["the tool failed", "tell the user that it did not work; do not guess the answer"],
            ["工具执行失败", "请如实告知用户没有成功，不要猜测结果"],
        ),
    }
}

/// An empty body is never a success.
pub(super) fn nothing(context: &Context<'_>) -> Problem {
    let (_, suggestion) = standard("unavailable", context);
    let message = context.say("the tool answered with nothing", "工具返回了空内容");
    Problem {
        suggestion: Some(suggestion),
        retryable: !context.acts(),
        ..odd("no_result", "NO_RESULT", message, false)
    }
}

pub(super) fn not_understood(context: &Context<'_>) -> Problem {
    let (_, suggestion) = standard("", context);
    let message = context.say("the tool's answer could not be understood", "无法理解工具返回的内容");
    Problem { suggestion: Some(suggestion), ..odd("not_understood", "NOT_UNDERSTOOD", message, false) }
}

fn odd(status: &str, code: &str, message: String, repairable: bool) -> Problem {
    Problem { repairable, ..Problem::refused(status, tool_code(code), message) }
}

fn tool_code(code: &str) -> ProblemCode {
    ToolCode::new(code).map_or(ProblemCode::Unavailable, ProblemCode::Tool)
}
