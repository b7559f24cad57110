//! The wordings that mark a part of a description, in Chinese and English.
//!
//! Owns: where one statement ends, which part it belongs to, where its case and its tool stand in it.
//! Does not know: the statements around it.
//!
//! What a tool must do before or after another ("first call X") is no boundary, and "use this instead of X" speaks for
//! the tool itself: both stay what they are.

use std::ops::Range;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::text::to_nfkc;

/// Longest rest after the name of a tool that still belongs to the case, in characters.
const MAX_TAIL: usize = 40;

/// A longer statement is no simple one, in bytes.
const MAX_STATEMENT: usize = 600;

/// What a statement is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A case that is not the tool's.
    Boundary,
    /// The tool for the case of the statement before.
    Pointer,
    When,
    Returns,
}

/// A statement that marks a part; places are counted from its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub kind: Kind,
    /// In order.
    pub cases: Vec<Range<usize>>,
    pub tool: Option<Range<usize>>,
}

/// A heading under which every statement belongs to one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    When,
    NotFor,
    Returns,
}

impl Section {
    /// A statement under this heading that says nothing about its part itself.
    pub fn whole(self, said: &str) -> Found {
        let kind = match self {
            Self::When => Kind::When,
            Self::NotFor => Kind::Boundary,
            Self::Returns => Kind::Returns,
        };
        let is_edge = |c: char| c.is_whitespace() || "-*•·,.;，。；、".contains(c);
        let start = said.len() - said.trim_start_matches(is_edge).len();
        let end = said.trim_end_matches(is_edge).len().max(start);
        Found { kind, cases: std::iter::once(start..end).collect(), tool: None }
    }
}

/// Bullets, numbers and words of attention before a statement, and marks after it.
const LEAD: &str = r"^[\s\-–—*•·(（]*(?:\d+[.)、]\s*)?(?:(?:please\s+)?note(?:\s+that)?[:,]?\s+|(?:important|warning|caution)[:,!]\s*|注意[:：,，]?\s*|but\s+|但是?)?";
const END: &str = r"[\s.。!！?？;；,，、)）`'”’」]*$";
/// The tool itself.
const THIS: &str = r"(?:this(?:\s+(?:tool|function|endpoint|api|action|one))?|it)";
const THIS_ZH: &str = r"(?:(?:本|此|该|这个)(?:工具|接口|函数|功能|方法)|它)";
/// A call for another tool, by name.
const USE: &str = r#"(?:please\s+)?(?:always\s+)?(?:use|call|prefer|run|try|choose|invoke)\s+(?:the\s+)?[`'"“‘]*(?P<tool>[\w][\w./:-]*)(?:\(\))?[`'"”’]*(?:\s+(?:tool|function|endpoint)\b)?"#;
const USE_ZH: &str = r#"(?:请改用|请使用|请调用|请用|请选择|应该?改用|应该?使用|应该?调用|应该?用|则使用|则调用|则用|改用)\s*[`'"“‘「]*(?P<tool>[\w][\w./:-]*)(?:\(\))?[`'"”’」]*\s*(?:工具|接口|函数|功能|方法)?"#;
const NEVER: &str =
    r"(?:do\s+not|don['’]t|never|avoid|(?:should|must|can|may)\s*not\s+be)\s+(?:use|used|using|call|called|calling)";
const NEVER_ZH: &str = r"(?:请勿|请不要|不要|不得|不可以?|不能|不应该?|切勿)";

struct Pattern {
    kind: Kind,
    regex: Regex,
}

fn pattern(kind: Kind, body: &str) -> Pattern {
    let body = body
        .replace("{never}", NEVER)
        .replace("{never_zh}", NEVER_ZH)
        .replace("{this}", THIS)
        .replace("{this_zh}", THIS_ZH)
        .replace("{use}", USE)
        .replace("{use_zh}", USE_ZH);
    let regex = Regex::new(&format!("(?is){LEAD}{body}{END}")).expect("the patterns are constant and tested");
    Pattern { kind, regex }
}

