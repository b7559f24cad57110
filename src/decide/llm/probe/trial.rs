//! The proof: decisions made just as in service, in each mode that may do, until one makes them all right.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::super::{AnswerMode, EndpointSettings, Llm, LlmError, Settings, quota};
use super::advice::has_logprobs;
use super::bodies::{CANCEL, GREETING, PARCEL, PARCEL_ZH, TRACK};
use super::{Check, Grade, Probe};
use crate::catalog::Tool;
use crate::decide::confidence::Model;
use crate::decide::{Answer, Request, Verdict};
use crate::text::normalise;
use crate::tool::{Description, ToolCard};
use crate::types::{Candidate, Deadline, Evidence, Score};

/// How often the patience of a check this one has.
const DECISIONS: u32 = 4;
const TRACKING_NO: &str = "SF1234567890";
/// The one argument of a tool and its form.
const WAYBILL: (&str, &str) = ("tracking_no", r"^[A-Z]{2}\d{10}$");
const ORDER_ID: (&str, &str) = ("order_id", r"^SO-\d{14}$");
/// What is said, and the call that is wanted.
const CASES: [(&str, bool); 3] = [(PARCEL, true), (PARCEL_ZH, true), (GREETING, false)];

impl Probe<'_> {
    pub(super) async fn decision(&mut self) {
        (self.started)(Check::Decision);
        let started = Instant::now();
        let mut remarks = Vec::new();
        let mut best = 0;
        // Several decisions, with prompts as long as in service.
        let deadline = Deadline::after(self.options.patience * DECISIONS);
        for mode in self.modes() {
            let (right, calls, trouble) = self.decide_in(mode, deadline).await;
            let trouble = trouble.map_or(String::new(), |error| format!(" ({error})"));
            remarks.push(format!("{}: {right} of {} right{trouble}", mode.as_str(), CASES.len()));
            // Whoever understands nothing declines everything, and is right at times.
            if calls > 0 && right > best {
                best = right;
                self.facts.mode = Some(mode);
            }
            if best == CASES.len() {
                break;
            }
        }
        let grade = match best {
            0 => Grade::No,
            all if all == CASES.len() => Grade::Yes,
            _ => Grade::Partly,
        };
        let finding =
            super::Finding { check: Check::Decision, grade, remark: remarks.join("; "), took: Some(started.elapsed()) };
        self.findings.push(finding);
    }

    /// What worked without restriction first; last the mode that wants least of a model.
    fn modes(&self) -> Vec<AnswerMode> {
        let forms = [(Check::Tools, AnswerMode::Functions), (Check::JsonSchema, AnswerMode::JsonSchema)];
        let graded = |grade| forms.into_iter().filter(move |(check, _)| self.grade(*check) == Some(grade));
        let forms = graded(Grade::Yes).chain(graded(Grade::Partly)).map(|(_, mode)| mode);
        forms.chain([AnswerMode::ChooseThenFill]).collect()
    }

    /// How many decisions were right, and how many of those were calls.
    async fn decide_in(&mut self, mode: AnswerMode, deadline: Deadline) -> (usize, usize, Option<LlmError>) {
        let patience = self.options.patience;
        let logprobs = has_logprobs(mode, self.facts.logprobs);
        let endpoint = EndpointSettings { mode, logprobs, ..self.endpoint.clone() };
        // What the operator allows callers says nothing about the endpoint.
        let settings = Settings {
            endpoints: vec![endpoint],
            timeout: patience,
            max_tokens: 0,
            requests_per_minute: 0,
            hedge: false,
            quota: quota::Settings::default(),
            ..self.settings.clone()
        };
        // The settings were good enough to get here.
        let Ok(llm) = Llm::new(settings) else { return (0, 0, None) };
        let tools = tools();
        let (mut right, mut calls) = (0, 0);
        for (text, wants_call) in CASES {
            let started = Instant::now();
            match decide(&llm, &tools, text, deadline.capped(patience)).await {
                Ok(answer) => {
                    if answer.llm_calls == 1 {
                        self.ask.samples.push((answer.tokens.prompt, started.elapsed()));
                    }
                    let is_right = is_right(&answer.verdict, wants_call);
                    right += usize::from(is_right);
                    calls += usize::from(is_right && wants_call);
                }
                Err(error) => return (right, calls, Some(error)),
            }
        }
        (right, calls, None)
    }
}

async fn decide(llm: &Llm, tools: &[Tool], text: &str, deadline: Deadline) -> Result<Answer, LlmError> {
    let query = normalise(text).expect("constant and tested");
    let tools: Vec<&Tool> = tools.iter().collect();
    let candidate =
        |tool: &&Tool| Candidate { tool: tool.id().clone(), score: Score::new(1.0), signals: BTreeMap::new() };
    let candidates: Vec<Candidate> = tools.iter().map(candidate).collect();
    let request = Request {
        query: &query,
        tenant: "",
        history: &[],
        session: &Map::new(),
        tools: &tools,
        candidates: &candidates,
        evidence: &Evidence::default(),
        model: Model::WORDS,
        max_calls: 1,
    };
    llm.decide(&request, deadline).await.map_err(|failed| failed.error)
}

/// Greeted, a model may also ask what is wanted.
fn is_right(verdict: &Verdict, wants_call: bool) -> bool {
    match verdict {
        Verdict::Call(calls) => {
            let [call] = calls.as_slice() else { return false };
            let number = call.checked.args.as_map().get("tracking_no").and_then(Value::as_str);
            wants_call && call.tool.as_str() == TRACK && number == Some(TRACKING_NO)
        }
        Verdict::NoTool(_) => !wants_call,
        Verdict::Clarify { tool, .. } => !wants_call && tool.is_none(),
        Verdict::Handoff(_) => false,
    }
}

/// In stable order, as the pipeline hands them on.
fn tools() -> Vec<Tool> {
    let cards = [
        card(CANCEL, "Cancel an order that was not sent yet.", ["取消订单", "cancel my order"], ORDER_ID),
        card(TRACK, "Tell where a parcel is and when it arrives.", ["快递到哪了", "where is my parcel"], WAYBILL),
    ];
    cards.into_iter().map(|card| Tool::new(card.into()).expect("constant and tested")).collect()
}

fn card(name: &str, what: &str, uses: [&str; 2], (argument, pattern): (&str, &str)) -> ToolCard {
    let parameters = json!({
        "type": "object",
        "properties": {argument: {"type": "string", "pattern": pattern, "description": "As the user wrote it."}},
        "required": [argument],
    });
    ToolCard {
        source: "probe".into(),
        version: "1".into(),
        description: Description {
            what: what.into(),
            when_to_use: uses.map(str::to_owned).to_vec(),
            ..Description::default()
        },
        ..ToolCard::reading(name, parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trial_is_well_formed() {
        let tools = tools();
        assert!(tools.windows(2).all(|pair| pair[0].id() < pair[1].id()), "in stable order");
        assert!(
            CASES.iter().all(|(text, wants_call)| normalise(text).is_ok() && text.contains(TRACKING_NO) == *wants_call)
        );
    }
}
