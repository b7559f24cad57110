//! Values: closed sets that stand in prose, codes, defaults the schema refuses, actions squeezed into one tool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::card::{Card, Parameter};
use super::lexicon::{self, is_verb};
use super::report::{Hit, Report, words};
use super::words::parameters::{CODED_VALUES, DEFAULT_OUTSIDE, FREE_TEXT_ENUM, MIXED_MEANING, SIMILAR_PARAMS};
use crate::text::tokenise;

/// Values of a list in prose that are shown and proposed.
const MAX_VALUES: usize = 8;

pub(super) fn check(card: &Card<'_>, report: &mut Report) {
    let language = report.language;
    // A list of its parameters, or of the values of one, is about when to fill this one in.
    let own = card.own_words();
    let mut free = Vec::new();
    let mut coded = Vec::new();
    let mut outside = Vec::new();
    for p in &card.parameters {
        let name = p.name.to_owned();
        free.extend(in_prose(p, &own, language).map(|hit| (name.clone(), hit)));
        coded.extend(codes(p, language).map(|hit| (name.clone(), hit)));
        outside.extend(default_outside(p, language).map(|hit| (name.clone(), hit)));
    }
    report.parts(&FREE_TEXT_ENUM, card, free);
    report.parts(&CODED_VALUES, card, coded);
    report.parts(&DEFAULT_OUTSIDE, card, outside);
    mixed(card, report);
    similar(card, report);
}

fn in_prose(p: &Parameter<'_>, own: &BTreeSet<&str>, language: super::Language) -> Option<Hit> {
    const OPEN: [&str; 12] =
        ["id", "ids", "date", "time", "token", "url", "location", "address", "name", "query", "keyword", "path"];
    let is_open = tokenise(p.name).pop().is_some_and(|last| OPEN.contains(&last.as_str()));
    if !p.is("string") || is_open || p.is_closed() || p.has("pattern") || p.has("format") {
        return None;
    }
    let values = listed(p.description()).filter(|values| !values.iter().any(|value| own.contains(value.as_str())))?;
    let name = p.name;
    let shown = values.join(", ");
    let reason = words!(
        language,
        "`{name}` takes any string, yet its description lists the values: {shown}.",
        "`{name}` 接受任意字符串，而取值列在说明里：{shown}。"
    );
    let proposal = words!(
        language,
        "Write them as `enum: [{shown}]` and keep in the description which words of users mean which value.",
        "写成 `enum: [{shown}]`，说明里只留用户的哪种说法对应哪个取值。"
    );
    Some(Hit { pointer: p.pointer.clone(), reason, proposal })
}

static EXAMPLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(?:e\.\s?g|eg|i\.\s?e|such as|for example|for instance|like|examples?|including|includes?|etc)\b|例如|比如|例：|示例|如[:：]|诸如|譬如|等等|\.\.\.|…")
        .expect("the pattern is constant and tested")
});
/// Between two values of a list.
const AND: &str = "(?: *[,，、/|] *(?:or +|and +|或者? *|和 *)?| +(?:or|and) +| *(?:或者?|和) *)";
/// A list whose introduction says that it is complete, of words or of quoted texts. Without counted repetitions, which
/// would make the automaton large; lengths are checked afterwards.
static LIST: LazyLock<Regex> = LazyLock::new(|| {
    let word = r#"[`'"“‘]?[A-Za-z][A-Za-z0-9_+#-]*[`'"”’]?(?: *\([^()]*\))?"#;
    let han = "[`'“‘「]?[一-鿿]+[`'”’」]?";
    let open = r"(?:[:：] *|\b(?i:one of|either|must be|can be|may be|should be|options are|values are|allowed values|valid values|supports?|accepts?)[:：]? +(?:the +values? +)?|可选值?[为是:：]* *|取值[为是:：]* *|支持 *|可以?是 *|只能是 *|(?:可能的)?值[为是:：] *)";
    Regex::new(&format!("{open}(?P<list>(?:{word}|{han})(?:{AND}(?:{word}|{han}))+)(?: *(?:$|[.,;。；，)）\\](（]))"))
        .expect("the pattern is constant and tested")
});
/// Quoted words beside each other are a closed set by themselves: `'asc' or 'desc'`.
static QUOTED: LazyLock<Regex> = LazyLock::new(|| {
    let word = r#"(?:'[^'\n]+'|"[^"\n]+"|`[^`\n]+`|“[^”\n]+”|‘[^’\n]+’|「[^」\n]+」)(?: *\([^()]*\))?"#;
    Regex::new(&format!("{word}(?:{AND}{word})+")).expect("the pattern is constant and tested")
});
static SPLIT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\s*\([^()]*\)|\s*[,，、/|]\s*|\s+(?:or|and)\s+|\b(?:or|and)\s+|\s*(?:或者?|和)\s*")
        .expect("the pattern is constant and tested")
});

