//! What is wrong with a tool's description, part by part.

use std::collections::BTreeMap;

use super::card::Card;
use super::lexicon::{self, is_stop, is_vague_noun};
use super::report::{Hit, Report, words};
use super::words::descriptions::{
    BOUNDARY_WITHOUT_TOOL, FEW_WORDINGS, LONG_DESCRIPTION, MISSING_RETURNS, MISSING_WHEN_NOT, VAGUE_DESCRIPTION,
    VAGUE_RETURNS,
};
use super::words::set::REPEATED_BOUNDARY;
use crate::text::language::is_han;
use crate::text::{estimate_tokens, tokenise};
use crate::tool::SideEffect;

/// Wordings and examples together below which a card is hard to find.
const FEW: usize = 3;
/// Tokens of a description that no encoder reads to the end; see [`estimate_tokens`].
const LONG: usize = 400;
/// Words of a description without a verb that can still be a name for something instead of a sentence.
const SHORT: usize = 4;

pub(super) fn check(card: &Card<'_>, lone: bool, report: &mut Report) {
    what(card, report);
    if !lone {
        when_not(card, report);
    }
    returns(card, report);
    wordings(card, report);
    long(card, report);
}

fn what(card: &Card<'_>, report: &mut Report) {
    let given = card.card.description.as_given().trim();
    let language = report.language;
    let reason = if given.is_empty() {
        words!(language, "The tool has no description.", "工具没有描述。")
    } else if is_vague(given) {
        let shown = crate::registry::shorten(given);
        words!(
            language,
            "\"{shown}\" does not say what is done to which object; it would fit any tool.",
            "“{shown}”没有写明对什么对象做什么，放在任何工具上都成立。"
        )
    } else {
        return;
    };
    let ending = match card.card.side_effect {
        SideEffect::Read => words!(language, " and end with \"Read only.\"", "，并以“只读。”结尾"),
        SideEffect::Write | SideEffect::Destructive => {
            words!(language, " and say what is changed and whether it can be undone", "，并写明改动了什么、能否撤销")
        }
    };
    let example = card.object();
    let proposal = words!(
        language,
        "Start with a verb and name the object, such as \"List the signed-in customer's {example} by status\",{ending}.",
        "以动词开头并写明对象，例如“按状态列出当前客户的{example}”{ending}。"
    );
    let pointer = if card.card.description.plain.is_some() { "/description" } else { "/description/what" };
    report.add(&VAGUE_DESCRIPTION, card, Hit { pointer: pointer.into(), reason, proposal });
}

/// Whether the first sentence names no action on an object.
pub(super) fn is_vague(text: &str) -> bool {
    let first =
        text.split_inclusive(['.', '!', '?', '。', '！', '？', '；', '\n']).find(|part| !part.trim().is_empty());
    let first = first.unwrap_or(text);
    if first.chars().filter(|c| is_han(*c)).count() >= 2 { is_vague_zh(first) } else { is_vague_en(first) }
}

fn is_vague_en(sentence: &str) -> bool {
    /// Verbs that hide what is done, other than those for reading and calling.
    const HIDING: [&str; 14] = [
        "handle",
        "process",
        "manage",
        "do",
        "perform",
        "execute",
        "run",
        "deal",
        "work",
        "support",
        "help",
        "assist",
        "operate",
        "facilitate",
    ];
    let all = tokenise(sentence);
    let words: Vec<&str> = all.iter().map(String::as_str).filter(|word| !is_stop(word)).collect();
    let Some(first) = words.first() else { return true };
    let verb = lexicon::verb(first);
    let nouns = if verb.is_some() { &words[1..] } else { &words[..] };
    let is_empty = |word: &&str| is_vague_noun(word) || lexicon::verb(word).is_some_and(lexicon::is_vague_verb);
    let substance = nouns.iter().filter(|word| !is_empty(word)).count();
    let hides = verb.is_some_and(|verb| HIDING.contains(&verb)) && nouns.iter().any(|word| is_vague_noun(word));
    let no_verb = all.len() <= SHORT && !words.iter().any(|word| lexicon::verb(word).is_some());
    substance == 0 || (hides && substance <= 1) || no_verb
}

