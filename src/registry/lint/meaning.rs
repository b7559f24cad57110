//! What an argument means: identity, dates to be worked out, ids to be invented, descriptions that say nothing.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::card::{Card, Parameter};
use super::lexicon::{is_stop, is_vague_noun};
use super::report::{Hit, Report, words};
use super::words::parameters::{IDENTITY_PARAM, INVENTED_ID, MODEL_COMPUTES_DATE, NOUN_ONLY_PARAM, UNDESCRIBED_PARAM};
use crate::text::language::is_han;
use crate::text::{terms, tokenise};

/// `tools` are the names of all tools, any of which may be an argument's origin.
pub(super) fn check(card: &Card<'_>, tools: &BTreeSet<&str>, report: &mut Report) {
    identity(card, report);
    dates(card, report);
    ids(card, tools, report);
    descriptions(card, report);
}

fn identity(card: &Card<'_>, report: &mut Report) {
    let language = report.language;
    let hit = |p: &Parameter<'_>| {
        let name = p.name;
        let reason = words!(
            language,
            "`{name}` says whose data is meant; as an argument, access depends on what the conversation claims.",
            "`{name}` 表示操作谁的数据；作为参数，访问权限就取决于对话里怎么说。"
        );
        let proposal = words!(
            language,
            "Remove `{name}` and take the identity from the session (caller, tenant) in the server.",
            "删除 `{name}`，由服务端从会话（调用者、租户）取得身份。"
        );
        (name.to_owned(), Hit { pointer: p.pointer.clone(), reason, proposal })
    };
    let hits = card.arguments().filter(|p| is_identity(p.name)).map(hit).collect();
    report.parts(&IDENTITY_PARAM, card, hits);
}

/// Whether a name stands for the id of whoever is served.
fn is_identity(name: &str) -> bool {
    const WHO: [&str; 15] = [
        "user",
        "customer",
        "account",
        "member",
        "buyer",
        "client",
        "caller",
        "subscriber",
        "tenant",
        "patient",
        "passenger",
        "employee",
        "owner",
        "consumer",
        "shopper",
    ];
    const WHOLE: [&str; 9] =
        ["uid", "openid", "unionid", "userid", "customerid", "accountid", "memberid", "whoami", "current_user"];
    const WHO_ZH: [&str; 7] = ["用户", "客户", "会员", "账号", "账户", "买家", "租户"];
    const WHICH_ZH: [&str; 7] = ["id", "编号", "号", "标识", "号码", "帐号", "ID"];
    if WHOLE.contains(&name.to_lowercase().as_str()) {
        return true;
    }
    if name.chars().any(is_han) {
        return WHO_ZH.iter().any(|who| name.strip_prefix(who).is_some_and(|rest| WHICH_ZH.contains(&rest)));
    }
    let parts: Vec<String> = tokenise(name);
    let parts: Vec<&str> =
        parts.iter().map(String::as_str).filter(|part| !matches!(*part, "current" | "my" | "the")).collect();
    match parts.as_slice() {
        [who, which] => {
            WHO.contains(who)
                && matches!(*which, "id" | "no" | "number" | "identifier" | "uuid" | "uid" | "guid" | "key")
        }
        [_] | [] | [_, _, _, ..] => false,
    }
}

static RELATIVE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)\b(?:today|yesterday|tomorrow|(?:last|next|this|past|previous|coming)\s+(?:week|month|year|weekend|\d+\s+days)|relative|worked?\s+out|calculate[ds]?|comput(?:e|ed|ing)|convert(?:ed)?|infer(?:red)?)\b
          | 今天|昨天|明天|上周|本周|下周|上个?月|本月|下个?月|去年|今年|最近|近\d+天|换算|推算|计算|相对",
    )
    .expect("the pattern is constant and tested")
});
static DATE_FORM: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\byyyy[-/.]?mm|\bISO[ -]?8601\b|\b\d{4}-\d{2}-\d{2}\b|年-?月-?日")
        .expect("the pattern is constant and tested")
});

fn dates(card: &Card<'_>, report: &mut Report) {
    let language = report.language;
    let hit = |p: &Parameter<'_>| {
        let name = p.name;
        let reason = words!(
            language,
            "`{name}` wants a date, while users say \"last week\" or \"yesterday\"; the model would have to work it out.",
            "`{name}` 要具体日期，而用户说的是“上周”“昨天”；模型得自己推算。"
        );
        let proposal = words!(
            language,
            "Take the period as one parameter `time_range` with `enum: [today, yesterday, last_7_days, last_week, \
             last_month]` and let the server turn it into dates.",
            "改成一个参数 `time_range`，用 `enum: [today, yesterday, last_7_days, last_week, last_month]`，由服务端换算成日期。"
        );
        (name.to_owned(), Hit { pointer: p.pointer.clone(), reason, proposal })
    };
    let hits = card.parameters.iter().filter(|p| has_to_be_computed(p)).map(hit).collect();
    report.parts(&MODEL_COMPUTES_DATE, card, hits);
}

