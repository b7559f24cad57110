//! Rules on descriptions and wordings.

use super::{Note, Rule, Warning};

pub(in crate::registry::lint) const VAGUE_DESCRIPTION: Rule = Rule::new(
    "vague-description",
    Warning,
    Some(Note),
    ["The description names no action on an object", "描述没有写明对什么做什么"],
    [
        "The first part of a description starts with a verb, names the object and says whether anything is changed. \
         Text that would fit any tool attracts every request and explains none.",
        "描述的第一部分应以动词开头，写明对象，并说明是否有改动。放在任何工具上都成立的文字会吸引所有请求，却说明不了任何一个。",
    ],
);
pub(in crate::registry::lint) const MISSING_WHEN_NOT: Rule = Rule::new(
    "missing-when-not",
    Warning,
    Some(Note),
    ["No case is excluded", "没有写明何时不用"],
    [
        "The third part of a description (`when_not_to_use`) excludes cases and names the tool that serves each. \
         Without it the tool has no border, and look-alikes steal each other's requests.",
        "描述的第三部分（`when_not_to_use`）排除不适用的情况，并写明各自该用哪个工具。没有它，工具就没有边界，相似的工具会互相抢请求。",
    ],
);
pub(in crate::registry::lint) const MISSING_RETURNS: Rule = Rule::new(
    "missing-returns",
    Warning,
    Some(Note),
    ["Nothing is said about the result", "没有写明返回什么"],
    [
        "The fourth part of a description (`returns`) states the fields and the size of the result, so that the model \
         knows whether the tool can answer the question at all.",
        "描述的第四部分（`returns`）写明结果的字段和大小，模型才知道这个工具能不能回答问题。",
    ],
);
pub(in crate::registry::lint) const VAGUE_RETURNS: Rule = Rule::new(
    "vague-returns",
    Warning,
    Some(Note),
    ["The result is described without fields and size", "返回说明缺少字段和大小"],
    [
        "\"Returns the result\" says nothing. Name the fields and how many rows or characters there can be.",
        "“返回结果”等于没说。请写出字段，以及最多多少行或多少字符。",
    ],
);
pub(in crate::registry::lint) const INTERNAL_JARGON: Rule = Rule::new(
    "internal-jargon",
    Warning,
    Some(Note),
    ["Names of systems, tables or functions in text the model reads", "模型要读的文字里出现系统、表或函数名"],
    [
        "Names of internal systems, tables and functions mean nothing to the model, match nothing a user says and \
         show outsiders how the inside looks. Say it in the user's words.",
        "内部系统、表和函数的名称对模型没有意义，和用户的话也对不上，还会暴露内部结构。请用用户的话来写。",
    ],
);
pub(in crate::registry::lint) const FEW_WORDINGS: Rule = Rule::new(
    "few-wordings",
    Note,
    None,
    ["Hardly any wording of users is given", "几乎没有写用户的说法"],
    [
        "Wordings of users are the strongest lever of the search: three examples a tool gain more than any rewriting \
         of the description.",
        "用户的说法对检索帮助最大：每个工具写三条例句，比怎么改描述都有效。",
    ],
);
pub(in crate::registry::lint) const ONE_LANGUAGE_ONLY: Rule = Rule::new(
    "one-language-only",
    Note,
    None,
    ["Wordings in one language only", "说法只有一种语言"],
    [
        "Most cards of this registry hold wordings in Chinese and in English; this one would be found worse in the \
         language that is missing.",
        "这个注册表的大多数卡片都有中英文两种说法；缺一种语言的卡片在那种语言里更难被找到。",
    ],
);
pub(in crate::registry::lint) const DUPLICATE_WORDING: Rule = Rule::new(
    "duplicate-wording",
    Warning,
    Some(Note),
    ["The same wording stands in two tools", "同一说法出现在两个工具里"],
    [
        "A wording that leads to two tools decides nothing. Keep it with the tool that should win and draw a boundary \
         at the other.",
        "同一句话指向两个工具，就等于没有指向。请把它留给该胜出的工具，并在另一个工具上写明边界。",
    ],
);
pub(in crate::registry::lint) const LONG_DESCRIPTION: Rule = Rule::new(
    "long-description",
    Note,
    Some(Note),
    ["The description is very long", "描述过长"],
    [
        "Encoders read the beginning only, and every prompt that shows the tool pays for all of it. Put name and \
         purpose first and move manuals elsewhere.",
        "编码器只读开头部分，而每次把工具放进提示词都要为全文付费。请把名称和用途放在最前，手册类内容移到别处。",
    ],
);
pub(in crate::registry::lint) const BOUNDARY_WITHOUT_TOOL: Rule = Rule::new(
    "boundary-without-tool",
    Note,
    None,
    ["An excluded case names no tool", "排除的情况没有写明改用哪个工具"],
    [
        "A boundary with `use` pulls the right tool into the shortlist; without it the case is only turned away.",
        "写了 `use` 的边界会把正确的工具带进候选；不写就只是把请求拒之门外。",
    ],
);
