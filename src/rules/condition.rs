//! When a rule or a state applies, as far as words go: patterns and words on the normalised text.

use std::collections::BTreeMap;
use std::ops::Range;

use regex::{Regex, RegexBuilder};

use crate::text::to_nfkc;

/// Longest pattern, and what it may take compiled: patterns come from a file that people edit.
const MAX_PATTERN_BYTES: usize = 1_000;
const MAX_COMPILED_BYTES: usize = 256 * 1024;
const MAX_NESTING: u32 = 32;

/// The utterance in the forms that are matched. Its length is bounded by normalising.
#[derive(Debug)]
pub(super) struct Said<'a> {
    text: &'a str,
    lower: String,
}

impl<'a> Said<'a> {
    /// `text` is normalised.
    pub fn new(text: &'a str) -> Self {
        Self { text, lower: text.to_lowercase() }
    }

    pub fn text(&self) -> &'a str {
        self.text
    }
}

/// Named groups of the pattern that matched, as byte ranges of the normalised text.
pub(super) type Captures = BTreeMap<String, Range<usize>>;

/// What the utterance has to say. Everything that is stated must hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Text {
    /// One of these; the first that matches gives the captures.
    pub patterns: Vec<Regex>,
    /// One of these words.
    pub any: Vec<String>,
    /// Every one of these words.
    pub all: Vec<String>,
    /// None of these words.
    pub none: Vec<String>,
}

impl Text {
    /// Whether it accepts every utterance.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty() && self.any.is_empty() && self.all.is_empty() && self.none.is_empty()
    }

    /// Whether only [`Text::none`] is stated: that selects next to nothing.
    pub fn only_excludes(&self) -> bool {
        self.patterns.is_empty() && self.any.is_empty() && self.all.is_empty()
    }

    /// Names of all groups a pattern may capture.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.patterns.iter().flat_map(|pattern| pattern.capture_names().flatten())
    }

    /// The captures if the utterance satisfies all parts.
    pub fn matches(&self, said: &Said<'_>) -> Option<Captures> {
        let has = |word: &String| contains(&said.lower, word);
        let words =
            (self.any.is_empty() || self.any.iter().any(has)) && self.all.iter().all(has) && !self.none.iter().any(has);
        if !words {
            return None;
        }
        if self.patterns.is_empty() {
            return Some(Captures::new());
        }
        let (pattern, found) =
            self.patterns.iter().find_map(|pattern| Some((pattern, pattern.captures(said.text)?)))?;
        let named = pattern.capture_names().flatten();
        Some(named.filter_map(|name| Some((name.to_owned(), found.name(name)?.range()))).collect())
    }
}

/// Whether `word` stands in `text`, both in small letters. Where a word begins or ends with a Latin letter or digit, no
/// further one may follow: `return` is not in `returned`. Chinese has no such borders.
fn contains(text: &str, word: &str) -> bool {
    let joins = |inner: Option<char>, outer: Option<char>| {
        let latin = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        latin(inner) && latin(outer)
    };
    text.match_indices(word).any(|(start, found)| {
        let (before, after) = (&text[..start], &text[start + found.len()..]);
        !joins(word.chars().next(), before.chars().next_back())
            && !joins(word.chars().next_back(), after.chars().next())
    })
}

/// A word as it is compared.
pub(super) fn word(text: &str) -> String {
    to_nfkc(text).to_lowercase()
}

/// Compiles a pattern within bounds; matching takes time linear in the text.
///
/// # Errors
/// What is wrong with it.
pub(super) fn pattern(text: &str) -> Result<Regex, String> {
    if text.len() > MAX_PATTERN_BYTES {
        return Err(format!("a pattern of {} bytes; at most {MAX_PATTERN_BYTES} are allowed", text.len()));
    }
    // Such a character never meets its like, and replaced silently `（` would become a group.
    if let Some(odd) = text.chars().find(|c| !c.is_ascii() && to_nfkc(&c.to_string()) != c.to_string()) {
        let form = to_nfkc(&odd.to_string());
        return Err(format!("`{odd}` never stands in normalised text; write `{form}`"));
    }
    let compiled = RegexBuilder::new(text)
        .case_insensitive(true)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_COMPILED_BYTES)
        .nest_limit(MAX_NESTING)
        .build();
    match compiled {
        Ok(pattern) if pattern.is_match("") => Err("the pattern matches the empty text, and so everything".into()),
        Ok(pattern) => Ok(pattern),
        Err(regex::Error::CompiledTooBig(_)) => {
            Err("the pattern is too large compiled; use smaller repetitions".into())
        }
        Err(error) => {
            // The library draws the place over several lines; the last one says what it is.
            let message = error.to_string();
            Err(format!(
                "not a pattern: {}",
                message.lines().next_back().unwrap_or_default().trim_start_matches("error: ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &Text, said: &str, expect: Option<&[(&str, &str)]>) {
        let query = crate::text::normalise(said).unwrap();
        let found = text.matches(&Said::new(&query.text));
        let found = found.map(|captures| {
            captures.into_iter().map(|(name, span)| (name, query.text[span].to_owned())).collect::<Vec<_>>()
        });
        let expect =
            expect.map(|pairs| pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>());
        assert_eq!(found, expect, "{said}");
    }

    #[test]
    fn patterns_see_normalised_text_and_give_captures() {
        let text = Text { patterns: vec![pattern(r"单号\s*(?P<no>[a-z]{2}\d{10})").unwrap()], ..Text::default() };
        check(&text, "快递单号ＳＦ１２３４５６７８９０走到哪了", Some(&[("no", "SF1234567890")]));
        check(&text, "单号 sf1234567890", Some(&[("no", "sf1234567890")]));
        check(&text, "快递单号 SF12", None);
    }

    #[test]
    fn words_know_the_borders_of_latin_words_alone() {
        let words = |list: &[&str]| list.iter().map(|w| word(w)).collect::<Vec<_>>();
        let text = Text { any: words(&["Return", "退货"]), none: words(&["规则"]), ..Text::default() };
        check(&text, "I want to RETURN it", Some(&[]));
        check(&text, "我要退货啊", Some(&[]));
        check(&text, "我要return这个", Some(&[]));
        check(&text, "it was returned", None);
        check(&text, "退货规则是什么", None);
        let both = Text { all: words(&["订单", "取消"]), ..Text::default() };
        check(&both, "取消这个订单", Some(&[]));
        check(&both, "取消", None);
    }

    #[test]
    fn patterns_are_bounded_and_told_what_is_wrong() {
        for (text, part) in [
            ("(", "not a pattern"),
            ("x*", "empty text"),
            ("快递（单号）", "write `(`"),
            (r"\w{200}\w{200}", "too large"),
            (&"a".repeat(2_000), "at most"),
        ] {
            let error = pattern(text).unwrap_err();
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
        for fine in [r"SO-\d{14}", r"\b[A-Z]{2}\d{10}\b", "^(确认|yes)[!。.]?$"] {
            assert!(pattern(fine).is_ok(), "{fine}");
        }
    }
}
