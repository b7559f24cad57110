//! Numbers with what they count: `最近三单`, `30块`, `under 5000`, `between 300 and 500`.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Number, Value};

use super::{Context, Extraction, Found, ids, words};
use crate::args::{Notice, Property};

static DIGITS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\d+(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?").expect("the pattern is constant and tested")
});
static HAN_DIGITS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[零一二两三四五六七八九十百千万]+").expect("the pattern is constant and tested"));

/// Numbers of one text that are matched with names.
const MAX_NUMBERS: usize = 50;
const COUNTERS: &str = "单|条|张|个|款|份|件|页|笔|种|双|台|本|封|次|篇|行|家|首|部|位|人|辆|间|晚";
const MONEY: [&str; 14] =
    ["块钱", "块", "元", "圆", "人民币", "yuan", "rmb", "cny", "usd", "dollars", "dollar", "bucks", "euros", "pounds"];
const MONEY_BEFORE: [&str; 7] = ["¥", "$", "€", "£", "rmb", "cny", "usd"];
const OTHER_UNITS: [&str; 30] = [
    "天", "日", "号", "月", "年", "周", "星期", "点", "小时", "分钟", "%", "码", "岁", "kg", "cm", "gb", "days", "day",
    "weeks", "week", "months", "month", "years", "year", "hours", "hour", "minutes", "times", "号楼", "折",
];
const MOST: [&str; 14] = [
    "以内",
    "以下",
    "之内",
    "内",
    "封顶",
    "不超过",
    "不到",
    "under",
    "below",
    "less than",
    "at most",
    "up to",
    "within",
    "no more than",
];
const LEAST: [&str; 11] =
    ["以上", "起步", "起", "至少", "不低于", "over", "above", "more than", "at least", "starting at", "from"];

/// One number of the text.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::decide) struct Said {
    pub(in crate::decide) value: f64,
    pub(in crate::decide) span: Range<usize>,
    /// Followed by a counter such as 单, or before it 前/最近/top/last.
    counted: bool,
    money: bool,
    /// Followed by a unit that is neither money nor a counter.
    unit: bool,
    upper: bool,
    lower: bool,
}

impl Said {
    pub(in crate::decide) fn is_money(&self) -> bool {
        self.money
    }
}

/// Every number of `text` (small letters) outside `taken`, in order. `第二` is a place, not a number.
pub(in crate::decide) fn mentions(text: &str, taken: &[Range<usize>]) -> Vec<Said> {
    let free = |span: &Range<usize>| !taken.iter().any(|other| other.start < span.end && span.start < other.end);
    let mut found: Vec<(f64, Range<usize>)> = Vec::new();
    for digits in DIGITS.find_iter(text) {
        let before = &text[..digits.start()];
        let in_word = |before: &str| before.ends_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let glued = in_word(before)
            || before.ends_with(|c: char| c.is_ascii_digit())
            || before.strip_suffix('-').is_some_and(in_word)
            || text[digits.end()..].starts_with(|c: char| c.is_ascii_digit());
        let value = digits.as_str().replace(',', "").parse::<f64>();
        if let (false, Ok(value)) = (glued, value) {
            let (value, end) = scaled(value, text, digits.end());
            found.push((value, digits.start()..end));
        }
    }
    for han in HAN_DIGITS.find_iter(text) {
        // `3万五千` is one number: its 万 belongs to the digits already.
        if let Some(at) = found.iter().position(|(_, span)| span.start < han.start() && han.start() < span.end) {
            let rest = &text[found[at].1.end.min(han.end())..han.end()];
            match chinese(rest).filter(|rest| *rest >= 10.0) {
                Some(rest) => found[at] = (found[at].0 + rest, found[at].1.start..han.end()),
                None if rest.is_empty() => {}
                // 3万五 is 35,000 to most and 30,005 to some.
                None => drop(found.remove(at)),
            }
        } else if let Some(value) = chinese(han.as_str()) {
            found.push((value, han.range()));
        }
    }
    for (word, value) in ENGLISH {
        found.extend(words::find_all(text, word).filter(|span| span.len() == word.len()).map(|span| (*value, span)));
    }
    found.retain(|(_, span)| free(span) && !is_ordinal(text, span));
    found.retain(|(value, span)| !(*value == 1.0 && is_article(text, span)));
    found.sort_by_key(|(_, span)| (span.start, std::cmp::Reverse(span.end)));
    let listing = is_listing(text);
    let mut said: Vec<Said> = found.into_iter().map(|(value, span)| classify(text, value, span, listing)).collect();
    mark_ranges(text, &mut said);
    said
}

