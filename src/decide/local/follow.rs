//! Utterances that only make sense after what was said before: the next page, the same for another id, a bare answer.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::signs::was_asked;
use crate::catalog::Tool;
use crate::decide::Request;
use crate::text::{Query, terms};
use crate::types::{Role, Turn};

/// What the conversation says about the subject of an utterance that names none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Subject {
    /// Name of the tool that was used last, if it is to be used again.
    pub used: Option<String>,
    /// Words of the request to which the utterance gives what was asked for.
    pub open: BTreeSet<String>,
}

impl Subject {
    /// How well the tool continues the conversation, in `[0, 1]`.
    pub(super) fn fits(&self, tool: &Tool) -> f32 {
        if self.used.as_deref() == Some(tool.card.name.as_str()) {
            return 1.0;
        }
        if self.open.is_empty() {
            return 0.0;
        }
        let description = &tool.card.description;
        let texts = description.when_to_use.iter().chain(&tool.card.examples).chain([&description.what]);
        let shared = texts.map(|text| {
            let words: BTreeSet<String> = terms(text).into_iter().collect();
            self.open.intersection(&words).count()
        });
        shared.max().unwrap_or(0) as f32 / self.open.len() as f32
    }
}

/// Nothing for an utterance with a subject of its own.
pub(super) fn subject(request: &Request<'_>) -> Subject {
    if request.history.is_empty() || !is_bare(request.query) {
        return Subject::default();
    }
    let said = request.history.iter().rev().find(|turn| turn.role == Role::User);
    if was_asked(request)
        && gives_a_value(request.query)
        && let Some(said) = said
    {
        return Subject { used: None, open: terms(&said.content).into_iter().take(MAX_WORDS).collect() };
    }
    Subject { used: last_used(request.history), open: BTreeSet::new() }
}

/// Words of an earlier request that are compared.
const MAX_WORDS: usize = 100;

fn gives_a_value(query: &Query) -> bool {
    !query.slots.is_empty()
}

/// Name of the tool whose result came last.
fn last_used(history: &[Turn]) -> Option<String> {
    let last = history.iter().rev().find(|turn| turn.role == Role::Tool)?;
    Some(last.tool_result()?.get("tool")?.as_str()?.to_owned())
}

static POINTERS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?i)下一页|上一页|下一批|后面的|后面|还有更多|更多|继续|接着|翻页|同样|同上|一样|另一|最后一|上一|下一|第[一二两三四五六七八九十\d]+|那么|还有|那|这|也|呢|再|查|看看|看|帮我|怎么样|如何|个|单|笔|件|条|份|项|页|的|吧|吗|么|啊|呀|了|(?:订单号?|单号|编号)(?:是|为)?|是|\b(?:the|same|for|and|what|how|about|first|second|third|fourth|fifth|last|next|other|another|previous|page|one|ones|more|please|show|me|too|also|again|it|is|this|that|of|to|now|then|thing|do|rest|number|order|id|my|its|it's)\b",
    )
    .expect("the pattern is constant and tested")
});

/// Ids and words that point, and nothing else.
fn is_bare(query: &Query) -> bool {
    let text = query.retrieval_text();
    // Without other text the ids themselves come back.
    let only_values = query.slots.iter().any(|slot| query.text[slot.span.clone()] == text);
    only_values || !POINTERS.replace_all(&text, " ").contains(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::normalise;

    #[test]
    fn pointing_words_alone_are_bare() {
        let bare = |text: &str| is_bare(&normalise(text).unwrap());
        for text in [
            "下一页",
            "那第二个呢",
            "same for SO-20260418000736",
            "SO-20260418000736",
            "next page please",
            "SO-20260418000736呢",
        ] {
            assert!(bare(text), "{text}");
        }
        for text in ["取消第二个", "refund the second one", "SO-20260418000736 退款", "满多少包邮"] {
            assert!(!bare(text), "{text}");
        }
    }
}