fn is_vague_zh(sentence: &str) -> bool {
    const HIDING: [&str; 8] = ["处理", "管理", "执行", "操作", "进行", "负责", "支持", "办理"];
    let sentence = sentence.trim().trim_start_matches("用于");
    let substance = |text: &str| lexicon::substance_zh(text).chars().count();
    if substance(sentence) < 2 {
        return true;
    }
    let rest = HIDING.iter().find_map(|verb| sentence.strip_prefix(verb));
    let stripped = |rest: &str| rest.chars().filter(|c| is_han(*c)).count() > substance(rest);
    rest.is_some_and(|rest| substance(rest) <= 2 && stripped(rest))
}

fn when_not(card: &Card<'_>, report: &mut Report) {
    let language = report.language;
    let boundaries = &card.card.description.when_not_to_use;
    if boundaries.is_empty() {
        let name = &card.card.name;
        let reason = words!(
            language,
            "`when_not_to_use` is empty: nothing says where `{name}` ends.",
            "`when_not_to_use` 为空：没有写明 `{name}` 的边界。"
        );
        let proposal = words!(
            language,
            "Add the cases that are mistaken for this one, each with its tool: `- {{case: \"…\", use: other_tool}}`.",
            "补上容易混淆的情况，并写明各自的工具：`- {{case: \"…\", use: other_tool}}`。"
        );
        report.add(&MISSING_WHEN_NOT, card, Hit { pointer: "/description/when_not_to_use".into(), reason, proposal });
    }
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (nth, boundary) in boundaries.iter().enumerate() {
        let case = crate::registry::shorten(&boundary.case);
        let at = |key: &str| format!("/description/when_not_to_use/{nth}{key}");
        if boundary.use_tool.is_none() {
            let reason = words!(language, "The case \"{case}\" names no tool.", "情况“{case}”没有写明改用哪个工具。");
            let proposal = words!(
                language,
                "Add `use:` with the tool that serves the case, if there is one.",
                "如果有工具适用，用 `use:` 写上它。"
            );
            report.add(&BOUNDARY_WITHOUT_TOOL, card, Hit { pointer: at(""), reason, proposal });
        }
        let key = tokenise(&boundary.case).join(" ");
        if let Some(first) = seen.insert(key, nth) {
            let first = first + 1;
            let reason = words!(
                language,
                "The case \"{case}\" stands a second time; it is entry {first} already.",
                "情况“{case}”重复出现，第 {first} 条已经写过。"
            );
            let proposal = words!(language, "Keep one of the two entries.", "两条只留一条。");
            report.add(&REPEATED_BOUNDARY, card, Hit { pointer: at("/case"), reason, proposal });
        }
    }
}

fn returns(card: &Card<'_>, report: &mut Report) {
    let language = report.language;
    let fields: Vec<&str> = card.card.result_fields.iter().take(6).map(String::as_str).collect();
    let fields = if fields.is_empty() { "order_id, status".to_owned() } else { fields.join(", ") };
    let proposal = words!(
        language,
        "Name fields and size, such as \"At most 20 rows: {fields}; an empty array when none matches.\"",
        "写明字段和大小，例如“最多 20 行：{fields}；没有匹配时返回空数组。”"
    );
    let pointer = "/description/returns".to_owned();
    let text = card.card.description.returns.as_deref().map(str::trim).unwrap_or_default();
    if text.is_empty() {
        let reason = words!(language, "Nothing says what the tool returns.", "没有写明工具返回什么。");
        report.add(&MISSING_RETURNS, card, Hit { pointer, reason, proposal });
    } else if is_vague_result(text) {
        let shown = crate::registry::shorten(text);
        let reason = words!(language, "\"{shown}\" names neither fields nor size.", "“{shown}”既没有字段也没有大小。");
        report.add(&VAGUE_RETURNS, card, Hit { pointer, reason, proposal });
    }
}