const ENGLISH: &[(&str, f64)] = &[
    ("one", 1.0),
    ("two", 2.0),
    ("three", 3.0),
    ("four", 4.0),
    ("five", 5.0),
    ("six", 6.0),
    ("seven", 7.0),
    ("eight", 8.0),
    ("nine", 9.0),
    ("ten", 10.0),
    ("twelve", 12.0),
    ("fifteen", 15.0),
    ("twenty", 20.0),
    ("thirty", 30.0),
    ("fifty", 50.0),
];

fn scaled(value: f64, text: &str, end: usize) -> (f64, usize) {
    let rest = &text[end..];
    if rest.starts_with('万') {
        return (value * 10_000.0, end + '万'.len_utf8());
    }
    for (word, factor) in [("million", 1e6), ("billion", 1e9), ("thousand", 1e3), ("亿", 1e8)] {
        let tail = rest.strip_prefix(' ').unwrap_or(rest);
        if tail.starts_with(word) && !tail[word.len()..].starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return (value * factor, end + (rest.len() - tail.len()) + word.len());
        }
    }
    let thousand = rest.starts_with('k') && !rest[1..].starts_with(|c: char| c.is_ascii_alphanumeric());
    if thousand { (value * 1_000.0, end + 1) } else { (value, end) }
}

/// 三 → 3, 十五 → 15, 三百二 is left alone, 两千三百 → 2300.
fn chinese(text: &str) -> Option<f64> {
    let (mut total, mut section, mut digit) = (0u64, 0u64, None::<u64>);
    let mut unit_seen = false;
    let mut after_zero = false;
    for c in text.chars() {
        let unit = match c {
            '十' => 10,
            '百' => 100,
            '千' => 1_000,
            '万' => 10_000,
            _ => 0,
        };
        if unit == 10_000 {
            total += (section + digit.take().unwrap_or(0)).max(1).checked_mul(unit)?;
            section = 0;
            unit_seen = true;
        } else if unit > 0 {
            section += digit.take().unwrap_or(1) * unit;
            unit_seen = true;
            after_zero = false;
        } else {
            let value = "零一二三四五六七八九"
                .chars()
                .position(|known| known == c)
                .map(|n| n as u64)
                .or((c == '两').then_some(2))?;
            if digit.is_some() && value != 0 && !after_zero {
                return None; // A row of digits such as 一二三 is a code, not a number.
            }
            after_zero = value == 0;
            digit = Some(value);
        }
    }
    // 三百二 means 320 in speech, but 三百二十 is the safe reading only where it is written.
    let spoken_short =
        unit_seen && digit.is_some() && section >= 100 && section % 100 == 0 && !after_zero && !text.contains('零');
    if spoken_short {
        return None;
    }
    Some((total + section + digit.unwrap_or(0)) as f64)
}

fn is_ordinal(text: &str, span: &Range<usize>) -> bool {
    text[..span.start].ends_with('第')
        || ["st", "nd", "rd", "th"].iter().any(|ending| text[span.end..].starts_with(ending))
        // 一下, 一点, 一直, 一样, 万一: words, not numbers.
        || text[span.clone()].starts_with('一') && text[span.end..].starts_with(['下', '点', '直', '样', '些', '般', '定', '起', '共', '会', '声', '路', '律', '遍'])
        || text[span.clone()] == *"万" || text[span.clone()] == *"零" || text[span.clone()].starts_with("万一")
        || &text[span.clone()] == "one" && (text[span.end..].starts_with(" of") || ends_with_any(&text[..span.start], &["the ", "this ", "that ", "which ", "other ", "a "]))
}

