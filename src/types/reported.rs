//! Error bodies of tools, read into the one [`Problem`].
//!
//! Owns: which results count as failed, which codes mean what, the bounds of what is kept.
//! Does not know: who ran the tool or what follows from its failure.
//!
//! Tools report in many shapes: `{"ok": false, "error": {"code", "message"}}`, `{"code": "ORDER_NOT_FOUND"}`, a status
//! number, a text. What is kept is a checked code, the first line of the message and short texts beside it, so that no
//! stack trace and no page of a result travels on.

use serde_json::Value;

use super::{FieldProblem, NextStep, Problem, ProblemCode, ToolCode, ToolId};

const MAX_MESSAGE: usize = 300;
const MAX_WORDS: usize = 200;
const MAX_FIELDS: usize = 20;
const MAX_WAIT_MS: u64 = 24 * 60 * 60 * 1000;
const NO_WORDS: &str = "the tool failed";

/// What a code says about calling again.
struct Class {
    code: ProblemCode,
    status: &'static str,
    retryable: bool,
    repairable: bool,
    /// The code has a meaning of its own here; otherwise the tool knows better.
    fixed: bool,
}

impl Problem {
    /// What went wrong, if `result` (the JSON of a tool's turn) tells of a failure.
    pub fn reported(result: &Value) -> Option<Self> {
        let error = result.get("error").filter(|error| says_something(error));
        match result.get("ok").and_then(Value::as_bool) {
            Some(true) => return None,
            Some(false) => {}
            None if error.is_some() => {}
            // A bare code may be part of a result, such as a coupon's: only a known one is a failure.
            None => {
                let code = result.get("code").and_then(Value::as_str).and_then(token)?;
                if result.get("data").is_some() || classify(code.clone()).status == UNCLASSIFIED {
                    return None;
                }
            }
        }
        let holder = error.filter(|error| error.is_object()).unwrap_or(result);
        let class = class_of(holder, error);
        let flag = |name: &str| holder.get(name).and_then(Value::as_bool).filter(|_| !class.fixed);
        let text = |names: &[&str]| names.iter().find_map(|name| holder.get(*name)).and_then(Value::as_str);
        let words = text(&["message", "detail", "msg"]).or_else(|| error.and_then(Value::as_str));
        Some(Self {
            status: class.status.into(),
            message: words
                .map(|words| line(words, MAX_MESSAGE))
                .filter(|words| !words.is_empty())
                .unwrap_or_else(|| NO_WORDS.into()),
            fields: fields(holder),
            retryable: flag("retryable").unwrap_or(class.retryable),
            repairable: flag("repairable").unwrap_or(class.repairable),
            retry_after_ms: holder.get("retry_after_ms").and_then(Value::as_u64).map(|wait| wait.min(MAX_WAIT_MS)),
            next: next(holder),
            suggestion: text(&["suggestion"]).map(|words| line(words, MAX_MESSAGE)).filter(|words| !words.is_empty()),
            code: class.code,
        })
    }
}

const UNCLASSIFIED: &str = "failed";

fn says_something(error: &Value) -> bool {
    match error {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.trim().is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Array(_) => true,
    }
}

/// By the first code or status number that says anything.
fn class_of(holder: &Value, error: Option<&Value>) -> Class {
    let named = ["code", "error_code", "type", "status"].iter().filter_map(|name| holder.get(*name));
    let named = named.chain(error.filter(|error| !error.is_object()));
    let mut classes = named.filter_map(|value| match value {
        Value::String(text) => token(text).map(classify),
        Value::Number(number) => number.as_u64().and_then(of_status),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    });
    classes.next().unwrap_or_else(|| classify(ToolCode::of("FAILED")))
}

/// A text of the form of a code, in whichever case its author writes codes.
fn token(text: &str) -> Option<ToolCode> {
    let text = text.trim();
    if text.len() > ToolCode::LONGEST || !text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    let mut code = String::with_capacity(text.len() + 8);
    let mut after_small = false;
    for c in text.chars() {
        match c {
            '-' | '.' | '/' | '_' => code.push('_'),
            c if c.is_ascii_alphanumeric() => {
                if after_small && c.is_ascii_uppercase() {
                    code.push('_');
                }
                code.push(c.to_ascii_uppercase());
            }
            _ => return None,
        }
        after_small = c.is_ascii_lowercase();
    }
    ToolCode::new(&code)
}

