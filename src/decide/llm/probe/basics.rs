//! Reachability, plain answers and the parameters every request carries.

use std::time::Duration;

use serde_json::{Value, json};

use super::ask::{Trouble, seconds, shown};
use super::bodies::{self, Body};
use super::{Check, Finding, Grade, Probe};

/// Models of a list that a remark names.
const LISTED: usize = 5;
const OK: &str = "Reply with the single word OK.";
const SENTENCE: &str = "Write one short sentence about the sea.";
/// Far fewer tokens than the answer to this wants.
const COUNT: &str = "Count from 1 to 40 in digits, separated by commas.";
const SHORT: u32 = 8;
const SENTENCE_TOKENS: u32 = 24;
const SAME: usize = 3;

impl Probe<'_> {
    /// Not every endpoint has a list; the outer error is for one that cannot be talked to.
    pub(super) async fn models(&mut self) -> Result<(), Trouble> {
        self.begin(Check::Models);
        let (verdict, result) = match self.ask.models().await {
            Ok(list) => (listed(&list, &self.ask.model), Ok(())),
            Err(trouble) => {
                let verdict = match trouble.status() {
                    Some(404 | 405 | 501) => {
                        (Grade::Unknown, format!("there is no list of models ({trouble}), which is fine"))
                    }
                    Some(_) | None => (Grade::No, trouble.to_string()),
                };
                (verdict, Err(trouble))
            }
        };
        self.end(Check::Models, verdict);
        result
    }

    pub(super) async fn plain(&mut self) -> Result<(), Trouble> {
        self.begin(Check::Plain);
        match self.ask.chat(&bodies::plain(&self.ask.model, OK)).await {
            Ok(reply) => {
                let text = reply.text();
                let verdict = if text.trim().is_empty() {
                    (Grade::Partly, "answers with an empty text".to_owned())
                } else {
                    (Grade::Yes, format!("answers \"{}\"", shown(&text)))
                };
                self.end(Check::Plain, verdict);
                Ok(())
            }
            Err(trouble) => {
                self.end(Check::Plain, (Grade::No, trouble.to_string()));
                Err(trouble)
            }
        }
    }

    /// Of the plain answer; nothing more is asked.
    pub(super) fn usage(&mut self) {
        let prompt = self.ask.samples.last().map_or(0, |(prompt, _)| *prompt);
        let verdict = match prompt {
            0 => (Grade::No, "no token counts in answers: they are estimated, so budgets and quotas are rough"),
            _ => (Grade::Yes, "token counts are reported"),
        };
        let (grade, remark) = (verdict.0, verdict.1.into());
        self.findings.push(Finding { check: Check::Usage, grade, remark, took: None });
    }

    pub(super) async fn latency(&mut self) {
        self.begin(Check::Latency);
        let body = bodies::plain(&self.ask.model, OK);
        // The plain answer was the first one.
        let mut times: Vec<Duration> = self.ask.samples.iter().map(|(_, took)| *took).collect();
        while times.len() < SAME {
            match self.ask.chat(&body).await {
                Ok(reply) => times.push(reply.took),
                Err(_) => break,
            }
        }
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied();
        self.facts.latency = median;
        let verdict = match median {
            Some(median) => {
                let answers = if times.len() == 1 {
                    "one short answer".to_owned()
                } else {
                    format!("median of {} short answers", times.len())
                };
                (if times.len() < SAME { Grade::Partly } else { Grade::Yes }, format!("{}, {answers}", seconds(median)))
            }
            None => (Grade::Unknown, "no answer".into()),
        };
        self.end(Check::Latency, verdict);
    }

    /// Under which name the length of an answer can be limited. Older servers accept the new name and ignore it.
    pub(super) async fn token_limit(&mut self) {
        const NAMES: [&str; 2] = ["max_completion_tokens", "max_tokens"];
        self.begin(Check::MaxCompletionTokens);
        let mut remarks = Vec::new();
        let mut grade = Grade::No;
        for name in NAMES {
            let body = bodies::with(bodies::plain(&self.ask.model, COUNT), name, json!(SHORT));
            let remark = match self.ask.chat(&body).await {
                Ok(reply) => {
                    let written = reply.usage().completion;
                    // Counts are not always reported; forty numbers are far longer than eight tokens.
                    let obeyed = if written > 0 { written <= SHORT + 1 } else { reply.text().len() <= 48 };
                    if obeyed {
                        self.facts.limit = Some(name);
                        grade = if name == NAMES[0] { Grade::Yes } else { Grade::Partly };
                    }
                    format!("{name} {}", if obeyed { "is obeyed" } else { "is ignored" })
                }
                Err(trouble) => format!("{name}: {trouble}{}", named(&trouble, name)),
            };
            remarks.push(remark);
            if self.facts.limit.is_some() {
                break;
            }
        }
        self.end(Check::MaxCompletionTokens, (grade, remarks.join("; ")));
    }

    pub(super) async fn temperature(&mut self) {
        self.begin(Check::Temperature);
        let body = bodies::with(bodies::plain(&self.ask.model, OK), "temperature", json!(0));
        let verdict = match self.ask.chat(&body).await {
            Ok(_) => (Grade::Yes, "0 is accepted".to_owned()),
            Err(trouble) => {
                self.facts.temperature_refused = trouble.is_refusal();
                unanswered(&trouble, "temperature")
            }
        };
        self.end(Check::Temperature, verdict);
    }

    /// The same request several times.
    pub(super) async fn seed(&mut self) {
        self.begin(Check::Seed);
        let body = self.limited(bodies::plain(&self.ask.model, SENTENCE), SENTENCE_TOKENS);
        let body = bodies::with(body, "seed", json!(7));
        let body = if self.facts.temperature_refused { body } else { bodies::with(body, "temperature", json!(0)) };
        let mut answers: Vec<String> = Vec::new();
        let mut trouble = None;
        while answers.len() < SAME {
            match self.ask.chat(&body).await {
                Ok(reply) => answers.push(reply.text()),
                Err(error) => {
                    trouble = Some(error);
                    break;
                }
            }
        }
        let all_same = answers.windows(2).all(|pair| pair[0] == pair[1]);
        let verdict = match trouble {
            Some(trouble) if answers.is_empty() => {
                self.facts.seed_refused = trouble.is_refusal();
                unanswered(&trouble, "seed")
            }
            Some(trouble) => (Grade::Unknown, format!("{} of {SAME} answers came: {trouble}", answers.len())),
            None if all_same => (Grade::Yes, format!("{SAME} of {SAME} answers are equal")),
            None => (Grade::Partly, format!("{SAME} answers to the same request differ: decisions may vary")),
        };
        self.end(Check::Seed, verdict);
    }

    /// With a limit to the answer's length, where there is a way to set one.
    pub(super) fn limited(&self, body: Body, tokens: u32) -> Body {
        match self.facts.limit {
            Some(name) => bodies::with(body, name, json!(tokens)),
            None => body,
        }
    }
}

