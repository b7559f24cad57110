//! Nothing found: why, and what to loosen. And whether a change says that it happened.

use serde_json::Value;

use super::Context;

/// The reason of an empty list and a hint made of the conditions that were set.
pub(super) fn explain(
    reason: Option<String>,
    context: &Context<'_>,
    notices: &mut Vec<String>,
) -> (Option<String>, Option<String>) {
    // A tool that is to give a reason and gives none may have failed to look.
    let owes = context.card.result_fields.iter().any(|field| field == "reason");
    let reason = reason.unwrap_or_else(|| if owes { "not_given".into() } else { "no_match".into() });
    if reason == "not_given" {
        notices.push(context.say(
            "the tool did not say why there is nothing: it may not have been able to look",
            "工具没有说明为何为空：也可能是未能查询",
        ));
    }
    (Some(reason), Some(hint(context)))
}

/// Conditions that narrow a search; how many rows are wanted does not.
fn hint(context: &Context<'_>) -> String {
    let narrows = |name: &str| !matches!(name, "limit" | "cursor" | "page" | "page_size" | "fields" | "sort" | "order");
    let is_default = |name: &str, value: &Value| {
        context.card.parameters.pointer("/properties").and_then(|all| all.get(name)?.get("default")) == Some(value)
    };
    let set: Vec<&str> = context
        .arguments
        .iter()
        .filter(|(name, value)| narrows(name) && !is_default(name, value))
        .map(|(name, _)| name.as_str())
        .collect();
    let is_period = |name: &&&str| name.contains("time") || name.contains("date") || name.contains("period");
    let (periods, others): (Vec<&str>, Vec<&str>) = {
        let periods = set.iter().filter(is_period).copied().collect();
        (periods, set.iter().filter(|name| !is_period(name)).copied().collect())
    };
    let list = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match (others.as_slice(), periods.as_slice()) {
        ([], []) => context.say("there is nothing of this kind", "目前没有这类内容"),
        (others, []) => context.say(
            format!("try without {}, or with other words", list(others)),
            format!("可以去掉 {} 或换个说法再查", list(others)),
        ),
        ([], periods) => {
            context.say(format!("try a wider {}", list(periods)), format!("可以放宽 {} 再查", list(periods)))
        }
        (others, periods) => context.say(
            format!("try without {}, or a wider {}", list(others), list(periods)),
            format!("可以去掉 {}，或放宽 {} 再查", list(others), list(periods)),
        ),
    }
}

/// A change whose result is to say `done` and does not is told as such.
pub(super) fn effect(data: &Value, context: &Context<'_>, notices: &mut Vec<String>) {
    let owes = context.acts() && context.card.result_fields.iter().any(|field| field == "done");
    let done = data.get("done").and_then(Value::as_bool);
    if owes && done != Some(true) {
        notices.push(context.say(
            "the tool does not say that the change took effect: check before you say so",
            "工具没有说明改动已生效：确认之前不要说已完成",
        ));
    }
}
