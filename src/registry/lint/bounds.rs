//! Arguments without a bound: counts, texts, lists, unknown names; too many that are required, nested too deeply.

use serde_json::Value;

use super::card::{Card, Parameter};
use super::report::{Hit, Report, words};
use super::seen::Seen;
use super::words::parameters::{
    DEEP_PARAMETERS, NO_LIMIT_CAP, NO_MAX_ITEMS, NO_MAX_LENGTH, OPEN_PROPERTIES, REQUIRED_UNKNOWN, TOO_MANY_REQUIRED,
};
use crate::text::tokenise;

/// Required arguments from which on a tool asks too much.
const MAX_REQUIRED: usize = 3;
/// Objects inside objects from which on a schema is hard to fill in.
const DEEP: usize = 3;

pub(super) fn check(card: &Card<'_>, report: &mut Report) {
    limits(card, report);
    lengths(card, report);
    lists(card, report);
    open(card, report);
    required(card, report);
    deep(card, report);
}

fn limits(card: &Card<'_>, report: &mut Report) {
    let language = report.language;
    let open = |p: &&Parameter<'_>| {
        (p.is("integer") || p.is("number"))
            && !p.has("maximum")
            && !p.has("exclusiveMaximum")
            && !p.is_closed()
            && is_count(p.name)
    };
    let hit = |p: &Parameter<'_>| {
        let name = p.name;
        let cap = p.schema.get("default").and_then(Value::as_u64).map_or(20, |given| (given * 2).clamp(20, 100));
        let reason = words!(language, "`{name}` has no maximum.", "`{name}` 没有上限。");
        let proposal = words!(language, "Add `maximum: {cap}` to `{name}`.", "给 `{name}` 加上 `maximum: {cap}`。");
        (name.to_owned(), Hit { pointer: p.pointer.clone(), reason, proposal })
    };
    let hits = card.parameters.iter().filter(open).map(hit).collect();
    report.parts(&NO_LIMIT_CAP, card, hits);
}

/// Whether a name stands for how many rows, pages' worth or pieces are wanted.
fn is_count(name: &str) -> bool {
    const WHOLE: [&str; 22] = [
        "n",
        "k",
        "num",
        "top",
        "rows",
        "count",
        "size",
        "limit",
        "quantity",
        "qty",
        "topk",
        "topn",
        "pagesize",
        "perpage",
        "amount_of_items",
        "数量",
        "条数",
        "个数",
        "人数",
        "件数",
        "页大小",
        "每页数量",
    ];
    const LAST: [&str; 5] = ["limit", "count", "quantity", "qty", "rows"];
    /// Before `size` and `num`, which alone may be a shoe's or an order's.
    const SIZED: [&str; 10] = ["page", "batch", "chunk", "sample", "window", "fetch", "block", "buffer", "list", "max"];
    /// Before `limit` where something else than rows is limited.
    const NO_ROWS: [&str; 16] = [
        "speed",
        "credit",
        "rate",
        "age",
        "weight",
        "price",
        "time",
        "budget",
        "spending",
        "memory",
        "cpu",
        "height",
        "temperature",
        "upper",
        "lower",
        "legal",
    ];
    const COUNTED: [&str; 12] = [
        "results",
        "result",
        "items",
        "rows",
        "count",
        "records",
        "entries",
        "pages",
        "hits",
        "documents",
        "per",
        "tokens",
    ];
    if WHOLE.contains(&name.to_lowercase().as_str()) {
        return true;
    }
    let parts = tokenise(name);
    match parts.as_slice() {
        [] => false,
        [only] => WHOLE.contains(&only.as_str()),
        [first, .., last] => {
            let before = parts[parts.len() - 2].as_str();
            (LAST.contains(&last.as_str()) && !(last == "limit" && NO_ROWS.contains(&before)))
                || (last == "size" && (SIZED.contains(&before) || COUNTED.contains(&before)))
                || (last == "num" && before != "page" && (SIZED.contains(&before) || COUNTED.contains(&before)))
                || (matches!(first.as_str(), "max" | "num" | "top" | "number" | "total")
                    && COUNTED.contains(&last.as_str()))
                || (first == "per" && last == "page")
                || (first == "top" && last.len() == 1)
        }
    }
}

