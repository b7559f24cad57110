//! Wishes, answers and records of the gate.

use serde_json::Value;

use super::json::from_struct;
use super::request::{MAX_ID_BYTES, at_most, invalid, not_json};
use super::response::problem;
use crate::gate::{Ending, Record, Shown};
use crate::pipeline::{Answer, Leave, Locale, Outcome, Reported, Which, Wish};
use crate::result::Sizes;
use crate::server::proto;
use crate::types::{Body, CallId, Problem, ToolAnswer};

/// Longer texts of JSON are no arguments and no results.
const MAX_JSON_BYTES: usize = 4 * 1024 * 1024;
const MAX_KEY_BYTES: usize = 256;

/// # Errors
/// A [`Problem`] naming the field at fault.
pub fn wish(wish: Option<proto::Wish>) -> Result<Wish, Problem> {
    let wish = wish.ok_or_else(|| invalid("wish", "missing", "the call to run"))?;
    at_most("wish.tool", wish.tool.len(), MAX_ID_BYTES, "bytes")?;
    at_most("wish.session_id", wish.session_id.len(), MAX_ID_BYTES, "bytes")?;
    at_most("wish.turn_id", wish.turn_id.len(), MAX_ID_BYTES, "bytes")?;
    at_most("wish.idempotency_key", wish.idempotency_key.len(), MAX_KEY_BYTES, "bytes")?;
    at_most("wish.confirm_token", wish.confirm_token.len(), MAX_ID_BYTES, "bytes")?;
    // It travels on as a header.
    if !wish.idempotency_key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(invalid("wish.idempotency_key", "cannot be used", "printable ASCII without blanks"));
    }
    let arguments = match (wish.arguments, wish.arguments_json.is_empty()) {
        (Some(arguments), true) => Value::Object(from_struct(arguments, "wish.arguments").map_err(not_json)?),
        (None, true) => Value::Object(serde_json::Map::new()),
        (None, false) => {
            at_most("wish.arguments_json", wish.arguments_json.len(), MAX_JSON_BYTES, "bytes")?;
            // Left as text where it is no JSON: validation says what is wrong with it.
            Value::String(wish.arguments_json)
        }
        (Some(_), false) => {
            return Err(invalid("wish.arguments_json", "given beside arguments", "only one of the two"));
        }
    };
    Ok(Wish {
        tool: wish.tool,
        arguments,
        conversation: wish.session_id,
        turn: wish.turn_id,
        key: Some(wish.idempotency_key).filter(|key| !key.is_empty()),
        token: Some(wish.confirm_token).filter(|token| !token.is_empty()),
        no_wait: wish.no_wait,
        locale: locale("wish.locale", &wish.locale)?,
    })
}

pub fn locale(path: &str, text: &str) -> Result<Locale, Problem> {
    match text {
        "" | "en" => Ok(Locale::English),
        "zh" => Ok(Locale::Chinese),
        other => {
            Err(invalid(path, format!("unknown locale `{}`", other.chars().take(16).collect::<String>()), "zh or en"))
        }
    }
}

pub fn call_id(path: &str, text: &str) -> Result<CallId, Problem> {
    CallId::parse(text).ok_or_else(|| invalid(path, "cannot be used", "the call_id of an answer: c_ and 32 hex digits"))
}

/// What a caller reports of a call it ran.
///
/// # Errors
/// A [`Problem`] naming the field at fault.
pub fn reported(outcome: Option<proto::complete_request::Outcome>, http_status: u32) -> Result<Reported, Problem> {
    use proto::complete_request::Outcome as Wire;
    let status = match http_status {
        0 => None,
        100..=599 => u16::try_from(http_status).ok(),
        other => return Err(invalid("http_status", format!("{other} is no status"), "100 to 599, or nothing")),
    };
    let answered = |path: &str, text: String, failed: bool| {
        at_most(path, text.len(), MAX_JSON_BYTES, "bytes")?;
        let body = match serde_json::from_str(&text) {
            Ok(value) => Body::Json(value),
            Err(_) if text.trim().is_empty() => Body::Empty,
            Err(_) => Body::Text(text),
        };
        Ok(Reported::Answered(ToolAnswer { status, body, failed, cut: false, retry_after_ms: None }))
    };
    match outcome {
        Some(Wire::ResultJson(text)) => answered("result_json", text, false),
        Some(Wire::ErrorJson(text)) => answered("error_json", text, true),
        Some(Wire::Lost(true)) => Ok(Reported::Lost),
        Some(Wire::NotStarted(true)) => Ok(Reported::NotStarted),
        Some(Wire::Lost(false) | Wire::NotStarted(false)) | None => {
            Err(invalid("outcome", "missing", "result_json, error_json, lost or not_started"))
        }
    }
}

/// # Errors
/// A [`Problem`] when neither or both ways to name a call are used.
pub fn which(request: &proto::LookupRequest) -> Result<Which<'_>, Problem> {
    match (request.call_id.as_str(), request.session_id.as_str(), request.idempotency_key.as_str()) {
        (id, "", "") if !id.is_empty() => Ok(Which::Call(call_id("call_id", id)?)),
        ("", conversation, key) if !key.is_empty() => Ok(Which::Key { conversation, key }),
        _ => Err(invalid("call_id", "cannot be used", "call_id, or session_id and idempotency_key")),
    }
}

