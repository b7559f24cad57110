//! The mode that asks twice: which tool first, its arguments afterwards.
//!
//! Owns: when the second question is asked at all, how its answer is read.
//! Does not know: how a question travels or what its repair says.
//!
//! A model that has only a name to write chooses better than one that writes arguments as well, and the probability of
//! that name is its confidence. Arguments that can be read off the conversation need no model.

use serde_json::{Map, Value};

use super::ask::{self, Prompt, Shortlist};
use super::converse::{Conversation, Held, Told, propose};
use super::read::{self, Arguments, Completion, RawCall, Unusable};
use super::repair::{Checks, Dialogue};
use super::spent::Spent;
use super::{AnswerMode, LlmError};
use crate::catalog::Tool;
use crate::decide::plan::{Conflicts, Plan};
use crate::decide::{Verdict, local};
use crate::decision::HandoffReason;
use crate::types::ToolId;

const NOTE_READ: &str = "the arguments were read off the conversation without a second question";
const NOTE_ONE: &str = "choose_then_fill plans one call, though the request allows more";
const NOTE_NO_ATTEMPT: &str = "no attempt or no tokens were left to ask the model for the arguments";

impl Conversation<'_> {
    /// # Errors
    /// As with one question.
    pub(super) async fn choose_then_fill(
        &self,
        list: &Shortlist<'_>,
        prompt: &mut Prompt,
        dialogue: &mut Dialogue<'_>,
        spent: &mut Spent<'_>,
    ) -> Result<Held, LlmError> {
        if self.request.max_calls > 1 {
            dialogue.notes.push(NOTE_ONE);
        }
        let read = |body: &Value| read_choice(body, list);
        let checks = Checks {
            arguments: &|tool, _| Ok(tool.id().clone()),
            // One name is no plan yet.
            plan: &|calls, _| Ok(Plan { calls, notes: Vec::new() }),
        };
        let (told, choice) = self.ask(list, prompt, dialogue, &read, &checks, spent).await?;
        let chosen: Vec<ToolId> = match told {
            Told::Calls(chosen) => chosen,
            Told::End(verdict) => return Ok(Held { verdict, choice }),
        };
        let tool = chosen.first().and_then(|id| self.request.tool(id));
        let verdict = match tool {
            Some(tool) => self.fill(tool, list, dialogue, spent).await?,
            None => Verdict::Handoff(HandoffReason::FuseBlown),
        };
        Ok(Held { verdict, choice })
    }

    async fn fill(
        &self,
        tool: &Tool,
        list: &Shortlist<'_>,
        dialogue: &mut Dialogue<'_>,
        spent: &mut Spent<'_>,
    ) -> Result<Verdict, LlmError> {
        let (known, missing, fields) = local::read_arguments(tool, self.request);
        let takes_arguments = ask::takes_arguments(tool, self.request.session);
        let complete = missing.is_empty() && fields.is_empty();
        if (complete || !takes_arguments)
            && let Ok(proposal) = propose(self.request, tool, known.clone())
            && let Ok(plan) = self.arrange(vec![proposal], Conflicts::KeepBetter)
        {
            if takes_arguments {
                dialogue.notes.push(NOTE_READ);
            }
            return Ok(Verdict::Call(plan.calls));
        }
        if !spent.may_ask() {
            dialogue.notes.push(NOTE_NO_ATTEMPT);
            return Ok(local::clarify(tool, known, fields));
        }
        let mut prompt = Prompt::fill(self.request, list, tool);
        let read = |body: &Value| read_arguments(body, tool);
        Ok(self.ask_for_calls(list, &mut prompt, dialogue, &read, spent).await?.verdict)
    }
}

/// A name alone is a choice too: not every endpoint keeps to the form.
fn read_choice(body: &Value, list: &Shortlist<'_>) -> Result<Completion, Unusable> {
    let mut completion = read::read(body, AnswerMode::ChooseThenFill, &|name| list.resolve(name).is_some())?;
    let bare = completion.text.trim_matches(['"', '`', '.', ' ', '\n']);
    if completion.calls.is_empty() && list.resolve(bare).is_some() {
        completion.calls.push(RawCall { name: bare.to_owned(), arguments: Arguments::Object(Map::new()) });
    }
    // Arguments were not asked for: what a model adds is no answer to the second question.
    for call in &mut completion.calls {
        call.arguments = Arguments::Object(Map::new());
    }
    Ok(completion)
}

/// The arguments of `tool`: an object of them, or a call that holds one.
fn read_arguments(body: &Value, tool: &Tool) -> Result<Completion, Unusable> {
    let is_meant = |name: &str| tool.is_called(name) || name == tool.alias;
    let mut completion = read::read(body, AnswerMode::Functions, &is_meant)?;
    // The tool is chosen: a call of another one answers another question.
    completion.calls.retain(|call| is_meant(&call.name));
    if completion.calls.is_empty() {
        let arguments = match read::object(&completion.text) {
            Some(object) => Arguments::Object(unwrapped(object, tool)),
            None => Arguments::Unreadable(completion.text.clone()),
        };
        completion.calls.push(RawCall { name: tool.alias.clone(), arguments });
    }
    Ok(completion)
}

/// Some models put the arguments of the one function into a call of it.
fn unwrapped(mut object: Map<String, Value>, tool: &Tool) -> Map<String, Value> {
    if tool.schema.property("arguments").is_some() {
        return object;
    }
    match object.remove("arguments") {
        Some(Value::Object(inner)) => inner,
        Some(other) => {
            object.insert("arguments".into(), other);
            object
        }
        None => object,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::llm::testing::shop;

    fn body(content: &str) -> Value {
        json!({"choices": [{"message": {"role": "assistant", "content": content}}]})
    }

    #[test]
    fn a_choice_is_a_name_in_any_form() {
        let shop = shop();
        let tools = shop.tools();
        let list = Shortlist::new(&shop.request("hi", &tools), 128, AnswerMode::ChooseThenFill);
        let of = |content: &str| {
            let calls = read_choice(&body(content), &list).unwrap().calls;
            calls.iter().map(|call| format!("{} {:?}", call.name, call.arguments)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of(r#"{"tool": "get_order"}"#), "get_order Object {}".replace("Object ", "Object(") + ")");
        assert_eq!(of("get_order"), of(r#"{"tool":"get_order","arguments":"x"}"#));
        assert_eq!(of("`no_tool`"), "no_tool Object({})");
        assert_eq!(of("I would use get_order"), "");
        assert_eq!(of(r#"{"tool":"python"}"#), "python Object({})", "asked about, not ignored");
    }

    #[test]
    fn arguments_are_an_object_with_or_without_a_call_around_it() {
        let shop = shop();
        let tools = shop.tools();
        let of = |content: &str| read_arguments(&body(content), tools[1]).unwrap().calls.remove(0);
        let plain = of(r#"{"order_id": "SO-1"}"#);
        assert_eq!(plain.name, "get_order");
        for wrapped in [
            r#"{"tool": "get_order", "arguments": {"order_id": "SO-1"}}"#,
            r#"{"name": "get_order", "arguments": {"order_id": "SO-1"}}"#,
            "```json\n{\"order_id\": \"SO-1\"}\n```",
        ] {
            assert_eq!(of(wrapped), plain, "{wrapped}");
        }
        assert!(matches!(of("which order?").arguments, Arguments::Unreadable(_)));
        assert!(matches!(of("").arguments, Arguments::Unreadable(_)));
    }
}
