//! How an utterance hangs on the turns before it: whether it agrees, points at another thing of the same list, answers
//! a question, or brings a subject of its own.
//!
//! Owns: the wordings of both languages for that.
//! Does not know: tools, or what the earlier turns were about.

use std::sync::LazyLock;

use regex::Regex;

use crate::text::Query;
use crate::text::language::is_han;
use crate::types::{Role, Turn};

/// From the tightest to the loosest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tie {
    /// "ok do it", "就这么办": nothing but consent, or consent and a word or two.
    Confirms,
    /// Nothing but a value: "SO-20260418000736".
    Value,
    /// "那第二个呢", "same for …": the same wish for another thing.
    Continues,
    /// Says something after the assistant asked.
    Answers,
    /// Points back with a pronoun.
    Refers,
    /// A few words without a pointer.
    Short,
    /// A sentence that stands alone.
    Own,
    /// "by the way", "算了": what came before is over.
    Breaks,
}

/// Content, in Chinese characters, that may stand beside consent.
const BESIDE_CONSENT: usize = 3;
/// The same beside a pointer to another thing.
const BESIDE_POINTER: usize = 4;
/// Up to this much content an utterance is short.
const SHORT: usize = 6;
/// A Latin word holds about as much as two Chinese characters.
const WORD: usize = 2;

/// What ties `query` to `history` (oldest first).
pub(super) fn tie(query: &Query, history: &[Turn]) -> Tie {
    let words = own_words(query);
    if content(&without(&words, &[&AROUND_VALUE])) == 0 && !query.slots.is_empty() {
        return Tie::Value;
    }
    if DECLINES.is_match(&words) {
        return Tie::Breaks;
    }
    if confirms(&words) {
        return Tie::Confirms;
    }
    let points = POINTS.is_match(&words);
    if points && content(&without(&words, &[&POINTS, &FILLER])) <= BESIDE_POINTER {
        return Tie::Continues;
    }
    if CHANGES.is_match(&words) {
        return Tie::Breaks;
    }
    let is_question = QUESTION.is_match(&words);
    if !is_question && history.last().is_some_and(asks) {
        return Tie::Answers;
    }
    if points || REFERS.is_match(&words) {
        return Tie::Refers;
    }
    if content(&without(&words, &[&FILLER])) <= SHORT { Tie::Short } else { Tie::Own }
}

/// Whether a turn is a question of the assistant.
pub(super) fn asks(turn: &Turn) -> bool {
    turn.role == Role::Assistant && ASKS.is_match(&turn.content)
}

/// The text as it is read, without ids, links and contacts.
fn own_words(query: &Query) -> String {
    let mut words = String::with_capacity(query.text.len());
    let mut from = 0;
    for slot in query.slots.iter().filter(|slot| slot.kind.is_opaque()) {
        words.push_str(&query.reading().of_range(&query.text, from..slot.span.start));
        words.push(' ');
        from = slot.span.end;
    }
    words.push_str(&query.reading().of_range(&query.text, from..query.text.len()));
    words.trim().to_owned()
}

fn confirms(words: &str) -> bool {
    if !CONSENT.is_match(words) {
        return false;
    }
    let rest = without(words, &[&CONSENT, &POINTS, &FILLER]);
    if content(&rest) == 0 {
        return true;
    }
    let clear = CLEAR_CONSENT.is_match(words) && !NEGATION.is_match(&rest) && !QUESTION.is_match(&rest);
    clear && content(&rest) <= BESIDE_CONSENT
}

/// `text` with every match of the patterns taken out, one pattern after the other.
fn without(text: &str, patterns: &[&LazyLock<Regex>]) -> String {
    patterns.iter().fold(text.to_owned(), |text, pattern| pattern.replace_all(&text, " ").into_owned())
}

/// How much is said, in Chinese characters.
fn content(text: &str) -> usize {
    let han = text.chars().filter(|c| is_han(*c)).count();
    let words = text.split(|c: char| !c.is_alphanumeric() || is_han(c)).filter(|word| !word.is_empty()).count();
    han + WORD * words
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the patterns are constant and tested")
}

static CONSENT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)就这么(?:办|定)|就这样|没问题|没错|可以|同意|确认|确定|照办|照做|[办来]吧|继续|好的|好吧|是的|对的|要的|^[好行嗯对是要]+(?:[吧啊呀的,.!。 ]|$)|",
        r"\b(?:ok|okay|yes|yep|yeah|yup|sure|do it|do that|go ahead|go for it|go on|confirm(?:ed)?|proceed|continue|sounds good|",
        r"that'?s (?:fine|right|ok)|fine|correct|agreed|absolutely|of course)\b"
    ))
});

/// Consent that cannot be a mere "well, …".
static CLEAR_CONSENT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)就这么(?:办|定)|没问题|同意|确认|确定|照办|照做|",
        r"\b(?:yes|yep|yeah|yup|sure|ok|okay|do it|go ahead|go for it|confirm(?:ed)?|proceed|agreed|absolutely|of course)\b"
    ))
});

