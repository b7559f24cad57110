//! Values from earlier turns: ids that were named before, tokens that a preview handed out, the last call continued.

use serde_json::{Map, Value};

use super::{Context, Extraction, Found, ids, words};
use crate::args::{Origin, Property};
use crate::types::{Problem, Turn};

/// Turns looked back at.
const MAX_TURNS: usize = 12;
/// Longest turn read, in bytes; longer ones are search results nobody points back into by a bare "it".
const MAX_TURN_BYTES: usize = 64 * 1024;
/// Words of a turn that are tried as a value.
const MAX_WORDS: usize = 500;
/// Words that point back.
const POINTERS: [&str; 30] = [
    "它", "这单", "那单", "这个", "那个", "这笔", "那笔", "这件", "那件", "呢", "那", "刚才", "刚刚", "上面", "同样",
    "一样", "第", "也", "it", "that", "this", "same", "them", "the one", "one", "too", "also", "ok", "yes", "go",
];
/// Words that ask for the last call once more, with a change.
const CONTINUES: [&str; 22] = [
    "同样",
    "一样",
    "也查",
    "也看",
    "呢",
    "再",
    "还有",
    "更",
    "下一页",
    "后面",
    "换成",
    "same",
    "what about",
    "how about",
    "and for",
    "also",
    "too",
    "next",
    "more",
    "cheaper",
    "instead",
    "another",
];
/// An utterance up to this long is read as an answer or a follow-up.
const SHORT_CHARS: usize = 10;

/// The JSON of a tool turn.
#[derive(Debug)]
struct Result {
    tool: String,
    args: Map<String, Value>,
    whole: Value,
    ok: bool,
}

fn results(history: &[Turn]) -> impl Iterator<Item = Result> + '_ {
    let recent = history.iter().rev().take(MAX_TURNS);
    recent.filter_map(|turn| {
        let whole = turn.tool_result()?;
        Some(Result {
            tool: whole.get("tool")?.as_str()?.to_owned(),
            args: whole.get("args").and_then(Value::as_object).cloned().unwrap_or_default(),
            ok: Problem::reported(&whole).is_none(),
            whole,
        })
    })
}

/// Patterned arguments that the utterance leaves out. An optional one is taken only by an utterance that points back.
pub(super) fn fill_ids(context: &Context<'_>, out: &mut Extraction) {
    if context.history.is_empty() {
        return;
    }
    let open: Vec<Property<'_>> = context
        .schema
        .views()
        .filter(|property| {
            property.pattern().is_some() && property.choices().is_empty() && !out.arguments.contains_key(property.name)
        })
        .collect();
    let alternatives =
        out.arguments.keys().any(|name| context.schema.property(name).is_some_and(|p| p.pattern().is_some()));
    for property in &open {
        if is_token(context, property.name) || out.misfits.iter().any(|(name, _)| name == property.name) {
            continue;
        }
        let handed_out = ids::is_handed_out(context, property);
        if handed_out && !asks_for_more(context.lower) {
            continue;
        }
        // One id is enough for a tool that takes either of several.
        if !property.required && !handed_out && (alternatives || !points_back(context)) {
            continue;
        }
        let found = if handed_out { handed_over(context, property) } else { mentioned(context, property) };
        if let Some(value) = found {
            out.put(property.name, Found { value: Value::String(value), origin: Origin::History });
        }
    }
}

fn is_token(context: &Context<'_>, name: &str) -> bool {
    context
        .tool
        .card
        .confirmation
        .as_ref()
        .is_some_and(|confirmation| confirmation.token_param.as_deref() == Some(name))
}

fn points_back(context: &Context<'_>) -> bool {
    context.query.text.chars().count() <= SHORT_CHARS || words::contains_any(context.lower, &POINTERS)
}

fn asks_for_more(lower: &str) -> bool {
    words::contains_any(
        lower,
        &["下一页", "后面", "更多", "继续", "还有吗", "接着", "翻页", "next", "more", "continue", "the rest"],
    )
}

