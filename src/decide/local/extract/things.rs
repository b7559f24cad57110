//! The thing a request is about: what to search for, an article in question.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::free_text::{constant, quoted, variant};
use super::{Context, phrases, words};

static PRICE: LazyLock<Regex> = LazyLock::new(|| {
    constant(
        r"(?i)[,\s]*(?:预算|价格|价位)?(?:在)?[¥$€£]?(?:\d+|[一二两三四五六七八九十百千万]+)(?:块钱|块|元|yuan)?(?:到|至|-|~)?(?:\d+|[一二三四五六七八九十百千万]+)?(?:块钱|块|元)?(?:以内|以下|之内|左右|以上|上下|封顶|起)的?|\s*\b(?:between|under|below|over|above|less than|more than|at most|at least|up to|within|around|for|from)\s+[¥$€£]?\d[\d,.]*(?:\s*(?:and|to|-)\s*[¥$€£]?\d[\d,.]*)?(?:\s*(?:yuan|rmb|dollars|bucks))?",
    )
});
static COUNT: LazyLock<Regex> = LazyLock::new(|| {
    constant(r"(?:推荐|来|找|要|列|前)?(?:[0-9]+|[一两二三四五六七八九十几])(?:款|个|双|件|台|种|条|本)")
});

/// The thing asked for: clause by clause, without prices, counts and request words; attributes before the last 的 fall
/// away only if they are wishes about the ranking.
pub(super) fn keyword(context: &Context<'_>, taken: &[Range<usize>]) -> Option<Range<usize>> {
    let text = &context.query.text;
    if let Some(quote) = quoted(context) {
        return Some(quote);
    }
    clauses(text, &opaque(context, taken)).find_map(|clause| {
        let mut blanks: Vec<Range<usize>> =
            PRICE.find_iter(&text[clause.clone()]).map(|m| clause.start + m.start()..clause.start + m.end()).collect();
        blanks.extend(COUNT.find_iter(&text[clause.clone()]).map(|m| clause.start + m.start()..clause.start + m.end()));
        let pieces = outside(clause, &blanks);
        let things = pieces.into_iter().filter_map(|piece| {
            let thing = phrases::thing(&text[piece.clone()])?;
            let thing = after_attribute(thing);
            let start = thing.as_ptr() as usize - text.as_ptr() as usize;
            Some(start..start + thing.len())
        });
        things.max_by_key(|span| span.len()).filter(|span| is_name_sized(&text[span.clone()]))
    })
}

/// `适合老人用的血压计` → `血压计`; `黑色的包` stays, its attribute is short.
fn after_attribute(thing: &str) -> &str {
    const SHORT: usize = 3;
    match thing.rsplit_once('的') {
        Some((attribute, noun)) if attribute.chars().count() > SHORT && noun.chars().count() > 1 => noun,
        _ => thing,
    }
}

static NAMED_ZH: LazyLock<Regex> = LazyLock::new(|| {
    constant(
        r"(?:那个|那件|那双|那款|那台|那条|买的|买过的|买过|有没有买)([\p{Han}A-Za-z0-9 ]{2,16}?)(?:的订单|的单|订单|的那单|是哪一单|是哪单|那单|那一单|的单号)",
    )
});
static NAMED_EN: LazyLock<Regex> = LazyLock::new(|| {
    constant(
        r"(?i)\b(?:orders?|purchases?)\b[^,.?!]{0,60}?\b(?:with|containing|including)\s+(?:an? |the |some )?([a-z0-9 -]{2,40}?)(?: in it| in them)?[?.!,]?$|\b(?:the|my)\s+([a-z0-9 -]{2,30}?)\s+(?:order|i (?:bought|ordered|purchased))\b",
    )
});