/// 一个, 一张: "a", not a number, unless a listing word leads.
fn is_article(text: &str, span: &Range<usize>) -> bool {
    let counter = COUNTERS.split('|').any(|counter| text[span.end..].starts_with(counter));
    text[span.clone()] == *"一"
        && counter
        && !ends_with_any(text[..span.start].trim_end(), &["前", "最近", "最新", "只要"])
}

fn classify(text: &str, value: f64, span: Range<usize>, listing: bool) -> Said {
    let before = text[..span.start].trim_end();
    let after = text[span.end..].trim_start();
    let money = starts_with_word(after, &MONEY) || ends_with_any(before, &MONEY_BEFORE);
    let unit = !money && starts_with_word(after, &OTHER_UNITS);
    let rest = MONEY.iter().find_map(|unit| after.strip_prefix(unit)).unwrap_or(after).trim_start();
    let bare = MONEY_BEFORE.iter().find_map(|sign| before.strip_suffix(sign)).unwrap_or(before).trim_end();
    let led = ends_with_any(
        before,
        &["前", "最近", "最新", "top", "last", "latest", "recent", "first", "只要", "limit", "limit to", "most recent"],
    );
    let counter = COUNTERS.split('|').any(|counter| after.starts_with(counter));
    let is_one = value == 1.0 && span.len() == '一'.len_utf8();
    let noun = after.starts_with(|c: char| c.is_ascii_alphabetic()) && !unit && !money;
    let counted = !unit && !money && (led || counter && !is_one || noun && listing);
    let upper = starts_with_word(rest, &MOST) || ends_with_any(bare, &MOST);
    let lower = starts_with_word(rest, &LEAST) || ends_with_any(bare, &LEAST);
    Said { value, span, counted, money, unit, upper, lower: lower && !upper }
}

fn is_listing(text: &str) -> bool {
    words::contains_any(text, &["show", "list", "give me", "find", "recommend", "get", "suggest", "pull up"])
}

/// `between 300 and 500`, `300到500`, `300-500`: the first is the lower bound, the second the upper.
fn mark_ranges(text: &str, said: &mut [Said]) {
    for i in 1..said.len() {
        let between = text[said[i - 1].span.end..said[i].span.start].trim();
        let between = MONEY.iter().find_map(|unit| between.strip_prefix(unit)).unwrap_or(between).trim();
        let joined = matches!(between, "到" | "至" | "-" | "~" | "—" | "to")
            || between == "and"
                && text[..said[i - 1].span.start].trim_end().trim_end_matches('$').trim_end().ends_with("between");
        if joined && said[i - 1].value <= said[i].value {
            (said[i - 1].lower, said[i - 1].upper) = (true, false);
            (said[i].lower, said[i].upper) = (false, true);
        }
    }
}

fn starts_with_word(text: &str, all: &[&str]) -> bool {
    all.iter().any(|word| {
        text.strip_prefix(word).is_some_and(|rest| {
            !word.is_ascii()
                || !word.ends_with(|c: char| c.is_ascii_alphabetic())
                || !rest.starts_with(|c: char| c.is_ascii_alphanumeric())
        })
    })
}

fn ends_with_any(text: &str, all: &[&str]) -> bool {
    all.iter().any(|word| {
        text.strip_suffix(word).is_some_and(|rest| {
            let is_latin = word.trim_end().chars().all(|c| c.is_ascii_alphabetic() || c == ' ');
            !is_latin || !rest.ends_with(|c: char| c.is_ascii_alphabetic())
        })
    })
}

/// What a numeric argument is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// How many rows or pieces.
    Count,
    Least,
    Most,
    /// A sum of money.
    Amount,
    Other,
}

