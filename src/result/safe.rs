//! What never passes: secrets, internal addresses, stack traces.
//!
//! Source of the forms of keys: the documented prefixes of their issuers.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::Context;
use crate::telemetry::names;

const REMOVED: &str = "[removed]";

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is constant and tested")
}

static SECRET: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?x)
        (?i:bearer)\s+[A-Za-z0-9._~+/=-]{8,}
        | \b(?:sk|pk|rk)[-_](?:live_|test_|proj-)?[A-Za-z0-9_-]{16,}
        | \bAKIA[0-9A-Z]{16}\b
        | \bgh[pousr]_[A-Za-z0-9]{20,}
        | \bxox[abposr]-[A-Za-z0-9-]{10,}
        | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*
        | -----BEGIN\s[A-Z\s]*PRIVATE\sKEY-----[\s\S]*?(?:-----END\s[A-Z\s]*PRIVATE\sKEY-----|$)
        | \b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/@]+@\S+
        | (?i:basic)\s+[A-Za-z0-9+/]{12,}={0,2}
        | (?i:[?&;\s](?:token|sig|signature|access_token)=)[^\s&"']{8,}
        | (?i:password|passwd|pwd|secret|api[_-]?key|access[_-]?key|密码|口令)["']?\s*[=:：]\s*["']?[^\s"',;]{3,}
        "#,
    )
});

/// Hosts and addresses of private networks, with what follows them in an URL.
static INTERNAL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?xi)
        (?:\b[a-z][a-z0-9+.-]*://)?
        (?:
            \blocalhost(?::\d+|\b(?:/|$))
            | \b(?:127|10)(?:\.\d{1,3}){3}\b
            | \b192\.168(?:\.\d{1,3}){2}\b
            | \b172\.(?:1[6-9]|2\d|3[01])(?:\.\d{1,3}){2}\b
            | \b169\.254(?:\.\d{1,3}){2}\b
            | \[?\b(?:f[cd][0-9a-f]{2}|fe80):[0-9a-f:]+\]? | \[::1\]
            | \b(?:[a-z0-9-]+\.)+(?:internal|local|lan|corp|intranet|svc|cluster\.local)\b
        )
        (?::\d{1,5})?(?:/\S*)?",
    )
});

/// Signs of a stack trace or of a program's inside.
static TRACE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?xm)
        Traceback\s\(most\srecent
        | ^\s*File\s\x22[^\x22]+\x22,\sline\s\d+
        | \bat\s[\w$.<>]+\([\w$]+\.(?:java|kt|scala):\d+\)
        | \bat\s\S*\s?\(?\S+\.(?:js|ts|mjs|cjs):\d+(?::\d+)?\)?
        | \bin\s/\S+\.(?:php|rb|cs):(?:line\s)?\d+
        | ^goroutine\s\d+\s\[
        | \bpanicked\sat\b
        | \b(?:[a-z][a-z0-9_]*\.){2,}[A-Z]\w*(?:Exception|Error)\b
        | \b[A-Z]\w+(?:Exception|Error):\s
        | \bSQLSTATE\b | \bORA-\d{4,} | \bER_[A-Z_]{4,}
        | \b(?i:select)\s.{1,200}?\s(?i:from)\s\w | \b(?i:insert\sinto|delete\sfrom|update)\s\w+\s(?i:set|where|values|\()
        | \b[\w/\\.-]+\.(?:java|py|go|rs|rb|php|cs|kt|scala|cpp|c|ts|js):\d+
        ",
    )
});

/// A whole page of markup instead of data, or a stack trace.
pub(super) fn is_page_or_trace(text: &str) -> bool {
    let start: String = text.trim_start().chars().take(200).collect::<String>().to_lowercase();
    ["<!doctype", "<html", "<head", "<body", "<?xml"].iter().any(|tag| start.starts_with(tag)) || TRACE.is_match(text)
}

/// The message of a failure, if all of it may be read by anybody: a plain sentence.
pub(super) fn sentence(text: &str) -> Option<&str> {
    let text = text.trim();
    let odd = is_page_or_trace(text) || SECRET.is_match(text) || INTERNAL.is_match(text) || text.is_empty();
    (!odd).then_some(text)
}

/// The same without texts that are traces or pages: of such a text the first line alone may look harmless.
pub(super) fn without_traces(value: &Value) -> Value {
    match value {
        Value::String(text) if is_page_or_trace(text) => Value::String(String::new()),
        Value::Array(items) => items.iter().map(without_traces).collect(),
        Value::Object(map) => map.iter().map(|(name, value)| (name.clone(), without_traces(value))).collect(),
        leaf => leaf.clone(),
    }
}

/// Takes secrets, internal addresses and traces out of every text, and says so.
pub(super) fn data(value: Value, context: &Context<'_>, notices: &mut Vec<String>) -> Value {
    let mut removed = 0;
    let value = walk(value, &mut removed);
    if removed > 0 {
        metrics::counter!(names::RESULT_DROPPED, "part" => "secrets").increment(removed);
        notices.push(context.say(
            format!("{removed} parts were removed: secrets, internal addresses or traces"),
            format!("已移除 {removed} 处内容：密钥、内部地址或堆栈"),
        ));
    }
    value
}

fn walk(value: Value, removed: &mut u64) -> Value {
    match value {
        Value::String(text) => Value::String(scrub(text, removed)),
        Value::Array(items) => items.into_iter().map(|item| walk(item, removed)).collect(),
        Value::Object(map) => {
            map.into_iter().map(|(name, value)| (scrub(name, removed), walk(value, removed))).collect()
        }
        leaf => leaf,
    }
}

fn scrub(text: String, removed: &mut u64) -> String {
    if TRACE.is_match(&text) {
        *removed += 1;
        return REMOVED.to_owned();
    }
    let mut text = text;
    for pattern in [&*SECRET, &*INTERNAL] {
        let found = pattern.find_iter(&text).count();
        if found > 0 {
            *removed += found as u64;
            text = pattern.replace_all(&text, REMOVED).into_owned();
        }
    }
    text
}