fn lengths(card: &Card<'_>, report: &mut Report) {
    let language = report.language;
    let hit = |p: &Parameter<'_>, pointer: String| {
        let name = p.name;
        let length = proposed_length(name);
        let reason = words!(language, "`{name}` takes a text of any length.", "`{name}` 可以是任意长度的文本。");
        let proposal = words!(
            language,
            "Add `maxLength: {length}` to `{name}`, or a `pattern` if its form is fixed.",
            "给 `{name}` 加上 `maxLength: {length}`；格式固定时用 `pattern`。"
        );
        (name.to_owned(), Hit { pointer, reason, proposal })
    };
    let mut hits = Vec::new();
    for p in &card.parameters {
        if p.is("string") && is_unbounded(&p.schema) && !p.is_closed() {
            hits.push(hit(p, p.pointer.clone()));
        }
        let items = p.schema.get("items").and_then(|items| Seen::new(&card.card.parameters, items));
        if items.is_some_and(|items| items.get("type").is_some_and(|kind| kind == "string") && is_unbounded(&items)) {
            hits.push(hit(p, format!("{}/items", p.pointer)));
        }
    }
    report.parts(&NO_MAX_LENGTH, card, hits);
}

fn is_unbounded(schema: &Seen<'_>) -> bool {
    const SHORT_FORMATS: [&str; 7] = ["date", "time", "date-time", "uuid", "ipv4", "ipv6", "duration"];
    let format = schema.get("format").and_then(Value::as_str);
    !["maxLength", "pattern", "enum", "const"].iter().any(|key| schema.has(key))
        && !format.is_some_and(|format| SHORT_FORMATS.contains(&format))
}

fn proposed_length(name: &str) -> usize {
    let parts = tokenise(name);
    let has = |words: &[&str]| parts.iter().any(|part| words.contains(&part.as_str()));
    if has(&["id", "code", "no", "number", "token", "type", "status"]) {
        40
    } else if has(&["note", "remark", "comment", "content", "message", "body", "text", "description", "备注", "内容"])
    {
        300
    } else if has(&["url", "uri", "link", "path"]) {
        2000
    } else {
        120
    }
}

fn lists(card: &Card<'_>, report: &mut Report) {
    let language = report.language;
    let hit = |p: &Parameter<'_>| {
        let name = p.name;
        let reason = words!(language, "`{name}` takes a list of any length.", "`{name}` 可以是任意长度的列表。");
        let proposal = words!(language, "Add `maxItems: 20` to `{name}`.", "给 `{name}` 加上 `maxItems: 20`。");
        (name.to_owned(), Hit { pointer: p.pointer.clone(), reason, proposal })
    };
    let open = |p: &&Parameter<'_>| p.is("array") && !p.has("maxItems");
    let hits = card.parameters.iter().filter(open).map(hit).collect();
    report.parts(&NO_MAX_ITEMS, card, hits);
}

fn open(card: &Card<'_>, report: &mut Report) {
    let language = report.language;
    let has_properties =
        |schema: &Value| schema.get("properties").and_then(Value::as_object).is_some_and(|p| !p.is_empty());
    let is_closed = |schema: &Value| {
        ["additionalProperties", "unevaluatedProperties"]
            .iter()
            .any(|key| schema.get(*key) == Some(&Value::Bool(false)))
    };
    let schema = &card.card.parameters;
    if !has_properties(schema) || is_closed(schema) {
        return;
    }
    let reason = words!(
        language,
        "Arguments that the schema does not know are let through, misspelt ones too.",
        "schema 不认识的参数也会放行，拼错的也一样。"
    );
    let proposal = words!(
        language,
        "Add `additionalProperties: false` to `parameters`.",
        "在 `parameters` 下加上 `additionalProperties: false`。"
    );
    report.add(&OPEN_PROPERTIES, card, Hit { pointer: "/parameters".into(), reason, proposal });
}