/// The value the newest turn with one names; a position ("第二个", "the second one") picks from the newest list.
fn mentioned(context: &Context<'_>, property: &Property<'_>) -> Option<String> {
    let turns = context.history.iter().rev().take(MAX_TURNS).filter(|turn| turn.content.len() <= MAX_TURN_BYTES);
    let mut lists = turns.map(|turn| values_in(context, property, &turn.content));
    match position(context.lower) {
        Some(place) => lists.filter(|list| list.len() > 1).find_map(|list| place.of(&list)),
        None => {
            let newest = lists.find(|list| !list.is_empty())?;
            (newest.len() == 1).then(|| newest[0].clone())
        }
    }
}

/// Every distinct value of the property's form in `text`, in order.
fn values_in(context: &Context<'_>, property: &Property<'_>, text: &str) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    let prefix = property.literal_prefix();
    let head = prefix.trim_end_matches(['-', '_']);
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let begins = |word: &&str| word.get(..head.len()).is_some_and(|start| start.eq_ignore_ascii_case(head));
    let words = text.split(|c| !is_part(c)).filter(|word| word.contains(|c: char| c.is_ascii_digit())).filter(begins);
    for word in words.take(MAX_WORDS) {
        if let Some(value) = ids::fitting(context.schema, property, word).filter(|value| !values.contains(value)) {
            values.push(value);
        }
    }
    values
}

/// A place in a list, from its start or its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    FromStart(usize),
    FromEnd(usize),
}

impl Place {
    fn of(self, list: &[String]) -> Option<String> {
        match self {
            Self::FromStart(index) => list.get(index).cloned(),
            Self::FromEnd(index) => list.len().checked_sub(index + 1).map(|at| list[at].clone()),
        }
    }
}

fn position(lower: &str) -> Option<Place> {
    const CHINESE: [(&str, usize); 10] = [
        ("第一", 0),
        ("第1", 0),
        ("第二", 1),
        ("第2", 1),
        ("第三", 2),
        ("第3", 2),
        ("第四", 3),
        ("第4", 3),
        ("第五", 4),
        ("第5", 4),
    ];
    const ENGLISH: [(&str, usize); 10] = [
        ("first", 0),
        ("1st", 0),
        ("second", 1),
        ("2nd", 1),
        ("third", 2),
        ("3rd", 2),
        ("fourth", 3),
        ("4th", 3),
        ("fifth", 4),
        ("5th", 4),
    ];
    let last = ["最后一", "倒数第一", "the last one", "last one"];
    if words::contains_any(lower, &last) {
        return Some(Place::FromEnd(0));
    }
    let mut known = CHINESE.iter().chain(&ENGLISH);
    known.find(|(word, _)| words::find(lower, word).is_some()).map(|(_, index)| Place::FromStart(*index))
}

/// What the newest result of this tool, or of any, hands out under the argument's name or `next_` before it.
fn handed_over(context: &Context<'_>, property: &Property<'_>) -> Option<String> {
    let next = format!("next_{}", property.name);
    let own = |result: &Result| result.tool == context.tool.card.name || result.tool == context.tool.id().as_str();
    let result = results(context.history).find(|result| own(result) && result.ok)?;
    let value = text_under(&result.whole, &[next.as_str(), property.name], 0)?;
    context.schema.fits(property.name, &Value::String(value.clone())).then_some(value)
}

