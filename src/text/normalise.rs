//! Cleaning an utterance without changing what it says.

use unicode_normalization::UnicodeNormalization;

use super::clauses::clauses;
use super::language::{Language, Tongue};
use super::reading::{Misspelling, Reading};
use super::slots::{Slot, SlotKind, find_slots};

/// Longest utterance that is read, in characters; the rest is cut and the decision says so.
pub const MAX_CHARS: usize = 8_000;
/// Characters that are normalised at all: room for blanks and invisible ones among those that count.
const MAX_RAW_CHARS: usize = 8 * MAX_CHARS;

/// A normalised utterance. Only [`normalise`] makes one, so a stage that takes a `Query` need not check again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// NFKC (full-width forms become ASCII), invisible and control characters gone, white space runs made one blank.
    pub text: String,
    pub language: Language,
    /// Two-letter codes of the languages it may be in.
    pub codes: &'static [&'static str],
    /// The cards are in another language, so that an encoder for English alone must not read it.
    pub across: bool,
    /// No encoder in use declares the language: what is found is a guess.
    pub unsupported: bool,
    /// Non-overlapping, in order of position in `text`.
    pub slots: Vec<Slot>,
    /// Characters cut off the end because the utterance was longer than [`MAX_CHARS`].
    pub cut_chars: usize,
    /// What is searched instead of slips and other scripts; empty until [`Query::read_as`] sets it.
    reading: Reading,
}

/// Why an utterance cannot be routed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    #[error("utterance is empty")]
    Empty,
}

impl Query {
    /// `text` with each slot replaced by `<kind>`: safe for logs, and what the lexical index searches.
    pub fn masked(&self) -> String {
        self.replace_slots(|slot| format!("<{}>", slot.kind.as_str()))
    }

    /// Sets what is searched instead of words typed wrong. Pinyin makes an utterance Chinese.
    pub fn read_as(&mut self, reading: Reading) {
        let spelled = reading.changes().iter().any(|change| change.kind == Misspelling::Pinyin);
        self.reading = reading;
        if spelled {
            let tongue = Tongue::of(&self.retrieval_text());
            (self.language, self.codes) = (tongue.language, tongue.codes);
        }
    }

    pub fn reading(&self) -> &Reading {
        &self.reading
    }

    /// `text` as it is read, with ids, contacts and links taken out: what is embedded and matched against words.
    /// Numbers, dates and quoted text stay, since they can carry meaning. Falls back to `text` when nothing else is
    /// left.
    pub fn retrieval_text(&self) -> String {
        let mut stripped = String::with_capacity(self.text.len());
        let mut from = 0;
        for slot in self.slots.iter().filter(|slot| slot.kind.is_opaque()) {
            stripped.push_str(&self.reading.of_range(&self.text, from..slot.span.start));
            stripped.push(' ');
            from = slot.span.end;
        }
        stripped.push_str(&self.reading.of_range(&self.text, from..self.text.len()));
        let collapsed = collapse_blanks(&stripped);
        if collapsed.chars().any(char::is_alphanumeric) { collapsed } else { self.text.clone() }
    }

    /// `text` as it is read, slots and all.
    pub fn read_text(&self) -> String {
        self.reading.of_range(&self.text, 0..self.text.len())
    }

    /// The single wishes of the retrieval text; empty when it is one.
    pub fn clauses(&self) -> Vec<String> {
        clauses(&self.retrieval_text())
    }

    fn replace_slots(&self, mut with: impl FnMut(&Slot) -> String) -> String {
        let mut out = String::with_capacity(self.text.len());
        let mut from = 0;
        for slot in &self.slots {
            out.push_str(&self.text[from..slot.span.start]);
            out.push_str(&with(slot));
            from = slot.span.end;
        }
        out.push_str(&self.text[from..]);
        out
    }
}

/// Reads an utterance.
///
/// # Errors
/// [`TextError::Empty`] when nothing visible is left.
pub fn normalise(utterance: &str) -> Result<Query, TextError> {
    // What lies far beyond the limit is only counted: normalising megabytes takes as long as thousands of requests.
    let (read, unread) = match utterance.char_indices().nth(MAX_RAW_CHARS) {
        Some((end, _)) => (&utterance[..end], utterance[end..].chars().count()),
        None => (utterance, 0),
    };
    let clean = to_nfkc(read);
    let mut chars = clean.char_indices();
    let (text, cut_chars) = match chars.nth(MAX_CHARS) {
        Some((end, _)) => (clean[..end].trim_end().to_owned(), clean[end..].chars().count() + unread),
        None => (clean, unread),
    };
    if text.is_empty() {
        return Err(TextError::Empty);
    }
    let slots = find_slots(&text);
    let Tongue { language, codes } = tongue(&text, &slots);
    Ok(Query {
        text,
        language,
        codes,
        across: false,
        unsupported: false,
        slots,
        cut_chars,
        reading: Reading::default(),
    })
}

