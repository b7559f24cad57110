//! Rules on what a card could smuggle in or draw out.

use super::{Error, Rule, Warning};

pub(in crate::registry::lint) const INJECTION_PHRASE: Rule = Rule::new(
    "injection-phrase",
    Error,
    Some(Error),
    ["The text gives orders to the model", "文字在向模型下命令"],
    [
        "Descriptions are read by the model beside its instructions. Text that tells it to ignore them, to keep \
         something from the user or to call a tool whatever is asked is an attack or looks like one.",
        "模型会把描述和指令放在一起读。让它忽略指令、对用户隐瞒、无论问什么都先调用某个工具的文字，就是攻击，或者看起来像攻击。",
    ],
);
pub(in crate::registry::lint) const HIDDEN_CHARACTERS: Rule = Rule::new(
    "hidden-characters",
    Error,
    Some(Error),
    ["Invisible characters in a text", "文字里有不可见字符"],
    [
        "Zero-width characters, controls of the writing direction and tag characters are read by the model and not \
         seen by people; they hide instructions or make two names look alike.",
        "零宽字符、书写方向控制符和标签字符，模型读得到，人看不见；它们可以隐藏指令，或让两个名称看起来一样。",
    ],
);
pub(in crate::registry::lint) const MIXED_SCRIPT_NAME: Rule = Rule::new(
    "mixed-script-name",
    Warning,
    Some(Warning),
    ["Look-alike letters of another script in a name", "名称里混入外形相似的其他字母"],
    [
        "A Cyrillic or Greek letter among Latin ones makes a name that looks like another and is not.",
        "拉丁字母里混入西里尔或希腊字母，名称看起来和另一个一样，其实不是。",
    ],
);
pub(in crate::registry::lint) const SECRET_PARAM: Rule = Rule::new(
    "secret-param",
    Error,
    Some(Warning),
    ["A secret is asked for as an argument", "把机密当作参数"],
    [
        "Passwords, keys and card numbers would stand in the conversation, in prompts and in logs. Let the server add \
         them to the call, or send the user to a page made for it.",
        "密码、密钥和卡号会留在对话、提示词和日志里。请由服务端加到调用中，或让用户到专门的页面填写。",
    ],
);
pub(in crate::registry::lint) const SECRET_VALUE: Rule = Rule::new(
    "secret-value",
    Error,
    Some(Error),
    ["The card holds what looks like a key", "卡片里有疑似密钥的内容"],
    [
        "Everything in a card goes into prompts. A key that stands there has to be taken out and replaced at its issuer.",
        "卡片里的内容都会进入提示词。出现在这里的密钥必须删除，并在签发方更换。",
    ],
);
