//! Rules on how the cards of a set stand to each other.

use super::{Error, Note, Rule, Warning};

pub(in crate::registry::lint) const DUPLICATE_MEANING: Rule = Rule::new(
    "duplicate-meaning",
    Warning,
    Some(Note),
    ["Two tools mean the same", "两个工具含义相同"],
    [
        "Whichever of two synonyms is chosen is right and wrong. Keep one, or say in both what sets them apart.",
        "两个工具同义，选哪个都既对又错。请只留一个，或在两边写明区别。",
    ],
);
pub(in crate::registry::lint) const MERGE_CANDIDATE: Rule = Rule::new(
    "merge-candidate",
    Warning,
    Some(Note),
    ["Two tools with equal arguments differ in a shade", "两个工具参数相同，只差一点含义"],
    [
        "Equal arguments with another shade of meaning become one tool with a `type` enum: the choice between values \
         is easier than the choice between tools.",
        "参数相同、含义只差一点的工具应合并成一个，用 `type` 枚举区分：选取值比选工具容易。",
    ],
);
pub(in crate::registry::lint) const MISSING_BOUNDARY: Rule = Rule::new(
    "missing-boundary",
    Warning,
    Some(Note),
    ["Two close tools draw no border", "两个相近的工具没有划清边界"],
    [
        "Tools that look alike point at each other in `when_not_to_use`; without that, small changes of wording decide \
         which one is taken.",
        "相似的工具应在 `when_not_to_use` 里互相指明；否则用户换个说法，选中的工具就变了。",
    ],
);
pub(in crate::registry::lint) const ONE_SIDED_BOUNDARY: Rule = Rule::new(
    "one-sided-boundary",
    Warning,
    Some(Note),
    ["Only one of two close tools names the other", "两个相近的工具只有一方指明另一方"],
    [
        "A border holds in both directions: a request that reaches the silent side first has no way back.",
        "边界要双向成立：请求先落到没写边界的一方，就没有退路。",
    ],
);
pub(in crate::registry::lint) const ONE_SIDED_CONFLICT: Rule = Rule::new(
    "one-sided-conflict",
    Warning,
    Some(Warning),
    ["Only one of two conflicting tools declares it", "互斥只在一方声明"],
    [
        "Tools that exclude each other list each other in `conflicts_with`; readers of one card should not have to \
         know the other.",
        "互斥的工具应在 `conflicts_with` 里互相列出；看一张卡片的人不应非得知道另一张。",
    ],
);
pub(in crate::registry::lint) const UNKNOWN_TOOL_REFERENCE: Rule = Rule::new(
    "unknown-tool-reference",
    Error,
    Some(Warning),
    ["A card names a tool that does not exist", "引用了不存在的工具"],
    [
        "`use`, `requires`, `conflicts_with`, `fallback` and `confirmation.tool` name tools of the same registry. A \
         native card with such a fault is quarantined.",
        "`use`、`requires`、`conflicts_with`、`fallback` 和 `confirmation.tool` 只能写同一注册表里的工具。有此错误的原生卡片会被隔离。",
    ],
);
pub(in crate::registry::lint) const QUARANTINED_REFERENCE: Rule = Rule::new(
    "quarantined-reference",
    Warning,
    Some(Note),
    ["A card names a tool that is quarantined", "引用的工具已被隔离"],
    [
        "The tool exists in the file but is not served, so the boundary, requirement or fallback leads nowhere until it \
         is mended.",
        "文件里有这个工具，但它没有上线；在它修好之前，边界、前置或后备都不起作用。",
    ],
);
pub(in crate::registry::lint) const SELF_REFERENCE: Rule = Rule::new(
    "self-reference",
    Warning,
    Some(Note),
    ["A card names itself", "卡片引用了自己"],
    [
        "A tool cannot be its own alternative, requirement or fallback; mostly a card was copied and not finished.",
        "工具不能是自己的替代、前置或后备；多半是复制卡片后没有改完。",
    ],
);
pub(in crate::registry::lint) const REQUIRES_CYCLE: Rule = Rule::new(
    "requires-cycle",
    Error,
    Some(Warning),
    ["Tools require each other in a circle", "前置工具互相依赖成环"],
    [
        "If each tool of a circle needs the result of another first, none of them can ever be called.",
        "环里的每个工具都要先有另一个的结果，结果谁也无法被调用。",
    ],
);
pub(in crate::registry::lint) const CONFLICTS_WITH_REQUIRED: Rule = Rule::new(
    "conflicts-with-required",
    Error,
    Some(Warning),
    ["A tool excludes what it requires", "工具与自己的前置互斥"],
    [
        "`requires` says that the other tool's result is needed, `conflicts_with` that both may not stand in one plan.",
        "`requires` 表示需要另一个工具的结果，`conflicts_with` 表示两者不能出现在同一个计划里。",
    ],
);
pub(in crate::registry::lint) const REPEATED_BOUNDARY: Rule = Rule::new(
    "repeated-boundary",
    Note,
    Some(Note),
    ["The same case is excluded twice", "同一情况排除了两次"],
    [
        "A case that stands twice in `when_not_to_use` costs tokens, and if the tools differ it contradicts itself.",
        "同一情况在 `when_not_to_use` 里写了两次，多占 token；如果指向不同的工具，还自相矛盾。",
    ],
);
pub(in crate::registry::lint) const MISSING_DOMAIN: Rule = Rule::new(
    "missing-domain",
    Note,
    None,
    ["The card names no domain although others do", "其他卡片有领域，这张没有"],
    [
        "Callers narrow a request to domains; a tool without one is left out of every such request.",
        "调用方会把请求限定在某些领域；没有领域的工具在这些请求里都会被漏掉。",
    ],
);
