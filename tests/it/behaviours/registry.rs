//! SB-017 to SB-037: what a card must say, how cards change while requests run, and who sees which.

use std::time::Duration;

use pointsman::decide::llm::PromptForm;
use pointsman::decision::log::Target;
use pointsman::server::proto::{GetRequest, ListRequest, Narrowing, ReloadRequest, RouteOptions, RouteRequest};
use pointsman::server::wire::to_struct;
use pointsman::types::Scope;
use serde_json::{Value, json};

use crate::support::scripted_llm::{ScriptedLlm, call, calls, delay};
use crate::support::served::{self, ORDER, Shop, decide_with, function, request};
use crate::support::{RegistryFile, cli};

/// `text` without the line of `key` in the card of `tool`.
fn without(text: &str, tool: &str, key: &str) -> String {
    let start = text.find(&format!("- name: {tool}\n")).unwrap();
    let at = start + text[start..].find(&format!("\n    {key}:")).unwrap();
    let end = at + 1 + text[at + 1..].find('\n').unwrap();
    format!("{}{}", &text[..at], &text[end..])
}

/// `text` with `from` replaced once, in the card of `tool`.
fn edited(text: &str, tool: &str, from: &str, to: &str) -> String {
    let start = text.find(&format!("- name: {tool}\n")).unwrap();
    format!("{}{}", &text[..start], text[start..].replacen(from, to, 1))
}

#[tokio::test]
async fn sb_017_nothing_but_the_registry_defines_a_tool() {
    let registry = RegistryFile::new("registry.yaml", &served::text());
    let rules = registry.path.with_file_name("rules.yaml");
    let pin = |tool: &str| {
        format!(
            "registry: shop\nversion: 1\nrules:\n  - id: pinned\n    when: {{any: [火速查单]}}\n    then: {{pin: {tool}}}\n    utterances: [火速查单]\n"
        )
    };
    std::fs::write(&rules, pin("get_order")).unwrap();
    let mut settings = served::settings(&registry.path);
    settings.pipeline.rules.file = Some(rules.clone());
    let shop = Shop::with(settings).await;
    let list = shop.server.registry().list(ListRequest::default()).await.unwrap().into_inner();
    assert_eq!((list.tools.len(), list.quarantined.len()), (26, 0));

    std::fs::write(&rules, pin("express_lookup")).unwrap();
    let refused = shop.server.registry().reload(ReloadRequest {}).await.unwrap_err();
    assert!(refused.message().contains("express_lookup"), "{refused:?}");
    let after = shop.server.registry().list(ListRequest::default()).await.unwrap().into_inner();
    assert_eq!(after.catalog_version, list.catalog_version, "the current catalog keeps serving");

    let (registry, rules) = (registry.as_str().to_owned(), rules.display().to_string());
    let start = tokio::task::spawn_blocking(move || {
        let ports = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--set", "store.path=:memory:"];
        cli::run(&[&["serve", "--registry", &registry, "--rules", &rules], &ports[..]].concat())
    });
    let (code, out, err) = start.await.unwrap();
    assert!(code != 0 && out.is_empty() && err.contains("express_lookup"), "{code} {out} {err}");
}

#[tokio::test]
async fn sb_018_what_a_card_does_not_say_is_reported_at_once() {
    let text = without(&without(&served::text(), "get_stock", "timeout_ms"), "get_invoice", "permissions");
    let registry = RegistryFile::new("registry.yaml", &text);
    let shop = Shop::with(served::settings(&registry.path)).await;
    let list = shop.server.registry().list(ListRequest::default()).await.unwrap().into_inner();
    assert_eq!(list.tools.len(), 24, "one bad card never stops the others");
    let report: Vec<_> = list
        .quarantined
        .iter()
        .map(|card| (card.card.as_str(), card.problems[0].pointer.as_str(), card.problems.len()))
        .collect();
    assert_eq!(report, [("get_stock", "/timeout_ms", 1), ("get_invoice", "/permissions", 1)]);
    assert!(list.quarantined.iter().all(|card| card.problems[0].line > 0));

    let path = registry.as_str().to_owned();
    let strict = tokio::task::spawn_blocking(move || {
        let ports = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--set", "store.path=:memory:"];
        cli::run(&[&["serve", "--strict", "--registry", &path], &ports[..]].concat())
    });
    let (code, out, err) = strict.await.unwrap();
    assert!(code != 0 && out.is_empty(), "{code} {out}");
    for word in ["get_stock", "timeout_ms", "get_invoice", "permissions"] {
        assert!(err.contains(word), "{word}: {err}");
    }
}

