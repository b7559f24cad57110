//! Rules on the schema of the arguments.

use super::{Error, Note, Rule, Warning};

pub(in crate::registry::lint) const FREE_TEXT_ENUM: Rule = Rule::new(
    "free-text-enum",
    Warning,
    Some(Note),
    ["A closed set is listed in prose", "固定的取值写在文字里"],
    [
        "A set of fixed values belongs into `enum`: then a wrong value is refused before the call, and the local \
         decider can map the user's words to it.",
        "固定的取值应写进 `enum`：错误的值在调用前就会被拒绝，本地决策器也能把用户的话对应到取值。",
    ],
);
pub(in crate::registry::lint) const IDENTITY_PARAM: Rule = Rule::new(
    "identity-param",
    Error,
    Some(Note),
    ["Identity is asked for as an argument", "把身份当作参数"],
    [
        "Who calls comes from the session, never from an argument: a model fills in whatever the conversation says, so \
         access control would depend on the prompt.",
        "调用者是谁只能由会话决定，不能由参数给出：对话里说什么模型就填什么，访问控制就落到了提示词上。",
    ],
);
pub(in crate::registry::lint) const NO_LIMIT_CAP: Rule = Rule::new(
    "no-limit-cap",
    Warning,
    Some(Note),
    ["A count or size without a maximum", "数量或大小没有上限"],
    [
        "A hard cap in the schema (`maximum`) is learnt by the model before the call and protects the backend after it.",
        "写在 schema 里的上限（`maximum`）让模型在调用前就知道，也保护后端。",
    ],
);
pub(in crate::registry::lint) const NO_MAX_LENGTH: Rule = Rule::new(
    "no-max-length",
    Warning,
    Some(Note),
    ["A text of any length", "文本没有长度上限"],
    [
        "A free string needs `maxLength`, a `pattern` or an `enum`; otherwise a whole conversation can end up in it.",
        "自由文本需要 `maxLength`、`pattern` 或 `enum`；否则整段对话都可能被填进去。",
    ],
);
pub(in crate::registry::lint) const NO_MAX_ITEMS: Rule = Rule::new(
    "no-max-items",
    Note,
    Some(Note),
    ["A list of any length", "列表没有长度上限"],
    [
        "A list without `maxItems` can hold any number of entries, each of them work for the backend.",
        "没有 `maxItems` 的列表可以有任意多项，每一项都是后端的工作。",
    ],
);
pub(in crate::registry::lint) const OPEN_PROPERTIES: Rule = Rule::new(
    "open-properties",
    Warning,
    Some(Note),
    ["Unknown arguments are let through", "允许未知参数"],
    [
        "With `additionalProperties: false` a misspelt argument is refused with a hint instead of being dropped \
         silently by the backend.",
        "写上 `additionalProperties: false` 后，拼错的参数会被拒绝并给出提示，而不是被后端悄悄丢掉。",
    ],
);
pub(in crate::registry::lint) const MODEL_COMPUTES_DATE: Rule = Rule::new(
    "model-computes-date",
    Warning,
    Some(Note),
    ["The model has to work out dates", "要模型自己推算日期"],
    [
        "Users say \"last week\"; a model that turns this into dates errs on week limits, month ends and time zones. \
         Take the relative term as an enum and let the server turn it into dates.",
        "用户说的是“上周”；模型推算日期会在周界、月末和时区上出错。请用枚举接收相对时间，由服务端换算成日期。",
    ],
);
pub(in crate::registry::lint) const TOO_MANY_REQUIRED: Rule = Rule::new(
    "too-many-required",
    Warning,
    Some(Note),
    ["More than three required parameters", "必填参数超过三个"],
    [
        "Each required field costs a question or gets invented. Require only what neither the user nor the session can \
         do without.",
        "每个必填项要么多问一句，要么被编造。只把确实缺不了的设为必填。",
    ],
);
pub(in crate::registry::lint) const INVENTED_ID: Rule = Rule::new(
    "invented-id",
    Warning,
    Some(Note),
    ["A required id of which nobody says where it comes from", "必填编号没有写明从哪里来"],
    [
        "A required id or token without a pattern and without a word on its origin gets invented. Fix its form and say \
         whether it is copied from the user's words or from which tool's result.",
        "必填的编号或令牌如果没有格式，也没写来源，就会被编造。请规定格式，并写明是从用户的话里抄来，还是来自哪个工具的结果。",
    ],
);
pub(in crate::registry::lint) const NOUN_ONLY_PARAM: Rule = Rule::new(
    "noun-only-param",
    Warning,
    Some(Note),
    ["A parameter description that only repeats the name", "参数说明只是重复名称"],
    [
        "A parameter description gives the criterion and an example, not a translation of its name.",
        "参数说明应写判断标准和例子，而不是把名称翻译一遍。",
    ],
);
pub(in crate::registry::lint) const UNDESCRIBED_PARAM: Rule = Rule::new(
    "undescribed-param",
    Warning,
    Some(Note),
    ["A parameter without a description", "参数没有说明"],
    [
        "Without a description the model guesses from the name when to fill in the parameter and with what.",
        "没有说明，模型只能凭名称猜什么时候填、填什么。",
    ],
);
pub(in crate::registry::lint) const MIXED_MEANING: Rule = Rule::new(
    "mixed-meaning",
    Warning,
    Some(Note),
    ["Different actions squeezed into one tool", "一个工具里塞了不同的操作"],
    [
        "An `action` argument hides different tools behind one name: one side effect, one schema and one set of \
         scopes for all of them. Split it, a tool per action.",
        "用 `action` 参数把不同的操作藏在一个名称后面，副作用、参数和权限就只能有一套。请按操作拆成多个工具。",
    ],
);
pub(in crate::registry::lint) const CODED_VALUES: Rule = Rule::new(
    "coded-values",
    Warning,
    Some(Note),
    ["Values are the backend's codes", "取值是后端的代码"],
    [
        "Argument values are the user's words, not the database's: a model does not know what 30 stands for. Use words \
         and let the server map them.",
        "参数取值应是用户的话，而不是数据库代码：模型不知道 30 代表什么。请用词语，由服务端对应到代码。",
    ],
);
pub(in crate::registry::lint) const DEFAULT_OUTSIDE: Rule = Rule::new(
    "default-outside-schema",
    Error,
    Some(Warning),
    ["The default is not a value the schema allows", "默认值不在允许范围内"],
    [
        "Defaults are filled in before the call; one that the schema refuses fails every call that relies on it.",
        "默认值会在调用前填入；schema 不允许的默认值会让依赖它的调用全部失败。",
    ],
);
pub(in crate::registry::lint) const SIMILAR_PARAMS: Rule = Rule::new(
    "similar-params",
    Warning,
    Some(Note),
    ["Two parameters differ only in case or separators", "两个参数名只差大小写或分隔符"],
    [
        "orderId and order_id in one tool get mixed up; one field has one meaning and one name.",
        "同一个工具里的 orderId 和 order_id 会被弄混；一个字段只有一个含义和一个名称。",
    ],
);
pub(in crate::registry::lint) const REQUIRED_UNKNOWN: Rule = Rule::new(
    "required-unknown",
    Error,
    Some(Warning),
    ["A required parameter is not described in the schema", "必填参数没有出现在 schema 里"],
    [
        "`required` names a property that `properties` does not hold: nobody knows its type, and where unknown \
         properties are refused, no call can succeed.",
        "`required` 里的名称在 `properties` 里没有：谁也不知道它的类型；如果拒绝未知参数，任何调用都不会成功。",
    ],
);
pub(in crate::registry::lint) const DEEP_PARAMETERS: Rule = Rule::new(
    "deep-parameters",
    Note,
    Some(Note),
    ["Arguments are nested deeply", "参数嵌套过深"],
    [
        "Models fill in flat arguments far better than nested ones. Lift what users really name to the top level.",
        "模型填写扁平参数比嵌套参数可靠得多。请把用户真正会说到的内容提到最外层。",
    ],
);
