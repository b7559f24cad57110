//! Functions: whether they are called, chosen, forced, and how many fit.

use serde_json::json;

use super::ask::{Reply, Trouble, shown};
use super::basics::unanswered;
use super::bodies::{self, GREETING, NAMES, PARCEL, PARCEL_ZH, TRACK, TWO_PARCELS};
use super::{Check, Grade, Probe};

/// Tokens of an answer that calls one small function, with room for a model that thinks first.
pub(super) const CALL_TOKENS: u32 = 256;
const MANY: [usize; 4] = [16, 64, 128, 256];
const FEW_TOKENS: u32 = 64;

/// Where the calls of an answer stand.
enum Called {
    /// The names, in order.
    Message(Vec<String>),
    Text(Vec<String>),
    Nothing(String),
}

impl Called {
    fn of(reply: &Reply) -> Self {
        let names =
            |calls: Vec<super::super::read::RawCall>| calls.into_iter().map(|call| call.name).collect::<Vec<_>>();
        let calls = names(reply.calls());
        if !calls.is_empty() {
            return Self::Message(calls);
        }
        let calls = names(reply.calls_in_text(&NAMES));
        if calls.is_empty() { Self::Nothing(reply.text()) } else { Self::Text(calls) }
    }
}

impl Probe<'_> {
    pub(super) async fn tools(&mut self) {
        self.begin(Check::Tools);
        let mut answer = self.ask_tools(PARCEL, Some("required")).await;
        let mut choice = "required";
        if answer.as_ref().is_err_and(Trouble::is_refusal) {
            choice = "auto";
            answer = self.ask_tools(PARCEL, Some("auto")).await;
        }
        let verdict = match answer {
            Ok(reply) => {
                self.facts.tool_choice = Some(choice);
                called(&Called::of(&reply))
            }
            Err(trouble) => unanswered(&trouble, "tools"),
        };
        self.end(Check::Tools, verdict);
    }

    /// A greeting tempts into prose.
    pub(super) async fn tool_choice(&mut self) {
        match self.facts.tool_choice {
            None => return self.skip(Check::ToolChoice, "functions do not work"),
            Some("auto") => {
                let remark = "`required` is refused; `auto` is accepted";
                self.begin(Check::ToolChoice);
                return self.end(Check::ToolChoice, (Grade::No, remark.into()));
            }
            Some(_) => {}
        }
        self.begin(Check::ToolChoice);
        let verdict = match self.ask_tools(GREETING, Some("required")).await {
            Ok(reply) => match Called::of(&reply) {
                Called::Message(_) => (Grade::Yes, "`required` is accepted and obeyed".to_owned()),
                Called::Text(_) => (Grade::Partly, "`required` gives a call in the text".to_owned()),
                Called::Nothing(_) => {
                    (Grade::Partly, "`required` is accepted and ignored: prose is asked again".to_owned())
                }
            },
            Err(trouble) => unanswered(&trouble, "tool_choice"),
        };
        self.end(Check::ToolChoice, verdict);
    }

    pub(super) async fn parallel_tool_calls(&mut self) {
        let Some(choice) = self.facts.tool_choice else {
            return self.skip(Check::ParallelToolCalls, "functions do not work");
        };
        self.begin(Check::ParallelToolCalls);
        let body = self.tools_body(TWO_PARCELS, Some(choice));
        let body = bodies::with(body, "parallel_tool_calls", json!(false));
        let verdict = match self.ask.chat(&body).await {
            Ok(reply) => match Called::of(&reply) {
                Called::Message(calls) | Called::Text(calls) if calls.len() > 1 => {
                    (Grade::Partly, format!("`false` is accepted and ignored: {} calls", calls.len()))
                }
                Called::Message(_) | Called::Text(_) => (Grade::Yes, "`false` is accepted, one call comes".to_owned()),
                Called::Nothing(_) => (Grade::Unknown, "`false` is accepted; no call came".to_owned()),
            },
            Err(trouble) => unanswered(&trouble, "parallel_tool_calls"),
        };
        self.end(Check::ParallelToolCalls, verdict);
    }

    /// The same wish in Chinese, in every form that works.
    pub(super) async fn chinese(&mut self) {
        let mut remarks = Vec::new();
        let mut right = 0;
        self.begin(Check::Chinese);
        if self.works(Check::Tools) {
            let answer = self.ask_tools(PARCEL_ZH, self.facts.tool_choice).await;
            remarks.push(match answer.map(|reply| Called::of(&reply)) {
                Ok(Called::Message(calls) | Called::Text(calls)) => {
                    right += usize::from(calls[0] == TRACK);
                    format!("functions choose {}", shown(&calls[0]))
                }
                Ok(Called::Nothing(_)) => "functions: prose".to_owned(),
                Err(trouble) => format!("functions: {trouble}"),
            });
        }
        if self.works(Check::JsonSchema) {
            let (choice, is_right) = self.json_choice(PARCEL_ZH).await;
            right += usize::from(is_right);
            remarks.push(format!("json_schema chooses {choice}"));
        }
        if remarks.is_empty() {
            return self.skip(Check::Chinese, "neither functions nor json_schema work");
        }
        let grade = match right {
            0 => Grade::No,
            all if all == remarks.len() => Grade::Yes,
            _ => Grade::Partly,
        };
        self.end(Check::Chinese, (grade, remarks.join("; ")));
    }

    /// Stops at the first number that is refused.
    pub(super) async fn max_tools(&mut self) {
        if self.options.quick {
            return self.skip(Check::MaxTools, "left out by --quick");
        }
        if !self.works(Check::Tools) {
            return self.skip(Check::MaxTools, "functions do not work");
        }
        self.begin(Check::MaxTools);
        let mut most = 0;
        let mut end = None;
        for count in MANY {
            let body = self.limited(bodies::many_tools(&self.ask.model, count), FEW_TOKENS);
            match self.ask.chat(&body).await {
                Ok(_) => most = count,
                Err(trouble) => {
                    end = Some((count, trouble));
                    break;
                }
            }
        }
        self.facts.functions = Some((most, end.as_ref().is_some_and(|(_, trouble)| trouble.is_refusal())));
        let accepted = format!("{most} accepted");
        let verdict = match end {
            None => (Grade::Yes, accepted),
            // Whatever that failed on, it was not their number.
            Some((count, trouble)) if most == 0 => (Grade::Unknown, format!("with {count}: {trouble}")),
            Some((count, trouble)) => (Grade::Partly, format!("{accepted}; with {count}: {trouble}")),
        };
        self.end(Check::MaxTools, verdict);
    }

    async fn ask_tools(&mut self, text: &str, choice: Option<&str>) -> Result<Reply, Trouble> {
        let body = self.tools_body(text, choice);
        self.ask.chat(&body).await
    }

    pub(super) fn tools_body(&self, text: &str, choice: Option<&str>) -> bodies::Body {
        self.limited(bodies::tools(&self.ask.model, text, choice), CALL_TOKENS)
    }
}

fn called(called: &Called) -> (Grade, String) {
    let right = |calls: &[String]| match calls[0] == TRACK {
        true => "the right function",
        false => "a wrong function",
    };
    match called {
        Called::Message(calls) => {
            let grade = if calls[0] == TRACK { Grade::Yes } else { Grade::Partly };
            (grade, format!("calls {}, {}", shown(&calls[0]), right(calls)))
        }
        Called::Text(calls) => {
            (Grade::Partly, format!("calls {} in the text, where it is found as well", shown(&calls[0])))
        }
        Called::Nothing(text) => (Grade::No, format!("no call: \"{}\"", shown(text))),
    }
}
