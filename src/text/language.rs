//! Language of an utterance, by script.

use serde::{Deserialize, Serialize};

/// What the utterance is written in; picks the encoder and the wording of questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    Zh,
    En,
    /// Han characters and Latin words together.
    Mixed,
    /// Another script, or Latin with letters English does not use.
    Other,
}

impl Language {
    /// By script alone: Han makes Chinese, ASCII letters English, both mixed. A single Latin word beside Han text (a
    /// brand, `APP`, `XL`) does not make it mixed. Text without letters counts as English.
    pub fn detect(text: &str) -> Self {
        let (mut han, mut kana_or_hangul, mut latin_words, mut foreign) = (0usize, 0usize, 0usize, 0usize);
        let mut in_word = false;
        for c in text.chars() {
            let latin = c.is_ascii_alphabetic();
            if latin && !in_word {
                latin_words += 1;
            }
            in_word = latin || (in_word && (c.is_ascii_digit() || matches!(c, '-' | '_' | '\'')));
            if is_han(c) {
                han += 1;
            } else if matches!(c, '\u{3040}'..='\u{30ff}' | '\u{ac00}'..='\u{d7af}') {
                kana_or_hangul += 1;
            } else if c.is_alphabetic() && !latin {
                foreign += 1;
            }
        }
        match (han, latin_words) {
            _ if kana_or_hangul > 0 => Self::Other,
            (0, _) if foreign > 0 => Self::Other,
            (0, _) => Self::En,
            (_, 0 | 1) => Self::Zh,
            _ => Self::Mixed,
        }
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
}
