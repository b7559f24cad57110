//! The cards of one prompt, shortened alike until they fit.
//!
//! Owns: the form of a card in each mode, the two controls beside the tools, the step at which all fit the budget.
//! Does not know: what a step cuts (see [`super::card`]).

use serde_json::{Value, json};

use super::super::{AnswerMode, PromptForm, Settings};
use super::card::{self, Cut};
use super::shortlist::Shortlist;
use super::wording::Wording;
use crate::catalog::Tool;
use crate::decide::Request;
use crate::text::estimate_tokens;

/// Cards in prompt order, the controls last.
#[derive(Debug)]
pub(super) struct Cards {
    /// In the provider's form; empty in the other modes.
    pub functions: Vec<Value>,
    /// One line each; empty in function mode.
    pub lines: Vec<String>,
    pub cut: Cut,
    pub clipped: bool,
}

impl Cards {
    /// Takes the first step at which the cards of all tools together are estimated at no more than `card_tokens`, 0 for
    /// any number; the last one where none is enough. The compact form is the last step from the beginning.
    pub fn new(
        request: &Request<'_>,
        list: &Shortlist<'_>,
        mode: AnswerMode,
        wording: &Wording,
        settings: &Settings,
    ) -> Self {
        let budget = settings.card_tokens;
        let at = |cut: Cut| -> Vec<Value> {
            list.tools.iter().map(|tool| of_tool(request, tool, list, mode, wording, cut)).collect()
        };
        let fits = |cards: &[Value]| {
            budget == 0 || cards.iter().map(|card| estimate_tokens(&shown(card))).sum::<usize>() <= budget
        };
        let (mut cut, mut cards) = match settings.prompt_form {
            PromptForm::Full => (Cut::Nothing, at(Cut::Nothing)),
            PromptForm::Compact => (Cut::Nothing, at(Cut::Bare)),
        };
        let steps = match settings.prompt_form {
            PromptForm::Full => &Cut::ALL[1..],
            // Nothing shorter follows; the step then says that the budget is not kept.
            PromptForm::Compact => &Cut::ALL[Cut::ALL.len() - 1..],
        };
        for next in steps.iter().copied() {
            if fits(&cards) {
                break;
            }
            (cut, cards) = (next, at(next));
        }
        cards.extend(controls(list, mode, wording));
        let clipped = list.tools.iter().any(|tool| card::is_clipped(tool));
        match mode {
            AnswerMode::Functions => Self { functions: cards, lines: Vec::new(), cut, clipped },
            AnswerMode::JsonSchema | AnswerMode::ChooseThenFill => {
                Self { functions: Vec::new(), lines: cards.iter().map(shown).collect(), cut, clipped }
            }
        }
    }
}

/// One card with its schema, as it stands in a system text.
pub(super) fn json_line(
    request: &Request<'_>,
    tool: &Tool,
    list: &Shortlist<'_>,
    wording: &Wording,
    cut: Cut,
) -> String {
    shown(&of_tool(request, tool, list, AnswerMode::JsonSchema, wording, cut))
}

/// As the model reads it.
fn shown(card: &Value) -> String {
    match card {
        Value::String(line) => line.clone(),
        other => other.to_string(),
    }
}

fn of_tool(
    request: &Request<'_>,
    tool: &Tool,
    list: &Shortlist<'_>,
    mode: AnswerMode,
    wording: &Wording,
    cut: Cut,
) -> Value {
    match mode {
        AnswerMode::ChooseThenFill => Value::String(card::line(tool, list, request.session, wording, cut)),
        AnswerMode::Functions | AnswerMode::JsonSchema => {
            let parameters = card::parameters(tool, request.session, cut, mode);
            in_form(mode, &tool.alias, &card::description(tool, list, wording, cut), parameters)
        }
    }
}

/// Declining and asking.
fn controls(list: &Shortlist<'_>, mode: AnswerMode, wording: &Wording) -> [Value; 2] {
    match mode {
        AnswerMode::ChooseThenFill => [
            Value::String(card::one_line(&list.none, &wording.none_description)),
            Value::String(card::one_line(&list.ask, &wording.ask_choose)),
        ],
        AnswerMode::Functions | AnswerMode::JsonSchema => {
            let text = |description: &str| json!({"type": "string", "description": description, "maxLength": 300});
            let aliases: Vec<&str> = list.tools.iter().map(|tool| tool.alias.as_str()).collect();
            let ask = json!({
                "type": "object",
                "properties": {
                    "tool": {"type": "string", "enum": aliases, "description": wording.ask_tool},
                    "missing": {"type": "array", "items": {"type": "string"}, "maxItems": 20,
                                "description": wording.ask_missing},
                    "arguments": {"type": "object", "description": wording.ask_arguments},
                    "question": text(&wording.ask_question),
                },
                "required": ["tool", "missing", "question"],
            });
            let none = json!({"type": "object", "properties": {"reason": text(&wording.none_reason)}});
            [
                in_form(mode, &list.none, &wording.none_description, none),
                in_form(mode, &list.ask, &wording.ask_description, ask),
            ]
        }
    }
}

fn in_form(mode: AnswerMode, name: &str, description: &str, parameters: Value) -> Value {
    let function = json!({"name": name, "description": description, "parameters": parameters});
    match mode {
        AnswerMode::Functions => json!({"type": "function", "function": function}),
        AnswerMode::JsonSchema | AnswerMode::ChooseThenFill => function,
    }
}