/// Statements with another tool's name in them, which must be one; the first that fits counts.
static NAMING: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    let boundary = |body| pattern(Kind::Boundary, body);
    vec![
        pattern(
            Kind::Pointer,
            r"(?:instead(?:\s+of\s+{this})?,?\s+)?{use}(?:\s+(?:instead|for\s+(?:that|those|this)|in\s+(?:that|those)\s+cases?))?",
        ),
        pattern(Kind::Pointer, r"(?:而是?)?{use_zh}(?:代替|替代)?"),
        boundary(
            r"(?:{this}\s+(?:is\s+)?)?(?:not\s+for|{never}(?:\s+{this})?\s+(?:for|when|whenever|if|to))\s+(?P<case>.+?)[\s,;:(–—-]+(?:but\s+|and\s+)?(?:instead,?\s+)?{use}(?:\s+instead)?",
        ),
        boundary(
            r"(?:for|if|when|whenever|in\s+case\s+of)\s+(?P<case>.+?),?\s+(?:then\s+)?(?:{never}\s+{this}[\s,;:]*(?:but|and)?\s+)?{use}(?:\s+instead)?(?P<tail>.*?)",
        ),
        boundary(r"to\s+(?P<case>.+?),?\s+{use}\s+instead"),
        boundary(
            r"(?:instead(?:\s+of\s+{this})?,?\s+)?{use}(?:\s+(?:instead|rather))?(?:\s+(?:of|than)\s+{this})?\s+(?:for|when|whenever|if)\s+(?P<case>.+?)(?:\s+instead)?",
        ),
        boundary(r"instead(?:\s+of\s+{this})?,?\s+{use}\s+to\s+(?P<case>.+?)"),
        boundary(r"{use}\s+instead(?:\s+of\s+{this})?\s+to\s+(?P<case>.+?)"),
        boundary(
            r"(?:如需要?|如要|若需要?|若要|如果|如|若|想要|需要|对于|当|涉及)?\s*(?P<case>.*?[^请应改则\s,，])\s*(?:时|的话|的时候)?[\s,，]*(?:{never_zh}(?:使用|用|调用){this_zh}?[\s,，]*(?:而是?)?)?{use_zh}(?P<tail>.*?)",
        ),
    ]
});

/// Statements that need no other tool.
static PLAIN: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    let boundary = |body| pattern(Kind::Boundary, body);
    vec![
        boundary(r"(?:(?:{this}|the\s+tool)\s+)?{never}(?:\s+{this})?\s+(?:for|when|whenever|if|to)\s+(?P<case>.+?)"),
        boundary(
            r"(?:(?:{this}|the\s+tool)\s+is\s+)?not\s+(?:(?:intended|meant|suitable|designed|suited|appropriate)\s+(?:for|to)|to\s+be\s+used\s+(?:for|to|when|if)|for)\s+(?P<case>.+?)",
        ),
        boundary(r"(?:if|when)\s+(?P<case>.+?),\s*(?:then\s+)?{never}\s+{this}"),
        boundary(r"{this_zh}?(?:并不|不)(?:适用于|适合用于|适合用来|适合|用于|是用来|是用于)(?P<case>.+?)"),
        boundary(
            r"{this_zh}?{never_zh}(?:被?用于|被?用来|使用{this_zh}(?:来|于|进行)?|用它来?|用{this_zh}来?|将其用于)(?P<case>.+?)",
        ),
        boundary(r"(?:如果|如|若|当)?(?P<case>.+?)(?:时|的话|的时候)?[,，]?{never_zh}(?:使用|调用|用){this_zh}"),
        pattern(
            Kind::When,
            r"(?:please\s+)?(?:use|call|choose|invoke)\s+{this}\s+(?:when(?:ever)?|if|for|to)\s+(?P<case>.+?)",
        ),
        pattern(Kind::When, r"(?:when\s+to\s+use|use\s+cases?|使用场景|适用场景|使用时机)\s*[:：]\s*(?P<case>.+?)"),
        pattern(Kind::When, r"当\s*(?P<case>.+?)时[,，]?(?:请|可以?|应)?(?:使用|调用|用){this_zh}?"),
        pattern(Kind::Returns, r"(?:(?:{this}|the\s+(?:tool|function))\s+(?:will\s+)?)?returns?\b[:\s].+"),
        pattern(Kind::Returns, r"{this_zh}?(?:将|会)?返回(?:值|结果|数据)?[:：]?.+"),
    ]
});

