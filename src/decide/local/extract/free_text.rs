//! Texts without a fixed form. What an argument is for is told by its name and description; each purpose has its own
//! way of being said.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::{Context, Extraction, Found, formats, ids, places, things, words};
use crate::args::Property;
use crate::text::{Misspelling, SlotKind};

/// Purposes of free texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Address,
    /// A company or person on a document.
    Title,
    /// What is asked, in the speaker's words.
    Question,
    /// What to search for.
    Keyword,
    /// One certain article by name.
    ProductName,
    /// Colour or size.
    Variant,
    /// Words to pass on.
    Content,
    /// Only quoted text is sure to be meant.
    Quoted,
}

fn purpose(property: &Property<'_>) -> Purpose {
    let parts = words::parts(property.name);
    let has = |words: &[&str]| parts.iter().any(|part| words.contains(&part.as_str()));
    let description = property.description().to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| description.contains(word));
    if has(&["address", "addr", "地址"]) && !has(&["email", "ip", "mail", "url"]) {
        Purpose::Address
    } else if has(&["company", "organization", "organisation", "payer"])
        || has(&["title"]) && says(&["company", "invoice", "print", "公司", "抬头", "发票"])
    {
        Purpose::Title
    } else if has(&["variant", "color", "colour", "颜色", "尺码"])
        || has(&["size"]) && says(&["colour", "color", "cloth", "尺码"])
    {
        Purpose::Variant
    } else if has(&["question", "问题"]) || has(&["query", "q"]) && says(&["question", "ask", "问"]) {
        Purpose::Question
    } else if has(&["product", "item", "goods", "article", "商品"]) && has(&["name", "title"]) {
        Purpose::ProductName
    } else if parts
        .last()
        .is_some_and(|last| matches!(last.as_str(), "keyword" | "keywords" | "query" | "q" | "search"))
        || matches!(property.name, "term" | "search_term" | "searchTerm" | "关键词")
    {
        Purpose::Keyword
    } else if has(&["content", "message", "text", "body", "note", "comment", "remark", "留言", "内容"]) {
        Purpose::Content
    } else {
        Purpose::Quoted
    }
}

pub(super) fn read(context: &Context<'_>, taken: &[Range<usize>], out: &mut Extraction) {
    let is_free = |property: &Property<'_>| {
        let kinds = property.kinds();
        (kinds == ["string"] || kinds.is_empty())
            && property.pattern().is_none()
            && property.choices().is_empty()
            && formats::kind(property).is_none()
    };
    let open: Vec<Property<'_>> =
        context.schema.views().filter(is_free).filter(|p| !out.arguments.contains_key(p.name)).collect();
    // With several texts wanted, a quotation does not say which one it is.
    let takers = open.iter().filter(|property| property.required).count();
    for property in &open {
        let wanted = property.required || is_alternative(context, property.name);
        let span = match purpose(property) {
            Purpose::Address => places::address(&context.query.text),
            Purpose::Title => places::title(&context.query.text),
            Purpose::Variant => variant(&context.query.text),
            Purpose::Content => content(context, taken),
            Purpose::Question if wanted => Some(0..context.query.text.len()),
            Purpose::Keyword if wanted => things::keyword(context, taken),
            Purpose::Keyword => things::named(&context.query.text),
            Purpose::ProductName => things::product_name(context, taken),
            Purpose::Question => None,
            Purpose::Quoted if ids::is_id_name(property.name) => None,
            Purpose::Quoted if property.required => quoted_for(context, property, takers == 1),
            Purpose::Quoted => None,
        };
        let Some(span) = span.filter(|span| !span.is_empty()) else { continue };
        let text = match purpose(property) {
            Purpose::Question => without_ids(context, property),
            // A search for a word with a wrong character finds nothing.
            Purpose::Keyword => {
                let reading = context.query.reading().only(Misspelling::Homophone);
                reading.of_range(&context.query.text, span.clone()).trim().to_owned()
            }
            Purpose::Address
            | Purpose::Title
            | Purpose::ProductName
            | Purpose::Variant
            | Purpose::Content
            | Purpose::Quoted => context.query.text[span.clone()].trim().to_owned(),
        };
        let value = Value::String(text);
        if context.schema.fits(property.name, &value) {
            out.put(property.name, Found::spoken(value, &span));
        }
    }
}

/// Whether the property is one of those of which the schema wants at least one.
fn is_alternative(context: &Context<'_>, name: &str) -> bool {
    let unions =
        ["anyOf", "oneOf"].iter().filter_map(|keyword| context.schema.raw().get(*keyword)).filter_map(Value::as_array);
    let mut required =
        unions.flatten().filter_map(|branch| branch.get("required")).filter_map(Value::as_array).flatten();
    required.any(|required| required == name)
}

pub(super) fn constant(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is constant and tested")
}

