//! Addresses and names of companies, as they stand in a sentence.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::free_text::constant;
use super::words;

static ADDRESS_ZH: LazyLock<Regex> = LazyLock::new(|| {
    constant(
        r"(?:地址(?:是|为|改成|改为|换成|:)?|改寄到|改寄|寄到|送到|发到|寄往|改到|换到|改成|改为|换成|搬到|配送到|寄去|送去)[:\s]*([^,。!?;\n]{4,})",
    )
});
static ADDRESS_EN: LazyLock<Regex> = LazyLock::new(|| {
    constant(
        r"(?i)\b(?:address(?: of [\w-]+)?(?: is| to|:)|ship(?:ped)?(?: it| this| them)? to|deliver(?:ed)?(?: it| this| them)? to|send(?: it| this| them)? to|moved to|to)\s+([A-Z0-9][^?!\n;]{4,})",
    )
});
static ADDRESS_ALONE: LazyLock<Regex> = LazyLock::new(|| {
    constant(
        r"[\p{Han}]{1,12}(?:省|市|区|县)[\p{Han}A-Za-z0-9-]*(?:路|街|道|巷|弄|号|村|镇|大厦|小区|苑|园)[\p{Han}A-Za-z0-9-]*",
    )
});
const PLACE_ZH: [&str; 22] = [
    "省", "市", "区", "县", "路", "街", "道", "号", "巷", "弄", "村", "镇", "乡", "栋", "幢", "座", "楼", "室", "苑",
    "园", "城", "大厦",
];
const PLACE_EN: [&str; 14] = [
    "street",
    "st",
    "road",
    "rd",
    "avenue",
    "ave",
    "lane",
    "drive",
    "room",
    "floor",
    "building",
    "block",
    "apartment",
    "square",
];

/// A full address: after a word such as 寄到, or standing alone.
pub(super) fn address(text: &str) -> Option<Range<usize>> {
    let after_cue =
        ADDRESS_ZH.captures_iter(text).filter_map(|found| found.get(1)).map(|found| cut_tail(text, found.range()));
    let is_place = |span: &Range<usize>| {
        let part = &text[span.clone()];
        let marks = PLACE_ZH.iter().filter(|mark| part.contains(**mark)).count();
        marks >= 2 || marks == 1 && part.contains(|c: char| c.is_ascii_digit())
    };
    let chinese = after_cue.filter(is_place).last();
    let english = || {
        let found = ADDRESS_EN.captures_iter(text).filter_map(|found| found.get(1)).map(|found| {
            let end = found.as_str().find(" for ").map_or(found.end(), |at| found.start() + at);
            cut_tail(text, found.start()..end)
        });
        let mut places = found.filter(|span| {
            let part = text[span.clone()].to_ascii_lowercase();
            part.contains(|c: char| c.is_ascii_digit()) && words::contains_any(&part, &PLACE_EN)
        });
        places.next()
    };
    chinese
        .or_else(english)
        .or_else(|| ADDRESS_ALONE.find(text).map(|found| cut_tail(text, found.range())).filter(is_place))
}

/// Particles and thanks at the end of a passage are not part of it.
fn cut_tail(text: &str, span: Range<usize>) -> Range<usize> {
    let mut end = span.end;
    loop {
        let part = text[span.start..end].trim_end_matches([' ', '.', ',', '!', '。', '?', '~']);
        let tail =
            ["谢谢", "吧", "了", "哦", "啊", "呀", "哈", "就行", "去", " please", " thanks", " thank you", " instead"]
                .iter()
                .find(|tail| part.to_ascii_lowercase().ends_with(**tail) && part.len() > tail.len());
        // A full stop may belong to the name: `Co., Ltd.`
        let next = tail.map_or(part.len(), |tail| part.len() - tail.len());
        if span.start + next == end {
            return span.start..end;
        }
        end = span.start + next;
    }
}

static COMPANY_ZH: LazyLock<Regex> = LazyLock::new(|| {
    constant(
        r"[\p{Han}A-Za-z0-9()&·]{2,40}?(?:有限责任公司|股份有限公司|有限公司|公司|集团|事务所|工作室|商行|商贸|研究院|大学|学校|医院|中心)",
    )
});
static COMPANY_EN: LazyLock<Regex> = LazyLock::new(|| {
    constant(
        r"[A-Z][A-Za-z0-9&'-]*(?: [A-Z&][A-Za-z0-9&'-]*)*,? (?:Co\., ?Ltd\.?|Co\.|Ltd\.?|Inc\.?|LLC|GmbH|Corp\.?|Corporation|Company|Limited|PLC|Group)",
    )
});
static TITLE_CUE: LazyLock<Regex> = LazyLock::new(|| {
    constant(r"(?:抬头|名称|名字|公司名)(?:要|应该)?(?:换成|改成|改为|写成|写|开成|是|为|用|:|叫)\s*([^,。!?;\s]{2,})")
});
/// What stands before a company's name and is not part of it.
const TITLE_LEADS: [&str; 22] = [
    "发票抬头要换成",
    "抬头",
    "换成",
    "改成",
    "改为",
    "改到",
    "开成",
    "写成",
    "写",
    "是",
    "为",
    "给",
    "开",
    "用",
    "叫",
    "把",
    "要",
    "公司名称",
    "名称",
    "公司的",
    "发票",
    "的",
];
/// Words for any company name none.
const NO_NAMES: [&str; 12] = [
    "公司",
    "我公司",
    "我们公司",
    "另一家公司",
    "一家公司",
    "别的公司",
    "单位公司",
    "个公司",
    "家公司",
    "本公司",
    "贵公司",
    "our company",
];

/// A company after its cue or by its ending, or what a cue names.
pub(super) fn title(text: &str) -> Option<Range<usize>> {
    let chinese = COMPANY_ZH.find_iter(text).map(|found| {
        let mut start = found.start();
        loop {
            let part = &text[start..found.end()];
            // The last cue inside the match wins: everything before it is the sentence.
            let cue = ["抬头改成", "抬头换成", "抬头要换成", "抬头", "换成", "改成", "改为", "开成"]
                .iter()
                .filter_map(|cue| part.rfind(cue).map(|at| at + cue.len()))
                .max();
            let lead = TITLE_LEADS.iter().filter(|lead| part.starts_with(**lead)).map(|lead| lead.len()).max();
            match cue.or(lead) {
                Some(length) if length < part.len() => start += length,
                _ => break,
            }
        }
        start..found.end()
    });
    let is_name = |span: &Range<usize>| {
        let part = &text[span.clone()];
        let talk = ["请", "提供", "我", "你", "这", "那", "哪", "的", "是", "有没有", "需要", "一家", "什么"];
        part.chars().count() > 3 && !NO_NAMES.contains(&part) && !talk.iter().any(|word| part.contains(word))
    };
    let english = || COMPANY_EN.find_iter(text).map(|found| found.range()).next();
    let cued = || {
        TITLE_CUE.captures_iter(text).filter_map(|found| found.get(1)).map(|found| cut_tail(text, found.range())).last()
    };
    chinese.filter(is_name).last().or_else(english).or_else(cued)
}
