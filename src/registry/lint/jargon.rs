//! Names of systems, tables and functions in text that a model reads.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::card::{Card, Text};
use super::report::{Hit, Report, words};
use super::words::descriptions::INTERNAL_JARGON;

/// Fragments that are shown.
const MAX_SHOWN: usize = 4;

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the patterns are constant and tested")
}

/// `T_ORDER`, `tbl_user`, `main table`, `存储过程`.
static TABLE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?x)\b(?:[TVFD]|TB|VW|FT|DW|DM|SP|FN)_[A-Z][A-Z0-9_]+\b | \b(?i:tbl|dwd|dws|ods|dim)_[a-z0-9_]+\b
          | (?i)\b(?:main|master|detail|backend|db|sql|database|staging)\s+table\b | (?i)\bstored\s+procedure\b
          | [主副]表 | 数据库表 | 数据表 | 存储过程 | 落库 | 中间表",
    )
});
/// What is no table of a tool that is about databases.
static ONLY_TABLE: LazyLock<Regex> =
    LazyLock::new(|| regex(r"\bT_[A-Z][A-Z0-9_]{2,}\b|\btbl_[a-z0-9_]+\b|存储过程|(?i)\bstored\s+procedure\b"));
/// `upsertRemarkV3`, `OrderServiceImpl`, `queryOrder()`.
static FUNCTION: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?x)\b[a-z][a-z0-9]*(?:[A-Z][a-z0-9]+)+(?:V\d+)?\b
          | \b(?:[A-Z][a-z0-9]+)+(?:Service|ServiceImpl|Impl|Controller|Dao|DAO|Mapper|Repository|Manager|Util|Utils)\b
          | \b[A-Za-z_][A-Za-z0-9_]*\(\)",
    )
});
/// Systems that stand behind a shop's counter.
static SYSTEM: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?x)\b(?:WMS|OMS|TMS|ERP|CRM|MES|SAP|PIM|DWH|ETL|BFF|RPC|ORM|DAO|MySQL|Redis|Kafka|RabbitMQ|Mongo(?:DB)?|Dubbo|Nacos)\b
          | 中台 | 微服务 | 内部接口 | 后台接口 | 消息队列 | (?i)\binternal\s+(?:api|endpoint|service|system)\b",
    )
});
static SNAKE: LazyLock<Regex> = LazyLock::new(|| regex(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b"));
/// Brands that are written like functions.
const BRANDS: [&str; 12] =
    ["iPhone", "iPad", "iPod", "iCloud", "iMessage", "macOS", "iOS", "eBay", "tvOS", "watchOS", "eSim", "eBook"];

/// Words that are names of this registry: tools, parameters, fields, values. What a card elsewhere calls a thing is no
/// system's name.
pub(super) fn known(cards: &[Card<'_>]) -> BTreeSet<String> {
    cards.iter().flat_map(|card| card.own_words().into_iter().map(str::to_owned)).collect()
}

pub(super) fn check(card: &Card<'_>, known: &BTreeSet<String>, report: &mut Report) {
    for text in card.texts().filter(Text::describes) {
        let found = fragments(text.text, card.native, known);
        if found.is_empty() {
            continue;
        }
        let language = report.language;
        let shown: Vec<String> = found.iter().take(MAX_SHOWN).map(|word| format!("`{word}`")).collect();
        let shown = shown.join(", ");
        let reason = words!(
            language,
            "{shown}: names of systems, tables or functions mean nothing to the model and to users.",
            "{shown}：系统、表或函数的名称对模型和用户都没有意义。"
        );
        let proposal = words!(
            language,
            "Leave {shown} out and say in the user's words what happens, such as \"Store a note for the courier of one parcel\".",
            "去掉 {shown}，用用户的话写明发生什么，例如“为一个包裹保存给快递员的备注”。"
        );
        report.add(&INTERNAL_JARGON, card, Hit { pointer: text.pointer(), reason, proposal });
        // One text is enough to say it.
        return;
    }
}

/// In an imported card only what can hardly be anything else: there, code is often what the tool is about.
fn fragments<'t>(text: &'t str, native: bool, known: &BTreeSet<String>) -> Vec<&'t str> {
    let tables = if native { &TABLE } else { &ONLY_TABLE };
    let mut found: Vec<&str> = tables.find_iter(text).map(|found| found.as_str()).collect();
    let is_name = |word: &&str| known.contains(word.trim_end_matches("()")) || BRANDS.contains(word);
    if native {
        found.extend(SYSTEM.find_iter(text).map(|found| found.as_str()));
        found.extend(FUNCTION.find_iter(text).map(|found| found.as_str()).filter(|word| !is_name(word)));
        found.extend(SNAKE.find_iter(text).map(|found| found.as_str()).filter(|word| !is_name(word) && is_code(word)));
    }
    let mut seen = BTreeSet::new();
    found.retain(|word| seen.insert(*word));
    found
}

/// Whether a word with underscores has parts that are no words: `rmk_txt`, not `order_number`.
fn is_code(word: &str) -> bool {
    word.split('_').any(|part| super::lexicon::abbreviated(part).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_tables_and_functions_are_found_and_words_of_the_registry_are_not() {
        let known: BTreeSet<String> = ["search_orders", "confirm_token", "orderNo"].map(str::to_owned).into();
        let check = |text: &str, expect: &[&str]| assert_eq!(fragments(text, true, &known), expect, "{text}");
        check(
            "Calls WMS upsertRemarkV3 to write rmk_txt into the T_SHP main table.",
            &["T_SHP", "main table", "WMS", "upsertRemarkV3", "rmk_txt"],
        );
        check("写入订单主表", &["主表"]);
        check("调用 OrderServiceImpl 的内部接口", &["内部接口", "OrderServiceImpl"]);
        check("Copied from search_orders, e.g. confirm_token, orderNo or last_7_days.", &[]);
        check("ORDER_NOT_FOUND when the iPhone app of a YouTube user fails", &[]);
        assert!(fragments("see getUser() in CRM", false, &known).is_empty());
    }
}