/// A bought thing named among other conditions; a guess here would hide orders, so only plain wordings count.
pub(super) fn named(text: &str) -> Option<Range<usize>> {
    let found = NAMED_ZH.captures(text).or_else(|| NAMED_EN.captures(text))?;
    let inner = found.iter().skip(1).flatten().next()?;
    let thing = phrases::thing(inner.as_str())?;
    let periods = [
        "last",
        "latest",
        "newest",
        "recent",
        "上个月",
        "最近",
        "上周",
        "昨天",
        "previous",
        "same",
        "first",
        "second",
        "other",
        "whole",
    ];
    let digits = thing.bytes().filter(u8::is_ascii_digit).count();
    if digits >= DIGITS_OF_A_NUMBER || words::contains_any(&thing.to_ascii_lowercase(), &periods) {
        return None;
    }
    let start = thing.as_ptr() as usize - text.as_ptr() as usize;
    Some(start..start + thing.len())
}

/// The article in a question about stock, without its variant.
pub(super) fn product_name(context: &Context<'_>, taken: &[Range<usize>]) -> Option<Range<usize>> {
    let text = &context.query.text;
    // An article number says it all.
    if !taken.is_empty() {
        return None;
    }
    if let Some(quote) = quoted(context) {
        return Some(quote);
    }
    let variant = variant(text);
    let first = clauses(text, &opaque(context, taken)).find_map(|clause| {
        let pieces = outside(clause, variant.as_slice());
        let things = pieces.into_iter().filter_map(|piece| {
            let thing = phrases::thing(&text[piece.clone()])?;
            let start = thing.as_ptr() as usize - text.as_ptr() as usize;
            Some(start..start + thing.len())
        });
        things.max_by_key(|span| span.len())
    });
    first.filter(|span| is_name_sized(&text[span.clone()]))
}

/// What holds so many digits is a number of something, not its name.
const DIGITS_OF_A_NUMBER: usize = 6;

/// Spans that name no thing: what is used already, and numbers of orders and the like. `X5` may belong to a name.
fn opaque(context: &Context<'_>, taken: &[Range<usize>]) -> Vec<Range<usize>> {
    let slots = context.query.slots.iter().map(|slot| slot.span.clone());
    let long = slots.filter(|span| {
        context.query.text[span.clone()].bytes().filter(u8::is_ascii_digit).count() >= DIGITS_OF_A_NUMBER
    });
    let free = long.filter(|span| !taken.iter().any(|used| used.start < span.end && span.start < used.end));
    let mut spans: Vec<Range<usize>> = taken.iter().cloned().chain(free).collect();
    spans.sort_by_key(|span| span.start);
    spans
}

/// A whole sentence is no name.
fn is_name_sized(text: &str) -> bool {
    let talk = ["我", "你", "请", "帮", "将", "把", "添加", "加入", "查询", "是否"];
    let words = text.split_whitespace().count();
    words <= 6 && text.chars().count() <= 40 && !talk.iter().any(|word| text.contains(word))
}

/// Clauses of the text without the spans already used.
fn clauses<'a>(text: &'a str, taken: &'a [Range<usize>]) -> impl Iterator<Item = Range<usize>> + 'a {
    let mut from = 0;
    let mut ends: Vec<usize> = text.char_indices().filter(|(_, c)| phrases::is_stop(*c)).map(|(at, _)| at).collect();
    ends.push(text.len());
    let clauses: Vec<Range<usize>> = ends
        .into_iter()
        .map(|end| {
            let clause = from..end;
            from = end + text[end..].chars().next().map_or(0, char::len_utf8);
            clause
        })
        .collect();
    clauses.into_iter().flat_map(move |clause| outside(clause, taken)).filter(|clause| !clause.is_empty())
}

/// The parts of `span` outside `holes`.
fn outside(span: Range<usize>, holes: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut parts = vec![span];
    for hole in holes {
        parts = parts
            .into_iter()
            .flat_map(|part| {
                if hole.end <= part.start || part.end <= hole.start {
                    vec![part]
                } else {
                    vec![part.start..hole.start.max(part.start), hole.end.min(part.end)..part.end]
                }
            })
            .filter(|part| !part.is_empty())
            .collect();
    }
    parts
}