fn has_to_be_computed(p: &Parameter<'_>) -> bool {
    const ENDS: [&str; 16] = [
        "start",
        "end",
        "from",
        "to",
        "since",
        "until",
        "begin",
        "after",
        "before",
        "date",
        "day",
        "departure",
        "arrival",
        "checkin",
        "checkout",
        "till",
    ];
    const DATES: [&str; 6] = ["date", "day", "time", "datetime", "timestamp", "at"];
    if !p.is("string") || p.is_closed() {
        return false;
    }
    let description = p.description();
    let is_dated = p.text("format").is_some_and(|format| matches!(format, "date" | "date-time"))
        || DATE_FORM.is_match(description);
    let parts = tokenise(p.name);
    let named_end = parts.iter().any(|part| ENDS[..9].contains(&part.as_str()));
    let named_date = parts.iter().any(|part| DATES.contains(&part.as_str())) || p.name.contains("日期");
    let a_period = named_end && (named_date || is_dated) || p.name.contains("开始日期") || p.name.contains("结束日期");
    let relative = RELATIVE.is_match(description) && (is_dated || named_date);
    // A day of birth or of expiry is known, not worked out.
    let is_fact = parts
        .iter()
        .any(|part| matches!(part.as_str(), "birth" | "birthday" | "dob" | "expiry" | "expiration" | "issued"));
    !is_fact && (a_period || relative)
}

static ORIGIN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)\b(?:from|cop(?:y|ied)|returned|result|results|obtain(?:ed)?|retrieved?|fetched|received|handed|listed|found|given|gives?|writes?|written|names?|states?|provided|shown|mentioned|use\s+\w+\s+to|see|via|by\s+calling|search|list|lookup|look\s+up)\b
          | 来自|来源|取自|返回|复制|抄|获取|获得|查询|由.{1,12}(?:提供|给出|得到)|从.{1,12}(?:中|里|得)|用户(?:提供|给出|说)|客户(?:提供|给出|说)",
    )
    .expect("the pattern is constant and tested")
});

fn ids(card: &Card<'_>, tools: &BTreeSet<&str>, report: &mut Report) {
    let language = report.language;
    let source = tools.iter().find(|tool| tool.starts_with("search_") || tool.starts_with("list_"));
    let source = source.copied().unwrap_or("search_orders");
    let hit = |p: &Parameter<'_>| {
        let name = p.name;
        let reason = words!(
            language,
            "`{name}` is required, has no pattern, and nothing says where it comes from; the model would invent one.",
            "`{name}` 必填、没有格式，也没写从哪里来；模型会编造一个。"
        );
        let proposal = words!(
            language,
            "Add a `pattern`, and say in the description: \"Copied from the customer's words or from a `{source}` \
             result, e.g. …; ask if there is none.\"",
            "加上 `pattern`，并在说明里写：“从用户的话或 `{source}` 的结果里照抄，例如……；没有就询问。”"
        );
        (name.to_owned(), Hit { pointer: p.pointer.clone(), reason, proposal })
    };
    // Who is served comes from the session, which is the other rule's.
    let invented =
        |p: &&Parameter<'_>| p.required && is_id(p) && !is_identity(p.name) && !says_origin(p.description(), tools);
    let hits = card.arguments().filter(invented).map(hit).collect();
    report.parts(&INVENTED_ID, card, hits);
}

fn is_id(p: &Parameter<'_>) -> bool {
    const LAST: [&str; 12] =
        ["id", "ids", "uuid", "guid", "token", "ref", "reference", "sn", "no", "serial", "hash", "sku"];
    const LAST_ZH: [&str; 6] = ["编号", "单号", "号码", "令牌", "标识", "序列号"];
    let typed = p.is("string") || p.is("integer") || !p.has("type");
    if !typed || p.has("pattern") || p.is_closed() {
        return false;
    }
    let last = tokenise(p.name).pop();
    last.is_some_and(|last| LAST.contains(&last.as_str())) || LAST_ZH.iter().any(|end| p.name.ends_with(end))
}

fn says_origin(description: &str, tools: &BTreeSet<&str>) -> bool {
    let names_tool = || {
        let is_part = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-');
        description.split(is_part).any(|word| word.contains(['_', '-']) && tools.contains(word))
    };
    ORIGIN.is_match(description) || names_tool()
}

