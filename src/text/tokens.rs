//! Words for the lexical index: Latin words (identifiers split into their parts) and Chinese character bigrams.

use std::sync::LazyLock;

use rust_stemmers::{Algorithm, Stemmer};

use super::language::is_han;
use super::simplified::simplify;

static ENGLISH: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));

/// The terms of the lexical index: [`tokenise`] with English words reduced to their stems, so that `orders` finds
/// `order`. Terms with a digit or a letter outside ASCII stay as they are.
pub fn terms(text: &str) -> Vec<String> {
    let mut terms = tokenise(text);
    for term in &mut terms {
        if term.bytes().all(|byte| byte.is_ascii_lowercase()) {
            *term = ENGLISH.stem(term).into_owned();
        }
    }
    terms
}

/// Lower-case Latin words and numbers, and for each run of Han characters its bigrams (a lone character is a token of
/// its own), in order. Traditional characters count as their simplified ones. `trackShipment`, `track_shipment` and `track shipment` give the same tokens.
///
/// Bigrams instead of dictionary words: measured on the development sets they find as much as a segmenter does and
/// need no dictionary; see `docs/MEASUREMENTS.md`.
pub fn tokenise(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut word = String::new();
    let mut han: Vec<char> = Vec::new();
    let mut previous = ' ';
    for c in text.chars() {
        if is_han(c) {
            flush_word(&mut word, &mut tokens);
            han.push(simplify(c));
        } else {
            flush_han(&mut han, &mut tokens);
            if c.is_alphanumeric() {
                // A capital after a small letter or a digit starts the next part of a camelCase name.
                if c.is_uppercase() && (previous.is_lowercase() || previous.is_ascii_digit()) {
                    flush_word(&mut word, &mut tokens);
                }
                word.extend(c.to_lowercase());
            } else if c != '\'' && c != '’' {
                flush_word(&mut word, &mut tokens);
            }
        }
        previous = c;
    }
    flush_word(&mut word, &mut tokens);
    flush_han(&mut han, &mut tokens);
    tokens
}

fn flush_word(word: &mut String, tokens: &mut Vec<String>) {
    if !word.is_empty() {
        tokens.push(std::mem::take(word));
    }
}

fn flush_han(han: &mut Vec<char>, tokens: &mut Vec<String>) {
    match han.as_slice() {
        [] => {}
        [single] => tokens.push(single.to_string()),
        run => tokens.extend(run.windows(2).map(|pair| pair.iter().collect::<String>())),
    }
    han.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        assert_eq!(tokenise(text).join(" "), expect, "{text}");
    }

    #[test]
    fn english_words_become_stems_and_nothing_else_does() {
        assert_eq!(terms("Tracking orders, so-12ings 退款s").join(" "), "track order so 12ings 退款 s");
        assert_eq!(terms("cancelled cancelling cancel").join(" "), "cancel cancel cancel");
    }

    #[test]
    fn names_and_both_languages_split_alike() {
        check("trackShipment", "track shipment");
        check("track_shipment", "track shipment");
        check("Track-Shipment v2", "track shipment v2");
        check("我的快递到哪了", "我的 的快 快递 递到 到哪 哪了");
        check("delivery还要几天", "delivery 还要 要几 几天");
        check("don't 退", "dont 退");
        check("退貨 APP", "退货 app");
        check("", "");
    }
}
