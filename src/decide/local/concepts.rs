//! Everyday words for what a tool does and what it does it to, in Chinese and English: the bridge between an utterance
//! in one language and a card in the other, and between a boundary case in plain words and what people say.
//!
//! Only general language belongs here. What a certain tool means by a word stands on its card.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::extract::words;
use crate::text::terms;

/// A set of concepts, one bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Concepts(u64);

impl Concepts {
    /// Every concept that `text` speaks of without denying it. Longer wordings win: `取消退货` is about taking back.
    pub(super) fn of(text: &str) -> Self {
        let lower = text.to_lowercase();
        let mut found = Self::default();
        found.read_chinese(&lower);
        found.read_english(&lower);
        found
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn contains(self, other: Self) -> bool {
        other.without(self).is_empty()
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each concept as a set of its own, in the order of the table.
    pub(super) fn each(self) -> impl Iterator<Item = Self> {
        (0..u64::BITS).map(|bit| Self(1 << bit)).filter(move |single| !self.common(*single).is_empty())
    }

    fn read_chinese(&mut self, lower: &str) {
        let mut text = lower.to_owned();
        for (pattern, concept) in &PHRASES.gapped {
            while let Some(found) = pattern.find(&text).map(|found| found.range()) {
                self.0 |= 1 << concept;
                text.replace_range(found.clone(), &" ".repeat(found.len()));
            }
        }
        for found in PHRASES.chinese.find_iter(&text) {
            // A wording that denies by itself, such as 没到, is meant as it stands.
            if !words::is_negated(&text, found.start()) {
                self.0 |= PHRASES.concepts_of.get(found.as_str()).map_or(0, |concept| 1 << concept);
            }
        }
    }

    fn read_english(&mut self, lower: &str) {
        const DENIALS: [&str; 8] = ["not", "dont", "no", "never", "without", "doesnt", "didnt", "wont"];
        if !lower.contains(|c: char| c.is_ascii_alphabetic()) {
            return;
        }
        let words = terms(lower);
        let mut at = 0;
        while at < words.len() {
            let longest = (1..=LONGEST.min(words.len() - at)).rev();
            let hit = longest.filter_map(|n| {
                let phrase = words[at..at + n].join(" ");
                PHRASES.concepts_of.get(&phrase).map(|concept| (n, *concept))
            });
            match hit.into_iter().next() {
                Some((n, concept)) => {
                    let denied = at > 0 && DENIALS.contains(&words[at - 1].as_str());
                    self.0 |= if denied { 0 } else { 1 << concept };
                    at += n;
                }
                None => at += 1,
            }
        }
    }
}

/// The concept of taking something back that was asked for before.
pub(super) fn taking_back() -> Concepts {
    Concepts::of("withdraw")
}

/// The concept of a question about rules, which wants nothing done.
pub(super) fn asking_rules() -> Concepts {
    Concepts::of("policy")
}

/// The concept of having bought something.
pub(super) fn bought() -> Concepts {
    Concepts::of("bought")
}

/// Most words of an English wording.
const LONGEST: usize = 4;

/// The table made ready to search.
struct Phrases {
    /// Wordings with a gap (`…`), most special first.
    gapped: Vec<(Regex, usize)>,
    chinese: Regex,
    /// Wording (English ones as stems) → row of the table.
    concepts_of: BTreeMap<String, usize>,
}

static PHRASES: LazyLock<Phrases> = LazyLock::new(|| {
    let mut concepts_of = BTreeMap::new();
    let (mut chinese, mut gapped) = (Vec::new(), Vec::new());
    for (row, wordings) in TABLE.iter().enumerate() {
        for wording in *wordings {
            if wording.contains('…') {
                let parts: Vec<String> = wording.split('…').map(regex::escape).collect();
                gapped.push((constant(&parts.join("[^,。!?;\n]{0,6}?")), row));
            } else if wording.is_ascii() {
                concepts_of.insert(terms(wording).join(" "), row);
            } else {
                chinese.push(*wording);
                concepts_of.insert((*wording).to_owned(), row);
            }
        }
    }
    // The first alternative that matches wins, so longer ones come first.
    chinese.sort_by_key(|wording| std::cmp::Reverse(wording.len()));
    let chinese: Vec<String> = chinese.into_iter().map(regex::escape).collect();
    Phrases { gapped, chinese: constant(&chinese.join("|")), concepts_of }
});

fn constant(pattern: &str) -> Regex {
    Regex::new(pattern).expect("wordings are constant and tested")
}

/// One concept a row, at most 64.
const TABLE: &[&[&str]] = &[
    &["取消", "撤单", "撤掉", "不要了", "不想要了", "cancel", "call off", "abort", "no longer want", "stop it before"],
    &[
        "退货",
        "寄回",
        "退换",
        "退回去",
        "想退",
        "return",
        "send back",
        "send it back",
        "sent back",
        "go back",
        "going back",
    ],
    &[
        "换货",
        "换一个",
        "换一件",
        "换个",
        "换大",
        "换小",
        "调换",
        "exchange",
        "swap",
        "swapped",
        "bigger size",
        "smaller size",
        "another size",
        "different size",
    ],
    &[
        "退款",
        "退钱",
        "退我",
        "退给我",
        "差价",
        "退的钱",
        "退回来的钱",
        "还我钱",
        "refund",
        "money back",
        "pay back",
        "reimburse",
        "reimbursement",
    ],
    // Taking back a request made before.
    &[
        "撤销",
        "撤回",
        "撤了",
        "撤吧",
        "取消…退货",
        "取消…退款",
        "取消…换货",
        "取消…申请",
        "不退了",
        "不换了",
        "留着",
        "withdraw",
        "take back",
        "taken back",
        "be dropped",
        "keep it",
        "keep them",
        "undo",
    ],
    &[
        "催",
        "快点",
        "尽快",
        "赶紧",
        "加急",
        "快一点",
        "hurry",
        "faster",
        "chase",
        "urge",
        "speed up",
        "expedite",
        "sooner",
    ],
    &[
        "到哪",
        "走到哪",
        "在哪",
        "哪儿了",
        "什么地方",
        "位置",
        "到什么位置",
        "where is",
        "where are",
        "where my",
        "where a",
        "wheres",
        "track",
        "position",
        "whereabouts",
    ],
    &[
        "送达",
        "送到",
        "没到",
        "到了没",
        "到了吗",
        "几天到",
        "几号到",
        "什么时候到",
        "何时到",
        "签收",
        "还要几天",
        "还要多久",
        "几天能到",
        "到没到",
        "没收到",
        "arrive",
        "arrival",
        "get here",
        "got here",
        "eta",
        "show up",
        "be here",
        "turn up",
    ],
    &["包裹", "快递", "物流", "parcel", "package", "shipment", "delivery", "courier"],
    &[
        "进度",
        "进展",
        "到账",
        "审核",
        "处理到",
        "结果",
        "哪一步",
        "哪步",
        "好了没",
        "办好了",
        "批了",
        "退到哪",
        "没到账",
        "progress",
        "how far",
        "gone through",
        "go through",
        "any news",
        "any update",
        "update on",
        "is going",
    ],
    // A question about rules.
    &[
        "政策",
        "规定",
        "规则",
        "一般",
        "通常",
        "怎么算",
        "有什么要求",
        "时间限制",
        "支持…吗",
        "多久能",
        "多久会",
        "流程",
        "须知",
        "包邮",
        "是否支持",
        "怎么退",
        "怎么取消",
        "怎么改",
        "怎么修改",
        "怎么换",
        "怎么申请",
        "怎么开",
        "如何",
        "policy",
        "policies",
        "rule",
        "rules",
        "in general",
        "general",
        "usually",
        "how long do",
        "how long does",
        "do you ship",
        "do you accept",
        "do you take",
        "do you offer",
        "do you support",
        "how do i",
        "how do you",
        "how to",
        "asks whether",
        "asks which",
        "which payment",
        "is it possible",
        "am i allowed",
        "how work",
    ],
    &["有货", "现货", "库存", "没货", "缺货", "断货", "in stock", "stock", "available", "availability", "sold out"],
    &["补货", "到货", "回货", "上架", "back in stock", "restock", "is back", "comes back"],
    &[
        "通知",
        "提醒",
        "推送",
        "了…告诉我",
        "跟我说一声",
        "notify",
        "notification",
        "alert",
        "be told when",
        "told when",
        "remind",
        "ping me",
        "let me know when",
    ],
    &[
        "别发",
        "别再发",
        "不要再发",
        "关掉",
        "关闭",
        "关了",
        "退订",
        "屏蔽",
        "unsubscribe",
        "turn off",
        "switch off",
        "mute",
        "stop sending",
        "disable",
        "opt out",
    ],
    &["打开", "开启", "订阅", "恢复", "turn on", "switch on", "turn back on", "subscribe", "enable", "opt in"],
    &["投诉", "举报", "态度", "骂人", "complain", "complaint", "report a problem", "rude", "file a complaint"],
    &["人工", "真人", "客服", "human", "real person", "a person", "live agent", "representative", "service desk"],
    &[
        "转告",
        "留言",
        "带句话",
        "带个话",
        "备注",
        "捎句话",
        "跟…说",
        "告诉卖家",
        "告诉商家",
        "告诉店家",
        "告诉快递",
        "通知卖家",
        "通知快递",
        "message",
        "tell the",
        "note for",
        "leave a note",
        "passed on",
        "pass on",
        "be told",
        "told something",
        "words for",
    ],
    &["工单", "登记", "报修", "反馈", "ticket", "case"],
    &["地址", "改寄", "寄到", "寄去", "address", "deliver to", "ship to", "send to", "go elsewhere"],
    &["默认", "以后都", "以后的", "搬家", "default", "future", "from now on", "moved", "profile"],
    &["改", "修改", "更改", "变更", "换成", "change", "update", "replace", "modify", "fix", "correct"],
    &["发票", "开票", "invoice", "receipt"],
    &["抬头", "公司名", "税号", "title", "company name", "wrong name", "name on"],
    &["下载", "链接", "发我一份", "电子版", "download", "file", "link", "pdf"],
    &[
        "开发票",
        "要发票",
        "开票",
        "开张",
        "开一张",
        "开个",
        "补开",
        "draw up",
        "drawn up",
        "make out",
        "request invoice",
        "need an invoice",
        "want an invoice",
        "issue an invoice",
        "issue invoice",
    ],
    &[
        "补偿",
        "赔",
        "给我…张",
        "发…张",
        "来张",
        "补…张",
        "送我",
        "compensate",
        "compensation",
        "goodwill",
        "give me a",
        "be given",
        "make it up",
    ],
    &["券", "红包", "coupon", "voucher"],
    &["积分", "points", "loyalty"],
    &["余额", "balance"],
    &["会员", "等级", "membership", "member level", "member"],
    &["列", "列出", "list", "show me"],
    &["推荐", "想买", "有没有卖", "looking for", "look for", "recommend", "buy", "shop for", "choosing"],
    &["买的", "买过", "买了", "下的单", "bought", "ordered", "purchased"],
    &["多少钱", "付了", "金额", "花了", "amount", "paid", "how much", "price", "cost"],
    &["确认", "同意", "没错", "就这么办", "confirm", "confirmed", "agree", "go ahead", "says yes", "proceed"],
    &["坏", "碎", "破了", "质量", "broken", "damaged", "defective", "faulty", "doesnt work"],
    &["还没发货", "没发货", "未发货", "发货前", "been sent", "unsent", "before it ships", "unshipped"],
    &["过期", "到期", "expire", "expiry", "expired"],
    &["我的", "我那", "我这", "我退", "我买", "本人", "my", "mine", "own"],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn alike(a: &str, b: &str) {
        let (a_found, b_found) = (Concepts::of(a), Concepts::of(b));
        assert!(!a_found.common(b_found).is_empty(), "{a} | {b}");
    }

    #[track_caller]
    fn apart(a: &str, b: &str) {
        let common = Concepts::of(a).common(Concepts::of(b));
        assert!(common.is_empty(), "{a} | {b}: {common:?}");
    }

    #[test]
    fn both_languages_meet() {
        assert!(TABLE.len() <= 64);
        alike("帮我催一下", "wants somebody to hurry");
        alike("退款政策是怎样的", "Look up the published rules");
        alike("补货了告诉我一声", "Wants to be told when it is back");
        alike("could you chase the courier", "快点送");
        alike("取消退货", "withdraw my return");
        alike("我要投诉", "filing a complaint");
        apart("取消退货", "cancel my order");
        apart("别催了", "hurry up");
        apart("don't cancel", "取消订单");
        apart("今天天气怎么样", "refund progress");
        apart("", "cancel");
    }

    #[test]
    fn sets_are_counted_and_taken_apart() {
        let both = Concepts::of("cancel the invoice");
        assert_eq!(both.each().count(), 2);
        assert_eq!(both.without(Concepts::of("取消")), Concepts::of("发票"));
        assert!(!taking_back().is_empty() && !asking_rules().is_empty());
    }
}
