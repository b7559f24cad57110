//! Patterns read for more than validation: in plain words (`^SO-\d{14}$` is "SO- and 14 digits"), and as something to
//! look for in a text.

use regex::{Regex, RegexBuilder};

/// Largest compiled pattern, in bytes.
const SIZE: usize = 1 << 20;

/// The pattern in words, or `None` if it is more than a chain of texts and counted character classes.
pub(super) fn in_words(pattern: &str) -> Option<String> {
    let body = pattern.strip_prefix('^')?.strip_suffix('$')?;
    let mut parts: Vec<String> = Vec::new();
    let mut literal = String::new();
    let mut rest = body;
    while let Some(first) = rest.chars().next() {
        let (class, after) = if let Some(tail) = rest.strip_prefix('[') {
            let end = tail.find(']')?;
            (Some(class_words(&tail[..end])?), &tail[end + 1..])
        } else if let Some(tail) = rest.strip_prefix('\\') {
            let escaped = tail.chars().next()?;
            let after = &tail[escaped.len_utf8()..];
            match escaped {
                'd' => (Some("digits"), after),
                'w' => (Some("letters, digits or underscores"), after),
                c if c.is_ascii_punctuation() => {
                    literal.push(c);
                    (None, after)
                }
                _ => return None,
            }
        } else if "(){}|.*+?^$".contains(first) {
            return None;
        } else {
            literal.push(first);
            (None, &rest[first.len_utf8()..])
        };
        rest = after;
        let (count, after) = count_words(rest)?;
        match class {
            Some(class) => {
                if !literal.is_empty() {
                    parts.push(std::mem::take(&mut literal));
                }
                parts.push(phrase(&count, class));
                rest = after;
            }
            None if count == "1" => {}
            None => return None,
        }
    }
    if !literal.is_empty() {
        parts.push(literal);
    }
    (!parts.is_empty()).then(|| parts.join(" and "))
}

fn phrase(count: &str, class: &str) -> String {
    if count != "1" {
        return format!("{count} {class}");
    }
    match class {
        "digits" => "1 digit".into(),
        "capital letters" => "1 capital letter".into(),
        "small letters" => "1 small letter".into(),
        other => format!("1 of: {other}"),
    }
}

fn class_words(class: &str) -> Option<&'static str> {
    let mut ranges: Vec<&str> = Vec::new();
    let mut rest = class;
    while !rest.is_empty() {
        let length =
            ["A-Z", "a-z", "0-9", "\\d", "_-", "_", "-", "\\-"].iter().find(|part| rest.starts_with(**part))?.len();
        ranges.push(&rest[..length]);
        rest = &rest[length..];
    }
    let has = |part: &str| ranges.contains(&part);
    let digits = has("0-9") || has("\\d");
    let signs = ranges.iter().any(|part| matches!(*part, "_-" | "_" | "-" | "\\-"));
    Some(match (has("A-Z"), has("a-z"), digits, signs) {
        (false, false, true, false) => "digits",
        (true, false, false, false) => "capital letters",
        (false, true, false, false) => "small letters",
        (true, false, true, false) => "capital letters or digits",
        (false, true, true, false) => "small letters or digits",
        (true, true, false, false) => "letters",
        (true, true, true, false) => "letters or digits",
        (false, true, true, true) => "small letters, digits, - or _",
        (true, true, true, true) => "letters, digits, - or _",
        _ => return None,
    })
}

/// The quantifier at the start of `rest` in words, and what follows it.
fn count_words(rest: &str) -> Option<(String, &str)> {
    if let Some(tail) = rest.strip_prefix('+') {
        return Some(("1 or more".into(), tail));
    }
    let Some(tail) = rest.strip_prefix('{') else {
        return if rest.starts_with(['*', '?']) { None } else { Some(("1".into(), rest)) };
    };
    let end = tail.find('}')?;
    let after = &tail[end + 1..];
    let number = |text: &str| text.parse::<u32>().ok();
    let words = match tail[..end].split_once(',') {
        None => number(&tail[..end])?.to_string(),
        Some((low, "")) => format!("{} or more", number(low)?),
        Some((low, high)) => format!("{} to {}", number(low)?, number(high)?),
    };
    Some((words, after))
}

/// The pattern as something to look for inside a text: without anchors, for any case, with ASCII digits and an optional dash after its fixed beginning.
pub(super) fn searcher(pattern: &str) -> Option<Regex> {
    let body = pattern.strip_prefix('^').unwrap_or(pattern);
    let body = if body.ends_with("\\$") { body } else { body.strip_suffix('$').unwrap_or(body) };
    let prefix = literal_prefix(pattern);
    let body = match prefix.strip_suffix('-') {
        Some(head) if body.starts_with(&prefix) => format!("{}[-_ ]?{}", regex::escape(head), &body[prefix.len()..]),
        _ => body.to_owned(),
    };
    let ascii = body
        .replace("\\d", "[0-9]")
        .replace("[[0-9]", "[0-9")
        .replace("\\w", "[A-Za-z0-9_]")
        .replace("[[A-Za-z0-9_]", "[A-Za-z0-9_");
    let compile = |text: &str| RegexBuilder::new(text).case_insensitive(true).size_limit(SIZE).build().ok();
    compile(&format!("(?:{ascii})")).or_else(|| compile(&format!("(?:{body})"))).filter(|regex| !regex.is_match(""))
}

/// What every match of the pattern begins with: `SO-` of `^SO-\d{14}$`.
pub(super) fn literal_prefix(pattern: &str) -> String {
    let body = pattern.strip_prefix('^').unwrap_or(pattern);
    let mut prefix: String = body.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).collect();
    // A quantifier belongs to the last character.
    if body[prefix.len()..].starts_with(['?', '*', '{', '+']) {
        prefix.pop();
    }
    if body.contains('|') { String::new() } else { prefix }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_patterns_have_words_and_others_none() {
        let check = |pattern: &str, words: Option<&str>| assert_eq!(in_words(pattern).as_deref(), words, "{pattern}");
        check(r"^SO-\d{14}$", Some("SO- and 14 digits"));
        check(r"^[A-Z]{2}\d{10}$", Some("2 capital letters and 10 digits"));
        check(r"^ct_[a-z0-9]{16}$", Some("ct_ and 16 small letters or digits"));
        check(r"^[0-9A-Z]{15,20}$", Some("15 to 20 capital letters or digits"));
        check(r"^[A-Za-z0-9_-]{8,64}$", Some("8 to 64 letters, digits, - or _"));
        check(r"^\d{4}-\d{2}-\d{2}$", Some("4 digits and - and 2 digits and - and 2 digits"));
        for odd in [r"\d+", "^(a|b)$", "^a*$", "^[^a]$", "^a.c$", "^[退]$", "^", "", "^[$", r"^\$", "^a{2}$"] {
            check(odd, None);
        }
    }
}