#[tokio::test]
async fn sb_023_the_wordings_of_customers_lead_to_the_tool() {
    let text = served::text();
    let card = text.find("- name: urge_shipment\n").unwrap();
    let from = card + text[card..].find("      when_to_use:\n").unwrap();
    let until = from + text[from..].find("      when_not_to_use:").unwrap();
    let emptied = format!("{}      when_to_use: []\n{}", &text[..from], &text[until..]);
    let emptied = RegistryFile::new("registry.yaml", &emptied);
    let (with, without) = (Shop::start().await, Shop::with(served::settings(&emptied.path)).await);

    let utterances = [
        "催催",
        "催一下",
        "崔一下SO-20260817069543",
        "麻烦催催SO-20260508659710的发货",
        "please hurry up the delivery",
    ];
    let (mut hits_with, mut hits_without) = (0, 0);
    for utterance in utterances {
        let among_three = async |shop: &Shop| shop.ask(utterance).await.candidates()[..3].contains(&"urge_shipment");
        let found = among_three(&with).await;
        assert!(found || utterance != "催催", "the bare wording has to be enough");
        hits_with += usize::from(found);
        hits_without += usize::from(among_three(&without).await);
    }
    println!("recall@3 over {}: {hits_with} with the wordings, {hits_without} without", utterances.len());
    assert_eq!(hits_with, utterances.len());
    assert!(hits_without < hits_with);
    assert!(!without.ask("催催").await.candidates()[..3].contains(&"urge_shipment"));
}

#[tokio::test]
async fn sb_028_preconditions_are_data_and_have_to_exist() {
    let text =
        edited(&served::text(), "cancel_order", "requires: [preview_cancel_order]", "requires: [preview_cancle]");
    let registry = RegistryFile::new("registry.yaml", &text);
    let shop = Shop::with(served::settings(&registry.path)).await;
    let get = GetRequest { name: "execute_refund".into() };
    let card = shop.server.registry().get(get).await.unwrap().into_inner().card.unwrap();
    let expected = to_struct(json!({"requires": ["preview_refund"]}).as_object().unwrap());
    assert_eq!(card.fields["requires"], expected.fields["requires"]);

    let list = shop.server.registry().list(ListRequest::default()).await.unwrap().into_inner();
    assert_eq!((list.tools.len(), list.quarantined.len()), (25, 1));
    let quarantined = &list.quarantined[0];
    assert_eq!((quarantined.card.as_str(), quarantined.problems[0].pointer.as_str()), ("cancel_order", "/requires/0"));
    assert!(quarantined.problems[0].message.contains("preview_cancle"), "{quarantined:?}");
}

const SIX: [&str; 6] =
    ["create_return", "get_order", "preview_refund", "request_invoice", "track_shipment", "update_order_address"];

/// The prompt for one utterance with the cards of six tools, in `form`.
async fn prompt(form: PromptForm, utterance: &str) -> Value {
    let llm = ScriptedLlm::start([call("get_order", json!({"order_id": ORDER}))]).await;
    let mut settings = served::settings(&crate::support::shop());
    decide_with(&mut settings, &llm);
    settings.pipeline.llm.as_mut().unwrap().prompt_form = form;
    let shop = Shop::with(settings).await;
    let narrowing = Some(Narrowing { tools: SIX.map(str::to_owned).to_vec(), ..Narrowing::default() });
    let answer = shop.send(RouteRequest { narrowing, ..request(utterance) }).await;
    assert!(answer.0.degraded.is_empty(), "the form that was set is no degraded mode: {:?}", answer.0.degraded);
    let prompt = llm.requests().remove(0);
    let offered: Vec<&str> = served::offered(&prompt).into_iter().filter(|name| SIX.contains(name)).collect();
    assert_eq!(offered, SIX);
    prompt
}

