//! Language of an utterance: by script, and for Latin letters by the small words of some languages.

use serde::{Deserialize, Serialize};

use super::{foreign, pinyin};

/// What the utterance is written in; picks the encoder and the wording of questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    Zh,
    En,
    /// Han characters and Latin words together.
    Mixed,
    /// Another script, or Latin letters in another language than English.
    Other,
}

/// A language with the two-letter codes an encoder declares it by. A script that several languages share has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tongue {
    pub language: Language,
    pub codes: &'static [&'static str],
}

/// Ranges of characters, and the two-letter codes of the languages written in them.
type Script = (&'static [(char, char)], &'static [&'static str]);

/// Scripts beside Han and Latin, with the languages written in them.
const SCRIPTS: &[Script] = &[
    (&[('\u{3040}', '\u{30ff}'), ('\u{31f0}', '\u{31ff}')], &["ja"]),
    (&[('\u{1100}', '\u{11ff}'), ('\u{3130}', '\u{318f}'), ('\u{ac00}', '\u{d7af}')], &["ko"]),
    (&[('\u{400}', '\u{52f}')], &["ru", "uk", "bg", "be", "sr", "mk", "kk", "mn"]),
    (&[('\u{600}', '\u{6ff}'), ('\u{750}', '\u{77f}')], &["ar", "fa", "ur"]),
    (&[('\u{590}', '\u{5ff}')], &["he"]),
    (&[('\u{370}', '\u{3ff}'), ('\u{1f00}', '\u{1fff}')], &["el"]),
    (&[('\u{e00}', '\u{e7f}')], &["th"]),
    (&[('\u{900}', '\u{97f}')], &["hi", "mr", "ne"]),
];
/// Languages in a script that is not listed: an encoder would have to declare exactly this.
const UNKNOWN: &[&str] = &["und"];

impl Tongue {
    /// By script where one prevails; Han makes Chinese, Latin letters English unless the words are another language's,
    /// both together mixed. A single Latin word beside Han text (a brand, `APP`, `XL`) does not make it mixed, and
    /// single letters of a third script (a name) decide nothing. Text without letters counts as English.
    pub fn of(text: &str) -> Self {
        let (mut han, mut latin, mut latin_words, mut unlisted) = (0usize, 0usize, 0usize, 0usize);
        let mut scripts = [0usize; SCRIPTS.len()];
        let mut in_word = false;
        for c in text.chars() {
            let ascii = c.is_ascii_alphabetic();
            let is_latin = ascii || matches!(c, '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}') && c.is_alphabetic();
            latin_words += usize::from(is_latin && !in_word);
            in_word = is_latin || (in_word && (c.is_ascii_digit() || matches!(c, '-' | '_' | '\'')));
            if is_han(c) {
                han += 1;
            } else if is_latin {
                latin += 1;
            } else if c.is_alphabetic() {
                let script = SCRIPTS.iter().position(|(ranges, _)| ranges.iter().any(|(a, b)| (*a..=*b).contains(&c)));
                match script {
                    Some(script) => scripts[script] += 1,
                    None => unlisted += 1,
                }
            }
        }
        let foreign: usize = scripts.iter().sum::<usize>() + unlisted;
        // Japanese writes most content words in Han, so a quarter is much for a third script already.
        if foreign > 0 && foreign * 4 >= foreign + han + latin {
            let most = scripts.iter().enumerate().max_by_key(|(nth, count)| (**count, std::cmp::Reverse(*nth)));
            let codes = most.filter(|(_, count)| **count >= unlisted).map_or(UNKNOWN, |(nth, _)| SCRIPTS[nth].1);
            return Self { language: Language::Other, codes };
        }
        match (han, latin_words) {
            (0, _) => match foreign::codes(text) {
                Some(codes) if !spells_chinese(text) => Self { language: Language::Other, codes },
                Some(_) | None => Self { language: Language::En, codes: &["en"] },
            },
            (_, 0 | 1) => Self { language: Language::Zh, codes: &["zh"] },
            _ => Self { language: Language::Mixed, codes: &["zh", "en"] },
        }
    }
}

/// Pinyin is no foreign language; what it says is read where the words of the cards are known.
fn spells_chinese(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    words.all(|word| pinyin::is_pinyin(&word.to_ascii_lowercase()))
}

impl Language {
    /// See [`Tongue::of`].
    pub fn detect(text: &str) -> Self {
        Tongue::of(text).language
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Zh => "zh",
            Self::En => "en",
            Self::Mixed => "mixed",
            Self::Other => "other",
        }
    }

    /// Whether questions to the user are worded in Chinese.
    pub fn prefers_chinese(self) -> bool {
        matches!(self, Self::Zh | Self::Mixed)
    }
}

/// CJK ideographs, including extensions and compatibility forms.
pub fn is_han(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}' | '〇' | '々')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_decides() {
        let check = |text: &str, expect: Language| assert_eq!(Language::detect(text), expect, "{text}");
        check("我的快递到哪了", Language::Zh);
        check("帮我下载APP", Language::Zh);
        check("where is my package", Language::En);
        check("delivery还要几天啊 urgent", Language::Mixed);
        check("Покажи последние коммиты", Language::Other);
        check("où est mon colis, s'il vous plaît", Language::Other);
        check("荷物はどこですか", Language::Other);
        check("12345", Language::En);
        check("", Language::En);
    }

    #[test]
    fn a_language_has_the_codes_an_encoder_may_declare() {
        let check = |text: &str, expect: &str| {
            assert_eq!(Tongue::of(text).codes.first(), Some(&expect), "{text}");
        };
        check("내 택배 어디에 있어요", "ko");
        check("أين طلبي", "ar");
        check("พัสดุของฉันอยู่ที่ไหน", "th");
        check("注文をキャンセルしたい", "ja");
        check("Где моя посылка SO?", "ru");
        check("მადლობა", "und");
        check("me gustaría devolver mi pedido", "es");
        check("我的快递呢", "zh");
        check("我想 return 这个 jacket", "zh");
        check("refund?", "en");
    }

    #[test]
    fn names_and_single_letters_of_another_script_decide_nothing() {
        let check = |text: &str, expect: Language| assert_eq!(Language::detect(text), expect, "{text}");
        check("我在优の品买的那双鞋能退吗", Language::Zh);
        check("my Nestlé coffee order from São Paulo is late", Language::En);
        check("can I return the Müller cheese", Language::En);
        check("the α version of the app crashes", Language::En);
        check("wo de kuaidi dao na le", Language::En);
    }
}