static VARIANT: LazyLock<Regex> = LazyLock::new(|| {
    constant(
        r"(?i)(?:深|浅|亮|纯|米|墨|玫瑰|象牙)?[黑白红蓝绿黄灰粉紫金银棕橙青]色|\b(?:dark |light )?(?:black|white|red|blue|green|yellow|gr[ae]y|pink|purple|gold|silver|brown|orange|beige|navy)\b|(?:^|[^A-Za-z0-9-])((?:[2-5]?XL|X{1,3}S|X{2,3}L|XS|S|M|L)(?:码|号)?)(?:$|[^A-Za-z0-9-])|\b(?:size )(\d{1,3}|[SML])\b|(\d{2}码)",
    )
});

pub(super) fn variant(text: &str) -> Option<Range<usize>> {
    let found = VARIANT.captures(text)?;
    let inner = found.iter().skip(1).flatten().next();
    let whole = inner.or_else(|| found.get(0))?;
    let part = whole.as_str();
    let part = part
        .strip_suffix('码')
        .filter(|part| part.is_ascii() && part.contains(|c: char| c.is_ascii_alphabetic()))
        .unwrap_or(part);
    // Small `s`, `m`, `l` are letters of words, not sizes.
    if part.len() == 1 && part.chars().all(|c| c.is_ascii_lowercase()) {
        return None;
    }
    Some(whole.start()..whole.start() + part.len())
}

static CONTENT_ZH: LazyLock<Regex> = LazyLock::new(|| {
    constant(
        r"(?:(?:告诉|转告|通知|跟|和|给|让|对|叫|请)[^,。!?;:]{0,30}?(?:卖家|商家|店家|快递员|快递小哥|快递|骑手|客服|对方|他们|他|她)|留言|备注|转告)(?:那边)?(?:说一声|说一下|说声|说|讲一声|讲|带句话|带个话|留言|留个言|留句话|一声|一下)?[,: ]*([^\n]{2,})$",
    )
});
static CONTENT_EN: LazyLock<Regex> = LazyLock::new(|| {
    constant(
        r"(?i)\b(?:tell|let|ask|message|text|inform|notify|write to|leave a note for|a note for|send a message to|note to)\s+(?:the |my |this )?(?:seller|courier|merchant|vendor|driver|rider|shop|store|delivery guy|delivery person|them|him|her)(?: of [\w-]+| for [\w-]+)?(?: know)?(?: that| to|:|,| -|;)?\s*:?\s*([^\n]{2,})$",
    )
});
/// These say that something is to be passed on, not what.
const NO_CONTENT: [&str; 16] = [
    "留个言",
    "留言",
    "说一声",
    "说一下",
    "说点事",
    "带句话",
    "带个话",
    "发个消息",
    "发消息",
    "联系一下",
    "联系",
    "一下",
    "一声",
    "打个电话",
    "know",
    "something",
];

fn content(context: &Context<'_>, taken: &[Range<usize>]) -> Option<Range<usize>> {
    let text = &context.query.text;
    if let Some(quote) = quoted(context) {
        return Some(quote);
    }
    let found = CONTENT_ZH.captures(text).or_else(|| CONTENT_EN.captures(text))?.get(1)?;
    let start = found.start() + (found.as_str().len() - found.as_str().trim_start_matches([' ', ':', ',']).len());
    let span = start..text.trim_end().trim_end_matches(['。', ' ']).len();
    let said = text.get(span.clone())?;
    let only_ids = taken.iter().any(|used| used.start <= span.start && span.end <= used.end);
    (!said.is_empty() && !only_ids && !NO_CONTENT.contains(&said.trim_end_matches(['吧', '啊', '了']))).then_some(span)
}

/// The quotation that the argument's name introduces, or the only one if nothing else could take it.
fn quoted_for(context: &Context<'_>, property: &Property<'_>, is_alone: bool) -> Option<Range<usize>> {
    let parts = words::parts(property.name);
    let mut quotes = context.query.slots.iter().filter(|slot| slot.kind == SlotKind::Quoted);
    let named = quotes.clone().find(|slot| {
        let before = words::lead_in(context, slot.span.start);
        parts.iter().any(|part| part.len() > 2 && words::find_stem(before, part).is_some())
    });
    let only = match (quotes.next(), quotes.next()) {
        (Some(only), None) if is_alone => Some(only),
        _ => None,
    };
    named.or(only).map(|slot| inside_quotes(&context.query.text, &slot.span))
}

fn inside_quotes(text: &str, span: &Range<usize>) -> Range<usize> {
    let edge = |c: Option<char>| c.map_or(0, char::len_utf8);
    let quote = &text[span.clone()];
    span.start + edge(quote.chars().next())..span.end - edge(quote.chars().next_back())
}

/// The text inside quotation marks.
pub(super) fn quoted(context: &Context<'_>) -> Option<Range<usize>> {
    let slot = context.query.slots.iter().find(|slot| slot.kind == SlotKind::Quoted)?;
    Some(inside_quotes(&context.query.text, &slot.span))
}

fn without_ids(context: &Context<'_>, property: &Property<'_>) -> String {
    let mut text = context.query.retrieval_text();
    if let Some(limit) = property.max_length() {
        text = text.chars().take(limit).collect();
    }
    text.trim_matches(|c: char| c.is_whitespace() || c == ',').to_owned()
}