fn classify(code: ToolCode) -> Class {
    let own =
        |code: ProblemCode, status, retryable, repairable| Class { code, status, retryable, repairable, fixed: true };
    let tools = |status, retryable, repairable| Class {
        code: ProblemCode::parse(code.as_str()).unwrap_or_else(|| ProblemCode::Tool(code.clone())),
        status,
        retryable,
        repairable,
        fixed: false,
    };
    match code.as_str() {
        "INVALID_ARGS" | "INVALID_ARGUMENT" | "INVALID_ARGUMENTS" | "BAD_PARAMS" | "VALIDATION_ERROR" => {
            own(ProblemCode::InvalidArgs, "bad_params", false, true)
        }
        "UNKNOWN_TOOL" => own(ProblemCode::UnknownTool, "unknown_tool", false, true),
        "INVALID_REQUEST" => own(ProblemCode::InvalidRequest, "bad_request", false, false),
        "PERMISSION_DENIED" | "FORBIDDEN" => own(ProblemCode::PermissionDenied, "permission_denied", false, false),
        "PRECONDITION_MISSING" => own(ProblemCode::PreconditionMissing, "precondition_missing", false, false),
        "POLICY_DENIED" => own(ProblemCode::PolicyDenied, "policy_denied", false, false),
        "IDEMPOTENCY_CONFLICT" => own(ProblemCode::IdempotencyConflict, "conflict", false, false),
        "EFFECT_UNKNOWN" => own(ProblemCode::EffectUnknown, "unknown", false, false),
        "IN_FLIGHT" => own(ProblemCode::InFlight, "in_flight", true, false),
        "CONFLICT" => tools("conflict", false, false),
        "GONE" => tools("not_found", false, true),
        "AUTH_FAILED" | "UNAUTHENTICATED" | "UNAUTHORIZED" => tools("auth_failed", false, false),
        "TIMED_OUT" | "DEADLINE_EXCEEDED" => own(ProblemCode::Timeout, "timeout", true, false),
        "UNAVAILABLE" | "SERVICE_UNAVAILABLE" => own(ProblemCode::Unavailable, "unavailable", true, false),
        "RATE_LIMITED" | "TOO_MANY_REQUESTS" => tools("rate_limited", true, false),
        code if code.ends_with("TIMEOUT") => own(ProblemCode::Timeout, "timeout", true, false),
        code if code.ends_with("NOT_FOUND") => tools("not_found", false, true),
        // Too late: neither time nor other arguments change it.
        code if code.contains("ALREADY_") || code.ends_with("_EXPIRED") => tools("too_late", false, false),
        _ => tools(UNCLASSIFIED, false, false),
    }
}

/// HTTP statuses of failures.
fn of_status(status: u64) -> Option<Class> {
    let code = match status {
        400 | 422 => "INVALID_ARGS",
        401 => "AUTH_FAILED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        409 => "CONFLICT",
        410 => "GONE",
        408 | 504 => "TIMEOUT",
        429 => "RATE_LIMITED",
        500..=599 => "UNAVAILABLE",
        _ => return None,
    };
    Some(classify(ToolCode::of(code)))
}

fn fields(holder: &Value) -> Vec<FieldProblem> {
    let listed = ["fields", "invalid_fields"].iter().find_map(|name| holder.get(*name)?.as_array());
    let field = |field: &Value| {
        let text = |name: &str| field.get(name).and_then(Value::as_str).map(|words| line(words, MAX_WORDS));
        let path = match field {
            Value::String(name) => line(name, MAX_WORDS),
            other => text("path").or_else(|| Some(line(other.get("name")?.as_str()?, MAX_WORDS)))?,
        };
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        Some(FieldProblem { path, expected: text("expected").unwrap_or_default(), example: text("example") })
    };
    listed.into_iter().flatten().filter_map(field).take(MAX_FIELDS).collect()
}

fn next(holder: &Value) -> Option<NextStep> {
    let next = holder.get("next")?;
    let tool = next.as_str().or_else(|| next.get("tool")?.as_str())?;
    let hint = next.get("hint").and_then(Value::as_str).unwrap_or_default();
    Some(NextStep { tool: ToolId::new(line(tool, MAX_WORDS)), hint: line(hint, MAX_WORDS) })
}

