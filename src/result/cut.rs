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

/// Cuts the longest texts to one length, so that all of it fits; what does not fit even so is left out as a whole.
pub(super) fn single(mut data: Value, context: &Context<'_>, settings: &Settings, notices: &mut Vec<String>) -> Value {
    let chars = size(&data);
    let over = chars.saturating_sub(settings.max_chars);
    if over == 0 {
        return data;
    }
    let mut texts = Vec::new();
    collect(&mut data, "", &mut texts);
    let Some(keep) = length_for(&texts, over) else {
        notices.push(context.say(
            format!("{chars} characters, more than fit: all of it was left out; ask for less"),
            format!("共 {chars} 个字符，超出上限，已全部略去；请缩小范围"),
        ));
        return match data {
            Value::Array(_) => Value::Array(Vec::new()),
            _ => Value::Null,
        };
    };
    let cut: Vec<&mut Text<'_>> = texts.iter_mut().filter(|text| text.chars > keep + 1).collect();
    let more = cut.len().saturating_sub(MOST_NOTICES);
    for (index, text) in cut.into_iter().enumerate() {
        let end = text.text.char_indices().nth(keep).map_or(text.text.len(), |(at, _)| at);
        text.text.truncate(end);
        text.text.push('…');
        if index < MOST_NOTICES {
            let (name, chars) = (&text.name, text.chars);
            notices.push(context.say(
                format!("`{name}` has {chars} characters, the first {keep} are shown; ask for a narrower part or the next page"),
                format!("`{name}` 共 {chars} 个字符，这里是前 {keep} 个；请缩小范围或翻页"),
            ));
        }
    }
    if more > 0 {
        notices.push(context.say(format!("{more} more texts were cut"), format!("另有 {more} 处文字被截短")));
    }
    data
}

/// Longer lists of what was cut help nobody.
const MOST_NOTICES: usize = 5;

struct Text<'a> {
    /// Of the field it is in.
    name: String,
    chars: usize,
    text: &'a mut String,
}

/// The greatest length to which cutting every longer text saves `over` characters; `None` if none does.
fn length_for(texts: &[Text<'_>], over: usize) -> Option<usize> {
    // Each cut text gets a mark of one sign.
    let saved = |keep: usize| texts.iter().map(|text| text.chars.saturating_sub(keep + 1)).sum::<usize>();
    if saved(LEAST_TEXT) < over {
        return None;
    }
    let (mut fits, mut too_long) = (LEAST_TEXT, texts.iter().map(|text| text.chars).max().unwrap_or(LEAST_TEXT) + 1);
    while too_long - fits > 1 {
        let middle = fits + (too_long - fits) / 2;
        if saved(middle) >= over { fits = middle } else { too_long = middle }
    }
    Some(fits)
}

fn size(value: &Value) -> usize {
    value.to_string().chars().count()
}

/// Every text that can be cut, in the order of the data.
fn collect<'a>(value: &'a mut Value, name: &str, texts: &mut Vec<Text<'a>>) {
    match value {
        Value::String(text) => {
            let chars = text.chars().count();
            if chars > LEAST_TEXT + 1 {
                texts.push(Text { name: name.to_owned(), chars, text });
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| collect(item, name, texts)),
        Value::Object(map) => map.iter_mut().for_each(|(name, value)| collect(value, name, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