#[tokio::test]
async fn sb_030_the_prompt_may_hold_a_compressed_form() {
    for utterance in [format!("{ORDER} 现在什么状态"), format!("what is the state of {ORDER}")] {
        let (full, compact) =
            (prompt(PromptForm::Full, &utterance).await, prompt(PromptForm::Compact, &utterance).await);
        let length = |prompt: &Value| -> usize {
            SIX.iter().map(|name| function(prompt, name).to_string().chars().count()).sum()
        };
        assert!(2 * length(&compact) <= length(&full), "{} of {}", length(&compact), length(&full));
        for name in served::offered(&full) {
            let required = |prompt: &Value| function(prompt, name)["parameters"]["required"].clone();
            assert_eq!(required(&compact), required(&full), "{name}");
            for parameter in required(&full).as_array().into_iter().flatten().filter_map(Value::as_str) {
                let properties = &function(&compact, name)["parameters"]["properties"];
                assert!(properties.get(parameter).is_some(), "{name}: {parameter}");
            }
        }
    }
}

#[tokio::test]
async fn sb_031_a_decision_says_which_description_it_was_made_with() {
    let registry = RegistryFile::new("registry.yaml", &served::text());
    let log = registry.path.with_file_name("decisions.jsonl");
    let mut settings = served::settings(&registry.path);
    settings.pipeline.log.target = Target::File(log.clone());
    let shop = Shop::with(settings).await;
    let cached = |utterance: &str| RouteRequest { utterance: utterance.into(), ..RouteRequest::default() };

    let first = shop.send(cached("我有什么优惠券")).await;
    let text = edited(&served::text(), "list_coupons", "version: 1", "version: 2");
    registry.write(&edited(&text, "list_coupons", "\"List the coupons", "\"Show the coupons"));
    let change = shop.server.registry().reload(ReloadRequest {}).await.unwrap().into_inner();
    assert_eq!(change.changed, ["list_coupons"]);
    let second = shop.send(cached("我有什么优惠券")).await;

    assert_ne!(first.0.catalog_version, second.0.catalog_version);
    assert_eq!(second.0.catalog_version, change.catalog_version);
    shop.server.stop();
    shop.server.stopped().await.unwrap();
    let snapshots: Vec<Value> =
        std::fs::read_to_string(log).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let versions: Vec<_> = snapshots
        .iter()
        .map(|line| (line["catalog_version"].as_str().unwrap(), line["calls"][0]["tool_version"].as_str().unwrap()))
        .collect();
    let expected = [(first.0.catalog_version.as_str(), "1"), (second.0.catalog_version.as_str(), "2")];
    assert_eq!(versions, expected, "each snapshot keeps the versions it was made with");
}

#[tokio::test]
async fn sb_032_descriptions_change_without_a_rebuild_and_without_a_break() {
    const WORDING: &str = "火速安排一下";
    let registry = RegistryFile::new("registry.yaml", &served::text());
    let urge = call("urge_shipment", json!({"order_id": ORDER}));
    let llm = ScriptedLlm::start([delay(3_000, urge.clone()), urge]).await;
    let mut settings = served::settings(&registry.path);
    decide_with(&mut settings, &llm);
    let shop = Shop::with(settings).await;
    let version = shop.server.registry().list(ListRequest::default()).await.unwrap().into_inner().catalog_version;

    let mut router = shop.server.router();
    let in_flight = tokio::spawn(async move { router.route(request(&format!("催一下 {ORDER}"))).await });
    while llm.calls() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    registry.write(&edited(&served::text(), "urge_shipment", "- \"催一下发货\"", &format!("- \"{WORDING}\"")));
    let change = shop.server.registry().reload(ReloadRequest {}).await.unwrap().into_inner();
    assert_eq!(change.changed, ["urge_shipment"]);
    assert!(!in_flight.is_finished(), "the request was in work while the catalog changed");
    let next = shop.ask(&format!("催一下 {ORDER}")).await;
    let earlier = in_flight.await.unwrap().unwrap().into_inner();

    assert_ne!(change.catalog_version, version);
    assert_eq!((earlier.catalog_version, &next.0.catalog_version), (version, &change.catalog_version));
    let prompts = llm.requests();
    let told = |at: usize| function(&prompts[at], "urge_shipment")["description"].as_str().unwrap().contains(WORDING);
    assert_eq!((told(0), told(1)), (false, true));
}

