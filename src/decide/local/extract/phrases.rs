//! Cutting request words off an utterance until only the thing asked for is left.

/// Beginnings that say that something is wanted, not what.
const LEADS: &[&str] = &[
    "你好",
    "您好",
    "请问",
    "请",
    "麻烦",
    "帮我",
    "帮忙",
    "给我",
    "我想要",
    "我想",
    "我要",
    "我需要",
    "我",
    "想要",
    "想买",
    "想找",
    "想",
    "要买",
    "要",
    "需要",
    "打算",
    "看看",
    "看一下",
    "看下",
    "搜一下",
    "搜索",
    "搜搜",
    "搜",
    "查一下",
    "查查",
    "查",
    "找一下",
    "找找",
    "找",
    "购买",
    "买",
    "推荐",
    "介绍",
    "你们有没有",
    "你们有",
    "你们",
    "有没有",
    "有无",
    "有啥",
    "有什么",
    "有",
    "来",
    "列出",
    "列",
    "几款",
    "一款",
    "一个",
    "一双",
    "一件",
    "一台",
    "一些",
    "点",
    "个",
    "款",
    "双",
    "件",
    "台",
    "再",
    "那个",
    "那件",
    "那双",
    "那款",
    "那",
    "这个",
    "这款",
    "这",
    "下",
    "能用的",
    "好用的",
    "合适的",
    "便宜的",
    "最便宜的",
    "的",
    "卖得最好的",
    "卖的最好的",
    "最新的",
    "新款",
    "hello",
    "hi",
    "please",
    "could you",
    "can you",
    "would you",
    "help me",
    "do you have",
    "do you sell",
    "do you still have",
    "have you got",
    "got any",
    "any good",
    "any",
    "show me",
    "show",
    "find me",
    "find",
    "search for",
    "search",
    "looking for",
    "i'm looking for",
    "i am looking for",
    "i want to buy",
    "i want",
    "i need",
    "i'd like to buy",
    "i'd like",
    "buy",
    "get me",
    "recommend me",
    "recommend",
    "suggest",
    "cheapest",
    "cheap",
    "best",
    "a",
    "an",
    "the",
    "some",
    "me",
    "good",
    "is",
    "are",
    "will",
    "when will",
    "when does",
    "when is",
    "does",
    "check if",
    "check whether",
    "check",
    "tell me if",
    "still",
    "there",
];
/// Endings that ask about the thing.
const TAILS: &[&str] = &[
    "有吗",
    "有没有",
    "有没有货",
    "有货吗",
    "有现货吗",
    "有货",
    "现货",
    "还有吗",
    "还有没有",
    "还有货吗",
    "还有货",
    "还有",
    "还能买吗",
    "能买吗",
    "补货了吗",
    "补货",
    "什么时候有",
    "什么时候",
    "到货",
    "多少钱",
    "怎么卖",
    "推荐",
    "推荐一下",
    "吗",
    "呢",
    "啊",
    "呀",
    "吧",
    "嘛",
    "么",
    "没",
    "不",
    "款",
    "的",
    "都",
    "也",
    "还",
    "一下",
    "谢谢",
    "you have",
    "do you have",
    "have you got",
    "available",
    "available again",
    "be available",
    "be available again",
    "again",
    "in stock",
    "be back in stock",
    "back in stock",
    "be back",
    "be restocked",
    "restocked",
    "please",
    "for sale",
    "thanks",
    "thank you",
    "be",
    "yet",
    "now",
    "any",
    "left",
    "or not",
    "or so",
];
/// What remains of a request that names no thing.
const NOTHING: &[&str] = &[
    "东西",
    "点东西",
    "什么",
    "啥",
    "货",
    "它",
    "他",
    "她",
    "这",
    "那",
    "某物",
    "something",
    "anything",
    "stuff",
    "things",
    "it",
    "this",
    "that",
    "one",
    "them",
    "礼物",
    "商品",
    "产品",
    "to buy",
    "to eat",
    "别的",
    "其他",
    "其它",
    "另外",
];

/// What is left of `clause` without request words, or `None` if nothing is named. Letters keep their case.
pub(super) fn thing(clause: &str) -> Option<&str> {
    let mut text = trim(clause);
    loop {
        let before = text.len();
        text = trim(strip_lead(text));
        text = trim(strip_tail(text));
        if text.len() == before {
            break;
        }
    }
    let lower = text.to_ascii_lowercase();
    let named = text.chars().filter(|c| c.is_alphanumeric()).count() > 1;
    (named && !NOTHING.contains(&lower.as_str())).then_some(text)
}

fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| {
        c.is_whitespace() || is_stop(c) || matches!(c, ':' | '"' | '“' | '”' | '、' | '~' | '…')
    })
}

/// Ends a clause.
pub(super) fn is_stop(c: char) -> bool {
    matches!(c, ',' | '。' | '!' | '?' | ';' | '\n')
}

fn strip_lead(text: &str) -> &str {
    let found = LEADS.iter().filter(|lead| starts(text, lead)).max_by_key(|lead| lead.len());
    found.map_or(text, |lead| &text[lead.len()..])
}

fn strip_tail(text: &str) -> &str {
    let found = TAILS.iter().filter(|tail| ends(text, tail)).max_by_key(|tail| tail.len());
    found.map_or(text, |tail| &text[..text.len() - tail.len()])
}

fn starts(text: &str, lead: &str) -> bool {
    let Some(head) = text.get(..lead.len()) else { return false };
    let rest = &text[lead.len()..];
    let is_word = !lead.is_ascii() || !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '\'');
    head.eq_ignore_ascii_case(lead) && is_word && !rest.is_empty()
}

fn ends(text: &str, tail: &str) -> bool {
    let Some(at) = text.len().checked_sub(tail.len()).filter(|at| text.is_char_boundary(*at)) else { return false };
    let head = &text[..at];
    let is_word = !tail.is_ascii() || !head.ends_with(|c: char| c.is_ascii_alphanumeric());
    text[at..].eq_ignore_ascii_case(tail) && is_word && !head.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_words_fall_away() {
        let check = |text: &str, expect: Option<&str>| assert_eq!(thing(text), expect, "{text}");
        check("有没有降噪耳机", Some("降噪耳机"));
        check("帮我找个wireless mouse", Some("wireless mouse"));
        check("any good mechanical keyboards?", Some("mechanical keyboards"));
        check("When will the Luma desk lamp be available again?", Some("Luma desk lamp"));
        check("想买点东西", None);
        check("有货吗", None);
        check("", None);
    }
}
