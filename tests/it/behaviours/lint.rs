//! What lint says about cards: the rows of SB-014 to SB-054, SB-115 and SB-118 that speak of it.

use pointsman::registry::lint::{Finding, Language, Overlap, Severity, lint};
use pointsman::registry::{self, Registry};
use pointsman::server::proto::{RouteOptions, RouteRequest};
use pointsman::tool::SideEffect;
use pointsman::types::ToolId;
use serde_json::json;

use crate::support::RegistryFile;
use crate::support::scripted_llm::{ScriptedLlm, calls};
use crate::support::served::{self, ORDER, Shop, request, result, text_with};

const BAD: &str = include_str!("../../data/lint/registry.bad.yaml");

fn read(text: &str) -> Registry {
    let file = RegistryFile::new("registry.yaml", text);
    registry::load(std::slice::from_ref(&file.path), &[]).unwrap()
}

fn linted(text: &str, overlaps: &[Overlap]) -> Vec<Finding> {
    lint(&read(text), overlaps, Language::English)
}

/// Rules that speak of `tool`.
fn rules<'a>(findings: &'a [Finding], tool: &str) -> Vec<&'a str> {
    findings.iter().filter(|finding| finding.tool == tool).map(|finding| finding.rule).collect()
}

/// What an encoder would have measured.
fn close(first: &str, second: &str, closeness: f32) -> Overlap {
    Overlap { tools: [first, second].map(ToolId::new), closeness, phrases: [first, second].map(str::to_owned) }
}

/// The shop's text with `from` replaced once, in the card of `tool`.
fn edited(tool: &str, from: &str, to: &str) -> String {
    let text = served::text();
    let start = text.find(&format!("- name: {tool}\n")).unwrap();
    assert!(text[start..].contains(from), "{from}");
    format!("{}{}", &text[..start], text[start..].replacen(from, to, 1))
}

/// The card of `tool` from its name on, without the comment that opens the next group.
fn card(tool: &str) -> String {
    let text = served::text();
    let start = text.find(&format!("  - name: {tool}\n")).unwrap();
    let rest = &text[start..];
    let end = rest[1..].find("\n  - name: ").map_or(rest.len(), |end| end + 2);
    rest[..end].lines().filter(|line| !line.trim_start().starts_with('#')).map(|line| format!("{line}\n")).collect()
}

#[test]
fn sb_014_equal_arguments_make_one_tool_with_a_type() {
    let copy = card("create_return").replacen("create_return", "create_exchange", 1);
    let text = format!("{}{copy}", served::text());
    let findings = linted(&text, &[close("create_exchange", "create_return", 1.0)]);
    for tool in ["create_exchange", "create_return"] {
        let found = rules(&findings, tool);
        assert!(found.contains(&"merge-candidate") && !found.contains(&"duplicate-meaning"), "{found:?}");
    }
    let merge = findings.iter().find(|finding| finding.rule == "merge-candidate").unwrap();
    assert!(merge.proposal.contains("enum: [exchange, return]"), "{}", merge.proposal);
    assert!(rules(&linted(&served::text(), &[]), "create_return").is_empty(), "alone it is in order");
}

#[test]
fn sb_015_synonyms_are_reported_on_both() {
    for overlaps in [vec![close("find_parcels", "locate_packages", 0.95)], Vec::new()] {
        let findings = linted(BAD, &overlaps);
        for (tool, other) in [("find_parcels", "locate_packages"), ("locate_packages", "find_parcels")] {
            let found = findings.iter().find(|f| f.tool == tool && f.rule == "duplicate-meaning").unwrap();
            assert_eq!(found.other.as_deref(), Some(other));
        }
    }
}