#[tokio::test]
async fn sb_033_a_name_that_does_not_exist_is_caught() {
    let invented = |at: usize| call("query_order", json!({"order_id": ORDER, "attempt": at}));
    let llm = ScriptedLlm::start((0..5).map(invented)).await;
    let shop = Shop::with_llm(&llm).await;
    let answer = shop.ask(&format!("{ORDER} 现在什么状态")).await;
    assert_eq!(answer.calls(), [], "never executed");
    assert_eq!(llm.calls(), 2, "one repair attempt");
    let problem = answer.rejected()[0];
    assert_eq!(problem.code, "UNKNOWN_TOOL");
    assert!(problem.message.contains("query_order"));
    let complaint = llm.requests()[1]["messages"][3]["content"].as_str().unwrap().to_owned();
    for candidate in answer.candidates() {
        assert!(problem.suggestion.contains(candidate) && complaint.contains(candidate), "{candidate}: {complaint}");
    }
    // The attempt that follows may still choose well.
    let llm = ScriptedLlm::start([invented(0), call("get_order", json!({"order_id": ORDER}))]).await;
    let shop = Shop::with_llm(&llm).await;
    shop.ask(&format!("{ORDER} 现在什么状态")).await.assert_call("get_order", json!({"order_id": ORDER}));
}

#[tokio::test]
async fn sb_034_two_objects_are_two_calls() {
    let (one, two) = ("SO-20260420358925", "SO-20261028789376");
    let both = |utterance: &str| RouteRequest {
        options: Some(RouteOptions { no_cache: true, max_calls: 2 }),
        ..request(utterance)
    };
    let expected = [("get_order", json!({"order_id": one})), ("get_order", json!({"order_id": two}))];
    let each = |answer: &served::Answer| -> Vec<(String, Value)> {
        let id = |arguments: &Value| json!({"order_id": arguments["order_id"]});
        answer.calls().iter().map(|(tool, arguments)| ((*tool).to_owned(), id(arguments))).collect()
    };
    let utterance = format!("{one} 和 {two} 的状态都查一下");
    let expected = expected.map(|(tool, arguments)| (tool.to_owned(), arguments));

    let local = Shop::start().await;
    assert_eq!(each(&local.send(both(&utterance)).await), expected);
    // One call is all this caller takes: the answer says that there is more.
    let first = local.ask(&utterance).await;
    assert_eq!(each(&first), expected[..1]);
    assert!(first.trace().notes.iter().any(|note| note.contains("more calls")), "{:?}", first.trace().notes);

    let list = call("get_order", json!({"order_id": [one, two]}));
    let planned = calls(&[("get_order", json!({"order_id": one})), ("get_order", json!({"order_id": two}))]);
    let llm = ScriptedLlm::start([list, planned]).await;
    let answer = Shop::with_llm(&llm).await.send(both(&utterance)).await;
    assert_eq!(each(&answer), expected);
    assert_eq!(answer.rejected()[0].code, "INVALID_ARGS", "one call with a list is none");
}

#[tokio::test]
async fn sb_037_callers_see_the_smallest_set_of_tools() {
    const UTTERANCE: &str = "给我一张运费券";
    let llm = ScriptedLlm::start([call("no_tool", json!({"reason": "scripted"}))]).await;
    let mut settings = served::settings(&crate::support::shop());
    decide_with(&mut settings, &llm);
    settings.server.identity.scopes = Some(["orders:read", "shipments:read"].map(|scope| Scope(scope.into())).to_vec());
    let narrow = Shop::with(settings).await;
    let answer = narrow.ask(UTTERANCE).await;
    assert!(!answer.candidates().contains(&"issue_coupon"), "{:?}", answer.candidates());
    assert!(!answer.trace().shown.iter().any(|tool| tool == "issue_coupon"));
    assert!(!llm.requests()[0].to_string().contains("issue_coupon"), "not even as the border of another tool");
    // Tools that need these scopes or none.
    let open = ["get_order", "preview_cancel_order", "search_faq", "search_orders", "track_shipment"];
    assert_eq!(answer.trace().eligible as usize, open.len());
    assert_eq!(answer.trace().shown, open);

    let everyone = Shop::start().await;
    assert_eq!(everyone.ask(UTTERANCE).await.candidates()[0], "issue_coupon");
}