/// The values that a description lists as the only ones.
fn listed(description: &str) -> Option<Vec<String>> {
    // Its full stops end no sentence.
    let description = description.replace("e.g.", "such as").replace("i.e.", "such as");
    for clause in description.split(['.', ';', '。', '；', '\n']) {
        // What follows an example marker is no closed set; nor is a list that goes on.
        let said = EXAMPLE.find(clause).map_or(clause, |mark| &clause[..mark.start()]);
        if EXAMPLE.find(clause).is_some_and(|mark| matches!(mark.as_str(), "etc" | "..." | "…" | "等等")) {
            continue;
        }
        let found = match LIST.captures(said) {
            Some(captures) => captures.name("list").map(|list| (list.as_str(), 3)),
            None => None,
        };
        let quoted = || QUOTED.find(said).map(|list| (list.as_str(), 2));
        let lists = found.into_iter().chain(quoted());
        for (list, least) in lists {
            let trim = |value: &str| value.trim_matches(|c: char| " `'\"“”‘’「」".contains(c)).to_owned();
            let values: Vec<String> = SPLIT.split(list).map(trim).filter(|value| !value.is_empty()).collect();
            let words = values.iter().all(|value| is_value(value));
            if values.len() >= least && words {
                return Some(values.into_iter().take(MAX_VALUES).collect());
            }
        }
    }
    None
}

/// Whether a part of a list can be a value: a word or two, no sentence.
fn is_value(value: &str) -> bool {
    let han = value.chars().filter(|c| crate::text::language::is_han(*c)).count();
    han <= 6 && value.chars().count() <= 30 && !lexicon::is_stop(&value.to_lowercase())
}

fn codes(p: &Parameter<'_>, language: super::Language) -> Option<Hit> {
    let values = p.schema.get("enum").and_then(Value::as_array)?;
    /// Digits of a code; a year has four.
    const LONGEST: usize = 3;
    let is_code = |value: &Value| match value {
        Value::String(text) => {
            let is_number = text.len() <= LONGEST && text.bytes().all(|b| b.is_ascii_digit());
            !text.is_empty() && (is_number || (text.len() == 1 && text.is_ascii()))
        }
        // Numbers are mostly what they are: 1 to 5 stars, 7 or 30 days.
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => false,
    };
    let shown: Vec<String> =
        values.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect();
    let explained = shown.iter().all(|value| p.description().contains(value.as_str()));
    if values.len() < 2 || !values.iter().all(is_code) || explained {
        return None;
    }
    let (name, shown) = (p.name, shown.into_iter().take(MAX_VALUES).collect::<Vec<_>>().join(", "));
    let reason = words!(
        language,
        "The values of `{name}` are codes ({shown}), and its description does not say what each means.",
        "`{name}` 的取值是代码（{shown}），说明里没有写各自的含义。"
    );
    let proposal = words!(
        language,
        "Use words such as `enum: [paid, shipped]` and map them to the codes in the server.",
        "改用词语，例如 `enum: [paid, shipped]`，由服务端对应到代码。"
    );
    Some(Hit { pointer: format!("{}/enum", p.pointer), reason, proposal })
}

fn default_outside(p: &Parameter<'_>, language: super::Language) -> Option<Hit> {
    let default =
        p.schema.get("default").filter(|value| !value.is_null() && !value.is_array() && !value.is_object())?;
    let name = p.name;
    let number = |key: &str| p.schema.get(key).and_then(Value::as_f64);
    let given = default.as_f64();
    let listed = p.schema.get("enum").and_then(Value::as_array);
    let bound = if listed.is_some_and(|values| !values.contains(default)) {
        "enum".to_owned()
    } else if given.zip(number("maximum")).is_some_and(|(given, max)| given > max) {
        format!("maximum {}", number("maximum").unwrap_or_default())
    } else if given.zip(number("minimum")).is_some_and(|(given, min)| given < min) {
        format!("minimum {}", number("minimum").unwrap_or_default())
    } else if p.is("string") && !p.is("number") && !p.is("integer") && default.is_number() {
        "type string".to_owned()
    } else {
        return None;
    };
    let shown = crate::registry::shorten(&default.to_string());
    let reason = words!(
        language,
        "The default {shown} of `{name}` breaks its own schema ({bound}).",
        "`{name}` 的默认值 {shown} 不符合自己的 schema（{bound}）。"
    );
    let proposal = words!(
        language,
        "Change the default of `{name}` to a value that `{bound}` allows.",
        "把 `{name}` 的默认值改成 `{bound}` 允许的值。"
    );
    Some(Hit { pointer: format!("{}/default", p.pointer), reason, proposal })
}

