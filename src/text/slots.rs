//! Spans of an utterance that carry a value rather than a meaning: ids, numbers, dates, contacts, quoted text.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotKind {
    Url,
    Email,
    Phone,
    Id,
    Date,
    Amount,
    Number,
    Quoted,
}

impl SlotKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Url => "url",
            Self::Email => "email",
            Self::Phone => "phone",
            Self::Id => "id",
            Self::Date => "date",
            Self::Amount => "amount",
            Self::Number => "number",
            Self::Quoted => "quoted",
        }
    }

    /// Says nothing about what is wanted, only about which one.
    pub fn is_opaque(self) -> bool {
        matches!(self, Self::Url | Self::Email | Self::Phone | Self::Id)
    }
}

/// One span of the normalised text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    pub kind: SlotKind,
    /// Byte range in the normalised text, on character boundaries.
    pub span: Range<usize>,
}

/// The first pattern that matches at a place wins, so the order is from special to general. Ids need a digit: a plain
/// word in capitals is a word. The text is NFKC, so digits and signs are ASCII.
static PATTERNS: LazyLock<Vec<(SlotKind, Regex)>> = LazyLock::new(|| {
    let compile = |pattern: &str| Regex::new(pattern).expect("slot patterns are constant and tested");
    vec![
        (SlotKind::Url, compile(r"(?i)\b(?:https?|ftp)://[^\s<>\x22\u{3001}\u{3002}\u{4e00}-\u{9fff}]+")),
        (SlotKind::Email, compile(r"(?i)[a-z0-9._%+-]+@[a-z0-9-]+(?:\.[a-z0-9-]+)+")),
        (
            SlotKind::Quoted,
            compile(r#""[^"\n]{1,400}"|“[^”\n]{1,400}”|「[^」\n]{1,400}」|『[^』\n]{1,400}』|《[^》\n]{1,200}》"#),
        ),
        (
            SlotKind::Date,
            compile(
                r"(?:19|20)\d{2}(?:[-/.](?:1[0-2]|0?[1-9])[-/.](?:[12]\d|3[01]|0?[1-9])|年(?:\d{1,2}月(?:\d{1,2}[日号]?)?)?)(?:[T ]\d{2}:\d{2}(?::\d{2})?)?|\d{1,2}月\d{1,2}[日号]?",
            ),
        ),
        (
            SlotKind::Phone,
            compile(
                r"\+?(?:86[- ]?)?1[3-9]\d[- ]?\d{4}[- ]?\d{4}|\+\d{1,3}[- ]\d{2,4}[- ]\d{3,4}(?:[- ]\d{2,4})?|\b\d{3}-\d{3}-\d{4}\b",
            ),
        ),
        (
            SlotKind::Id,
            compile(
                r"(?i)[a-z][a-z0-9]*(?:[-_#][a-z0-9]+)*[-_#]?\d[a-z0-9]*(?:[-_][a-z0-9]+)*|#\d[a-z0-9]*|\d+[a-z][a-z0-9]{3,}|\d{8,}",
            ),
        ),
        (
            SlotKind::Amount,
            compile(
                r"(?i)(?:[¥$€£]|rmb|cny|usd)\s?\d+(?:,\d{3})*(?:\.\d+)?|\d+(?:,\d{3})*(?:\.\d+)?\s?(?:块钱|块|元|美元|万元|万|yuan|rmb|cny|usd|dollars?|bucks?|%)",
            ),
        ),
        (SlotKind::Number, compile(r"\d+(?:,\d{3})*(?:\.\d+)?")),
    ]
});

/// All slots, non-overlapping, in order of position. The ASCII-only word boundary keeps `订单SO-1` apart from `xSO-1`.
pub(super) fn find_slots(text: &str) -> Vec<Slot> {
    let mut slots: Vec<Slot> = Vec::new();
    let mut taken = vec![false; text.len()];
    for (kind, pattern) in PATTERNS.iter() {
        for found in pattern.find_iter(text) {
            let span = found.range();
            let starts_inside_word = matches!(kind, SlotKind::Id | SlotKind::Number | SlotKind::Phone)
                && text[..span.start].trim_end_matches('_').ends_with(|c: char| c.is_ascii_alphanumeric());
            let digits_go_on = matches!(kind, SlotKind::Phone | SlotKind::Number)
                && text[span.end..].starts_with(|c: char| c.is_ascii_digit());
            let overlaps = taken[span.clone()].contains(&true);
            if !starts_inside_word && !digits_go_on && !overlaps {
                taken[span.clone()].fill(true);
                slots.push(Slot { kind: *kind, span });
            }
        }
    }
    slots.sort_by_key(|slot| slot.span.start);
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &[(&str, &str)]) {
        let found: Vec<(&str, &str)> =
            find_slots(text).iter().map(|s| (s.kind.as_str(), &text[s.span.clone()])).collect();
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn values_are_found_in_both_languages() {
        check("SO-20260418000736 退款", &[("id", "SO-20260418000736")]);
        check("查SF1234567890到哪了", &[("id", "SF1234567890")]);
        check("退我30块, 电话13800138000", &[("amount", "30块"), ("phone", "13800138000")]);
        check("give me $1,200.50 back", &[("amount", "$1,200.50")]);
        check("mail a.b@shop.example now", &[("email", "a.b@shop.example")]);
        check("see https://x.example/a?b=1 please", &[("url", "https://x.example/a?b=1")]);
        check("从2026-04-18到5月3日", &[("date", "2026-04-18"), ("date", "5月3日")]);
        check("告诉卖家“走顺丰” 3次", &[("quoted", "“走顺丰”"), ("number", "3")]);
        check("turn on dark mode", &[]);
        check("flight LH21", &[("id", "LH21")]);
    }
}
