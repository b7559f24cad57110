//! Answers bound to a schema, and probabilities in answers of every form.

use serde_json::{Map, Value, json};

use super::super::ask::TOP_LOGPROBS;
use super::ask::shown;
use super::basics::unanswered;
use super::bodies::{self, NONE, NOTE_LENGTH, ORDER_CODE, PARCEL, PARCEL_CODE};
use super::functions::CALL_TOKENS;
use super::{Check, Grade, Probe};

const FEW_TOKENS: u32 = 5;

impl Probe<'_> {
    pub(super) async fn json_schema(&mut self) {
        self.begin(Check::JsonSchema);
        let body = self.json_body(PARCEL);
        let verdict = match self.ask.chat(&body).await {
            Ok(reply) => bound(&reply.text()),
            Err(trouble) => unanswered(&trouble, "response_format"),
        };
        self.end(Check::JsonSchema, verdict);
    }

    /// Each form is asked by itself: an endpoint may report them in one and refuse them in another.
    pub(super) async fn logprobs(&mut self) {
        self.begin(Check::Logprobs);
        let plain = self.limited(bodies::plain(&self.ask.model, PARCEL), FEW_TOKENS);
        let mut forms = vec![("plain", plain)];
        if self.works(Check::JsonSchema) {
            forms.push(("json_schema", self.json_body(PARCEL)));
        }
        if self.works(Check::Tools) {
            forms.push(("functions", self.tools_body(PARCEL, self.facts.tool_choice)));
        }
        let asked = forms.len();
        let (mut with, mut without) = (Vec::new(), Vec::new());
        let mut top = 0;
        for (form, body) in forms {
            let body = bodies::with(bodies::with(body, "logprobs", json!(true)), "top_logprobs", json!(TOP_LOGPROBS));
            match self.ask.chat(&body).await.map(|reply| reply.logprobs()) {
                Ok(Some(alternatives)) => {
                    top = top.max(alternatives);
                    with.push(form);
                }
                Ok(None) => without.push(format!("not with {form}")),
                Err(trouble) => without.push(format!("{form}: {trouble}")),
            }
        }
        let has = |form: &str| with.contains(&form);
        self.facts.logprobs = super::Logprobs { json: has("json_schema"), functions: has("functions") };
        let mut remarks = Vec::new();
        if !with.is_empty() {
            remarks.push(format!("with {}, {top} alternatives", with.join(", ")));
        }
        remarks.extend(without);
        let grade = match with.len() {
            0 => Grade::No,
            all if all == asked => Grade::Yes,
            _ => Grade::Partly,
        };
        self.end(Check::Logprobs, (grade, remarks.join("; ")));
    }

    /// What a schema-bound answer chooses, for a remark, and whether it is right.
    pub(super) async fn json_choice(&mut self, text: &str) -> (String, bool) {
        let body = self.json_body(text);
        match self.ask.chat(&body).await {
            Ok(reply) => {
                match object(&reply.text()).and_then(|answer| answer.get("choice")?.as_str().map(str::to_owned)) {
                    Some(choice) => (shown(&choice), choice == PARCEL_CODE),
                    None => ("nothing".into(), false),
                }
            }
            Err(trouble) => (format!("nothing: {trouble}"), false),
        }
    }

    fn json_body(&self, text: &str) -> bodies::Body {
        self.limited(bodies::json_schema(&self.ask.model, text), CALL_TOKENS)
    }
}

/// How far an answer keeps to the schema of [`bodies::json_schema`].
fn bound(text: &str) -> (Grade, String) {
    let Some(answer) = object(text) else {
        return (Grade::No, format!("accepted and ignored: \"{}\"", shown(text)));
    };
    let choice = answer.get("choice").and_then(Value::as_str).unwrap_or_default();
    if ![PARCEL_CODE, ORDER_CODE, NONE].contains(&choice) {
        return (Grade::No, format!("a JSON object that ignores the schema: choice \"{}\"", shown(choice)));
    }
    let length = answer.get("note").and_then(Value::as_str).map_or(0, |note| note.chars().count());
    match length {
        0 => (Grade::Partly, "the list of values is obeyed, required keys are not".into()),
        length if length <= NOTE_LENGTH => (Grade::Yes, "the list of values and the longest text are obeyed".into()),
        length => (
            Grade::Partly,
            format!("the list of values is obeyed, texts are not bounded: {length} characters, {NOTE_LENGTH} allowed"),
        ),
    }
}

/// A JSON object that is the whole text, fences aside.
fn object(text: &str) -> Option<Map<String, Value>> {
    let text = text.trim();
    let inner = text.strip_prefix("```json").or_else(|| text.strip_prefix("```"));
    let text = inner.map_or(text, |inner| inner.trim().trim_end_matches("```"));
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_schema_is_obeyed() {
        let check = |text: &str, grade: Grade, part: &str| {
            let (found, remark) = bound(text);
            assert!(found == grade && remark.contains(part), "{text}: {found:?} {remark}");
        };
        check(r#"{"choice": "parcel_q7", "note": "short"}"#, Grade::Yes, "obeyed");
        check("```json\n{\"choice\": \"no_tool\", \"note\": \"短\"}\n```", Grade::Yes, "obeyed");
        check(
            r#"{"choice": "parcel_q7", "note": "a note of more than twenty characters"}"#,
            Grade::Partly,
            "37 characters",
        );
        check(r#"{"choice": "order_k3"}"#, Grade::Partly, "required");
        check(r#"{"choice": "Parcel Tracking", "note": "x"}"#, Grade::No, "Parcel Tracking");
        check(r#"{"answer": 1}"#, Grade::No, "ignores");
        check("I think you want your parcel.", Grade::No, "ignored");
        check("[1]", Grade::No, "ignored");
        check("", Grade::No, "ignored");
    }
}
