use std::fmt::Write;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::registry::{Registry, from_values, merge, overlay};
use crate::types::ToolId;

const NAMES: [&str; 6] = ["get_order", "refund_order", "search_orders", "variant_searcher", "退款申请", "faq.search"];

fn is_tool(name: &str) -> bool {
    NAMES.contains(&name)
}

/// The parts, one a line: `what | when: … | not: … -> tool | returns: …`.
fn shown(text: &str) -> String {
    let Some(parts) = split("own_tool", text, &is_tool) else { return "whole".into() };
    let when = parts.when_to_use.iter().map(|when| format!("when: {when}"));
    let not = parts.when_not_to_use.iter().map(|border| {
        let tool = border.use_tool.as_ref().map(|tool| format!(" -> {tool}")).unwrap_or_default();
        format!("not: {}{tool}", border.case)
    });
    let returns = parts.returns.iter().map(|returns| format!("returns: {returns}"));
    std::iter::once(parts.what.clone()).chain(when).chain(not).chain(returns).collect::<Vec<_>>().join(" | ")
}

#[track_caller]
fn check(text: &str, expect: &str) {
    assert_eq!(shown(text), expect, "{text}");
}

#[test]
fn boundaries_in_english() {
    check("Cancel an order. For refunds, use `refund_order`.", "Cancel an order. | not: refunds -> refund_order");
    check("Cancel an order. Use refund_order instead for refunds", "Cancel an order. | not: refunds -> refund_order");
    check(
        "Cancel. Use the refund_order tool when money is to go back.",
        "Cancel. | not: money is to go back -> refund_order",
    );
    check(
        "Cancel. Instead of this, use refund_order to pay money back.",
        "Cancel. | not: pay money back -> refund_order",
    );
    check(
        "Cancel an order. Do not use this for refunds; use refund_order.",
        "Cancel an order. | not: refunds -> refund_order",
    );
    check(
        "Cancel an order. Do NOT use this tool for refunds. Use refund_order() instead.",
        "Cancel an order. | not: refunds -> refund_order",
    );
    check("Cancel an order; not for returns or swaps.", "Cancel an order; | not: returns or swaps");
    check("Cancel an order, not for returns.", "Cancel an order, | not: returns");
    check(
        "List. If an author is given, then DO NOT use this tool and use the search_orders tool instead.",
        "List. | not: an author is given -> search_orders",
    );
    check("Control. Note that this tool is not intended for removing modes.", "Control. | not: removing modes");
    check("Edit. It should not be used when details are missing.", "Edit. | not: details are missing");
    check("Read one. Never use it to search, use search_orders.", "Read one. | not: search -> search_orders");
}

#[test]
fn boundaries_in_chinese() {
    check("取消订单。如需退款请使用 refund_order。", "取消订单。 | not: 退款 -> refund_order");
    check("取消订单，退款请用refund_order", "取消订单， | not: 退款 -> refund_order");
    check("取消订单。不要用于退款；退款请用 refund_order 工具。", "取消订单。 | not: 退款 | not: 退款 -> refund_order");
    check("取消订单。不要用于退款，请改用 refund_order。", "取消订单。 | not: 退款 -> refund_order");
    check("取消订单。本工具不适用于已发货的订单。", "取消订单。 | not: 已发货的订单");
    check(
        "列出订单。如果用户给出了单号，不要使用本工具，请改用 get_order。",
        "列出订单。 | not: 用户给出了单号 -> get_order",
    );
    check("取消订单。需要退款时，请改用「退款申请」工具。", "取消订单。 | not: 退款 -> 退款申请");
    check("取消订单。退款请用ｒｅｆｕｎｄ＿ｏｒｄｅｒ！", "取消订单。 | not: 退款 -> refund_order");
    check("Cancel an order。退款 refund 请用 `refund_order`。", "Cancel an order。 | not: 退款 refund -> refund_order");
}

