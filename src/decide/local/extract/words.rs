//! Finding words in an utterance: Latin words whole, Chinese words anywhere, negated ones apart.

use std::ops::Range;

use crate::text::language::is_han;

/// Words before a phrase that turn it into its opposite.
const NEGATIONS: [&str; 20] = [
    "不是要",
    "不是",
    "不要",
    "不用",
    "不想",
    "不",
    "别再",
    "别",
    "没有",
    "没",
    "无需",
    "not a ",
    "not ",
    "n't ",
    "never ",
    "without ",
    "no ",
    "instead of ",
    "rather than ",
    "don't want a ",
];

/// First place of `phrase` in `text` (both in small letters). A phrase with a Latin letter or digit at its edge must be
/// a word there; a plural `s` may follow.
pub(in crate::decide) fn find(text: &str, phrase: &str) -> Option<Range<usize>> {
    find_all(text, phrase).next()
}

/// Every place of `phrase` in `text`, see [`find`].
pub(in crate::decide) fn find_all<'a>(text: &'a str, phrase: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
    let starts_word = phrase.starts_with(|c: char| c.is_ascii_alphanumeric());
    let ends_word = phrase.ends_with(|c: char| c.is_ascii_alphanumeric());
    text.match_indices(phrase).filter(move |_| !phrase.is_empty()).filter_map(move |(start, _)| {
        let mut end = start + phrase.len();
        if starts_word && text[..start].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            return None;
        }
        if ends_word {
            let ends_in_letter = phrase.ends_with(|c: char| c.is_ascii_alphabetic());
            for plural in ["es", "s"] {
                if ends_in_letter && text[end..].starts_with(plural) && !continues(&text[end + plural.len()..]) {
                    end += plural.len();
                    break;
                }
            }
            if continues(&text[end..]) {
                return None;
            }
        }
        Some(start..end)
    })
}

/// First place of `phrase` that is not negated.
pub(in crate::decide) fn find_meant(text: &str, phrase: &str) -> Option<Range<usize>> {
    find_all(text, phrase).find(|span| !is_negated(text, span.start))
}

pub(in crate::decide) fn contains_any(text: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| find(text, phrase).is_some())
}

fn continues(rest: &str) -> bool {
    rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether what starts at `at` is denied right before it.
pub(in crate::decide) fn is_negated(text: &str, at: usize) -> bool {
    let before = &text[..at];
    // "have not you", "有没有 X", "是不是 X" ask; they do not deny.
    let asks = ["有没有", "是不是", "要不要", "能不能", "可不可"].iter().any(|question| before.ends_with(question));
    !asks && NEGATIONS.iter().any(|negation| before.ends_with(negation))
}

/// The parts of an identifier in small letters: `lastWeek`, `last_week`, `last-week` → last, week.
pub(in crate::decide) fn parts(name: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut word = String::new();
    let mut previous = ' ';
    for c in name.chars() {
        let starts_new = c.is_uppercase() && previous.is_lowercase();
        if (!c.is_alphanumeric() || starts_new) && !word.is_empty() {
            parts.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        previous = c;
    }
    if !word.is_empty() {
        parts.push(word);
    }
    parts
}

/// The words between the slot before and `at`, in small letters: what introduces the value there.
pub(super) fn lead_in<'a>(context: &super::Context<'a>, at: usize) -> &'a str {
    const REACH: usize = 32;
    let previous = context.query.slots.iter().map(|slot| slot.span.end).filter(|end| *end <= at).max();
    let from = previous.unwrap_or(0).max(at.saturating_sub(REACH));
    let start = (from..=at).find(|from| context.lower.is_char_boundary(*from)).unwrap_or(at);
    &context.lower[start..at]
}

/// Whether the text holds a Latin word with the stem of `word`: `dropped` for `drop`, `cancelled` for `cancel`.
pub(in crate::decide) fn find_stem(text: &str, word: &str) -> Option<Range<usize>> {
    const SHORTEST: usize = 4;
    if word.len() < SHORTEST || !word.is_ascii() {
        return find(text, word);
    }
    let stem = ["ing", "ied", "ed", "es", "s", "e", "y"]
        .iter()
        .find_map(|ending| word.strip_suffix(ending).filter(|stem| stem.len() >= SHORTEST))
        .unwrap_or(word);
    text.match_indices(stem).find_map(|(start, _)| {
        if text[..start].ends_with(|c: char| c.is_ascii_alphanumeric()) {
            return None;
        }
        let length = text[start..].find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len() - start);
        let longest = stem.len() + 4;
        (length <= longest && !is_negated(text, start)).then(|| start..start + length)
    })
}

/// Place of a Chinese phrase that the text says in slightly other words: most of its character pairs stand close
/// together. `付了多少钱` is found in `到底付了多少`.
pub(in crate::decide) fn find_loosely(text: &str, phrase: &str) -> Option<Range<usize>> {
    const SHORTEST: usize = 4;
    const SHARE: f32 = 0.6;
    // In a long text pairs of everyday characters stand everywhere.
    const LONGEST_TEXT: usize = 2_000;
    if text.len() > LONGEST_TEXT {
        return None;
    }
    let wanted: Vec<char> = phrase.chars().collect();
    if wanted.len() < SHORTEST || !wanted.iter().all(|c| is_han(*c)) {
        return None;
    }
    let chars: Vec<(usize, char)> = text.char_indices().collect();
    let hits: Vec<usize> = wanted
        .windows(2)
        .filter_map(|pair| chars.windows(2).position(|window| window[0].1 == pair[0] && window[1].1 == pair[1]))
        .collect();
    let (first, last) = (*hits.iter().min()?, *hits.iter().max()?);
    let close = last - first <= wanted.len() * 2 + 2;
    if !close || (hits.len() as f32) < SHARE * (wanted.len() - 1) as f32 {
        return None;
    }
    let end = chars.get(last + 2).map_or(text.len(), |(at, _)| *at);
    let start = chars[first].0;
    (!is_negated(text, start)).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latin_words_are_whole_and_chinese_ones_are_not() {
        assert_eq!(find("my emails now", "email"), Some(3..9));
        assert_eq!(find("mailbox", "mail"), None);
        assert_eq!(find("把email关掉", "email"), Some(3..8));
        assert_eq!(find("a promotion", ""), None);
        assert_eq!(find_meant("别投诉了", "投诉"), None);
        assert_eq!(find_meant("不换了,退货", "退货"), Some(10..16));
        assert!(find_meant("有没有过期的", "过期的").is_some());
        assert!(find_stem("the price dropped", "drop").is_some());
        assert!(find_loosely("这单我到底付了多少", "付了多少钱").is_some());
        assert!(find_loosely("多少", "付了多少钱").is_none());
        assert_eq!(parts("lastWeek_7-days"), ["last", "week", "7", "days"]);
    }
}