fn required(card: &Card<'_>, report: &mut Report) {
    let language = report.language;
    let required = card.required();
    let pointer = "/parameters/required".to_owned();
    for (nth, name) in required.iter().enumerate().take(20) {
        let properties = card.card.parameters.get("properties").and_then(Value::as_object);
        if properties.is_some_and(|properties| !properties.contains_key(*name)) {
            let hint = crate::registry::suggest(name, card.arguments().map(|argument| argument.name));
            let reason = words!(
                language,
                "`required` names `{name}`, which is not among the properties{hint}.",
                "`required` 里的 `{name}` 不在 properties 中{hint}。"
            );
            let proposal = words!(
                language,
                "Describe `{name}` under `properties`, or take it out of `required`.",
                "在 `properties` 下写上 `{name}`，或从 `required` 里去掉。"
            );
            report.add(&REQUIRED_UNKNOWN, card, Hit { pointer: format!("{pointer}/{nth}"), reason, proposal });
        }
    }
    let count = required.len();
    if count <= MAX_REQUIRED {
        return;
    }
    let names = required.iter().take(10).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let keep = most_needed(&required);
    let reason = words!(
        language,
        "{count} parameters are required: {names}. Each costs a question or gets invented.",
        "有 {count} 个必填参数：{names}。每一个要么多问一句，要么被编造。"
    );
    let proposal = words!(
        language,
        "Require only what nobody else can supply, such as `required: [{keep}]`, and give the others a default or take \
         them from the session.",
        "只把别处得不到的设为必填，例如 `required: [{keep}]`；其余给默认值，或由会话提供。"
    );
    report.add(&TOO_MANY_REQUIRED, card, Hit { pointer, reason, proposal });
}

/// The one that names the object: an id or a number if there is one.
fn most_needed<'a>(required: &[&'a str]) -> &'a str {
    let names_object = |name: &str| {
        tokenise(name)
            .iter()
            .any(|part| matches!(part.as_str(), "id" | "sku" | "no" | "number" | "key" | "url" | "name"))
    };
    required.iter().find(|name| names_object(name)).or(required.first()).copied().unwrap_or_default()
}

fn deep(card: &Card<'_>, report: &mut Report) {
    let Some(deepest) = card.parameters.iter().filter(|p| p.depth >= DEEP).max_by_key(|p| p.depth) else { return };
    let (language, name, levels) = (report.language, deepest.name, deepest.depth + 1);
    let reason = words!(
        language,
        "The arguments are nested {levels} levels deep, down to `{name}`.",
        "参数嵌套了 {levels} 层，最深处是 `{name}`。"
    );
    let proposal = words!(
        language,
        "Lift what users name to the top level and let the server build the rest.",
        "把用户会说到的内容提到最外层，其余由服务端拼装。"
    );
    report.add(&DEEP_PARAMETERS, card, Hit { pointer: deepest.pointer.clone(), reason, proposal });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_told_from_other_numbers() {
        for name in [
            "limit",
            "page_size",
            "perPage",
            "max_results",
            "top_k",
            "numResults",
            "quantity",
            "条数",
            "order_count",
            "batchSize",
            "result_num",
        ] {
            assert!(is_count(name), "{name}");
        }
        for name in [
            "page",
            "amount",
            "max_price",
            "latitude",
            "year",
            "min_price",
            "order_number",
            "offset",
            "order_num",
            "account_num",
            "page_num",
            "credit_limit",
            "speedLimit",
            "shoe_size",
        ] {
            assert!(!is_count(name), "{name}");
        }
    }
}
