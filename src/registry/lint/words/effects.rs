//! Rules on side effects, confirmation, keys and results.

use super::{Error, Note, Rule, Warning};

pub(in crate::registry::lint) const DESTRUCTIVE_NO_PREVIEW: Rule = Rule::new(
    "destructive-no-preview",
    Error,
    Some(Warning),
    ["Irreversible without preview or confirmation", "不可撤销却没有预览或确认"],
    [
        "What cannot be undone needs a preview tool that hands out a token, or a confirmation at the gate, so that a \
         person sees the real arguments before anything happens.",
        "不可撤销的操作需要一个发放令牌的预览工具，或由网关确认，让人在执行前看到真实的参数。",
    ],
);
pub(in crate::registry::lint) const PREVIEW_NOT_READ: Rule = Rule::new(
    "preview-not-read",
    Error,
    Some(Error),
    ["The preview tool changes something or hands out no token", "预览工具会改动数据，或不发放令牌"],
    [
        "A preview only computes: its class is `read`, and its `result_fields` let the token through.",
        "预览只做计算：类别应为 `read`，并且 `result_fields` 要放行令牌。",
    ],
);
pub(in crate::registry::lint) const TOKEN_NOT_REQUIRED: Rule = Rule::new(
    "token-not-required",
    Error,
    Some(Error),
    ["The confirmation token is not a required parameter", "确认令牌不是必填参数"],
    [
        "The order of preview and execution is kept by data: `token_param` has to be a required parameter of the tool.",
        "先预览后执行要靠数据来保证：`token_param` 必须是工具的必填参数。",
    ],
);
pub(in crate::registry::lint) const SIDE_EFFECT_TOO_LOW: Rule = Rule::new(
    "side-effect-too-low",
    Warning,
    Some(Warning),
    ["The class `write` seems too low", "类别 `write` 似乎偏低"],
    [
        "If mending a mistake needs a person, the tool is destructive: messages that leave the house, money that is \
         paid, things that are deleted or given away.",
        "如果纠错需要人工介入，这个工具就是 destructive：发出去的消息、付出去的钱、删掉或送出的东西。",
    ],
);
pub(in crate::registry::lint) const HINT_CONTRADICTION: Rule = Rule::new(
    "hint-contradiction",
    Error,
    Some(Error),
    ["The class `read` contradicts name or method", "类别 `read` 与名称或方法矛盾"],
    [
        "A tool that says it only reads runs without confirmation and may be repeated. One that deletes, sends or pays \
         by its name, its text or its HTTP method should not say so.",
        "声明只读的工具无需确认就会运行，还可能重复执行。名称、文字或 HTTP 方法表明它会删除、发送或付款时，不应声明为只读。",
    ],
);
pub(in crate::registry::lint) const MISSING_SIDE_EFFECT: Rule = Rule::new(
    "missing-side-effect",
    Note,
    Some(Note),
    ["No side effect is declared", "没有声明副作用"],
    [
        "A tool that does not say what it changes counts as destructive for gate and cache: it is chosen, but each call \
         asks for consent.",
        "没有声明副作用的工具在网关和缓存那里按 destructive 处理：照样会被选中，但每次调用都要确认。",
    ],
);
pub(in crate::registry::lint) const UNSTATED_LIMITS: Rule = Rule::new(
    "unstated-limits",
    Note,
    Some(Note),
    ["Timeout or permissions are not stated", "没有写明超时或权限"],
    [
        "Imported cards seldom say how long a call may take and what a caller needs; defaults are used, and everybody \
         may call the tool.",
        "导入的卡片通常不写超时和所需权限；这时使用默认值，而且谁都可以调用。",
    ],
);
pub(in crate::registry::lint) const NO_IDEMPOTENCY_KEY: Rule = Rule::new(
    "no-idempotency-key",
    Warning,
    Some(Note),
    ["Not idempotent and without a key", "不幂等，也没有幂等键"],
    [
        "A call that may not run twice needs `idempotency_ttl_s`; without it automatic retries are off, and a double \
         click is a double order.",
        "不能重复执行的调用需要 `idempotency_ttl_s`；没有它就不会自动重试，用户点两下就可能下两单。",
    ],
);
pub(in crate::registry::lint) const FALLBACK_NOT_READ: Rule = Rule::new(
    "fallback-not-read",
    Warning,
    Some(Warning),
    ["The fallback changes something", "后备工具会改动数据"],
    [
        "A fallback is called without being asked for; it has to be a tool that is known to read.",
        "后备工具会在没有人要求时被调用；它必须是明确只读的工具。",
    ],
);
pub(in crate::registry::lint) const NO_RESULT_FIELDS: Rule = Rule::new(
    "no-result-fields",
    Note,
    None,
    ["No white list of result fields", "没有结果字段白名单"],
    [
        "Without `result_fields` everything the backend answers reaches the model, internal ids and personal data too.",
        "没有 `result_fields`，后端返回的一切都会到达模型，包括内部编号和个人信息。",
    ],
);
pub(in crate::registry::lint) const NO_DONE_FIELD: Rule = Rule::new(
    "no-done-field",
    Note,
    None,
    ["The result of a write does not say that it took effect", "写操作的结果没有说明已生效"],
    [
        "A model that does not read that the change took effect calls again. Let the result hold a field such as `done`.",
        "模型看不到改动已生效就会再次调用。请让结果带上 `done` 之类的字段。",
    ],
);
