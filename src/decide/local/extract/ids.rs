//! Values with a fixed form: anything whose schema has a pattern.

use std::ops::Range;

use serde_json::Value;

use super::{Context, Extraction, Found, words};
use crate::args::{ArgumentSchema, Origin, Property};
use crate::text::SlotKind;

/// Matches looked at per argument.
const MAX_MATCHES: usize = 50;
/// After these words the id said before was a slip.
const CORRECTIONS: [&str; 12] = [
    "不对",
    "错了,是",
    "说错",
    "不是这个",
    "搞错",
    "更正",
    "no wait",
    "i mean",
    "sorry,",
    "correction",
    "rather",
    "actually",
];

/// Whether a value of this argument is handed out by an earlier result (a page cursor, a confirm token), so that the
/// same text typed by a user is no value.
pub(super) fn is_handed_out(context: &Context<'_>, property: &Property<'_>) -> bool {
    let confirm = context.tool.card.confirmation.as_ref().and_then(|confirmation| confirmation.token_param.as_deref());
    confirm == Some(property.name) || words::parts(property.name).iter().any(|part| part == "cursor" || part == "token")
}

/// Fills patterned arguments from the utterance; the spans that were used.
pub(super) fn read(context: &Context<'_>, out: &mut Extraction) -> Vec<Range<usize>> {
    let mut open: Vec<Property<'_>> = context
        .schema
        .views()
        .filter(|property| {
            property.pattern().is_some() && property.choices().is_empty() && !is_handed_out(context, property)
        })
        .filter(|property| !out.arguments.contains_key(property.name))
        .collect();
    // Forms with a fixed beginning are surer than `15 to 20 letters or digits`; required ones come first.
    let order = context.schema.required();
    open.sort_by_key(|property| {
        let place = order.iter().position(|name| *name == property.name).unwrap_or(usize::MAX);
        (property.literal_prefix().is_empty(), place, property.name.to_owned())
    });
    let mut taken: Vec<Range<usize>> = Vec::new();
    for property in &open {
        let twins = open.iter().filter(|other| other.pattern() == property.pattern()).count();
        let mut matches = matches(context, property);
        matches.retain(|(_, span)| !taken.iter().any(|used| used.start < span.end && span.start < used.end));
        let chosen = if twins == 1 && is_corrected(context.lower, &matches) { matches.last() } else { matches.first() };
        if let Some((value, span)) = chosen.cloned() {
            out.put(property.name, Found::spoken(Value::String(value), &span));
            taken.push(span);
            if twins == 1 {
                if !is_corrected(context.lower, &matches) {
                    keep_further(property.name, &matches, out);
                }
                taken.extend(matches.into_iter().map(|(_, span)| span));
            }
        }
    }
    open.retain(|property| !out.arguments.contains_key(property.name));
    for property in &open {
        misfits(context, property, &taken, out);
    }
    plain(context, &mut taken, out);
    taken
}

/// Distinct values after the first one.
fn keep_further(name: &str, matches: &[(String, Range<usize>)], out: &mut Extraction) {
    let mut further: Vec<(Value, Origin)> = Vec::new();
    for (at, (value, span)) in matches.iter().enumerate().skip(1) {
        if !matches[..at].iter().any(|(earlier, _)| earlier == value) {
            let Found { value, origin } = Found::spoken(Value::String(value.clone()), span);
            further.push((value, origin));
        }
    }
    if out.more.is_none() && !further.is_empty() {
        out.more = Some((name.to_owned(), further));
    }
}

fn is_corrected(lower: &str, matches: &[(String, Range<usize>)]) -> bool {
    matches.len() > 1 && {
        let (first, last) = (&matches[0].1, &matches[matches.len() - 1].1);
        first.end <= last.start && words::contains_any(&lower[first.end..last.start], &CORRECTIONS)
    }
}

/// Every place of the text that fits the property, in order, in the spelling that fits.
fn matches(context: &Context<'_>, property: &Property<'_>) -> Vec<(String, Range<usize>)> {
    let text = &context.query.text;
    let mut found = search(context.schema, property, text, |at| at);
    if found.is_empty() {
        let (joined, places) = without_gaps(text);
        found = search(context.schema, property, &joined, |at| places.get(at).copied().unwrap_or(text.len()));
    }
    found
}

