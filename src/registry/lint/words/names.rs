//! Rules on the names of tools.

use super::{Note, Rule, Warning};

pub(in crate::registry::lint) const GENERIC_NAME: Rule = Rule::new(
    "generic-name",
    Warning,
    Some(Note),
    ["The name says nothing about the business", "名称不含业务含义"],
    [
        "A name such as do_service or get_data would fit any tool, so it helps neither the search nor the model. Name \
         the action and the object it is about.",
        "do_service、get_data 这类名称放在任何工具上都成立，检索和模型都得不到信息。请写出动作和业务对象。",
    ],
);
pub(in crate::registry::lint) const NAME_NO_VERB: Rule = Rule::new(
    "name-no-verb",
    Warning,
    Some(Note),
    ["The name does not start with a verb", "名称没有以动词开头"],
    [
        "Names that start with a verb tell reading from changing at a glance and line up with what users ask for. Put \
         the verb first: get_warranty rather than warranty_lookup.",
        "动词开头的名称让人一眼分清是查询还是改动，也更贴近用户的说法。请把动词放在最前：用 get_warranty，不用 warranty_lookup。",
    ],
);
pub(in crate::registry::lint) const ABBREVIATION: Rule = Rule::new(
    "abbreviation",
    Warning,
    Some(Note),
    ["The name is abbreviated", "名称使用了缩写"],
    [
        "The model and the search know words, not a team's shorthand: ord_qry matches neither order nor query. Spell \
         the words out.",
        "模型和检索认识单词，不认识团队内部的简写：ord_qry 既匹配不到 order 也匹配不到 query。请写全单词。",
    ],
);
pub(in crate::registry::lint) const SIMILAR_NAME: Rule = Rule::new(
    "similar-name",
    Warning,
    Some(Note),
    ["Two names are easily mistaken for each other", "两个名称容易混淆"],
    [
        "Names that differ only in case, separators, one letter or their source are mistaken for each other by models \
         and by people. Rename one of them after what sets it apart.",
        "只在大小写、分隔符、一个字母或来源上不同的名称，模型和人都容易弄混。请按两者的区别改其中一个的名称。",
    ],
);