fn role(property: &Property<'_>) -> Role {
    let parts = words::parts(property.name);
    let has = |words: &[&str]| parts.iter().any(|part| words.contains(&part.as_str()));
    let description = property.description().to_lowercase();
    let money = has(&["price", "amount", "money", "cost", "budget", "fee", "sum", "payment", "salary"])
        || ["yuan", "price", "元", "金额", "价格"].iter().any(|word| description.contains(word));
    let bounded = money || has(&["rating", "score", "age", "size", "area"]);
    if bounded && (has(&["min", "minimum", "lowest", "low", "from"]) || property.name.starts_with("min")) {
        return Role::Least;
    }
    if bounded && (has(&["max", "maximum", "highest", "high", "to", "budget"]) || property.name.starts_with("max")) {
        return Role::Most;
    }
    if has(&["limit", "count", "top", "topk", "num", "number", "quantity", "qty", "size", "rows", "results", "k", "n"])
        || description.contains("how many")
        || description.contains("数量")
        || description.contains("条数")
    {
        return Role::Count;
    }
    if money { Role::Amount } else { Role::Other }
}

pub(super) fn read(context: &Context<'_>, taken: &[Range<usize>], out: &mut Extraction) {
    let said = mentions(context.lower, &opaque(context, taken));
    let open: Vec<Property<'_>> = context
        .schema
        .views()
        .filter(|property| {
            property.is_numeric() && property.choices().is_empty() && !out.arguments.contains_key(property.name)
        })
        .collect();
    let named = name_numbers(context.lower, &said, &open);
    let others = open.iter().filter(|property| role(property) == Role::Other && property.required).count();
    for property in &open {
        let whole = property.is_kind("integer");
        let mut fitting = said.iter().filter(|said| !whole || said.value.fract() == 0.0);
        let own = named.iter().find(|(name, _)| *name == property.name).map(|(_, index)| &said[*index]);
        if let Some(own) = own.filter(|own| !whole || own.value.fract() == 0.0) {
            put(property, own, out);
            continue;
        }
        let found = match role(property) {
            Role::Count => fitting.find(|said| said.counted),
            Role::Least => fitting.find(|said| said.lower && !said.unit),
            Role::Most => fitting.find(|said| said.upper && !said.unit),
            Role::Amount => fitting.find(|said| said.money && !said.upper && !said.lower),
            Role::Other if ids::is_id_name(property.name) => None,
            Role::Other if others == 1 && property.required && said.len() == 1 => fitting.next(),
            Role::Other => None,
        };
        if let Some(said) = found {
            put(property, said, out);
        }
    }
}

/// Numbers inside ids, contacts and dates are parts of these.
fn opaque(context: &Context<'_>, taken: &[Range<usize>]) -> Vec<Range<usize>> {
    use crate::text::SlotKind;
    let slots = context.query.slots.iter().filter(|slot| slot.kind.is_opaque() || slot.kind == SlotKind::Date);
    // `100以内` after Latin letters or 8 bare digits may be seen as an id; only ids with a letter are taken for sure.
    let slots = slots.filter(|slot| {
        slot.kind != SlotKind::Id
            || context.lower[slot.span.clone()].contains(|c: char| c.is_ascii_alphabetic() || c == '#')
    });
    slots.map(|slot| slot.span.clone()).chain(taken.iter().cloned()).collect()
}

/// Which number each named argument gets: the one with most words of its name around, each number once.
fn name_numbers<'a>(lower: &str, said: &[Said], open: &[Property<'a>]) -> Vec<(&'a str, usize)> {
    let mut pairs: Vec<(usize, usize, &'a str)> = Vec::new();
    for property in open.iter().filter(|property| matches!(role(property), Role::Other | Role::Amount)) {
        for index in 0..said.len().min(MAX_NUMBERS) {
            let words = words_around(lower, said, index, property);
            if words > 0 {
                pairs.push((words, index, property.name));
            }
        }
    }
    pairs.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(b.2)));
    let mut chosen: Vec<(&'a str, usize)> = Vec::new();
    for (_, index, name) in pairs {
        if chosen.iter().all(|(other, used)| *other != name && *used != index) {
            chosen.push((name, index));
        }
    }
    chosen
}