fn search(
    schema: &ArgumentSchema,
    property: &Property<'_>,
    text: &str,
    place: impl Fn(usize) -> usize,
) -> Vec<(String, Range<usize>)> {
    let Some(pattern) = schema.searcher(property.name) else { return Vec::new() };
    let is_vague = property.literal_prefix().is_empty();
    let mut found: Vec<(String, Range<usize>)> = Vec::new();
    for candidate in pattern.find_iter(text).take(MAX_MATCHES) {
        let whole = !glued_before(text, candidate.start()) && !glued_after(text, candidate.end());
        // Ordinary words fit a vague pattern as well; a value of such a form has a digit.
        let plausible = !is_vague || candidate.as_str().contains(|c: char| c.is_ascii_digit());
        if !whole || !plausible {
            continue;
        }
        if let Some(value) = fitting(schema, property, candidate.as_str()) {
            found.push((value, place(candidate.start())..place(candidate.end())));
        }
    }
    found
}

/// The spelling of `text` that the schema accepts.
pub(super) fn fitting(schema: &ArgumentSchema, property: &Property<'_>, text: &str) -> Option<String> {
    let prefix = property.literal_prefix();
    let bare = prefix.trim_end_matches(['-', '_']);
    let mut forms = vec![text.to_owned(), text.to_ascii_uppercase(), text.to_ascii_lowercase()];
    // `SO20260418000736` for `SO-20260418000736`.
    if bare.len() < prefix.len() && text.len() > bare.len() && text.is_char_boundary(bare.len()) {
        let (head, tail) = text.split_at(bare.len());
        if head.eq_ignore_ascii_case(bare) {
            forms.push(format!("{prefix}{}", tail.trim_start_matches(['-', '_', ' '])));
        }
    }
    forms.into_iter().find(|form| schema.fits(property.name, &Value::String(form.clone())))
}

fn glued_before(text: &str, at: usize) -> bool {
    let mut before = text[..at].chars().rev();
    match before.next() {
        Some(c) if c.is_ascii_alphanumeric() || c == '_' => true,
        Some('-') => before.next().is_some_and(|c| c.is_ascii_alphanumeric()),
        _ => false,
    }
}

fn glued_after(text: &str, at: usize) -> bool {
    let mut after = text[at..].chars();
    match after.next() {
        Some(c) if c.is_ascii_alphanumeric() || c == '_' => true,
        Some('-') => after.next().is_some_and(|c| c.is_ascii_alphanumeric()),
        _ => false,
    }
}

/// The text without single blanks and dashes between digits, and the original place of each byte.
fn without_gaps(text: &str) -> (String, Vec<usize>) {
    let mut joined = String::with_capacity(text.len());
    let mut places = Vec::with_capacity(text.len());
    let chars: Vec<(usize, char)> = text.char_indices().collect();
    for (i, (at, c)) in chars.iter().enumerate() {
        let is_digit = |other: Option<&(usize, char)>| other.is_some_and(|(_, c)| c.is_ascii_digit());
        let gap = matches!(c, ' ' | '-') && i > 0 && is_digit(chars.get(i - 1)) && is_digit(chars.get(i + 1));
        if !gap {
            joined.push(*c);
            places.extend(std::iter::repeat_n(*at, c.len_utf8()));
        }
    }
    (joined, places)
}

/// Arguments called an id, number or code that have no pattern: an id beside the argument's name, or the only one.
fn plain(context: &Context<'_>, taken: &mut Vec<Range<usize>>, out: &mut Extraction) {
    let is_open = |property: &Property<'_>| {
        let kinds = property.kinds();
        (kinds.is_empty() || kinds.contains(&"string"))
            && property.pattern().is_none()
            && property.format().is_none()
            && property.choices().is_empty()
            && !out.arguments.contains_key(property.name)
            && !is_handed_out(context, property)
            && is_id_name(property.name)
    };
    let mut open: Vec<Property<'_>> = context.schema.views().filter(is_open).collect();
    open.sort_by_key(|property| (!property.required, property.name.to_owned()));
    for property in &open {
        let free: Vec<(SlotKind, Range<usize>)> = candidates(context)
            .into_iter()
            .filter(|(_, span)| !taken.iter().any(|used| used.start < span.end && span.start < used.end))
            .collect();
        let named = free.iter().map(|(kind, span)| (name_words_before(context, *kind, span, property), span));
        let beside =
            named.filter(|(words, _)| *words > 0).max_by_key(|(words, span)| (*words, std::cmp::Reverse(span.start)));
        let rivals = open.iter().filter(|other| other.required && !out.arguments.contains_key(other.name)).count();
        let mut ids = free.iter().filter(|(kind, _)| *kind != SlotKind::Number);
        let only = match (ids.next(), ids.next()) {
            (Some((_, only)), None) if property.required && rivals == 1 => Some(only),
            _ => None,
        };
        let Some(span) = beside.map(|(_, span)| span).or(only).cloned() else { continue };
        let value = Value::String(context.query.text[span.clone()].trim_start_matches('#').to_owned());
        if context.schema.fits(property.name, &value) {
            out.put(property.name, Found::spoken(value, &span));
            taken.push(span);
        }
    }
}

