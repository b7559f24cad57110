//! Shortening: whole rows first, then long texts; never in silence.

use serde_json::Value;

use super::{Context, Settings};

/// Texts are not cut shorter than this.
const LEAST_TEXT: usize = 40;

/// How many of `rows`, from the first, fit one page; at least one where there is any.
pub fn fitting(rows: &[Value], settings: &Settings) -> usize {
    // Two brackets, and a comma after each row but the last.
    let mut chars = 2;
    let mut fit = 0;
    for row in rows.iter().take(settings.max_rows) {
        chars += row.to_string().chars().count() + usize::from(fit > 0);
        if chars > settings.max_chars {
            break;
        }
        fit += 1;
    }
    fit.max(1).min(rows.len())
}

/// The rows that fit and those that do not; a first row that is too long alone has its texts cut.
pub(super) fn rows(
    mut rows: Vec<Value>,
    context: &Context<'_>,
    settings: &Settings,
    notices: &mut Vec<String>,
) -> (Value, Vec<Value>) {
    let (total, fit) = (rows.len(), fitting(&rows, settings));
    let rest = rows.split_off(fit);
    let shown = single(Value::Array(rows), context, settings, notices);
    if !rest.is_empty() {
        let chars: usize = rest.iter().map(|row| row.to_string().chars().count()).sum();
        notices.push(context.say(
            format!("{total} rows, the first {fit} are shown ({chars} characters left out); next_cursor leads to the rest, or narrow the conditions"),
            format!("共 {total} 行，这里是前 {fit} 行（略去 {chars} 个字符）；用 next_cursor 取其余部分，或缩小条件"),
        ));
    }
    (shown, rest)
}

/// Cuts the longest texts until all of it fits; what does not fit even so is left out as a whole.
pub(super) fn single(mut data: Value, context: &Context<'_>, settings: &Settings, notices: &mut Vec<String>) -> Value {
    let mut over = size(&data).saturating_sub(settings.max_chars);
    while over > 0 {
        let Some((name, text)) = longest(&mut data, "") else {
            let chars = size(&data);
            notices.push(context.say(
                format!("{chars} characters, more than fit: all of it was left out; ask for less"),
                format!("共 {chars} 个字符，超出上限，已全部略去；请缩小范围"),
            ));
            return match data {
                Value::Array(_) => Value::Array(Vec::new()),
                _ => Value::Null,
            };
        };
        let chars = text.chars().count();
        let keep = chars.saturating_sub(over + 1).max(LEAST_TEXT);
        let end = text.char_indices().nth(keep).map_or(text.len(), |(at, _)| at);
        text.truncate(end);
        text.push('…');
        notices.push(context.say(
            format!(
                "`{name}` has {chars} characters, the first {keep} are shown; ask for a narrower part or the next page"
            ),
            format!("`{name}` 共 {chars} 个字符，这里是前 {keep} 个；请缩小范围或翻页"),
        ));
        over = size(&data).saturating_sub(settings.max_chars);
    }
    data
}

fn size(value: &Value) -> usize {
    // A number or a short text as a whole is a value, not a page.
    value.to_string().chars().count()
}

/// The longest text that can still be cut, with the name of its field.
fn longest<'a>(value: &'a mut Value, name: &str) -> Option<(String, &'a mut String)> {
    let better = |best: Option<(String, &'a mut String)>, next: Option<(String, &'a mut String)>| match (best, next) {
        (Some(best), Some(next)) if next.1.len() > best.1.len() => Some(next),
        (Some(best), _) => Some(best),
        (None, next) => next,
    };
    match value {
        // One sign more than is kept: the mark of the cut.
        Value::String(text) => (text.chars().count() > LEAST_TEXT + 1).then(|| (name.to_owned(), text)),
        Value::Array(items) => items.iter_mut().map(|item| longest(item, name)).fold(None, better),
        Value::Object(map) => map.iter_mut().map(|(name, value)| longest(value, name)).fold(None, better),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}
