//! How Chinese characters sound, without tones.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use pinyin::ToPinyin;

/// Longest syllable, in letters.
const LONGEST: usize = 6;

/// Sounds of the characters that are words of their own; all others sound like one of these.
static SYLLABLES: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    let words = include_str!("data/words.zh.txt").lines().filter(|word| word.chars().count() == 1);
    // Interjections (hm, ng, m) are no syllables anybody spells words with.
    words
        .flat_map(str::chars)
        .flat_map(readings)
        .filter(|sound| sound.contains(['a', 'e', 'i', 'o', 'u', 'v']))
        .collect()
});

/// Second readings that are common. All others are too rare: with them, nearly every character sounds like another.
const SECOND: &[(char, &str)] = &[
    ('还', "huan"),
    ('长', "zhang"),
    ('重', "chong"),
    ('行', "hang"),
    ('地', "de"),
    ('得', "dei"),
    ('了', "liao"),
    ('乐', "yue"),
    ('调', "tiao"),
    ('觉', "jiao"),
    ('便', "pian"),
    ('传', "zhuan"),
    ('卷', "quan"),
    ('弹', "tan"),
    ('薄', "bao"),
    ('都', "du"),
];

/// The usual sounds of a character, the most usual first; none for anything that is no Chinese character. `ü` is `v`.
pub fn readings(c: char) -> impl Iterator<Item = &'static str> {
    let first = c.to_pinyin().map(|sound| match sound.plain() {
        "lü" => "lv",
        "nü" => "nv",
        "lüe" => "lve",
        "nüe" => "nve",
        plain => plain,
    });
    first.into_iter().chain(SECOND.iter().filter(move |(own, _)| *own == c).map(|(_, sound)| *sound))
}

/// The sounds of a word, syllables joined.
pub fn sounds(word: &str) -> Vec<String> {
    let mut joined = vec![String::new()];
    for c in word.chars() {
        joined = readings(c).flat_map(|sound| joined.iter().map(move |head| format!("{head}{sound}"))).collect();
    }
    joined.retain(|sound| !sound.is_empty());
    joined
}

/// One spelling for sounds that many speakers do not tell apart: n and l, zh and z, ang and an.
pub fn loose(syllable: &str) -> String {
    let (head, tail) = match syllable.strip_prefix(['z', 'c', 's']).and_then(|rest| rest.strip_prefix('h')) {
        Some(tail) => (&syllable[..1], tail),
        None => match syllable.strip_prefix('n') {
            Some(tail) => ("l", tail),
            None => ("", syllable),
        },
    };
    let tail = if tail.ends_with("ng") && !tail.ends_with("ong") { &tail[..tail.len() - 1] } else { tail };
    format!("{head}{tail}")
}

/// Ends of the syllables that begin at `letters[0]`, shortest first.
pub fn syllable_ends(letters: &str) -> impl Iterator<Item = usize> + '_ {
    (1..=LONGEST.min(letters.len())).filter(|end| letters.get(..*end).is_some_and(is_syllable))
}

pub fn is_syllable(letters: &str) -> bool {
    SYLLABLES.contains(letters)
}

/// Whether `word`, in small letters, is spelled in whole syllables.
pub fn is_pinyin(word: &str) -> bool {
    if word.is_empty() || !word.is_ascii() {
        return false;
    }
    let mut reached = vec![false; word.len() + 1];
    reached[0] = true;
    for start in 0..word.len() {
        if reached[start] {
            for length in syllable_ends(&word[start..]) {
                reached[start + length] = true;
            }
        }
    }
    reached[word.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sounds_of_words_with_several_readings() {
        assert_eq!(sounds("快递"), ["kuaidi"]);
        assert!(sounds("还没").contains(&"haimei".to_owned()));
        assert!(sounds("了").contains(&"le".to_owned()));
        assert!(sounds("地址").contains(&"dizhi".to_owned()));
        assert_eq!(sounds("绿"), ["lv"]);
        assert!(sounds("a").is_empty() && sounds("").is_empty() && sounds("退a").is_empty());
    }

    #[test]
    fn sounds_that_are_mixed_up_are_one() {
        for (a, b) in [("zhang", "zan"), ("niu", "liu"), ("cheng", "cen"), ("xing", "xin"), ("shi", "si")] {
            assert_eq!(loose(a), loose(b));
        }
        assert_ne!(loose("dong"), loose("don"));
        assert_eq!(loose(""), "");
    }

    #[test]
    fn pinyin_is_told_from_other_letters() {
        for word in ["kuaidi", "tuikuan", "wo", "xian", "nver", "zhuangtai", "manage", "you"] {
            assert!(is_pinyin(word), "{word}");
        }
        for word in ["track", "refund", "", "kuaid", "where", "退", "zh", "m"] {
            assert!(!is_pinyin(word), "{word}");
        }
    }
}