#[test]
fn positive_parts_in_both_languages() {
    check(
        "Read one order. Use this when the customer gives a number. Returns one object.",
        "Read one order. | when: the customer gives a number | returns: Returns one object.",
    );
    check(
        "查询订单。当用户询问订单状态时使用。返回订单对象。",
        "查询订单。 | when: 用户询问订单状态 | returns: 返回订单对象。",
    );
    check(
        "Read one order.\n\nWhen NOT to use:\n- refunds\n- Use search_orders when no number is given\n\nReturns:\n  dict: the order\n  or nothing\n\nArgs:\n  id: its number",
        "Read one order.\n\n\n\nArgs:\n  id: its number | not: refunds | not: no number is given -> search_orders | returns: dict: the order\n  or nothing",
    );
    check("查询订单\n不适用场景：\n- 退款\n- 找商品\n", "查询订单 | not: 退款 | not: 找商品");
}

#[test]
fn what_is_no_boundary_stays_whole() {
    for text in [
        "",
        "Returns the weather of a city.",
        "返回天气",
        "Use this instead of 'get_order' with many numbers.",
        "For best results, use short queries.",
        "For ANY local file, ALWAYS use this instead of the analysis tool.",
        "Edit. Before using this tool, first get the hash using get_order.",
        "Get items. In order to return XML instead of JSON, add a header.",
        "查询订单，支持分页，使用方便。",
        "Use unknown_tool instead for refunds.",
        "Approve. If the user does not agree, do not call get_order.",
        "Read. Prefer get_order if possible.",
        "替换。如需替换，请组合使用`get_order`和`refund_order`功能",
        "删除订单。\n- 插入一项（使用`get_order`功能）",
        "Do not forget to pass the header.",
    ] {
        check(text, "whole");
    }
}

#[test]
fn a_tool_does_not_point_to_itself_and_unknown_names_point_nowhere() {
    let own = split("refund_order", "Pay back. Not for swaps; use refund_order.", &is_tool).unwrap();
    assert_eq!(own.when_not_to_use[0].use_tool, None);
    let unknown = split("own", "Pay back. Not for swaps; use swap_order.", &is_tool).unwrap();
    assert_eq!(
        (unknown.when_not_to_use[0].case.as_str(), &unknown.when_not_to_use[0].use_tool),
        ("swaps use swap_order.", &None)
    );
    assert!(!unknown.what.contains("swaps"), "{unknown:?}");
}

#[test]
fn texts_without_end_are_bounded() {
    let many = "Do it. ".to_owned() + &"Not for refunds. Use this when asked. ".repeat(60);
    let parts = split("own", &many, &is_tool).unwrap();
    assert_eq!((parts.when_not_to_use.len(), parts.when_to_use.len()), (MAX_ITEMS, MAX_ITEMS));
    assert!(split("own", &";".repeat(32 * 1024), &is_tool).is_none());
}

fn texts() -> impl Strategy<Value = String> {
    let bits = [
        "Cancel an order",
        "not for refunds",
        "Do not use this for",
        "use refund_order",
        "instead",
        "For refunds, ",
        "Returns one",
        "Use this when",
        ". ",
        "; ",
        "\n",
        "\n\n",
        ", ",
        "，",
        "。",
        "；",
        " - ",
        "如需退款",
        "请使用 refund_order",
        "不要用于",
        "当用户",
        "时使用",
        "返回",
        "退款请用",
        "get_order",
        "`",
        "(",
        "）",
        "Returns:\n",
        "不适用于",
        "e.g. ",
        "３",
        "é",
        "🙂",
        " ",
    ];
    prop::collection::vec(prop::sample::select(bits.to_vec()), 0..24).prop_map(|bits| bits.concat())
}