/// Words of the argument's name beside the number: `base of 10`, `3 days`. An id needs all of them, a share only goes
/// where shares are spoken of.
fn words_around(lower: &str, said: &[Said], index: usize, property: &Property<'_>) -> usize {
    const BEFORE: usize = 40;
    const AFTER: usize = 16;
    let own = &said[index];
    let boundary = |range: Range<usize>| range.clone().find(|at| lower.is_char_boundary(*at)).unwrap_or(range.end);
    let previous = if index > 0 { said[index - 1].span.end } else { 0 };
    let from = boundary(previous.max(own.span.start.saturating_sub(BEFORE))..own.span.start);
    let next = said.get(index + 1).map_or(lower.len(), |next| next.span.start).max(own.span.end);
    let until = boundary(next.min(own.span.end + AFTER)..lower.len());
    let (before, after) = (&lower[from..own.span.start], lower[own.span.end..until].trim_start());
    if after.starts_with('%')
        && !["percent", "%", "百分"]
            .iter()
            .any(|word| property.description().contains(word) || property.name.contains(word))
    {
        return 0;
    }
    let parts = words::parts(property.name);
    let weighty = parts
        .iter()
        .filter(|part| part.len() > 2 && !["the", "per", "num", "number", "count", "value"].contains(&part.as_str()));
    let held = weighty.clone().filter(|part| {
        let singular = part.strip_suffix('s').unwrap_or(part);
        words::find_stem(before, part).is_some() || after.starts_with(singular)
    });
    let held = held.count();
    if ids::is_id_name(property.name) && held < weighty.count().max(1) { 0 } else { held }
}

fn put(property: &Property<'_>, said: &Said, out: &mut Extraction) {
    let mut value = said.value;
    if let Some(maximum) = property.maximum().filter(|maximum| value > *maximum) {
        // Fewer rows than asked for are still an answer; a lower sum of money would be another wish.
        if role(property) != Role::Count {
            return;
        }
        value = maximum;
        out.notices.push(Notice(format!("`{}` was lowered to its maximum {maximum}", property.name)));
    }
    if let Some(number) = number(value) {
        out.put(property.name, Found::spoken(Value::Number(number), &said.span));
    }
}

/// Whole values as integers, so that `30` is not written `30.0`.
fn number(value: f64) -> Option<Number> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT { Some(Number::from(value as i64)) } else { Number::from_f64(value) }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn numerals_of_both_languages() {
        let check = |text: &str, expect: Option<f64>| assert_eq!(chinese(text), expect, "{text}");
        check("三", Some(3.0));
        check("十五", Some(15.0));
        check("二十", Some(20.0));
        check("三百", Some(300.0));
        check("一百零五", Some(105.0));
        check("两千三百五十", Some(2350.0));
        check("一万二千", Some(12000.0));
        check("三百二", None);
        check("一二三", None);
        let values = |text: &str| mentions(text, &[]).into_iter().map(|said| said.value).collect::<Vec<_>>();
        assert_eq!(values("最近三单, 退30块, 1,200.50 and two"), [3.0, 30.0, 1200.5, 2.0]);
        assert_eq!(values("第二个看一下, x500, the one i bought, 3rd"), Vec::<f64>::new());
    }

    #[test]
    fn digits_and_numerals_make_one_number() {
        let values = |text: &str| mentions(text, &[]).into_iter().map(|said| said.value).collect::<Vec<_>>();
        assert_eq!(values("预算3万五千以内"), [35_000.0]);
        assert_eq!(values("3万两千到5万零五十"), [32_000.0, 50_050.0]);
        assert_eq!(values("3万"), [30_000.0]);
        assert_eq!(values("3万五"), Vec::<f64>::new());
    }

    #[test]
    fn no_row_of_numbers_overlaps() {
        for text in ["3万万万万", "1万一万一万", "9万千百十万", "3万一", "万1万一", "1,000万两", "2万 3万二千万"]
        {
            let said = mentions(text, &[]);
            assert!(said.windows(2).all(|pair| pair[0].span.end <= pair[1].span.start), "{text}: {said:?}");
        }
    }
}