pub(in crate::decide) fn is_id_name(name: &str) -> bool {
    let parts = words::parts(name);
    let last = parts.last().map_or("", String::as_str);
    matches!(last, "id" | "ids" | "code" | "number" | "no" | "sku" | "ref" | "reference" | "key" | "uuid")
        || last.len() > 2 && last.ends_with("id")
        || ["编号", "单号", "号码"].iter().any(|ending| name.ends_with(ending))
}

/// Ids, numbers and short quotations, whole: `12345XYZ` is seen as a number with letters behind it.
fn candidates(context: &Context<'_>) -> Vec<(SlotKind, Range<usize>)> {
    const LONGEST_QUOTE: usize = 64;
    let text = &context.query.text;
    let slots = context.query.slots.iter().filter_map(|slot| match slot.kind {
        SlotKind::Id | SlotKind::Number => {
            let joined = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            let rest = &text[slot.span.end..];
            let more = rest.find(|c| !joined(c)).unwrap_or(rest.len());
            let end = slot.span.end + rest[..more].trim_end_matches(['-', '_']).len();
            let kind = if end > slot.span.end { SlotKind::Id } else { slot.kind };
            Some((kind, slot.span.start..end))
        }
        SlotKind::Quoted => {
            let quote = &text[slot.span.clone()];
            let inner = quote.trim_matches(|c: char| !c.is_alphanumeric());
            let start = slot.span.start + (inner.as_ptr() as usize - quote.as_ptr() as usize);
            let is_code = !inner.is_empty()
                && inner.is_ascii()
                && inner.len() <= LONGEST_QUOTE
                && !inner.contains(char::is_whitespace);
            is_code.then_some((SlotKind::Quoted, start..start + inner.len()))
        }
        SlotKind::Url | SlotKind::Email | SlotKind::Phone | SlotKind::Date | SlotKind::Amount => None,
    });
    slots.collect()
}

/// How well the words between the slot before and this span name the argument: `booking ID BNR321`, `flight LH21`.
fn name_words_before(context: &Context<'_>, kind: SlotKind, span: &Range<usize>, property: &Property<'_>) -> usize {
    let before = words::lead_in(context, span.start);
    let parts = words::parts(property.name);
    let says = |word: &str| words::find(before, word).is_some();
    let is_other_end = |own: &str, other: &str| parts.iter().any(|part| part == own) && says(other) && !says(own);
    if is_other_end("from", "to") || is_other_end("to", "from") {
        return 0;
    }
    let said = parts.iter().filter(|part| part.len() > 1 && words::find_stem(before, part).is_some());
    let weight: usize =
        said.clone().map(|part| if matches!(part.as_str(), "id" | "number" | "no" | "code") { 1 } else { 2 }).sum();
    // A bare number is one only right after "id" or the like.
    if kind == SlotKind::Number && said.count() < parts.len().min(2) { 0 } else { weight }
}

/// Texts that begin like a value, or ids that stand alone where a required one is missing.
fn misfits(context: &Context<'_>, property: &Property<'_>, taken: &[Range<usize>], out: &mut Extraction) {
    let prefix = property.literal_prefix().to_ascii_lowercase();
    let ids = context.query.slots.iter().filter(|slot| slot.kind == SlotKind::Id);
    let free = ids.filter(|slot| !taken.iter().any(|used| used.start < slot.span.end && slot.span.start < used.end));
    for slot in free {
        let alike =
            prefix.len() > 1 && context.lower[slot.span.clone()].starts_with(prefix.trim_end_matches(['-', '_']));
        if alike || property.required {
            out.misfits.push((property.name.to_owned(), context.query.text[slot.span.clone()].to_owned()));
            return;
        }
    }
}
