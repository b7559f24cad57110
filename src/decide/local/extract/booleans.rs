//! Yes or no, by the words of the description and by everyday verbs of switching.

use std::ops::Range;

use serde_json::Value;

use super::{Context, Extraction, Found, hints, words};
use crate::args::{Origin, Property};

const ON: [&str; 24] = [
    "打开",
    "开启",
    "开通",
    "启用",
    "订阅",
    "恢复",
    "接收",
    "通知我",
    "告诉我",
    "提醒我",
    "开",
    "turn on",
    "turn back on",
    "switch on",
    "enable",
    "activate",
    "subscribe",
    "start",
    "resume",
    "notify me",
    "let me know",
    "alert me",
    "back on",
    "opt in",
];
const OFF: [&str; 26] = [
    "关闭",
    "关掉",
    "关了",
    "停掉",
    "停用",
    "停止",
    "退订",
    "取消订阅",
    "屏蔽",
    "禁用",
    "别发",
    "别再发",
    "别再给我发",
    "不要再发",
    "不要发",
    "关",
    "turn off",
    "switch off",
    "disable",
    "deactivate",
    "unsubscribe",
    "stop",
    "mute",
    "no more",
    "pause",
    "opt out",
];
const SWITCHES: [&str; 12] = [
    "enable",
    "enabled",
    "switch",
    "active",
    "activate",
    "subscribe",
    "turn on",
    "on or off",
    "开关",
    "启用",
    "开启",
    "打开",
];

pub(super) fn read(context: &Context<'_>, out: &mut Extraction) {
    for property in context.schema.views().filter(|property| property.is_kind("boolean")) {
        if out.arguments.contains_key(property.name) {
            continue;
        }
        if let Some((value, _)) = meant(context.lower, &property) {
            out.put(property.name, Found { value: Value::Bool(value), origin: Origin::EnumText });
        }
    }
}

/// The value the text speaks for, and where.
pub(in crate::decide) fn meant(lower: &str, property: &Property<'_>) -> Option<(bool, Range<usize>)> {
    let description = property.description().to_ascii_lowercase();
    let values = ["true".to_owned(), "false".to_owned()];
    let hints = hints::parse(&description, &values);
    let is_switch =
        SWITCHES.iter().any(|word| description.contains(word) || property.name.to_ascii_lowercase().contains(word));
    let extra = |words: &'static [&'static str]| words.iter().filter(move |_| is_switch).copied();
    let yes = hints[0].iter().map(String::as_str).chain(extra(&ON));
    let no = hints[1].iter().map(String::as_str).chain(extra(&OFF));
    let on = longest(lower, yes).or_else(|| named(lower, property));
    let off = longest(lower, no);
    match (on, off) {
        (Some(on), Some(off)) if inside(&off, &on) || off.len() < on.len() && !inside(&on, &off) => Some((true, on)),
        (_, Some(off)) => Some((false, off)),
        (Some(on), None) => Some((true, on)),
        (None, None) => None,
    }
}

/// Without hints, the words of the name themselves: `express_delivery`, `call back`.
fn named(lower: &str, property: &Property<'_>) -> Option<Range<usize>> {
    let plain = words::parts(property.name).join(" ");
    // "don't return the full text" denies from further away than a single word.
    let denied = |span: &Range<usize>| {
        let clause = lower[..span.start].rsplit([',', '.', '。', '!', '?', ';']).next().unwrap_or("");
        words::contains_any(clause, &["don't", "do not", "without", "not", "no", "不要", "别", "不用", "不"])
    };
    let whole = words::find_meant(lower, &plain).filter(|span| plain.len() > 3 && !denied(span));
    whole.or_else(|| {
        let wordings: &[&str] = match plain.as_str() {
            "callback" | "call back" => {
                &["回电", "回个电话", "打给我", "打电话给我", "call me", "ring me", "return my call", "phone me"]
            }
            "urgent" | "express" => &["加急", "紧急", "asap", "express"],
            "gift wrap" | "gift" => &["礼品包装", "包装成礼物", "gift-wrap", "gift wrap"],
            _ => &[],
        };
        wordings.iter().find_map(|wording| words::find_meant(lower, wording))
    })
}

fn longest<'a>(lower: &str, phrases: impl Iterator<Item = &'a str>) -> Option<Range<usize>> {
    let found =
        phrases.filter_map(|phrase| words::find_meant(lower, phrase).or_else(|| words::find_loosely(lower, phrase)));
    found.max_by_key(|span| (span.len(), std::cmp::Reverse(span.start)))
}

fn inside(inner: &Range<usize>, outer: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end && outer.len() > inner.len()
}