fn mixed(card: &Card<'_>, report: &mut Report) {
    const SWITCHES: [&str; 16] = [
        "action",
        "operation",
        "op",
        "command",
        "cmd",
        "method",
        "act",
        "do",
        "task",
        "function",
        "verb",
        "操作",
        "动作",
        "命令",
        "action_type",
        "operation_type",
    ];
    let language = report.language;
    for p in card.arguments().filter(|p| SWITCHES.contains(&p.name.to_lowercase().as_str())) {
        let values = p.strings("enum");
        let verb_of = |value: &&str| {
            let first = tokenise(value).into_iter().next()?;
            if is_verb(&first) { Some(first) } else { lexicon::verb_zh(value).map(str::to_owned) }
        };
        let acts: Vec<&str> = values.iter().filter(|value| verb_of(value).is_some()).copied().collect();
        if acts.len() < 2 || acts.len() * 2 < values.len() {
            continue;
        }
        let name = p.name;
        let shown = values.iter().take(MAX_VALUES).copied().collect::<Vec<_>>().join(", ");
        let split: Vec<String> = acts.iter().take(3).map(|act| format!("`{}`", tool_for(card, act))).collect();
        let split = split.join(", ");
        let reason = words!(
            language,
            "`{name}` chooses between different actions: {shown}.",
            "`{name}` 在不同的操作之间选择：{shown}。"
        );
        let proposal = words!(
            language,
            "Make a tool of each, such as {split}, with its own side effect, schema and scopes.",
            "每个操作单独成为一个工具，例如 {split}，各有自己的副作用、参数和权限。"
        );
        report.add(&MIXED_MEANING, card, Hit { pointer: p.pointer.clone(), reason, proposal });
    }
}

/// The name of a tool for one value of a switch: the value, with the card's object where it names none.
fn tool_for(card: &Card<'_>, act: &str) -> String {
    if tokenise(act).len() > 1 {
        return act.to_owned();
    }
    let parts = tokenise(&card.card.name);
    let object = parts.iter().rev().find(|part| !is_verb(part) && !lexicon::is_vague_noun(part));
    let object =
        object.cloned().or_else(|| card.card.domain.as_ref().map(|domain| domain.trim_end_matches('s').to_owned()));
    object.map_or_else(|| act.to_owned(), |object| format!("{act}_{object}"))
}

fn similar(card: &Card<'_>, report: &mut Report) {
    let language = report.language;
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for p in card.arguments() {
        let key = tokenise(p.name).concat();
        if key.is_empty() {
            continue;
        }
        let Some(first) = seen.insert(key, p.name) else { continue };
        let name = p.name;
        let reason = words!(
            language,
            "`{first}` and `{name}` differ only in case or separators.",
            "`{first}` 和 `{name}` 只差大小写或分隔符。"
        );
        let proposal = words!(
            language,
            "Keep one of them, or name `{name}` after what it holds.",
            "只留一个，或按内容给 `{name}` 改名。"
        );
        report.add(&SIMILAR_PARAMS, card, Hit { pointer: p.pointer.clone(), reason, proposal });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_sets_in_prose_are_told_from_examples() {
        let check = |text: &str, expect: Option<&[&str]>| {
            let found = listed(text);
            assert_eq!(
                found.as_ref().map(|v| v.iter().map(String::as_str).collect::<Vec<_>>()),
                expect.map(<[&str]>::to_vec),
                "{text}"
            );
        };
        check(
            "State of the order if the customer names one: pending, paid, shipped, delivered or cancelled, e.g. paid.",
            Some(&["pending", "paid", "shipped", "delivered", "cancelled"]),
        );
        check("One of low, medium, high.", Some(&["low", "medium", "high"]));
        check("返回数据的格式，支持'XML'、'CSV'、'JSON'，默认为'JSON'。", Some(&["XML", "CSV", "JSON"]));
        check("Sort order, 'asc' or 'desc'.", Some(&["asc", "desc"]));
        check("订单状态，可选值：待付款、已发货、已签收", Some(&["待付款", "已发货", "已签收"]));
        check("取值为 day/week/month", Some(&["day", "week", "month"]));
        for text in [
            "The type of evidence to be analyzed (e.g., DNA, fingerprints, blood, fibers)",
            "Colour or size if named, e.g. 黑色 or XL.",
            "A word from the product name, only if the customer names the product, e.g. 蓝牙耳机 or rice cooker.",
            "The full new address exactly as written, e.g. 杭州市滨江区江南大道100号2幢301; do not complete missing parts.",
            "City, street and number of the customer.",
            "Fields such as name, mail, phone",
            "支持中文和英文的关键词",
            "Name of the file to read and write",
        ] {
            check(text, None);
        }
    }
}