proptest! {
    #[test]
    fn every_character_goes_to_exactly_one_piece(text in prop_oneof![texts(), any::<String>()]) {
        let pieces = pieces(&text, &is_tool);
        let joined: String = pieces.iter().map(|piece| &text[piece.at.clone()]).collect();
        prop_assert_eq!(&joined, &text);
        let mut at = 0;
        for piece in &pieces {
            prop_assert_eq!(piece.at.start, at);
            at = piece.at.end;
        }
    }

    /// Only the words of the wordings themselves are in no part.
    #[test]
    fn every_word_ends_in_one_part(text in texts()) {
        let pieces = pieces(&text, &is_tool);
        let parts = split("own", &text, &is_tool);
        prop_assert_eq!(parts.is_none(), pieces.iter().all(|piece| piece.part == Part::What));
        if let Some(parts) = parts {
            let count = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).count();
            let of = |wanted: fn(&Part) -> bool| -> usize {
                pieces.iter().filter(|piece| wanted(&piece.part)).map(|piece| count(&text[piece.at.clone()])).sum()
            };
            prop_assert_eq!(count(&parts.what), of(|part| *part == Part::What));
            prop_assert_eq!(count(parts.returns.as_deref().unwrap_or_default()), of(|part| *part == Part::Returns));
            let when: usize = parts.when_to_use.iter().map(|when| count(when)).sum();
            prop_assert_eq!(when, of(|part| matches!(part, Part::When(_))));
            let cases: usize = parts.when_not_to_use.iter().map(|border| count(&border.case)).sum();
            prop_assert_eq!(cases, of(|part| matches!(part, Part::Case(_))));
            prop_assert_eq!(parts.as_given(), text);
        }
    }
}

/// How descriptions of public tools are split.
#[test]
fn real_descriptions_are_split_as_recorded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/descriptions");
    let registry = crate::registry::load(&[folder.join("cards.jsonl")], &[]).unwrap();
    let mut found = String::new();
    for card in registry.cards.values().filter(|card| card.description.plain.is_some()) {
        let Description { what, when_to_use, when_not_to_use, returns, .. } = &card.description;
        let _ = writeln!(found, "# {}\nwhat: {what:?}", card.name);
        when_to_use.iter().for_each(|when| {
            let _ = writeln!(found, "when: {when:?}");
        });
        for border in when_not_to_use {
            let tool = border.use_tool.as_deref().unwrap_or("-");
            let _ = writeln!(found, "not: {:?} -> {tool}", border.case);
        }
        returns.iter().for_each(|returns| {
            let _ = writeln!(found, "returns: {returns:?}");
        });
    }
    insta::assert_snapshot!(found);
}

/// A card that was put may name tools of the files; what it returns on `Get` still holds the text as given.
#[test]
fn cards_that_are_put_are_split_when_the_other_tools_are_known() {
    let card = |name: &str, description: Value| json!({"name": name, "description": description, "side_effect": "read", "timeout_ms": 9, "permissions": []});
    let files = merge(Registry::default(), from_values(&[card("refund_order", json!("Pays back."))]));
    let text =
        "Cancels an order. 退款请用 refund_order。For swaps, use swap_order. Do not use this for gifts; use gift_tool.";
    let put = [card("cancel_order", json!(text)), card("parts", json!({"what": "Does it. Not for refunds."}))];
    let both = overlay(files, from_values(&put));
    assert_eq!(both.quarantined, []);
    let cancel = &both.cards[&ToolId::new("cancel_order")].description;
    let borders: Vec<(&str, Option<&str>)> =
        cancel.when_not_to_use.iter().map(|border| (border.case.as_str(), border.use_tool.as_deref())).collect();
    // An unknown tool is no reason to believe that "use" sends elsewhere, nor to refuse the card.
    assert_eq!(borders, [("退款", Some("refund_order")), ("gifts use gift_tool.", None)]);
    assert_eq!((cancel.what.as_str(), cancel.as_given()), ("Cancels an order. For swaps, use swap_order.", text));
    // Whoever gives parts has split them.
    assert_eq!(both.cards[&ToolId::new("parts")].description.what, "Does it. Not for refunds.");
    assert_eq!(both.cards[&ToolId::new("refund_order")].description.plain, None);
}