/// The first line, at most `longest` characters of it, without control characters.
fn line(text: &str, longest: usize) -> String {
    let first = text.trim().lines().next().unwrap_or_default();
    if first.starts_with("Traceback") {
        return NO_WORDS.into();
    }
    let mut kept: String = first.chars().filter(|c| !c.is_control()).take(longest + 1).collect();
    if let Some((end, _)) = kept.char_indices().nth(longest) {
        kept.truncate(end);
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// `CODE status retryable repairable`.
    #[track_caller]
    fn check(result: Value, expect: &str) {
        let told = Problem::reported(&result)
            .map_or("-".to_owned(), |p| format!("{} {} {} {}", p.code.as_str(), p.status, p.retryable, p.repairable));
        assert_eq!(told, expect, "{result}");
    }

    #[test]
    fn failures_are_told_from_results() {
        check(json!({"ok": true, "data": {"code": "TIMEOUT"}}), "-");
        check(json!({"tool": "get_coupon", "code": "SAVE20"}), "-");
        check(json!({"tool": "get_order", "data": {}, "code": "ORDER_NOT_FOUND"}), "-");
        check(json!({"error": null, "order_id": "SO-1"}), "-");
        check(json!([]), "-");
        check(json!("ORDER_NOT_FOUND"), "-");
        check(json!({"ok": false}), "FAILED failed false false");
        check(json!({"ok": false, "data": {}}), "FAILED failed false false");
        check(json!({"error": "boom: it broke"}), "FAILED failed false false");
        check(json!({"error": true}), "FAILED failed false false");
    }

    #[test]
    fn codes_say_whether_calling_again_makes_sense() {
        let of = |code: &str| json!({"ok": false, "error": {"code": code, "message": "x"}});
        check(of("INVALID_ARGS"), "INVALID_ARGS bad_params false true");
        check(of("TIMEOUT"), "TIMEOUT timeout true false");
        check(of("GATEWAY_TIMEOUT"), "TIMEOUT timeout true false");
        check(of("PERMISSION_DENIED"), "PERMISSION_DENIED permission_denied false false");
        check(of("ORDER_NOT_FOUND"), "ORDER_NOT_FOUND not_found false true");
        check(of("orderNotFound"), "ORDER_NOT_FOUND not_found false true");
        check(of("order-not-found"), "ORDER_NOT_FOUND not_found false true");
        check(of("ORDER_ALREADY_SHIPPED"), "ORDER_ALREADY_SHIPPED too_late false false");
        check(of("TOKEN_EXPIRED"), "TOKEN_EXPIRED too_late false false");
        check(of("rate_limited"), "RATE_LIMITED rate_limited true false");
        check(of("库存不足"), "FAILED failed false false");
        check(of(&"A".repeat(65)), "FAILED failed false false");
        check(json!({"code": "ORDER_NOT_FOUND", "message": "no such order"}), "ORDER_NOT_FOUND not_found false true");
        check(json!({"ok": false, "error": "ORDER_NOT_FOUND"}), "ORDER_NOT_FOUND not_found false true");
        check(json!({"error": {"status": 503}}), "UNAVAILABLE unavailable true false");
        check(json!({"error": {"code": 404}}), "NOT_FOUND not_found false true");
        // A tool knows its own codes best, but not ours.
        check(json!({"error": {"code": "STOCK_BUSY", "retryable": true}}), "STOCK_BUSY failed true false");
        check(json!({"error": {"code": "TIMEOUT", "retryable": false}}), "TIMEOUT timeout true false");
    }

    #[test]
    fn what_is_kept_is_short_and_holds_no_trace() {
        let trace = "java.lang.IllegalStateException: no row\n\tat com.shop.Orders.find(Orders.java:17)";
        let result = json!({"ok": false, "error": {"code": "DB_ERROR", "message": trace, "stack": trace,
            "fields": [{"path": "order_id", "expected": "x".repeat(1000)}, "amount", 7], "retry_after_ms": u64::MAX,
            "next": {"tool": "search_orders", "hint": "look it up"}, "suggestion": "later\nSELECT *"}});
        let problem = Problem::reported(&result).unwrap();
        let text = serde_json::to_string(&problem).unwrap();
        assert!(!text.contains("Orders.java") && !text.contains("SELECT"), "{text}");
        assert!(text.len() < 1_000, "{text}");
        let paths: Vec<&str> = problem.fields.iter().map(|field| field.path.as_str()).collect();
        assert_eq!(paths, ["/order_id", "/amount"]);
        assert_eq!(problem.next.unwrap().tool.as_str(), "search_orders");
        assert_eq!(problem.retry_after_ms, Some(MAX_WAIT_MS));
        let traced = json!({"ok": false, "error": {"message": "Traceback (most recent call last):\n x"}});
        assert_eq!(Problem::reported(&traced).unwrap().message, NO_WORDS);
    }

    proptest! {
        #[test]
        fn any_body_is_read_and_stays_small(
            code in ".{0,80}", message in ".{0,800}", fields in prop::collection::vec(".{0,400}", 0..40)
        ) {
            let result = json!({"ok": false, "error": {"code": code, "message": message, "fields": fields}});
            let problem = Problem::reported(&result).unwrap();
            prop_assert!(problem.message.chars().count() <= MAX_MESSAGE + 1);
            prop_assert!(problem.fields.len() <= MAX_FIELDS);
            prop_assert!(ProblemCode::parse(problem.code.as_str()).is_some());
        }
    }
}