pub fn authorize_response(answer: Answer) -> proto::AuthorizeResponse {
    use proto::authorize_response::Verdict;
    let verdict = match answer {
        Answer::Go(leave) => Verdict::Go(go(leave)),
        Answer::Confirm(shown) => Verdict::Confirm(consent(shown)),
        Answer::Propose(shown) => Verdict::Propose(consent(shown)),
        Answer::Ended(ended) => Verdict::Replay(outcome(*ended)),
        Answer::InFlight(record) => Verdict::InFlight(call_record(&record)),
        Answer::Refused(refused) => Verdict::Refused(problem(&refused)),
        Answer::Handoff { reason, message } => {
            Verdict::Handoff(proto::Handoff { reason: reason.as_str().into(), message })
        }
    };
    proto::AuthorizeResponse { verdict: Some(verdict) }
}

/// A leave to run is for [`authorize_response`] alone: what is invoked has run.
pub fn invoke_response(answer: Answer) -> proto::InvokeResponse {
    use proto::invoke_response::Verdict;
    let verdict = match answer {
        Answer::Ended(ended) => Some(Verdict::Outcome(outcome(*ended))),
        Answer::Confirm(shown) => Some(Verdict::Confirm(consent(shown))),
        Answer::Propose(shown) => Some(Verdict::Propose(consent(shown))),
        Answer::InFlight(record) => Some(Verdict::InFlight(call_record(&record))),
        Answer::Refused(refused) => Some(Verdict::Refused(problem(&refused))),
        Answer::Handoff { reason, message } => {
            Some(Verdict::Handoff(proto::Handoff { reason: reason.as_str().into(), message }))
        }
        Answer::Go(_) => None,
    };
    proto::InvokeResponse { verdict }
}

pub fn complete_response(answer: Answer) -> proto::CompleteResponse {
    use proto::complete_response::Answer as Wire;
    let answer = match answer {
        Answer::Ended(ended) => Some(Wire::Outcome(outcome(*ended))),
        Answer::Refused(refused) => Some(Wire::Refused(problem(&refused))),
        Answer::Go(_) | Answer::Confirm(_) | Answer::Propose(_) | Answer::InFlight(_) | Answer::Handoff { .. } => None,
    };
    proto::CompleteResponse { answer }
}

pub fn lookup_response(record: &Record) -> proto::LookupResponse {
    let result_json = match &record.ending {
        Some(Ending::Succeeded(result)) => result.to_string(),
        Some(Ending::Failed(_) | Ending::EffectUnknown(_) | Ending::NotStarted(_)) | None => String::new(),
    };
    proto::LookupResponse { call: Some(call_record(record)), result_json }
}

pub fn call_record(record: &Record) -> proto::CallRecord {
    let error = match &record.ending {
        Some(Ending::Failed(error) | Ending::EffectUnknown(error) | Ending::NotStarted(error)) => Some(problem(error)),
        Some(Ending::Succeeded(_)) | None => None,
    };
    proto::CallRecord {
        call_id: record.id.to_string(),
        tool: record.tool.to_string(),
        state: record.state.as_str().into(),
        idempotency_key: record.key.clone(),
        session_id: record.conversation.clone(),
        caller: record.caller.clone(),
        confirmed_by: record.confirmed_by.clone().unwrap_or_default(),
        attempts: record.attempts,
        created_at_ms: ms(record.created),
        updated_at_ms: ms(record.updated),
        expires_at_ms: ms(record.until),
        error,
    }
}

fn ms(time: crate::types::UnixMs) -> u64 {
    u64::try_from(time.0).unwrap_or_default()
}

fn go(leave: Leave) -> proto::Go {
    proto::Go {
        call_id: leave.call.to_string(),
        idempotency_key: leave.key.unwrap_or_default(),
        timeout_ms: u64::try_from(leave.timeout.as_millis()).unwrap_or(u64::MAX),
        arguments_json: leave.arguments.to_string(),
    }
}

fn consent(shown: Shown) -> proto::Consent {
    let Shown { record, token, until, preview } = shown;
    proto::Consent {
        call_id: record.id.to_string(),
        confirm_token: token,
        expires_at_ms: ms(until),
        tool: preview.tool.to_string(),
        what: preview.what,
        arguments_json: Value::Object(preview.arguments).to_string(),
        reversible: preview.reversible,
        second_person_scope: preview.second_person.unwrap_or_default(),
        idempotency_key: record.key,
    }
}

fn outcome(outcome: Outcome) -> proto::Outcome {
    let Outcome { record, result, replayed, answered_by, sizes } = outcome;
    proto::Outcome {
        call: Some(call_record(&record)),
        result_json: result.to_string(),
        replayed,
        answered_by: answered_by.map(|tool| tool.to_string()).unwrap_or_default(),
        size: (sizes != Sizes::default()).then(|| size(&sizes)),
    }
}

fn size(sizes: &Sizes) -> proto::ResultSize {
    let count = |number: usize| number as u64;
    proto::ResultSize {
        raw_chars: count(sizes.raw_chars),
        shaped_chars: count(sizes.shaped_chars),
        estimated_tokens: count(sizes.estimated_tokens),
        rows: count(sizes.rows),
        dropped_rows: count(sizes.dropped_rows),
        dropped_fields: count(sizes.dropped_fields),
    }
}
