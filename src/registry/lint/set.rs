//! How the cards of a set stand to each other by name, wording, language and domain.

use std::collections::{BTreeMap, BTreeSet};

use super::card::Card;
use super::lexicon::is_verb;
use super::report::{Hit, Report, words};
use super::words::descriptions::{DUPLICATE_WORDING, ONE_LANGUAGE_ONLY};
use super::words::names::SIMILAR_NAME;
use super::words::set::MISSING_DOMAIN;
use crate::text::language::is_han;
use crate::text::tokenise;

/// Letters of a name from which on one letter more or less is easily overlooked.
const LONG_ENOUGH: usize = 6;
/// Names or wordings that fall together and are compared with each other.
const MAX_BUCKET: usize = 8;
/// Findings of one of these rules on one card.
const MAX_EACH: usize = 3;

pub(super) fn check(cards: &[Card<'_>], report: &mut Report) {
    names(cards, report);
    wordings(cards, report);
    languages(cards, report);
    domains(cards, report);
}

/// Why two names are alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Alike {
    Same,
    Separators,
    OneLetter,
}

fn names(cards: &[Card<'_>], report: &mut Report) {
    // Names that are equal, or equal without one letter, meet in a bucket: no name is compared with all others.
    let mut buckets: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (nth, card) in cards.iter().enumerate() {
        let plain = plain(&card.card.name);
        let chars: Vec<char> = plain.chars().collect();
        if chars.len() >= LONG_ENOUGH {
            let without =
                |gone: usize| chars.iter().enumerate().filter(|(at, _)| *at != gone).map(|(_, c)| *c).collect();
            let shorter: BTreeSet<String> = (0..chars.len().min(64)).map(without).collect();
            shorter.into_iter().for_each(|key| buckets.entry(key).or_default().push(nth));
        }
        buckets.entry(plain).or_default().push(nth);
    }
    let mut pairs: BTreeMap<(usize, usize), Alike> = BTreeMap::new();
    for bucket in buckets.values().filter(|bucket| bucket.len() > 1) {
        for (at, first) in bucket.iter().take(MAX_BUCKET).enumerate() {
            for second in bucket.iter().take(MAX_BUCKET).skip(at + 1) {
                let alike = alike(&cards[*first].card.name, &cards[*second].card.name);
                pairs.extend(alike.map(|alike| ((*first, *second), alike)));
            }
        }
    }
    let mut told: BTreeMap<usize, usize> = BTreeMap::new();
    for ((first, second), alike) in pairs {
        for (card, other) in [(first, second), (second, first)] {
            let count = told.entry(card).or_default();
            *count += 1;
            if *count <= MAX_EACH {
                similar(&cards[card], &cards[other], alike, report);
            }
        }
    }
}

fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn alike(first: &str, second: &str) -> Option<Alike> {
    if first == second {
        return Some(Alike::Same);
    }
    let (one, two) = (plain(first), plain(second));
    if one == two {
        return Some(Alike::Separators);
    }
    // Versions and numbers are told apart well enough.
    let letters = |name: &str| name.chars().filter(|c| !c.is_numeric()).collect::<String>();
    let is_near = strsim::damerau_levenshtein(&one, &two) == 1 && letters(&one) != letters(&two);
    // `get` and `set` are words that everybody tells apart, and so are `a` and `b`.
    let (words, others) = (tokenise(first), tokenise(second));
    let differ = words.iter().zip(&others).find(|(one, two)| one != two);
    let is_clear = differ.is_some_and(|(one, two)| {
        words.len() == others.len() && (one.chars().count() == 1 || (is_verb(one) && is_verb(two)))
    });
    // In Chinese one character is a word: 打开 and 关闭 differ in what matters.
    (is_near && !is_clear && !first.chars().any(is_han)).then_some(Alike::OneLetter)
}

fn similar(card: &Card<'_>, other: &Card<'_>, alike: Alike, report: &mut Report) {
    let language = report.language;
    let (name, twin) = (card.card.id.as_str(), other.card.id.as_str());
    let reason = match alike {
        Alike::Same => words!(
            language,
            "Two sources hold a tool of this name; they are served as `{name}` and `{twin}`.",
            "两个来源有同名的工具；上线后分别是 `{name}` 和 `{twin}`。"
        ),
        Alike::Separators => words!(
            language,
            "`{name}` and `{twin}` differ only in case or separators.",
            "`{name}` 和 `{twin}` 只差大小写或分隔符。"
        ),
        Alike::OneLetter => {
            words!(language, "`{name}` and `{twin}` differ in one letter.", "`{name}` 和 `{twin}` 只差一个字母。")
        }
    };
    let better = renamed(card, other);
    let proposal = words!(
        language,
        "Rename one of them after what sets it apart, such as `{better}`.",
        "按区别给其中一个改名，例如 `{better}`。"
    );
    report.pair(&SIMILAR_NAME, card, twin, Hit { pointer: "/name".into(), reason, proposal });
}

fn renamed(card: &Card<'_>, other: &Card<'_>) -> String {
    let name = &card.card.name;
    let plain = |text: &str| tokenise(text).join("_");
    match (&card.card.domain, &other.card.domain) {
        (Some(own), Some(theirs)) if own != theirs => format!("{name}_{}", plain(own)),
        _ if card.card.source != other.card.source => format!("{name}_{}", plain(&card.card.source)),
        // One order, many orders.
        _ if other.card.name.strip_suffix('s') == Some(name) => format!("{name}_by_id"),
        _ => format!("{name}_details"),
    }
}

fn wordings(cards: &[Card<'_>], report: &mut Report) {
    let mut holders: BTreeMap<String, Vec<(usize, String, &str)>> = BTreeMap::new();
    for (nth, card) in cards.iter().enumerate() {
        let when = card.card.description.when_to_use.iter().enumerate();
        let when = when.map(|(at, text)| (format!("/description/when_to_use/{at}"), text));
        let examples = card.card.examples.iter().enumerate().map(|(at, text)| (format!("/examples/{at}"), text));
        for (pointer, text) in when.chain(examples) {
            let key = tokenise(text);
            // One word is a topic, not a wording.
            if key.len() > 1 {
                holders.entry(key.join(" ")).or_default().push((nth, pointer, text));
            }
        }
    }
    let mut told: BTreeMap<usize, usize> = BTreeMap::new();
    let language = report.language;
    for places in holders.values() {
        for (nth, pointer, text) in places.iter().take(MAX_BUCKET) {
            let Some((other, ..)) = places.iter().find(|(other, ..)| other != nth) else { break };
            let count = told.entry(*nth).or_default();
            *count += 1;
            if *count > MAX_EACH {
                continue;
            }
            let (twin, text) = (cards[*other].card.id.as_str(), crate::registry::shorten(text));
            let reason = words!(
                language,
                "The wording \"{text}\" leads to `{twin}` as well.",
                "说法“{text}”同时指向 `{twin}`。"
            );
            let proposal = words!(
                language,
                "Keep it with the tool that should win and exclude the case at the other.",
                "把它留给该胜出的工具，并在另一个工具上排除这种情况。"
            );
            let hit = Hit { pointer: pointer.clone(), reason, proposal };
            report.pair(&DUPLICATE_WORDING, &cards[*nth], twin, hit);
        }
    }
}

fn languages(cards: &[Card<'_>], report: &mut Report) {
    let spoken = |card: &Card<'_>| {
        let texts = || card.card.description.when_to_use.iter().chain(&card.card.examples);
        let chinese = texts().any(|text| text.chars().any(is_han));
        let english = texts().any(|text| !text.chars().any(is_han) && text.chars().any(|c| c.is_ascii_alphabetic()));
        (chinese, english)
    };
    let worded: Vec<(&Card<'_>, (bool, bool))> = cards
        .iter()
        .filter(|card| card.native)
        .map(|card| (card, spoken(card)))
        .filter(|(_, spoken)| spoken.0 || spoken.1)
        .collect();
    let both = worded.iter().filter(|(_, spoken)| *spoken == (true, true)).count();
    if both * 3 < worded.len() * 2 {
        return;
    }
    let language = report.language;
    for (card, (chinese, _)) in worded.iter().filter(|(_, spoken)| *spoken != (true, true)) {
        let (missing, missing_zh) = if *chinese { ("English", "英文") } else { ("Chinese", "中文") };
        let reason = words!(
            language,
            "No wording is in {missing}, although most cards of the registry have some.",
            "没有{missing_zh}说法，而注册表里大多数卡片都有。"
        );
        let proposal = words!(
            language,
            "Add two or three sentences in {missing} under `when_to_use`.",
            "在 `when_to_use` 里补上两三句{missing_zh}。"
        );
        let hit = Hit { pointer: "/description/when_to_use".into(), reason, proposal };
        report.add(&ONE_LANGUAGE_ONLY, card, hit);
    }
}

fn domains(cards: &[Card<'_>], report: &mut Report) {
    let native = || cards.iter().filter(|card| card.native);
    let (with, all) = (native().filter(|card| card.card.domain.is_some()).count(), native().count());
    if with * 2 <= all {
        return;
    }
    let language = report.language;
    for card in native().filter(|card| card.card.domain.is_none()) {
        let reason = words!(
            language,
            "The card names no domain, while {with} of {all} do; requests narrowed to a domain leave it out.",
            "卡片没有写领域，而 {all} 张里有 {with} 张写了；限定领域的请求会漏掉它。"
        );
        let proposal = words!(
            language,
            "Add `domain:`, such as one the other cards use.",
            "加上 `domain:`，例如其他卡片用的领域。"
        );
        report.add(&MISSING_DOMAIN, card, Hit { pointer: String::new(), reason, proposal });
    }
}
