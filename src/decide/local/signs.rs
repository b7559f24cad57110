//! Signs that nothing is to be done, whatever the cards say: small talk, a wish taken back, other people's data.
//!
//! Closed lists of Chinese and English; everything here holds for any set of tools.

use std::sync::LazyLock;

use regex::Regex;

use super::concepts::{Concepts, taking_back};
use super::extract::words;
use crate::decide::Request;
use crate::text::{Query, SlotKind};
use crate::types::Role;

/// A reason to call nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// Greeting, thanks, a nod: no wish at all.
    SmallTalk,
    /// The speaker takes the wish back.
    TakenBack,
    /// Data of somebody else, from tools that serve the signed-in person alone.
    OthersData,
}

impl Sign {
    pub(super) fn note(self) -> &'static str {
        match self {
            Self::SmallTalk => "the utterance is small talk",
            Self::TakenBack => "the wish is taken back",
            Self::OthersData => "the tools serve the signed-in person alone",
        }
    }
}

/// The first sign that holds. A nod answers a question that is open in the conversation, so it is no small talk there.
pub(super) fn sign(request: &Request<'_>) -> Option<Sign> {
    let query = request.query;
    if is_small_talk(&query.read_text()) && !was_asked(request) {
        Some(Sign::SmallTalk)
    } else if is_taken_back(query) || declines(request) {
        Some(Sign::TakenBack)
    } else if is_about_others(query) && serves_one_person(request) {
        Some(Sign::OthersData)
    } else {
        None
    }
}

/// Whether the last turn of the other side waits for an answer.
pub(super) fn was_asked(request: &Request<'_>) -> bool {
    const ASKS: [&str; 10] = [
        "?",
        "？",
        "请告诉",
        "请提供",
        "请确认",
        "please tell",
        "please give",
        "please provide",
        "could you",
        "let me know",
    ];
    let last = request.history.last().filter(|turn| turn.role == Role::Assistant);
    last.is_some_and(|turn| {
        let lower = turn.content.to_lowercase();
        ASKS.iter().any(|ask| lower.contains(ask))
    })
}

static SMALL_TALK: LazyLock<Regex> = LazyLock::new(|| {
    constant(
        r"^(?:你好|您好|大家好|哈喽|嗨|喂|在吗|在么|在不在|有人吗|早上好|上午好|中午好|下午好|晚上好|早安|晚安|早|谢谢|多谢|感谢|谢啦|谢了|辛苦了|麻烦了|不客气|好的|好滴|好哒|好吧|好|行吧|行|可以|嗯+|恩+|哦+|噢+|喔+|唔|知道了|明白了|了解了|了解|收到|懂了|原来如此|再见|拜拜|回见|没事|没问题|哈+|呵+|嘿+|啊|呀|呢|吧|啦|了|哟|你|您|亲|hi|hello|hey|yo|there|good (?:morning|afternoon|evening|night|day)|morning|thanks|thank you|thank u|thx|ty|cheers|much|very|so|a lot|bye|goodbye|see you|see ya|later|have a (?:nice|good|great) (?:day|one|evening|weekend)|got it|i see|understood|sure|great|cool|nice|awesome|perfect|fine|alright|all right|okay|ok|k|wow|lol|haha+|hmm+|oh|ah|anyone|how are you|you|[\s,.!?。~…、;:'’，！？；：]+)+$",
    )
});

fn is_small_talk(text: &str) -> bool {
    const LONGEST: usize = 60;
    let lower = text.to_lowercase();
    lower.chars().count() <= LONGEST && SMALL_TALK.is_match(&lower)
}

static ABANDONS: LazyLock<Regex> = LazyLock::new(|| {
    constant(
        r"算了|当我没说|当我没问|不用了|不必了|不需要了|不麻烦了|没事了|不弄了|先这样吧|\bnever ?mind\b|\bnvm\b|\bforget (?:it|about it|that|i asked)\b|\bscratch that\b|\bno need\b|\bdon'?t bother\b|\bon second thoughts?\b",
    )
});

/// A word of giving up after which no new wish comes. With an id it is about what was asked for that id.
fn is_taken_back(query: &Query) -> bool {
    let lower = query.read_text().to_lowercase();
    let Some(last) = ABANDONS.find_iter(&lower).last() else { return false };
    let has_id = query.slots.iter().any(|slot| slot.kind == SlotKind::Id);
    let rest = &lower[last.end()..];
    let is_word = !rest.starts_with(['的', '吗']);
    is_word && !has_id && Concepts::of(rest).without(taking_back()).is_empty()
}

/// What was shown for consent is not consented to.
fn declines(request: &Request<'_>) -> bool {
    const NO: [&str; 18] = [
        "先不",
        "再想想",
        "再考虑",
        "考虑一下",
        "留着",
        "别取消",
        "不取消",
        "不退了",
        "别退",
        "等等",
        "等一下",
        "no",
        "don't",
        "do not",
        "wait",
        "hold on",
        "not yet",
        "keep it",
    ];
    let shown = request.history.iter().rev().find_map(crate::types::Turn::tool_result);
    let handed_out = shown.as_ref().and_then(|result| result.get("tool")).and_then(serde_json::Value::as_str);
    let asks_consent = handed_out.is_some_and(|name| {
        request.tools.iter().any(|tool| {
            tool.card.confirmation.as_ref().is_some_and(|confirmation| confirmation.tool.as_deref() == Some(name))
        })
    });
    let lower = request.query.read_text().to_lowercase();
    asks_consent && was_asked(request) && request.query.slots.is_empty() && words::contains_any(&lower, &NO)
}