fn is_vague_result(text: &str) -> bool {
    const FORMS: [&str; 12] = [
        "list", "array", "json", "string", "text", "success", "return", "contain", "include", "row", "matching",
        "found",
    ];
    if text.contains('_') || text.bytes().any(|byte| byte.is_ascii_digit()) {
        return false;
    }
    if text.chars().any(is_han) {
        let forms = ["列表", "数组", "对象", "成功", "失败", "信息", "详情", "查询", "是否"];
        let rest = forms.iter().fold(text.to_owned(), |rest, form| rest.replace(form, ""));
        return lexicon::substance_zh(&rest).chars().count() < 2;
    }
    let says = |word: &String| {
        let form = lexicon::verb(word).unwrap_or(word);
        !is_stop(word) && !is_vague_noun(word) && !FORMS.contains(&form) && !FORMS.contains(&word.trim_end_matches('s'))
    };
    !tokenise(text).iter().any(says)
}

fn wordings(card: &Card<'_>, report: &mut Report) {
    let count = card.card.description.when_to_use.len() + card.card.examples.len();
    if count >= FEW {
        return;
    }
    let language = report.language;
    let reason = words!(
        language,
        "Only {count} wordings and examples lead to this tool.",
        "只有 {count} 条说法和例句指向这个工具。"
    );
    let proposal = words!(
        language,
        "Add at least {FEW} sentences under `when_to_use` that users really type, in each of their languages.",
        "在 `when_to_use` 里至少写 {FEW} 句用户真实会说的话，每种语言都要有。"
    );
    report.add(&FEW_WORDINGS, card, Hit { pointer: "/description/when_to_use".into(), reason, proposal });
}

fn long(card: &Card<'_>, report: &mut Report) {
    let tokens = estimate_tokens(card.card.description.as_given());
    if tokens <= LONG {
        return;
    }
    let language = report.language;
    let reason = words!(
        language,
        "The description is about {tokens} tokens long; encoders read the beginning only.",
        "描述约 {tokens} 个 token；编码器只读开头。"
    );
    let proposal = words!(
        language,
        "Shorten it to what sets the tool apart, at most {LONG} tokens; move instructions for single parameters to them.",
        "只留下让工具与众不同的内容，最多 {LONG} 个 token；针对单个参数的说明移到参数上。"
    );
    report.add(&LONG_DESCRIPTION, card, Hit { pointer: "/description".into(), reason, proposal });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_that_would_fit_any_tool_are_vague() {
        for text in [
            "Handles order matters.",
            "Order data.",
            "Does things.",
            "Get data.",
            "Process the request.",
            "Weather information",
            "Execute an operation on a resource.",
            "处理订单相关事务。",
            "查询数据",
            "处理业务",
            "获取相关信息。",
            "…",
        ] {
            assert!(is_vague(text), "{text}");
        }
        for text in [
            "Read one order by its exact number: state, amount. Read only.",
            "Calls WMS upsertRemarkV3 to write rmk_txt.",
            "Register the warranty of an article.",
            "Send a text to the seller.",
            "Take back an open return or exchange request so that the order stays as it is.",
            "Process a refund payment",
            "Tool for converting currencies",
            "查询订单",
            "处理退货申请并通知仓库",
            "获取指定城市的实时天气情况。",
            "取消预订",
        ] {
            assert!(!is_vague(text), "{text}");
        }
    }

    #[test]
    fn results_without_fields_and_size_are_vague() {
        for text in
            ["Returns the result.", "One object.", "A list of results", "返回结果", "返回相关信息。", "JSON data"]
        {
            assert!(is_vague_result(text), "{text}");
        }
        for text in
            ["Array of at most 20 summaries", "One object: default_address, done.", "订单号和状态", "The current price"]
        {
            assert!(!is_vague_result(text), "{text}");
        }
    }
}
