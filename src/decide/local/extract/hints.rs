//! Words that a parameter's description ties to its values: `待付款 is pending_payment`, `return if … (退货)`,
//! `company for 公司/单位`, `[amount] for 付了多少钱`, `1: male`, `true to switch on (开、打开)`.

use std::sync::LazyLock;

use regex::Regex;

use crate::text::to_nfkc;

/// A Latin hint of more words is a sentence, not a hint.
const MAX_WORDS: usize = 4;
/// Longest Chinese hint, in characters.
const MAX_CHARS: usize = 16;
/// Descriptions are read up to here, in bytes.
const MAX_DESCRIPTION: usize = 8_000;

static PARENTHESES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\(([^()]*)\)").expect("the pattern is constant and tested"));

/// For each of `values` the phrases that stand for it, in small letters.
pub(in crate::decide) fn parse(description: &str, values: &[String]) -> Vec<Vec<String>> {
    let mut hints = vec![Vec::new(); values.len()];
    let end =
        (0..=description.len().min(MAX_DESCRIPTION)).rev().find(|at| description.is_char_boundary(*at)).unwrap_or(0);
    for line in description[..end].lines() {
        for clause in to_nfkc(line).to_ascii_lowercase().split([';', '。']) {
            clause_hints(clause, values, &mut hints);
        }
    }
    for phrases in &mut hints {
        phrases.sort();
        phrases.dedup();
    }
    hints
}

fn clause_hints(clause: &str, values: &[String], hints: &mut [Vec<String>]) {
    let mut last: Option<usize> = None;
    for segment in segments(clause) {
        let segment = segment.trim();
        let example =
            ["e.g. ", "e.g.", "such as ", "例如", "比如", "如"].iter().find_map(|mark| segment.strip_prefix(mark));
        let mentioned = values
            .iter()
            .enumerate()
            .filter_map(|(i, value)| Some((i, mention(segment, &value.to_ascii_lowercase())?)));
        let mentioned: Vec<(usize, (usize, usize))> = mentioned.collect();
        for (i, (start, end)) in &mentioned {
            // `1:男 2:女`: what belongs to the neighbours is theirs.
            let from = mentioned.iter().map(|(_, (_, end))| *end).filter(|end| end <= start).max().unwrap_or(0);
            let until = mentioned
                .iter()
                .map(|(_, (start, _))| *start)
                .filter(|start| start >= end)
                .min()
                .unwrap_or(segment.len());
            let phrases = around(&segment[from..*start], &segment[*end..until]);
            hints[*i].extend(phrases);
            last = Some(*i);
        }
        if let (true, Some(example), Some(i)) = (mentioned.is_empty(), example, last) {
            hints[i].extend(split(example));
        }
    }
}

/// Parts between commas; commas in parentheses do not part.
fn segments(clause: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut from, mut depth) = (0, 0usize);
    for (at, c) in clause.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&clause[from..at]);
                from = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&clause[from..]);
    parts
}

/// Where `value` stands as a word of its own.
fn mention(segment: &str, value: &str) -> Option<(usize, usize)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    segment.match_indices(value).find_map(|(start, _)| {
        let end = start + value.len();
        let free = !segment[..start].ends_with(is_word)
            && !segment[end..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        (free && !value.is_empty()).then_some((start, end))
    })
}

/// The phrases that the text around a value ties to it.
fn around(before: &str, after: &str) -> Vec<String> {
    let before = before.trim_end_matches(['"', '`', '\'', '[', ' ', '“']);
    let after = after.trim_start_matches(['"', '`', '\'', ']', '”']);
    for link in [" is", " means", "=", " ->", "→", "表示", "对应"] {
        if let Some(phrase) = before.strip_suffix(link) {
            let phrase = phrase.rsplit(':').next().unwrap_or(phrase).trim();
            let phrase =
                ["e.g. ", "例如", "比如", "如"].iter().find_map(|mark| phrase.strip_prefix(mark)).unwrap_or(phrase);
            return split(phrase);
        }
    }
    if let Some(phrase) = after.strip_prefix(" for ") {
        return split(phrase.split(" if ").next().unwrap_or(phrase));
    }
    for link in [":", "=", "表示", "代表", "为", "是", " - ", " means ", "-"] {
        if let Some(phrase) = after.strip_prefix(link) {
            return split(phrase);
        }
    }
    let in_parentheses = PARENTHESES.captures_iter(after).filter_map(|found| found.get(1));
    in_parentheses.flat_map(|found| split(found.as_str())).collect()
}

/// `开、打开、订阅` and `公司/单位 or 企业` into phrases; sentences are left out.
fn split(text: &str) -> Vec<String> {
    let text = PARENTHESES.replace_all(text, |found: &regex::Captures<'_>| format!("/{}/", &found[1]));
    let commas = text.replace(" or ", "/").replace("或者", "/").replace('或', "/");
    let parts = commas.split(['/', '、', '|', ',', '(', ')', '“', '”', '"']);
    parts.map(clean).filter(|part| is_hint(part)).collect()
}

fn clean(part: &str) -> String {
    let part = part.trim().trim_matches(['.', '。', '\'', '`', ' ', '…', '[', ']', ':']);
    let part = part.strip_prefix("e.g. ").unwrap_or(part);
    part.strip_suffix(" or").unwrap_or(part).trim().to_owned()
}

fn is_hint(part: &str) -> bool {
    let has_han = part.chars().any(crate::text::language::is_han);
    let letters = part.chars().any(char::is_alphabetic);
    if has_han {
        part.chars().count() <= MAX_CHARS
    } else {
        letters && part.split_whitespace().count() <= MAX_WORDS && part.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(description: &str, values: &[&str], expect: &[&[&str]]) {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        assert_eq!(parse(description, &values), expect, "{description}");
    }

    #[test]
    fn the_usual_wordings_are_understood() {
        check(
            "Only if the list is limited: 待付款 is unpaid, 坏的/质量差 is bad.",
            &["unpaid", "bad"],
            &[&["待付款"], &["坏的", "质量差"]],
        );
        check(
            "personal for 个人, company for 公司/单位 or if a number is given.",
            &["personal", "company"],
            &[&["个人"], &["公司", "单位"]],
        );
        check(
            "return if the goods go (退货), exchange if another is wanted (换货、换一件).",
            &["return", "exchange"],
            &[&["退货"], &["换一件", "换货"]],
        );
        check(
            "Only the parts asked for, e.g. [amount] for 付了多少钱; left out means all.",
            &["amount"],
            &[&["付了多少钱"]],
        );
        check(
            "true to switch on (开、打开), false to switch off (关、退订).",
            &["true", "false"],
            &[&["开", "打开"], &["关", "退订"]],
        );
        check(
            "complaint if people are the matter, e.g. 态度差; other if a person is asked for, e.g. 转人工.",
            &["complaint", "other"],
            &[&["态度差"], &["转人工"]],
        );
        check("1:男 2:女", &["1", "2"], &[&["男"], &["女"]]);
        check("", &["a"], &[&[]]);
    }
}