/// What `said` is, if its wording marks a part. `is_other` knows the names of other tools.
pub(super) fn find(said: &str, is_other: &dyn Fn(&str) -> bool) -> Option<Found> {
    if said.len() > MAX_STATEMENT {
        return None;
    }
    let naming = || NAMING.iter().find_map(|pattern| read(pattern, said, is_other));
    let plain = || PLAIN.iter().find_map(|pattern| read(pattern, said, is_other));
    naming().or_else(plain)
}

/// Whether `said` does nothing but send to some other tool, known or not.
pub(super) fn points_elsewhere(said: &str, same_sentence: bool) -> bool {
    let is_explicit = || said.to_ascii_lowercase().contains("instead") || said.contains("改用");
    let mut pointers = NAMING.iter().filter(|pattern| pattern.kind == Kind::Pointer);
    said.len() <= MAX_STATEMENT
        && (same_sentence || is_explicit())
        && pointers.any(|Pattern { regex, .. }| regex.is_match(said))
}

fn read(Pattern { kind, regex }: &Pattern, said: &str, is_other: &dyn Fn(&str) -> bool) -> Option<Found> {
    let captures = regex.captures(said)?;
    let named = captures.name("tool");
    if let Some(name) = named {
        tool(name.as_str(), is_other)?;
    }
    if captures.name("case").is_some_and(|case| NO_CASE.is_match(case.as_str())) {
        return None;
    }
    let cases = cases(&captures)?;
    Some(Found { kind: *kind, cases, tool: named.map(|name| name.range()) })
}

/// Ends of a case that show that the sentence says something else: "if it fails, do not use Y", "if possible".
static NO_CASE: LazyLock<Regex> = LazyLock::new(|| {
    let ends = r"(?i)(?:\b(?:not|never|cannot|to|must|and|or|first)|n['’]t|[不别勿要先会能])\s*$";
    let words = r"^\s*(?:possible|available|needed|necessary|in doubt|可能|需要|必要)\s*$";
    Regex::new(&format!("{ends}|{words}")).expect("the pattern is constant and tested")
});

/// `None` if what follows the tool's name is too long to belong to the case: then the sentence tells more than that.
fn cases(captures: &Captures<'_>) -> Option<Vec<Range<usize>>> {
    let tail = captures.name("tail").filter(|tail| !tail.as_str().trim().is_empty());
    if tail.is_some_and(|tail| tail.as_str().chars().count() > MAX_TAIL) {
        return None;
    }
    let case = captures.name("case").into_iter();
    Some(case.chain(tail).map(|part| part.range()).collect())
}

/// The other tool that `written` names: as it stands, in plain characters, or without the noun that follows.
pub(super) fn tool(written: &str, is_other: &dyn Fn(&str) -> bool) -> Option<String> {
    const NOUNS: [&str; 5] = ["工具", "接口", "函数", "功能", "方法"];
    let plain = to_nfkc(written);
    let trimmed = plain.trim_end_matches(['.', '/', ':', '-']);
    let without_noun = NOUNS.iter().find_map(|noun| trimmed.strip_suffix(noun)).unwrap_or(trimmed);
    // "请用refund_order来处理": where scripts change, a name may end.
    let latin = trimmed.find(|c: char| !c.is_ascii()).map_or(trimmed, |end| &trimmed[..end]);
    let names = [written, plain.as_str(), trimmed, without_noun, latin];
    names.into_iter().find(|name| !name.is_empty() && is_other(name)).map(str::to_owned)
}