#[test]
fn sb_016_unlike_actions_are_no_argument() {
    let squeezed = "      type: object\n      additionalProperties: false\n      properties:\n        action:\n          \
                    type: string\n          enum: [cancel, refund, update_address]\n          \
                    description: \"cancel for 取消, refund for 退款, update_address for 改地址.\"\n      required: [action]\n";
    let start = "    parameters:\n";
    let get = card("get_ticket").replacen("get_ticket", "execute_action", 1);
    let (head, rest) = get.split_once(start).unwrap();
    let (_, tail) = rest.split_once("    side_effect:").unwrap();
    let text = format!("{}{head}{start}{squeezed}    side_effect:{tail}", served::text());
    let findings = linted(&text, &[]);
    assert!(rules(&findings, "execute_action").contains(&"mixed-meaning"), "{findings:?}");
    for apart in ["preview_cancel_order", "preview_refund"] {
        assert!(!rules(&findings, apart).contains(&"mixed-meaning"));
    }
}

#[test]
fn sb_019_names_are_a_verb_and_an_object_in_full() {
    assert!(rules(&linted(BAD, &[]), "warranty_lookup").contains(&"name-no-verb"));
    let findings = linted(&served::text().replace("track_shipment", "ord_qry"), &[]);
    assert!(rules(&findings, "ord_qry").contains(&"abbreviation"), "{findings:?}");
    assert!(rules(&linted(&served::text(), &[]), "track_shipment").is_empty());
}

#[test]
fn sb_020_what_would_fit_any_tool_is_refused() {
    let findings = linted(BAD, &[]);
    let found = rules(&findings, "do_service");
    assert!(found.contains(&"generic-name") && found.contains(&"vague-description"), "{found:?}");
}

#[test]
fn sb_021_a_description_has_four_parts() {
    let text = edited("get_ticket", "      returns:", "      # returns:");
    assert_eq!(rules(&linted(&text, &[]), "get_ticket"), ["missing-returns"]);
    assert_eq!(linted(&served::text(), &[]), [], "as delivered");
}

#[test]
fn sb_022_the_first_part_names_an_action_on_an_object() {
    let what = "Read one order by its exact number: state, amount, items, payment, delivery address. Read only.";
    let findings = linted(&edited("get_order", what, "Order data."), &[]);
    assert_eq!(rules(&findings, "get_order"), ["vague-description"]);
}

#[test]
fn sb_024_the_third_part_excludes_cases_and_names_tools() {
    assert!(rules(&linted(BAD, &[]), "find_parcels").contains(&"missing-when-not"));
    let text = edited("search_orders", "use: get_order}", "use: get_ordr}");
    let findings = linted(&text, &[]);
    let found = findings.iter().find(|finding| finding.rule == "unknown-tool-reference").unwrap();
    assert_eq!(
        (found.tool.as_str(), found.severity, found.proposal.as_str()),
        ("search_orders", Severity::Error, "Write `get_order`.")
    );
    assert!(found.line.is_some());
}

#[test]
fn sb_025_look_alikes_point_at_each_other() {
    let overlaps = [close("get_order", "track_shipment", 0.8)];
    assert_eq!(linted(&served::text(), &overlaps), []);
    let case = "        - {case: \"Payment, amount, items or state of an order by its number\", use: get_order}\n";
    let findings = linted(&edited("track_shipment", case, ""), &overlaps);
    assert_eq!(rules(&findings, "track_shipment"), ["one-sided-boundary"]);
    assert!(findings[0].proposal.contains("use: get_order"), "{}", findings[0].proposal);
}

#[test]
fn sb_026_the_fourth_part_states_fields_and_size() {
    let returns = "Array of at most 20 summaries (order_id, status, amount, title, created_at) plus next_cursor; an empty \
                   array with a reason when nothing matches.";
    let findings = linted(&edited("search_orders", returns, "Returns the result."), &[]);
    assert_eq!(rules(&findings, "search_orders"), ["vague-returns"]);
}