static FILLER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)^那么?|麻烦|谢谢|帮我|给我|帮忙|[你您我请的了呢吗吧啊呀哦啦嘛么也就都还再看有]|",
        r"\b(?:please|pls|thanks?|thank you|and|then|just|so|the|an?|for|of|to|me|my|i|one|ones|is|are|it|that|this|with|show|too|also|well)\b"
    ))
});

static AROUND_VALUE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)订单|运单|单号|编号|号码|[号是的这个]|\b(?:order|number|no|id|it'?s|it|is|the|this|one|my|here|you|go)\b",
    )
});

static POINTS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)第(?:[一二两三四五六七八九十几]+|\d+)\s*[个单笔件条项份页款张家]?|最后[一那][个单笔件条项款]|",
        r"[上下另再][一几]?(?:页|个|批|单|条|笔|款|张|家)|另外[一那][个单笔件条项款]|换[成个]|再.{1,3}[点些]|更.{1,2}的|",
        r"还有(?:别的|其他的?|更多)?(?:吗|没有|么)|别的|一样|同样|呢[?!。. ]*$|",
        r"\b(?:first|second|third|fourth|fifth|last|next|previous|other)(?: one| page| order| item)?\b|",
        r"\bsame(?: thing)?\b|\bmore\b|\bagain\b|\banother(?: one)?\b|\b(?:what|how) about\b|\b[a-z]{3,}er ones?\b"
    ))
});

static REFERS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^那|[它她该]|[这那](?:个|单|笔|件|条|家|里|款|张)|上面|刚才|刚刚|\b(?:it|its|that|this|them|those|these|there)\b",
    )
});

static DECLINES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)^[嗯哦额,. ]*(?:算了|不用|不要|不了|先不|还是[别不]|先?别|暂时不|",
        r"(?:no|nope|nah|never ?mind|not now|forget it|don'?t|do not|leave it|stop)\b)"
    ))
});

static CHANGES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)^(?:对了|顺便|另外|换个(?:话题|问题)|还有(?:个|一个|件)?(?:问题|事)|再问|话说|",
        r"(?:by the way|btw|another (?:thing|question)|one more (?:thing|question)|also|different (?:topic|question)|separately)\b)"
    ))
});

static NEGATION: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)[不没别勿]|\b(?:no|not|never|cannot)\b|\b(?:don|won|can|isn)'?t\b"));

static QUESTION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)[?吗呢]|什么|怎么|怎样|哪|多少|多久|几[个天时点]|",
        r"^\W*(?:what|where|how|when|why|which|who|can|could|is|are|do|does|did|will)\b"
    ))
});

static ASKS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)[?？吗]|请(?:问|告诉|提供|给|说|确认|分别)|哪[个一]|please (?:tell|give|provide|share|enter|confirm)|\bwhich\b",
    )
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::normalise;

    fn turn(role: Role, content: &str) -> Turn {
        Turn { role, content: content.into() }
    }

    #[track_caller]
    fn check(after: &str, expect: Tie, utterances: &[&str]) {
        for utterance in utterances {
            let found = tie(&normalise(utterance).unwrap(), &[turn(Role::Assistant, after)]);
            assert_eq!(found, expect, "{utterance}");
        }
    }

    #[test]
    fn consent_is_told_from_a_wish_that_begins_with_it() {
        let told = "已发货。";
        check(
            told,
            Tie::Confirms,
            &["ok do it", "确认", "就这么办", "好的,麻烦了", "yes please", "Go for it!", "ＯＫ"],
        );
        check(
            told,
            Tie::Confirms,
            &["金额没问题，退吧", "第二个确认取消", "确认取消SO-20260222960422", "yes, refund it"],
        );
        check(
            told,
            Tie::Own,
            &["可以帮我查一下退款到账没有", "ok but where has my big parcel gone", "确认收货之后多久能开发票"],
        );
        check(
            told,
            Tie::Breaks,
            &[
                "算了，还是留着吧",
                "不用了",
                "no thanks",
                "never mind",
                "对了，你们满多少包邮",
                "btw do you ship abroad",
            ],
        );
    }

    #[test]
    fn pointers_answers_and_own_subjects() {
        let told = "已发货。";
        check(
            told,
            Tie::Continues,
            &["那第二个呢", "下一页", "黑色的呢", "有再便宜点的吗", "another one", "same for SO-20260608923958"],
        );
        check(told, Tie::Continues, &["what about the other one?", "next page please", "第２个"]);
        check(told, Tie::Refers, &["它到哪了", "那帮我撤了吧", "where is it now", "第二单什么时候能送到上海的仓库"]);
        check(told, Tie::Value, &["SO-20260707441168", "订单号是SO-20260707441168", "it's SO-20260707441168"]);
        check(told, Tie::Short, &["发货慢", "refund"]);
        check(told, Tie::Own, &["我的快递到哪里了怎么还没送", "please update my default delivery address"]);
        let asked = "请问开个人还是公司抬头？";
        check(
            asked,
            Tie::Answers,
            &["公司的，抬头云杉咨询有限公司", "改成退货吧，不换了", "the blue jacket in size large"],
        );
        check(asked, Tie::Own, &["你们的营业时间是几点到几点呀", "how long does a refund usually take"]);
    }
}