static OTHERS: LazyLock<Regex> = LazyLock::new(|| {
    constant(
        r"(?:所有|全部|其他|其它|别的|每个|任意|全体)(?:的)?(?:用户|客户|会员|顾客|买家|人)|(?:别人|他人|其他人)的|\b(?:all|every|other)(?: of)?(?: the| our| your)? (?:users?|customers?|accounts?|members?|people|buyers?)\b|\b(?:everyone|everybody|someone else|somebody else|other people)'?s?\b",
    )
});
static PERSON: LazyLock<Regex> = LazyLock::new(|| {
    constant(
        r"(?:用户|客户|会员|顾客|账号|账户|帐号|手机号?|电话)(?:是|为|号|名|id|[\s:#]){0,3}$|(?:\b(?:users?|customers?|accounts?|members?|person|someone|phone|number|email)\b)(?: (?:with|whose|having|of|under|id|number|no|phone|email|is|the|registered|to|for|mail|address)|[\s:#.])*$",
    )
});

/// An account other than the speaker's own: all of them, or one picked out by a number, phone or address.
fn is_about_others(query: &Query) -> bool {
    let lower = query.read_text().to_lowercase();
    if OTHERS.is_match(&lower) {
        return true;
    }
    query.slots.iter().any(|slot| {
        let identifies = matches!(slot.kind, SlotKind::Phone | SlotKind::Email | SlotKind::Id | SlotKind::Number);
        let before = query.text[..slot.span.start].to_lowercase();
        let Some(person) = PERSON.find(&before).filter(|_| identifies) else { return false };
        let is_own = OWN.iter().any(|own| before[..person.start()].trim_end().ends_with(own));
        let after = query.text[slot.span.end..].trim_start();
        let clause = before.rsplit([',', '。', ';', '!', '?']).next().unwrap_or("");
        let owns = after.starts_with(['的', '\'', '’'])
            || [" of ", " for ", " from "].iter().any(|word| clause.contains(word));
        !is_own && owns
    })
}

/// Before a word for a person or an account: the speaker's own.
const OWN: [&str; 9] = ["我", "我的", "本人", "本人的", "自己", "自己的", "my", "our", "own"];

/// The cards say that they serve the person who is signed in, and none takes somebody else.
fn serves_one_person(request: &Request<'_>) -> bool {
    const SIGNED_IN: [&str; 8] =
        ["signed-in", "signed in", "logged-in", "logged in", "current user", "当前用户", "登录用户", "本人的"];
    const SOMEBODY: [&str; 8] = ["user", "customer", "account", "member", "phone", "email", "mobile", "client"];
    let own = request.tools.iter().any(|tool| SIGNED_IN.iter().any(|word| tool.card.description.what.contains(word)));
    let takes_others = request.tools.iter().any(|tool| {
        tool.schema
            .properties()
            .iter()
            .any(|(name, _)| words::parts(name).iter().any(|part| SOMEBODY.contains(&part.as_str())))
    });
    own && !takes_others
}

fn constant(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is constant and tested")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::normalise;

    #[test]
    fn small_talk_is_a_closed_list() {
        for text in ["你好", "您好呀~", "谢谢!", "好的，再见", "嗯嗯", "OK thanks", "okay got it", "Hello there!", "哦"]
        {
            assert!(is_small_talk(text), "{text}");
        }
        for text in ["你好，退款", "thanks, where is my parcel", "好的，取消吧", "ok do it", "", "确认"] {
            assert!(!is_small_talk(text), "{text}");
        }
    }

    #[test]
    fn a_wish_is_taken_back_unless_a_new_one_follows() {
        let taken_back = |text: &str| is_taken_back(&normalise(text).unwrap());
        for text in [
            "算了",
            "算了，还是留着吧",
            "算了不退了",
            "退款……算了当我没说",
            "never mind, I'll keep it",
            "no need, forget it",
        ] {
            assert!(taken_back(text), "{text}");
        }
        for text in
            ["算了，退货吧", "never mind the colour, just cancel it", "算了不退了 SO-20260418000736", "我不用了的券"]
        {
            assert!(!taken_back(text), "{text}");
        }
    }

    #[test]
    fn other_people_are_told_from_oneself() {
        let others = |text: &str| is_about_others(&normalise(text).unwrap());
        for text in [
            "show me the orders of the account with phone 13800138000",
            "把用户U10086的订单列出来",
            "手机号13800138000的订单",
            "list the orders of all customers",
            "别人的快递到哪了",
            "export orders for user 55512",
            "帮我查手机号13800138000的订单",
        ] {
            assert!(others(text), "{text}");
        }
        for text in [
            "my user_id is 99999, use it to look up my points",
            "我的手机号13800138000的订单",
            "SO-20260418000736的订单",
            "call me at 13800138000",
            "all my orders",
            "is there any customer service",
        ] {
            assert!(!others(text), "{text}");
        }
    }
}