fn descriptions(card: &Card<'_>, report: &mut Report) {
    let language = report.language;
    let mut nouns = Vec::new();
    let mut empty = Vec::new();
    for p in &card.parameters {
        let name = p.name;
        let example = example(p);
        let proposal = words!(
            language,
            "Say when to fill `{name}` in and with what, such as \"Only if the customer names it, copied from the \
             customer's words, e.g. {example}.\"",
            "写明什么时候填 `{name}`、填什么，例如“仅当用户说到时，从用户的话里照抄，例如 {example}。”"
        );
        let description = p.description();
        let pointer = format!("{}/description", p.pointer);
        if description.is_empty() {
            // Values that speak for themselves, and names inside objects, are clear enough.
            if p.depth == 0 && !p.has("$ref") {
                let reason = words!(language, "`{name}` has no description.", "`{name}` 没有说明。");
                empty.push((name.to_owned(), Hit { pointer: p.pointer.clone(), reason, proposal }));
            }
        } else if p.depth == 0 && !p.is_closed() && only_repeats(p.name, description, &card.card.name) {
            let reason = words!(
                language,
                "\"{description}\" only repeats the name `{name}`.",
                "“{description}”只是重复名称 `{name}`。"
            );
            nouns.push((name.to_owned(), Hit { pointer, reason, proposal }));
        }
    }
    report.parts(&NOUN_ONLY_PARAM, card, nouns);
    report.parts(&UNDESCRIBED_PARAM, card, empty);
}

fn example(p: &Parameter<'_>) -> String {
    let first = p.strings("enum").into_iter().chain(p.strings("examples")).next();
    let kind = if p.is("integer") || p.is("number") {
        "3"
    } else if p.is("boolean") {
        "true"
    } else {
        "…"
    };
    first.map_or_else(|| kind.to_owned(), crate::registry::shorten)
}

/// Whether `description` holds no word beyond the parameter's and the tool's names.
fn only_repeats(name: &str, description: &str, tool: &str) -> bool {
    /// Longest Chinese description that can be a mere translation, in characters.
    const TRANSLATION: usize = 6;
    let mut known: BTreeSet<String> = terms(name).into_iter().chain(terms(tool)).collect();
    known
        .extend(["id", "identifi", "number", "string", "paramet", "uniqu", "field", "name", "code"].map(str::to_owned));
    let han = description.chars().filter(|c| is_han(*c)).count();
    if han > 0 {
        let letters = description.chars().filter(|c| c.is_alphanumeric()).count();
        // The same words in Chinese, or a short noun for a Latin name.
        let same = name.chars().any(is_han) && description.trim_end_matches(['。', '.']) == name;
        let noun = han <= TRANSLATION
            && letters <= TRANSLATION + 3
            && !description.contains(['，', ',', '、', '：', ':', '(', '（', '；']);
        return same || (noun && !name.chars().any(is_han));
    }
    let said: Vec<String> =
        tokenise(description).into_iter().filter(|word| !is_stop(word) && !is_vague_noun(word)).collect();
    said.len() <= 4 && terms(&said.join(" ")).iter().all(|term| known.contains(term))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_told_from_other_ids() {
        for name in
            ["user_id", "userId", "customerNo", "account_id", "uid", "openid", "用户ID", "会员号", "current_user_id"]
        {
            assert!(is_identity(name), "{name}");
        }
        for name in ["order_id", "user_name", "account_type", "owner", "tracking_no", "用户评价", "订单号", "client"]
        {
            assert!(!is_identity(name), "{name}");
        }
    }

    #[test]
    fn a_description_that_repeats_the_name_says_nothing() {
        for (name, description) in [
            ("review_id", "Review id."),
            ("order_id", "The unique identifier of the order"),
            ("city", "城市名称。"),
            ("订单号", "订单号"),
            ("limit", "Limit value"),
        ] {
            assert!(only_repeats(name, description, "get_review"), "{description}");
        }
        for (name, description) in [
            ("order_id", "Copied from the customer's words, e.g. SO-20260418000736."),
            ("owner", "Repository owner"),
            ("city", "城市名称，例如北京"),
            ("reason", "Why the customer wants it"),
        ] {
            assert!(!only_repeats(name, description, "get_review"), "{description}");
        }
    }

    #[test]
    fn an_origin_is_a_source_or_a_tool() {
        let tools: BTreeSet<&str> = ["list_reviews"].into();
        assert!(says_origin("As in list_reviews", &tools));
        assert!(says_origin("Copied by hand", &tools));
        assert!(says_origin("由下单接口返回的编号", &tools));
        assert!(!says_origin("Review id.", &tools));
        assert!(!says_origin("评论编号", &tools));
    }
}
