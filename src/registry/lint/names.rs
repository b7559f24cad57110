//! What is wrong with a tool's own name.

use std::collections::{BTreeMap, BTreeSet};

use super::card::Card;
use super::lexicon::{self, abbreviated, is_verb, verb_of_deed};
use super::report::{Hit, Report, words};
use super::words::names::{ABBREVIATION, GENERIC_NAME, NAME_NO_VERB};
use crate::text::language::is_han;
use crate::text::tokenise;
use crate::tool::SideEffect;

/// Cards of one source whose names begin with the same word, from which on it counts as the source's prefix.
const PREFIXED: usize = 3;

/// Words in front of the names of a source, as in `browser_click`, `browser_close`, `browser_drag`.
pub(super) fn prefixes(cards: &[Card<'_>]) -> BTreeSet<(String, String)> {
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for card in cards.iter().filter(|card| !card.native) {
        if let Some(first) = parts(&card.card.name).into_iter().next().filter(|first| !is_verb(first)) {
            let group = card.card.domain.as_ref().unwrap_or(&card.card.source);
            *counts.entry((group.clone(), first)).or_default() += 1;
        }
    }
    counts.into_iter().filter(|(_, count)| *count >= PREFIXED).map(|(prefix, _)| prefix).collect()
}

pub(super) fn check(card: &Card<'_>, prefixes: &BTreeSet<(String, String)>, report: &mut Report) {
    let name = card.card.name.as_str();
    let parts = parts(name);
    if parts.is_empty() {
        return;
    }
    generic(card, &parts, report);
    no_verb(card, &parts, prefixes, report);
    shortened(card, &parts, report);
}

/// The last part of a dotted or slashed name in words: what is before is a namespace.
fn parts(name: &str) -> Vec<String> {
    let own = name.rsplit(['.', '/', ':']).find(|part| !part.is_empty()).unwrap_or(name);
    // A server's prefix is no part of the name, nor is a number at the end: `search__2`.
    let verb_first = words_of(own).first().is_some_and(|first| is_verb(first));
    let own = if verb_first { own } else { last_part(own) };
    words_of(own)
}

fn last_part(own: &str) -> &str {
    own.rsplit("__").find(|part| part.contains(char::is_alphabetic)).unwrap_or(own)
}

fn words_of(name: &str) -> Vec<String> {
    tokenise(name).into_iter().filter(|part| !matches!(part.as_str(), "v1" | "v2" | "v3" | "api" | "tool")).collect()
}

fn generic(card: &Card<'_>, parts: &[String], report: &mut Report) {
    let name = &card.card.name;
    let says_nothing = if name.chars().any(is_han) {
        lexicon::substance_zh(name).chars().count() < 2
    } else {
        // A verb that needs no object says enough, and so may a namespace.
        let alone = parts.len() == 1 && matches!(parts[0].as_str(), "login" | "logout" | "ping" | "checkout");
        let all = words_of(name);
        let empty = |part: &String| {
            part.bytes().all(|byte| byte.is_ascii_digit()) || lexicon::is_vague_noun(part) || lexicon::is_stop(part)
        };
        let verbs = [all.first(), parts.first()];
        let is_its_verb = |part: &String| is_verb(part) && verbs.contains(&Some(part));
        !alone && all.iter().all(|part| empty(part) || is_its_verb(part))
    };
    if !says_nothing {
        return;
    }
    let language = report.language;
    let domain = card.object();
    let verb = parts
        .first()
        .filter(|part| is_verb(part) && !matches!(part.as_str(), "do" | "handle" | "process" | "execute" | "run"));
    let verb = verb.map_or("search", String::as_str).to_owned();
    let reason = words!(language, "The name `{name}` would fit any tool.", "名称 `{name}` 放在任何工具上都成立。");
    let proposal = words!(
        language,
        "Name the action and the object, such as `{verb}_{domain}` or whatever the tool really does.",
        "写出动作和对象，例如 `{verb}_{domain}`，按工具实际做的事来命名。"
    );
    report.add(&GENERIC_NAME, card, Hit { pointer: "/name".into(), reason, proposal });
}

fn no_verb(card: &Card<'_>, parts: &[String], prefixes: &BTreeSet<(String, String)>, report: &mut Report) {
    let name = &card.card.name;
    if name.chars().next().is_some_and(is_han) {
        if lexicon::verb_zh(name).is_none() {
            let better = format!("查询{}", name.trim_end_matches("查询"));
            propose_verb(card, &better, report);
        }
        return;
    }
    let starts = |part: &String| is_verb(part) || matches!(part.as_str(), "is" | "has" | "can" | "to");
    let group = card.card.domain.as_ref().unwrap_or(&card.card.source);
    let prefixed = !card.native && prefixes.contains(&(group.clone(), parts[0].clone()));
    // An abbreviated verb is the other rule's.
    let expanded = abbreviated(&parts[0]).flatten().is_some_and(is_verb);
    if starts(&parts[0]) || expanded || (prefixed && parts.get(1).is_some_and(starts)) {
        return;
    }
    propose_verb(card, &verb_first(card, parts), report);
}

fn propose_verb(card: &Card<'_>, better: &str, report: &mut Report) {
    let name = &card.card.name;
    let reason =
        words!(report.language, "The name `{name}` does not start with a verb.", "名称 `{name}` 没有以动词开头。");
    let proposal =
        words!(report.language, "Put the verb first, such as `{better}`.", "把动词放在最前，例如 `{better}`。");
    report.add(&NAME_NO_VERB, card, Hit { pointer: "/name".into(), reason, proposal });
}

/// The parts of a name, spelt out, with a verb in front.
fn verb_first(card: &Card<'_>, parts: &[String]) -> String {
    let mut full: Vec<String> =
        parts.iter().map(|part| abbreviated(part).flatten().map_or_else(|| part.clone(), str::to_owned)).collect();
    let verb = match full.last().and_then(|last| verb_of_deed(last)) {
        Some(verb) if full.len() > 1 => {
            full.pop();
            verb
        }
        Some(_) | None => match full.last() {
            Some(last) if full.len() > 1 && is_verb(last) => {
                let last = full.pop().unwrap_or_default();
                full.insert(0, last);
                return full.join("_");
            }
            Some(_) | None => match card.card.side_effect {
                SideEffect::Write | SideEffect::Destructive if card.card.side_effect_declared => "update",
                SideEffect::Read | SideEffect::Write | SideEffect::Destructive => "get",
            },
        },
    };
    full.insert(0, verb.to_owned());
    full.join("_")
}

fn shortened(card: &Card<'_>, parts: &[String], report: &mut Report) {
    let found: Vec<(&String, Option<&str>)> =
        parts.iter().filter_map(|part| Some((part, abbreviated(part)?))).collect();
    // One unknown group of letters may be a product; imported names are full of them.
    if found.is_empty() || (!card.native && found.iter().all(|(_, full)| full.is_none())) {
        return;
    }
    let (name, language) = (&card.card.name, report.language);
    let mut short: Vec<String> = found.iter().map(|(part, _)| format!("`{part}`")).collect();
    short.dedup();
    let short = short.join(", ");
    let reason =
        words!(language, "The name `{name}` holds the abbreviation {short}.", "名称 `{name}` 含有缩写 {short}。");
    let proposal = if found.iter().any(|(_, full)| full.is_none()) {
        words!(language, "Spell {short} out as whole words.", "把 {short} 写成完整的单词。")
    } else {
        let better = verb_first_if_needed(card, parts);
        words!(language, "Spell it out: `{better}`.", "写全单词：`{better}`。")
    };
    report.add(&ABBREVIATION, card, Hit { pointer: "/name".into(), reason, proposal });
}

fn verb_first_if_needed(card: &Card<'_>, parts: &[String]) -> String {
    let full = |part: &String| abbreviated(part).flatten().map_or_else(|| part.clone(), str::to_owned);
    let full: Vec<String> = parts.iter().map(full).collect();
    let clear_verb = full.iter().take(2).any(|part| is_verb(part) && part != "order");
    if clear_verb { full.join("_") } else { verb_first(card, parts) }
}
