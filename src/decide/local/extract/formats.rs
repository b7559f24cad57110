//! Values with a format the standard names: email, uri, date; and the quoted text of a lone free text.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::{Context, Extraction, Found, words};
use crate::args::Property;
use crate::text::SlotKind;

pub(super) fn read(context: &Context<'_>, out: &mut Extraction) {
    for property in context.schema.views() {
        let open =
            property.kinds().contains(&"string") && property.pattern().is_none() && property.choices().is_empty();
        if !open || out.arguments.contains_key(property.name) {
            continue;
        }
        let Some(kind) = kind(&property) else { continue };
        if kind == SlotKind::Date {
            if let Some((value, span)) = date(context, &property) {
                out.put(property.name, Found::spoken(value, &span));
            }
            continue;
        }
        let slots = context.query.slots.iter().filter(|slot| slot.kind == kind);
        for slot in slots {
            let text = context.query.text[slot.span.clone()].trim();
            let value = Value::String(text.to_owned());
            if context.schema.fits(property.name, &value) {
                out.put(property.name, Found::spoken(value, &slot.span));
                break;
            }
        }
    }
}

pub(super) fn kind(property: &Property<'_>) -> Option<SlotKind> {
    match property.format() {
        Some("email" | "idn-email") => return Some(SlotKind::Email),
        Some("uri" | "url" | "iri" | "uri-reference") => return Some(SlotKind::Url),
        Some("date") => return Some(SlotKind::Date),
        _ => {}
    }
    let parts = words::parts(property.name);
    let has = |names: &[&str]| parts.iter().any(|part| names.contains(&part.as_str()));
    if has(&["email", "mail"]) {
        Some(SlotKind::Email)
    } else if has(&["url", "uri", "link", "website"]) {
        Some(SlotKind::Url)
    } else if has(&["phone", "mobile", "telephone", "tel"]) {
        Some(SlotKind::Phone)
    } else if has(&["date", "day"]) && property.description().to_ascii_lowercase().contains("yyyy") {
        Some(SlotKind::Date)
    } else {
        None
    }
}

static DATE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"((?:19|20)\d{2})\s?[-/.年]\s?(\d{1,2})\s?[-/.月]\s?(\d{1,2})")
        .expect("the pattern is constant and tested")
});

/// `2026/4/8`, `2026.04.08` and `2026年4月8日` as `2026-04-08`: the first date, for the end of a period the last of
/// several. A date without a year stays the speaker's.
fn date(context: &Context<'_>, property: &Property<'_>) -> Option<(Value, Range<usize>)> {
    let parts = words::parts(property.name);
    let has = |names: &[&str]| parts.iter().any(|part| names.contains(&part.as_str()));
    let dates: Vec<(Value, Range<usize>)> = DATE
        .captures_iter(&context.query.text)
        .filter_map(|found| {
            let value = Value::String(format!("{}-{:0>2}-{:0>2}", &found[1], &found[2], &found[3]));
            Some((value, found.get(0)?.range()))
        })
        .filter(|(value, _)| context.schema.fits(property.name, value))
        .collect();
    let is_end = has(&["end", "to", "until", "due", "checkout", "return", "结束"])
        || property.name.to_lowercase().contains("checkout");
    if is_end && dates.len() > 1 {
        dates.last().cloned()
    } else if is_end && has(&["end", "until"]) {
        None
    } else {
        dates.first().cloned()
    }
}