/// Says whether the server would find out by itself.
fn named(trouble: &Trouble, parameter: &str) -> &'static str {
    match (trouble.is_refusal(), trouble.names(parameter)) {
        (true, true) => ", named in the complaint: left out from then on",
        (true, false) => ", not named in the complaint",
        (false, _) => "",
    }
}

/// What a missing answer to a request with `parameter` says.
pub(super) fn unanswered(trouble: &Trouble, parameter: &str) -> (Grade, String) {
    let grade = if trouble.is_refusal() { Grade::No } else { Grade::Unknown };
    (grade, format!("{trouble}{}", named(trouble, parameter)))
}

fn listed(list: &Value, model: &str) -> (Grade, String) {
    let models = list.get("data").or(Some(list)).and_then(Value::as_array);
    let Some(models) = models else {
        return (Grade::Unknown, "the list of models has no `data`".into());
    };
    let names: Vec<&str> = models.iter().filter_map(|model| model.get("id").unwrap_or(model).as_str()).collect();
    if names.contains(&model) {
        return (Grade::Yes, format!("\"{}\" is one of {} models", shown(model), names.len()));
    }
    let first: Vec<String> = names.iter().take(LISTED).map(|name| shown(name)).collect();
    let more = if names.len() > LISTED { ", …" } else { "" };
    let remark = match names.len() {
        0 => "the list of models is empty".to_owned(),
        count => format!("\"{}\" is not one of {count} models: {}{more}", shown(model), first.join(", ")),
    };
    (Grade::Partly, remark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_models_come_in_several_forms() {
        let check = |list: Value, grade: Grade, part: &str| {
            let (found, remark) = listed(&list, "m");
            assert!(found == grade && remark.contains(part), "{list}: {found:?} {remark}");
        };
        check(json!({"data": [{"id": "m"}, {"id": "n"}]}), Grade::Yes, "one of 2");
        check(json!([{"id": "m"}]), Grade::Yes, "one of 1");
        check(json!(["n", "m"]), Grade::Yes, "one of 2");
        check(json!({"data": [{"id": "a\u{1b}[31m"}]}), Grade::Partly, "not one of 1 models: a [31m");
        check(json!({"data": []}), Grade::Partly, "empty");
        check(json!({"models": 3}), Grade::Unknown, "no `data`");
        check(json!("text"), Grade::Unknown, "no `data`");
        let many: Vec<Value> = (0..9).map(|n| json!({"id": format!("m{n}")})).collect();
        check(json!({"data": many}), Grade::Partly, "m0, m1, m2, m3, m4, …");
    }
}