/// NFKC without invisible and control characters, white space runs as one blank, trimmed.
pub fn to_nfkc(text: &str) -> String {
    // Filtering comes before and after: NFKC can itself produce blanks, and must not join what it should not see.
    let visible = text.chars().filter(|c| !is_invisible(*c)).nfkc().filter(|c| !is_invisible(*c));
    collapse_blanks(&visible.collect::<String>())
}

fn collapse_blanks(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Zero-width, bidirectional-control, tag and other characters that change nothing a reader sees.
fn is_invisible(c: char) -> bool {
    match c {
        '\t' | '\n' | '\r' => false,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180e}' | '\u{feff}' => true,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        '\u{fe00}'..='\u{fe0f}' | '\u{e0000}'..='\u{e0fff}' => true,
        c => c.is_control(),
    }
}

/// Ids and links are written in Latin letters by everyone; they say nothing about the speaker's language. Nor do a few
/// quoted words of another one, as long as there are words around them.
fn tongue(text: &str, slots: &[Slot]) -> Tongue {
    let own = Tongue::of(&without(text, slots, SlotKind::is_opaque));
    if own.language != Language::Other {
        return own;
    }
    let unquoted = without(text, slots, |kind| kind.is_opaque() || kind == SlotKind::Quoted);
    if unquoted.chars().any(char::is_alphabetic) { Tongue::of(&unquoted) } else { own }
}

fn without(text: &str, slots: &[Slot], left_out: impl Fn(SlotKind) -> bool) -> String {
    let mut out = String::new();
    let mut from = 0;
    for slot in slots.iter().filter(|slot| left_out(slot.kind)) {
        out.push_str(&text[from..slot.span.start]);
        out.push(' ');
        from = slot.span.end;
    }
    out.push_str(&text[from..]);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn full_width_invisible_and_blank_forms_become_one() {
        let check = |input: &str, expect: &str| assert_eq!(normalise(input).unwrap().text, expect);
        check("帮我查ＳＯ－２０２６０４１８８６８０１４的状态", "帮我查SO-20260418868014的状态");
        check("  re\u{200b}fund\t my\n\norder ", "refund my order");
        check("退\u{feff}款", "退款");
        check("① ５０％", "1 50%");
        assert_eq!(normalise(" \u{200b}\u{202e} "), Err(TextError::Empty));
        assert_eq!(normalise(""), Err(TextError::Empty));
    }

    #[test]
    fn long_text_is_cut_at_a_character_and_counted() {
        let query = normalise(&"退款".repeat(MAX_CHARS)).unwrap();
        assert_eq!((query.text.chars().count(), query.cut_chars), (MAX_CHARS, MAX_CHARS));
        // Expanded forms far beyond the limit are counted as they stand.
        let query = normalise(&"\u{fdfa}".repeat(2 * MAX_RAW_CHARS)).unwrap();
        assert_eq!(query.text.chars().count(), MAX_CHARS);
        assert!(query.cut_chars > MAX_RAW_CHARS);
        assert!(normalise(&format!("{}refund", "\u{200b}".repeat(MAX_CHARS))).is_ok_and(|query| query.cut_chars == 0));
    }

    #[test]
    fn ids_leave_the_retrieval_text_and_the_log() {
        let query = normalise("SO-20260418000736 退款，电话 13800138000").unwrap();
        assert_eq!(query.masked(), "<id> 退款,电话 <phone>");
        assert_eq!(normalise("电话_13800138000, 卡号__6222020200112233").unwrap().masked(), "电话_<phone>, 卡号__<id>");
        assert_eq!(query.retrieval_text(), "退款,电话");
        assert_eq!(query.language, Language::Zh);
        let only_id = normalise("SF1234567890").unwrap();
        assert_eq!(only_id.retrieval_text(), "SF1234567890");
    }

    proptest! {
        #[test]
        fn normalising_twice_changes_nothing(text in "\\PC{0,200}") {
            if let Ok(once) = normalise(&text) {
                prop_assert_eq!(&normalise(&once.text).unwrap(), &once);
            }
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in any::<String>()) {
            if let Ok(query) = normalise(&text) {
                for slot in &query.slots {
                    prop_assert!(query.text.get(slot.span.clone()).is_some());
                }
                let _ = (query.masked(), query.retrieval_text());
            }
        }
    }
}