fn text_under(value: &Value, names: &[&str], depth: usize) -> Option<String> {
    const DEEPEST: usize = 6;
    match value {
        Value::Object(members) if depth < DEEPEST => {
            let own = names.iter().find_map(|name| members.get(*name)).and_then(Value::as_str).map(str::to_owned);
            own.or_else(|| {
                members
                    .iter()
                    .filter(|(name, _)| *name != "args")
                    .find_map(|(_, member)| text_under(member, names, depth + 1))
            })
        }
        Value::Array(items) if depth < DEEPEST => items.iter().find_map(|item| text_under(item, names, depth + 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The confirm token: only from a result of the preview tool the card names, and only if that preview is about the same
/// ids. What a user or the assistant writes is no token.
pub(super) fn fill_token(context: &Context<'_>, out: &mut Extraction) {
    let Some(confirmation) = &context.tool.card.confirmation else { return };
    let (Some(preview), Some(token)) = (&confirmation.tool, &confirmation.token_param) else { return };
    out.arguments.remove(token);
    out.origins.remove(token);
    let fits = |result: &Result| {
        result.ok
            && out.arguments.iter().all(|(name, value)| {
                context.schema.property(name).is_none_or(|property| property.pattern().is_none())
                    || [result.whole.get("data"), Some(&Value::Object(result.args.clone()))]
                        .into_iter()
                        .flatten()
                        .all(|part| part.get(name).is_none_or(|other| other == value))
            })
    };
    let mut tokens: Vec<(String, Result)> = Vec::new();
    for result in results(context.history).filter(|result| result.tool == *preview && fits(result)) {
        let found =
            result.whole.get("data").and_then(|data| data.get(token)).and_then(Value::as_str).map(str::to_owned);
        if let Some(found) = found.filter(|found| context.schema.fits(token, &Value::String(found.clone()))) {
            tokens.push((found, result));
        }
    }
    let has_all_ids = context
        .schema
        .views()
        .filter(|p| p.required && p.pattern().is_some() && p.name != token)
        .all(|p| out.arguments.contains_key(p.name));
    // Without an id only a lone preview says which one is meant; with it the newest preview counts.
    if tokens.is_empty() || (tokens.len() > 1 && !has_all_ids) {
        return;
    }
    let (value, result) = tokens.remove(0);
    out.put(token, Found { value: Value::String(value), origin: Origin::History });
    for property in context.schema.views().filter(|property| property.pattern().is_some()) {
        let same = result.whole.get("data").and_then(|data| data.get(property.name)).cloned();
        if let Some(same) = same.filter(|same| context.schema.fits(property.name, same)) {
            out.put(property.name, Found { value: same, origin: Origin::History });
        }
    }
}

/// "Same for …", "cheaper ones?": what the last call of this tool was given and this utterance leaves out.
pub(super) fn continue_last_call(context: &Context<'_>, out: &mut Extraction) {
    let Some(newest) = results(context.history).next() else { return };
    let own = newest.tool == context.tool.card.name || newest.tool == context.tool.id().as_str();
    if !own || newest.args.is_empty() || !words::contains_any(context.lower, &CONTINUES) {
        return;
    }
    if out
        .arguments
        .keys()
        .any(|name| context.schema.property(name).is_some_and(|property| ids::is_handed_out(context, &property)))
    {
        return; // The next page is asked for by its cursor alone.
    }
    for property in context.schema.views().filter(|property| !ids::is_handed_out(context, property)) {
        let is_id = property.pattern().is_some();
        if let Some(value) =
            newest.args.get(property.name).filter(|value| !is_id && context.schema.fits(property.name, value))
        {
            // What was guessed from a bare follow-up gives way to what was said before.
            let guessed = property.required
                && property.is_kind("string")
                && out.origins.contains_key(property.name)
                && out.arguments.get(property.name).is_some_and(is_filler);
            if guessed {
                out.arguments.remove(property.name);
                out.origins.remove(property.name);
            }
            out.put(property.name, Found { value: value.clone(), origin: Origin::History });
        }
    }
}

/// A comparison instead of a thing: "有再便宜点的吗", "anything cheaper".
fn is_filler(value: &Value) -> bool {
    let Some(text) = value.as_str() else { return false };
    ["便宜", "贵", "别的", "其他", "大一", "小一", "cheaper", "bigger", "smaller", "another", "other", "else"]
        .iter()
        .any(|word| text.contains(word))
}
