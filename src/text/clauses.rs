//! The single wishes of an utterance: "cancel A and tell me when B arrives" holds two.
//!
//! Owns: where one wish ends and the next begins, in English and Chinese.
//! Does not know: what a wish is about. A cut too many costs one more embedding; the whole utterance always counts too.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::language::is_han;

/// Most clauses of one utterance; what stands behind them counts as part of the whole alone.
pub const MAX_CLAUSES: usize = 8;
/// Fewer words (or Han characters) than this are no wish of their own: they stay with the clause before.
const MIN_WORDS: usize = 3;
const MIN_HAN: usize = 4;

/// Marks at which a sentence ends; in Latin text only before a blank, so that `3.5` and `example.com` stay whole.
static SENTENCE: LazyLock<Regex> = LazyLock::new(|| compile(r"[。！？；\n]+|[.!?;]+(?:\s+|$)"));
/// Words that open another wish, of both languages: one sentence may hold both.
static NEXT: LazyLock<Regex> = LazyLock::new(|| {
    compile(concat!(
        r"(?i)(?:,\s*|\s+)(?:and then|and also|and|then|also|as well as|plus|after that|additionally|furthermore|moreover|finally)\s+",
        r"|[,，]\s*(?:然后|并且|同时|另外|还有|顺便|以及|最后|接着|再|并)|然后|并且|同时|另外|顺便|接着",
    ))
});
/// Abbreviations whose point ends no sentence.
static ABBREVIATION: LazyLock<Regex> =
    LazyLock::new(|| compile(r"(?i)\b(?:e\.g|i\.e|etc|vs|dr|mr|mrs|ms|st|no|u\.s|a\.m|p\.m)$"));
/// Someone's turn in a conversation that was pasted as one text.
static ROLE: LazyLock<Regex> = LazyLock::new(|| compile(r"(?im)^\s*(?:user|assistant|system)\s*[:：]"));

fn compile(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the patterns are constant and tested")
}

/// The clauses in order, trimmed, at most [`MAX_CLAUSES`]; empty when the text is one wish or a conversation, whose
/// turns belong together.
pub fn clauses(text: &str) -> Vec<String> {
    if ROLE.is_match(text) {
        return Vec::new();
    }
    let mut found: Vec<String> = Vec::new();
    for sentence in sentences(text) {
        for part in parts(sentence) {
            match found.last_mut() {
                Some(last) if is_short(part) => {
                    last.push(' ');
                    last.push_str(part);
                }
                _ if part.is_empty() => {}
                _ => found.push(part.to_owned()),
            }
        }
    }
    found.truncate(MAX_CLAUSES);
    if found.len() < 2 { Vec::new() } else { found }
}

/// The parts between the cuts. A sentence that opens with a short one ("I also need") is not cut there.
fn parts(sentence: &str) -> Vec<&str> {
    let trimmed =
        |range: Range<usize>| sentence[range].trim_matches(|c: char| c.is_whitespace() || ",.;，。；".contains(c));
    let mut parts: Vec<&str> = Vec::new();
    let mut from = 0;
    for mark in NEXT.find_iter(sentence) {
        let part = trimmed(from..mark.start());
        if parts.is_empty() && !part.is_empty() && is_short(part) {
            continue;
        }
        if !part.is_empty() {
            parts.push(part);
        }
        from = mark.end();
    }
    parts.push(trimmed(from..sentence.len()));
    parts
}

fn is_short(part: &str) -> bool {
    let count = part.chars().filter(|c| !c.is_whitespace()).count();
    if part.chars().any(is_han) { count < MIN_HAN } else { part.split_whitespace().count() < MIN_WORDS }
}

fn sentences(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut from = 0;
    for mark in SENTENCE.find_iter(text) {
        if !ABBREVIATION.is_match(&text[from..mark.start()]) {
            sentences.push(&text[from..mark.start()]);
            from = mark.end();
        }
    }
    sentences.push(&text[from..]);
    sentences.retain(|sentence| !sentence.trim().is_empty());
    sentences
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &[&str]) {
        assert_eq!(clauses(text), expect, "{text}");
    }

    #[test]
    fn wishes_are_told_apart_in_both_languages() {
        check(
            "cancel my first order and tell me when the other one arrives",
            &["cancel my first order", "tell me when the other one arrives"],
        );
        check(
            "Where is my parcel? I also need an invoice for it.",
            &["Where is my parcel", "I also need an invoice for it"],
        );
        check("帮我取消这个订单，然后查一下另一个到哪了", &["帮我取消这个订单", "查一下另一个到哪了"]);
        check("查物流。另外把发票开给我", &["查物流", "把发票开给我"]);
        check("帮我查 SF1 到哪了，再 check 一下 refund status", &["帮我查 SF1 到哪了", "check 一下 refund status"]);
    }

    #[test]
    fn one_wish_and_a_conversation_stay_whole() {
        check("where is my parcel", &[]);
        check("salt and pepper", &[]);
        check("我的快递到哪了", &[]);
        check("user: where is it\nassistant: which one?\nuser: the red one and the blue one", &[]);
        check("", &[]);
        check("...", &[]);
    }

    #[test]
    fn points_inside_a_word_or_an_abbreviation_end_nothing() {
        check("rate 3.5 stars at example.com e.g. the big blue one", &[]);
    }

    #[test]
    fn many_clauses_are_capped() {
        assert_eq!(clauses(&"find me a hotel. ".repeat(50)).len(), MAX_CLAUSES);
    }

    proptest! {
        #[test]
        fn clauses_are_parts_of_the_text(text in "[a-z ,.;!?。，；然后并且and\n]{0,200}") {
            for clause in clauses(&text) {
                prop_assert!(!clause.trim().is_empty());
                for word in clause.split_whitespace() {
                    prop_assert!(text.contains(word), "{word:?} of {clause:?}");
                }
            }
        }
    }
}
