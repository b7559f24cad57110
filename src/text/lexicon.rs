//! Common words of both languages: what is typed right even if no card holds it. See `data/README.md`.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::pinyin;

/// From this rank on the list of English words holds rare ones, names, and words of other languages.
const COMMON_ENGLISH: u32 = 5_000;
/// Endings that make a form of a word, each with what stands in its place in the word.
const ENDINGS: &[(&str, &[&str])] = &[
    ("iest", &["y"]),
    ("ier", &["y"]),
    ("ies", &["y"]),
    ("ied", &["y"]),
    ("ing", &["", "e"]),
    ("ers", &["", "e"]),
    ("ness", &[""]),
    ("less", &[""]),
    ("ment", &[""]),
    ("able", &["", "e"]),
    ("es", &["", "e"]),
    ("ed", &["", "e"]),
    ("er", &["", "e"]),
    ("ly", &["", "le"]),
    ("est", &["", "e"]),
    ("s", &[""]),
];

static CHINESE: LazyLock<HashMap<&str, u32>> = LazyLock::new(|| ranked(include_str!("data/words.zh.txt")));
static ENGLISH: LazyLock<HashMap<&str, u32>> = LazyLock::new(|| ranked(include_str!("data/words.en.txt")));
/// Common Chinese words by sound, most frequent first.
static BY_SOUND: LazyLock<HashMap<String, Vec<&str>>> = LazyLock::new(|| {
    let mut table: HashMap<String, Vec<&str>> = HashMap::new();
    for word in include_str!("data/words.zh.txt").lines() {
        let single = word.chars().nth(1).is_none();
        for sound in pinyin::sounds(word).into_iter().filter(|sound| !single || pinyin::is_syllable(sound)) {
            table.entry(sound).or_default().push(word);
        }
    }
    table
});
/// Common English words of four letters and more, most frequent first.
static SPELLED: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let common = include_str!("data/words.en.txt").lines().take(COMMON_ENGLISH as usize);
    common.filter(|word| word.len() >= 4).collect()
});

fn ranked(list: &'static str) -> HashMap<&'static str, u32> {
    list.lines().zip(0..).collect()
}

/// Place of a Chinese word by frequency; `None` if it is not common.
pub fn chinese_rank(word: &str) -> Option<u32> {
    CHINESE.get(word).copied()
}

/// Common Chinese words of this sound (pinyin without tones and blanks), most frequent first.
pub fn chinese_of_sound(sound: &str) -> &'static [&'static str] {
    BY_SOUND.get(sound).map_or(&[], Vec::as_slice)
}

/// Place of an English word in small letters by frequency; `None` for anything that is not in the list as it stands.
pub fn english_rank(word: &str) -> Option<u32> {
    ENGLISH.get(word).copied()
}

/// Whether `word`, in small letters, is an English word or a regular form of one.
pub fn is_english(word: &str) -> bool {
    ENGLISH.contains_key(word) || stems(word).any(|stem| ENGLISH.contains_key(stem.as_str()))
}

/// Words that `word` may be a regular form of; not all of them exist.
fn stems(word: &str) -> impl Iterator<Item = String> + '_ {
    ENDINGS.iter().filter_map(move |(ending, instead)| Some((word.strip_suffix(ending)?, *instead))).flat_map(
        |(base, instead)| {
            let bytes = base.as_bytes();
            let doubled = bytes.len() > 3 && bytes[bytes.len() - 1] == bytes[bytes.len() - 2];
            let single = doubled.then(|| base[..base.len() - 1].to_owned());
            let long_enough = base.len() >= 3;
            instead.iter().map(move |end| format!("{base}{end}")).chain(single).filter(move |_| long_enough)
        },
    )
}

/// Common English words of four letters and more, most frequent first.
pub fn common_english() -> &'static [&'static str] {
    &SPELLED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_forms_and_slips_are_told_apart() {
        for word in ["refund", "cancelling", "shipped", "stories", "vegan", "tracked", "boxes", "quickly"] {
            assert!(is_english(word), "{word}");
        }
        for word in ["refnd", "ordr", "trak", "kuaidi", "tuikuan", "pakage", "s", ""] {
            assert!(!is_english(word), "{word}");
        }
        assert!(chinese_rank("我们") < chinese_rank("快递") && chinese_rank("快递").is_some());
        assert_eq!(chinese_rank("快弟"), None);
        assert!(chinese_of_sound("kuaidi").contains(&"快递"));
        assert_eq!(chinese_of_sound("wo").first(), Some(&"我"));
    }
}
