//! Example turns: what a customer said and how it was answered, in the form of the mode.
//!
//! Owns: which phrases of the cards become examples, their order, their form.
//! Does not know: the conversation. The same shortlist gives the same examples.

use serde_json::{Map, Value, json};

use super::super::AnswerMode;
use super::shortlist::Shortlist;
use super::{portable, schema};
use crate::catalog::Tool;
use crate::decide::local::extract;
use crate::text::normalise;

const PER_TOOL: usize = 2;
/// Phrases of one card that are tried.
const TRIED: usize = 12;
const MAX_PHRASE: usize = 120;

/// Up to `count` example turns as messages: one of each tool in the order of the shortlist, then a second one of each.
/// Phrases in the prompt's language come first.
pub(super) fn turns(
    list: &Shortlist<'_>,
    mode: AnswerMode,
    chinese: bool,
    max_calls: usize,
    count: usize,
) -> Vec<Value> {
    if count == 0 {
        return Vec::new();
    }
    let of_tools: Vec<Vec<(&str, Map<String, Value>)>> =
        list.tools.iter().map(|tool| phrases(tool, mode, chinese)).collect();
    let rounds =
        (0..PER_TOOL).flat_map(|round| of_tools.iter().zip(&list.tools).map(move |(all, tool)| (all.get(round), tool)));
    let chosen = rounds.filter_map(|(phrase, tool)| phrase.map(|(text, arguments)| (*text, arguments, *tool)));
    chosen
        .take(count)
        .enumerate()
        .flat_map(|(n, (text, arguments, tool))| turn(n, text, arguments, tool, mode, max_calls))
        .collect()
}

/// Phrases that can stand as a request, with the arguments to be read off them. Where the answer holds arguments, a
/// phrase that does not give all of them would teach to make them up.
fn phrases(tool: &Tool, mode: AnswerMode, chinese: bool) -> Vec<(&str, Map<String, Value>)> {
    let all = tool.card.examples.iter().chain(&tool.card.description.when_to_use).take(TRIED);
    let mut usable: Vec<(bool, &str, Map<String, Value>)> = all
        .filter(|text| !text.contains('…') && !text.contains("...") && text.chars().nth(MAX_PHRASE).is_none())
        .filter_map(|text| {
            let query = normalise(text).ok()?;
            let foreign = query.language.prefers_chinese() != chinese;
            let arguments = match mode {
                AnswerMode::ChooseThenFill => Map::new(),
                AnswerMode::Functions | AnswerMode::JsonSchema => extract(tool, &query, &[], &Map::new()).arguments,
            };
            let complete = mode == AnswerMode::ChooseThenFill
                || tool.schema.required().iter().all(|name| arguments.contains_key(*name));
            complete.then_some((foreign, text.as_str(), arguments))
        })
        .collect();
    usable.sort_by_key(|(foreign, ..)| *foreign);
    usable.into_iter().map(|(_, text, arguments)| (text, arguments)).take(PER_TOOL).collect()
}

fn turn(
    n: usize,
    text: &str,
    arguments: &Map<String, Value>,
    tool: &Tool,
    mode: AnswerMode,
    max_calls: usize,
) -> Vec<Value> {
    let user = json!({"role": "user", "content": json!({"request": text}).to_string()});
    let says = |answer: Value| json!({"role": "assistant", "content": answer.to_string()});
    match mode {
        AnswerMode::Functions => {
            let id = format!("example_{n}");
            let function =
                json!({"name": tool.alias, "arguments": Value::Object(portable::renamed(arguments)).to_string()});
            let call = json!({"id": id, "type": "function", "function": function});
            let assistant = json!({"role": "assistant", "content": "", "tool_calls": [call]});
            // Endpoints want each call answered before the next turn.
            vec![user, assistant, json!({"role": "tool", "tool_call_id": id, "content": "{}"})]
        }
        AnswerMode::JsonSchema => {
            let call = json!({schema::ACTION: tool.alias, "arguments": arguments});
            vec![user, says(if max_calls <= 1 { call } else { json!({"calls": [call]}) })]
        }
        AnswerMode::ChooseThenFill => vec![user, says(json!({schema::TOOL: tool.alias}))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::llm::testing::{Shop, shop, tool};

    fn render(shop: &Shop, mode: AnswerMode, count: usize) -> Vec<String> {
        let tools = shop.tools();
        let list = Shortlist::new(&shop.request("hi", &tools), 128, mode);
        turns(&list, mode, false, 1, count).iter().map(|turn| turn["content"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn one_of_each_tool_then_a_second_one_and_the_own_language_first() {
        let cards = ["a", "b", "c"].map(|name| {
            let mut card = tool(name);
            card.examples = vec![format!("{name} one"), format!("{name} two"), format!("{name} three")];
            card
        });
        let mut cards = cards.to_vec();
        cards[1].examples = vec!["退款".into(), "b in English".into(), "where is SO-…".into()];
        let of = |count| render(&Shop::of(cards.clone()), AnswerMode::ChooseThenFill, count).join(" ");
        assert_eq!(of(0), "");
        assert_eq!(of(1), r#"{"request":"a one"} {"tool":"a"}"#);
        let all = of(100);
        assert!(
            all.starts_with(r#"{"request":"a one"} {"tool":"a"} {"request":"b in English"} {"tool":"b"}"#),
            "{all}"
        );
        assert!(all.ends_with(r#"{"request":"退款"} {"tool":"b"} {"request":"c two"} {"tool":"c"}"#), "{all}");
        assert_eq!(all.matches("request").count(), 6);
    }

    #[test]
    fn where_the_answer_holds_arguments_the_phrase_gives_all_required_ones() {
        let mut cards: Vec<_> = shop().tools().iter().map(|tool| (*tool.card).clone()).collect();
        assert!(render(&Shop::of(cards.clone()), AnswerMode::JsonSchema, 9).is_empty());
        cards[1].examples = vec!["where is SO-20260418000736".into()];
        let turns = render(&Shop::of(cards.clone()), AnswerMode::JsonSchema, 9);
        let answer = r#"{"action":"get_order","arguments":{"order_id":"SO-20260418000736"}}"#;
        assert_eq!(turns, [r#"{"request":"where is SO-20260418000736"}"#, answer]);
        assert_eq!(render(&Shop::of(cards), AnswerMode::Functions, 9), [turns[0].as_str(), "", "{}"]);
    }
}