#[test]
fn sb_027_no_system_table_or_function_stands_in_text_for_the_model() {
    let findings = linted(BAD, &[]);
    let found = findings.iter().find(|finding| finding.rule == "internal-jargon").unwrap();
    assert_eq!(found.tool, "update_parcel_note");
    for word in ["WMS", "upsertRemarkV3", "T_SHP"] {
        assert!(found.reason.contains(word), "{}", found.reason);
    }
}

#[tokio::test]
async fn sb_029_tools_that_exclude_each_other_say_so_on_both_sides() {
    let one_sided = edited("execute_refund", "conflicts_with: [cancel_order]", "conflicts_with: []");
    let findings = linted(&one_sided, &[]);
    assert_eq!(rules(&findings, "cancel_order"), ["one-sided-conflict"]);

    let token = |last: &str| format!("ct_90ab12cd34ef56{last}");
    let act = |last: &str| json!({"order_id": ORDER, "confirm_token": token(last)});
    let previewed = |tool: &str, last: &str| result(tool, act(last));
    let history = vec![previewed("preview_cancel_order", "a1"), previewed("preview_refund", "b2")];
    let both = calls(&[("cancel_order", act("a1")), ("execute_refund", act("b2"))]);
    let llm = ScriptedLlm::start([both]).await;
    let shop = Shop::with_llm(&llm).await;
    let options = Some(RouteOptions { no_cache: true, max_calls: 2 });
    let utterance = format!("确认，{ORDER} 取消并且退款");
    let answer = shop.send(RouteRequest { history, options, ..request(&utterance) }).await;
    assert_eq!(answer.calls(), [], "{answer:?}");
    let refused = answer.rejected()[0];
    assert_eq!(refused.status, "conflict", "{refused:?}");
    for tool in ["cancel_order", "execute_refund"] {
        assert!(refused.message.contains(tool), "{}", refused.message);
    }
}

/// Whether lint reports `rule` for a tool of the bad registry.
pub(super) fn is_reported(tool: &str, rule: &str) -> bool {
    rules(&linted(BAD, &[]), tool).contains(&rule)
}

/// Rules that speak of `tool` once `line` is taken out of its card.
pub(super) fn reported_without(tool: &str, line: &str) -> Vec<&'static str> {
    let findings = linted(&edited(tool, line, ""), &[]);
    findings.into_iter().filter(|finding| finding.tool == tool).map(|finding| finding.rule).collect()
}

#[test]
fn sb_118_a_purely_reading_set_needs_no_keys() {
    // A preview belongs to the change it announces.
    let text = text_with(|card| card.contains("\n    side_effect: read\n") && !card.starts_with("preview_"));
    assert!(!text.contains("idempotency") && !text.contains("confirmation:"));
    let registry = read(&text);
    assert!(registry.cards.len() > 10 && registry.cards.values().all(|card| card.side_effect == SideEffect::Read));
    assert!(registry.quarantined.is_empty(), "{:?}", registry.quarantined);
    assert!(registry.notices.is_empty(), "{:?}", registry.notices);
    assert_eq!(lint(&registry, &[], Language::English), []);
}

#[test]
fn sb_047_a_parameter_description_is_no_translation_of_its_name() {
    assert!(rules(&linted(BAD, &[]), "get_review").contains(&"noun-only-param"));
}

#[test]
fn sb_054_many_required_fields_are_reported() {
    let findings = linted(BAD, &[]);
    let found = findings.iter().find(|finding| finding.rule == "too-many-required").unwrap();
    assert_eq!((found.tool.as_str(), found.reason.starts_with("6 parameters")), ("register_warranty", true));
}

#[test]
fn sb_115_what_needs_a_person_to_mend_is_destructive() {
    for tool in ["send_message", "issue_coupon"] {
        let findings = linted(&edited(tool, "side_effect: destructive", "side_effect: write"), &[]);
        let found = findings.iter().find(|finding| finding.rule == "side-effect-too-low").unwrap();
        assert_eq!((found.tool.as_str(), found.severity), (tool, Severity::Warning));
    }
}