static HEADING: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?i)^[\s\-*#]*(?:(?P<not>when\s+not\s+to\s+use(?:\s+(?:this|it))?(?:\s+tool)?|do\s+not\s+use\s+(?:this\s+(?:tool\s+)?)?(?:for|when|if)|not\s+for|不适用(?:场景)?|不要使用|何时不(?:要)?用|禁用场景)|(?P<when>when\s+to\s+use(?:\s+(?:this|it))?(?:\s+tool)?|use\s+(?:this\s+(?:tool\s+)?)?(?:for|when|if)|use\s+cases?|使用场景|适用场景|何时使用)|(?P<returns>returns?|返回值?|返回结果))\s*\**[:：]\**\s*$",
    )
    .expect("the pattern is constant and tested")
});

/// The section that a line of its own opens.
pub(super) fn heading(line: &str) -> Option<Section> {
    let captures = HEADING.captures(line)?;
    let has = |name| captures.name(name).is_some();
    match (has("not"), has("when")) {
        (true, _) => Some(Section::NotFor),
        (_, true) => Some(Section::When),
        (false, false) => Some(Section::Returns),
    }
}

/// Whether a section ends before `segment`: at an empty line, or at a heading.
pub(super) fn ends_section(text: &str, segment: &Range<usize>) -> bool {
    let before = text[..segment.start].trim_end_matches([' ', '\t', '\r']);
    let at_line_start = before.ends_with('\n');
    let said = &text[segment.clone()];
    at_line_start && (said.trim().is_empty() || said.trim_end().ends_with([':', '：']))
}

static CUT: LazyLock<Regex> = LazyLock::new(|| {
    // A statement ends after these.
    Regex::new(r#"\n|[。！？；;]|[.!?]+['"”’)\]]*(?:\s|$)|[,，]|,?\s+(?:[-–—]+)\s"#)
        .expect("the pattern is constant and tested")
});
static ABBREVIATION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(?:e\.g|i\.e|vs|cf|approx|no|incl)\.?$").expect("the pattern is constant and tested")
});
/// A condition stays with what follows its comma.
static CONDITION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^[\s\-*•]*(?:注意[:：]?)?(?:如|若|当|对于|想要|需要|涉及)")
        .expect("the pattern is constant and tested")
});
/// What goes on with the statement before a comma.
static GOES_ON: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\s*(?:或|以及|和|及|并|等)").expect("the pattern is constant and tested"));
/// What does not.
static NEW_CLAUSE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)^\s+(?:but\s+)?(?:not\s+for|do\s+not\s+use|don['’]t\s+use|never\s+use)\b")
        .expect("the pattern is constant and tested")
});

/// "dogs, cats, etc. in one house" is one statement.
fn goes_on_after_etc(said: &str, rest: &str) -> bool {
    said.to_ascii_lowercase().ends_with("etc") && rest.trim_start().starts_with(char::is_lowercase)
}

/// The statements of `text`, in order and without gaps; marks and blanks go with the statement they end.
pub(super) fn segments(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    for mark in CUT.find_iter(text) {
        let said = &text[from..mark.start()];
        let rest = &text[mark.end()..];
        let ends = match mark.as_str().trim_start().chars().next() {
            Some(',' | '，') if !mark.as_str().contains(['-', '–', '—']) => {
                let is_chinese = said.chars().any(crate::text::language::is_han);
                let goes_on = CONDITION.is_match(said) || GOES_ON.is_match(rest);
                (is_chinese && !goes_on) || NEW_CLAUSE.is_match(rest)
            }
            Some('.') => !ABBREVIATION.is_match(said) && !goes_on_after_etc(said, rest),
            Some(_) | None => true,
        };
        if ends && mark.end() > from {
            found.push(from..mark.end());
            from = mark.end();
        }
    }
    if from < text.len() {
        found.push(from..text.len());
    }
    found
}
