//! The wording of a question back, in the language of the utterance.

use std::sync::LazyLock;

use regex::Regex;

use super::Request;
use crate::catalog::Tool;
use crate::types::FieldProblem;

/// Asks for all `missing` arguments at once. Where something was given that does not fit, its `fields` entry says which
/// form is expected; otherwise the schema does.
pub fn question(request: &Request<'_>, tool: Option<&Tool>, missing: &[String], fields: &[FieldProblem]) -> String {
    let chinese = request.query.language.prefers_chinese();
    let Some(tool) = tool else {
        return if chinese {
            "请再具体说明一下您想做什么。"
        } else {
            "Could you say a little more about what you would like to do?"
        }
        .into();
    };
    let asked: Vec<String> = missing.iter().map(|name| describe(tool, name, fields, chinese)).collect();
    if asked.is_empty() {
        return if chinese {
            "请确认要处理的具体内容。"
        } else {
            "Could you confirm what exactly should be done?"
        }
        .into();
    }
    if chinese {
        format!("请提供：{}。", asked.join("；"))
    } else {
        format!("Please tell me: {}.", asked.join("; "))
    }
}

/// `order_id (SO- and 14 digits, for example SO-20260418000736)`.
fn describe(tool: &Tool, name: &str, fields: &[FieldProblem], chinese: bool) -> String {
    let path = format!("/{name}");
    let given = fields.iter().find(|field| field.path == path).cloned();
    let form = given.or_else(|| tool.schema.form_of(name));
    let Some(form) = form else { return name.to_owned() };
    let mut hints = Vec::new();
    let expected = form.expected.trim_start_matches("required").trim_start_matches(": ");
    if !expected.is_empty() {
        hints.push(if chinese { in_chinese(expected) } else { expected.to_owned() });
    }
    if let Some(example) = form.example {
        hints.push(if chinese { format!("例如 {example}") } else { format!("for example {example}") });
    }
    match (hints.is_empty(), chinese) {
        (true, _) => name.to_owned(),
        (false, true) => format!("{name}（{}）", hints.join("，")),
        (false, false) => format!("{name} ({})", hints.join(", ")),
    }
}

/// The wordings of expected forms, longest first. They are a closed set, made where a schema is explained; what is not
/// among them stays as it is.
static WORDINGS: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let table = [
        (r"must match the pattern (.+)", "须符合格式 $1"),
        (r"one of (.+)", "可选：$1"),
        (r"exactly (.+)", "只能是 $1"),
        (r"at most ([\d.]+)(?: \(maximum [\d.]+\))? characters", "最多 $1 个字"),
        (r"at least ([\d.]+)(?: \(minimum [\d.]+\))? characters", "至少 $1 个字"),
        (r"at most ([\d.]+)(?: \(maximum [\d.]+\))?", "最多 $1"),
        (r"at least ([\d.]+)(?: \(minimum [\d.]+\))?", "至少 $1"),
        (r"more than ([\d.]+)", "大于 $1"),
        (r"less than ([\d.]+)", "小于 $1"),
        (r"(\d+) or more ", "至少 $1 "),
        (r"(\d+) to (\d+) ", "$1 到 $2 "),
        (r"capital letters or digits", "位大写字母或数字"),
        (r"small letters or digits", "位小写字母或数字"),
        (r"letters or digits", "位字母或数字"),
        (r"capital letters?", "位大写字母"),
        (r"small letters?", "位小写字母"),
        (r"letters", "位字母"),
        (r"digits?", "位数字"),
        (r"true or false", "是或否"),
        (r"a whole number", "整数"),
        (r"a number", "数字"),
        (r"a text", "文字"),
        (r" and ", " 加 "),
    ];
    let compile = |pattern| Regex::new(pattern).expect("wordings are constant and tested");
    table.map(|(pattern, chinese)| (compile(pattern), chinese)).into()
});

fn in_chinese(expected: &str) -> String {
    WORDINGS
        .iter()
        .fold(expected.to_owned(), |text, (pattern, chinese)| pattern.replace_all(&text, *chinese).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_worded_in_chinese() {
        let check = |english: &str, chinese: &str| assert_eq!(in_chinese(english), chinese);
        check("SO- and 14 digits", "SO- 加 14 位数字");
        check("2 capital letters and 10 digits", "2 位大写字母 加 10 位数字");
        check("15 to 20 capital letters or digits", "15 到 20 位大写字母或数字");
        check("one of personal, company", "可选：personal, company");
        check("at most 20 (maximum 20)", "最多 20");
        check("at least 5 characters", "至少 5 个字");
    }
}
