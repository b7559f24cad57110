//! The gate as a whole, with tokio's clock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::advance;

use super::testing::*;
use super::{Ask, Ruling, Runner, Verdict};
use crate::types::{CallState, Caller, Clock, Deadline, ProblemCode, Scope};

const ORDER: &str = "SO-0736";

fn urge() -> Value {
    json!({"order_id": ORDER, "amount": 30, "note": "请尽快"})
}

fn message(content: &str) -> Value {
    json!({"order_id": ORDER, "content": content})
}

fn with_token(ask: Ask, token: &str) -> Ask {
    Ask { token: Some(token.to_owned()), ..ask }
}

fn second(ask: Ask) -> Ask {
    Ask { caller: caller("t", "b"), ..ask }
}

#[tokio::test(start_paused = true)]
async fn a_write_runs_once_and_is_replayed_until_its_time() {
    let world = World::new();
    let first = go(world.authorize(world.ask("urge", &urge())).await);
    assert_eq!((first.record.state, first.record.attempts), (CallState::Dispatched, 1));
    assert!(first.key.is_some() && first.record.key.starts_with("k_"));
    let Verdict::InFlight(record) = world.authorize(world.ask("urge", &urge())).await else { panic!() };
    assert_eq!(record.id, first.record.id);
    world.settle(&first, done()).await;

    let mut again = json!({"note": "请尽快", "order_id": " so-0736 ", "amount": "30.0"});
    let record = replayed(world.authorize(world.ask("urge", &again)).await);
    assert_eq!((record.id, record.ending), (first.record.id, Some(done())));
    again["amount"] = json!(31);
    assert_ne!(go(world.authorize(world.ask("urge", &again)).await).record.id, first.record.id);
    let other = Ask { conversation: "c2".into(), ..world.ask("urge", &urge()) };
    let other = go(world.authorize(other).await);
    assert!(other.record.key != first.record.key && other.key != first.key);

    advance(TTL - Duration::from_millis(1)).await;
    replayed(world.authorize(world.ask("urge", &urge())).await);
    advance(Duration::from_millis(2)).await;
    let anew = go(world.authorize(world.ask("urge", &urge())).await);
    assert_ne!(anew.key, first.key, "a tool that keeps keys longer must not take it for the first");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_replayed_too_and_what_was_not_started_is_free_again() {
    let world = World::new();
    let first = go(world.authorize(world.ask("urge", &urge())).await);
    let back = world.settle(&first, not_started()).await;
    assert_eq!(back.state, CallState::Proposed);
    let next = go(world.authorize(world.ask("urge", &urge())).await);
    assert_eq!((next.record.attempts, &next.key), (2, &first.key));
    assert_ne!(next.record.id, first.record.id);
    // A report that comes twice does not speak for the second attempt.
    world.settle(&first, not_started()).await;
    assert!(matches!(world.authorize(world.ask("urge", &urge())).await, Verdict::InFlight(_)));
    let record = world.settle(&next, failed()).await;
    assert_eq!(record.state, CallState::Failed);
    assert_eq!(replayed(world.authorize(world.ask("urge", &urge())).await).ending, Some(failed()));
    // The first report stands.
    assert_eq!(world.settle(&next, done()).await.ending, Some(failed()));
}

#[tokio::test(start_paused = true)]
async fn a_key_of_the_callers_own_means_one_call() {
    let world = World::new();
    let keyed = |tool: &str, args: &Value| Ask { key: Some("键-1".into()), ..world.ask(tool, args) };
    let first = go(world.authorize(keyed("urge", &urge())).await);
    assert_eq!(first.record.key, "键-1");
    let mut other = urge();
    other["amount"] = json!(31);
    for ask in [keyed("urge", &other), keyed("set_address", &json!({"order_id": ORDER}))] {
        assert_eq!(refused(world.authorize(ask).await).code, ProblemCode::IdempotencyConflict);
    }
    world.settle(&first, done()).await;
    replayed(world.authorize(keyed("urge", &urge())).await);
    let _ = go(world.authorize(Ask { conversation: "c2".into(), ..keyed("urge", &other) }).await);
    for key in ["", "a\nb", &"x".repeat(256)] {
        let ask = Ask { key: Some(key.to_owned()), ..world.ask("urge", &urge()) };
        assert_eq!(refused(world.authorize(ask).await).code, ProblemCode::InvalidRequest);
    }
    let ask = Ask { conversation: String::new(), ..world.ask("urge", &urge()) };
    assert_eq!(refused(world.authorize(ask).await).fields[0].path, "/session_id");
    let (a, found) = (caller("t", "a"), first.record.id);
    assert_eq!(world.gate.lookup_key(&a, "c1", "键-1").await.unwrap().unwrap().id, found);
    assert_eq!(world.gate.lookup_key(&caller("u", "a"), "c1", "键-1").await.unwrap(), None);
    assert_eq!(world.gate.lookup_key(&a, "c3", "键-1").await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_found_or_done_across_tenants() {
    let world = World::new();
    let first = go(world.authorize(world.ask("urge", &urge())).await);
    let stranger = caller("u", "a");
    let theirs = Ask { caller: stranger.clone(), ..world.ask("urge", &urge()) };
    assert_ne!(go(world.authorize(theirs).await).record.id, first.record.id);
    assert_eq!(world.gate.lookup(&stranger, first.record.id).await.unwrap(), None);
    let problem = world.gate.settle(&stranger, first.record.id, done()).await.unwrap().unwrap_err();
    assert_eq!(problem.status, "not_found");
    let problem = world.gate.settle(&caller("t", "b"), first.record.id, done()).await.unwrap().unwrap_err();
    assert_eq!(problem.code, ProblemCode::PermissionDenied);

    let ours = shown(world.authorize(world.ask("send_message", &message("放门口"))).await);
    let ask = with_token(world.ask("send_message", &message("放门口")), &ours.token);
    let theirs = Ask { caller: stranger.clone(), ..ask.clone() };
    // Not even that the token is somebody's.
    token_refused(world.authorize(theirs).await, "no token of this gate");
    let tool = world.tool("send_message");
    let confirmed = world.gate.confirm(&stranger, ours.record.id, &ours.token, true, &tool).await.unwrap();
    assert_eq!(confirmed.unwrap_err().status, "not_found");
    token_refused(world.authorize(second(ask)).await, "another caller");

    world.preview_refund(&json!({"order_id": ORDER}), "ct_aaaa").await;
    let ask = world.ask("execute_refund", &json!({"order_id": ORDER, "confirm_token": "ct_aaaa"}));
    let theirs = Ask { caller: stranger, ..ask.clone() };
    token_refused(world.authorize(theirs).await, "was not handed out");
    token_refused(world.authorize(second(ask.clone())).await, "another caller");
    let _ = go(world.authorize(ask).await);
}

#[tokio::test(start_paused = true)]
async fn consent_holds_for_what_was_shown() {
    let world = World::new();
    let ask = |content: &str| world.ask("send_message", &message(content));
    let first = shown(world.authorize(ask("放门口就行")).await);
    assert_eq!(Value::Object(first.preview.arguments.clone()), message("放门口就行"));
    assert!(!first.preview.reversible && first.record.state == CallState::Previewed);
    assert_eq!(shown(world.authorize(ask("放门口就行")).await).token, first.token, "asking again changes nothing");
    assert!(!format!("{first:?}").contains(&first.token));

    token_refused(world.authorize(with_token(ask("放门口就行！"), &first.token)).await, "arguments differ");
    let moved = Ask { conversation: "c2".into(), ..with_token(ask("放门口就行"), &first.token) };
    token_refused(world.authorize(moved).await, "another conversation");
    let keyed = Ask { key: Some("k".into()), ..with_token(ask("放门口就行"), &first.token) };
    token_refused(world.authorize(keyed).await, "key differs");
    let tool = with_token(world.ask("unknown_class", &json!({"order_id": ORDER})), &first.token);
    token_refused(world.authorize(tool).await, "another tool");
    for made_up in
        ["", "pt1.a.b.1.00", "ct_0000000000000000", &"x".repeat(5_000), &first.token[..first.token.len() - 1]]
    {
        token_refused(world.authorize(with_token(ask("放门口就行"), made_up)).await, "no token of this gate");
    }
    let mut changed = (*world.registry.cards["send_message"]).clone();
    changed.description.what = "now something else".into();
    let tool = crate::catalog::Tool::new(Arc::new(changed)).unwrap();
    token_refused(
        world.authorize(Ask { tool, ..with_token(ask("放门口就行"), &first.token) }).await,
        "tool has changed",
    );

    let other = shown(world.authorize(ask("放快递柜")).await);
    assert_ne!(other.token, first.token);
    let cleared = go(world.authorize(with_token(ask("放门口就行"), &first.token)).await);
    assert_eq!(cleared.record.confirmed_by.as_deref(), Some("a"));
    assert_eq!(cleared.record.id, first.record.id);
    world.settle(&cleared, done()).await;
    replayed(world.authorize(with_token(ask("放门口就行"), &first.token)).await);
    replayed(world.authorize(ask("放门口就行")).await);
    token_refused(world.authorize(with_token(ask("放门口就行"), &other.token)).await, "arguments differ");

    advance(TOKEN_TTL).await;
    token_refused(world.authorize(with_token(ask("放快递柜"), &other.token)).await, "late");
    // Spent and late, but the same call: its first result.
    replayed(world.authorize(with_token(ask("放门口就行"), &first.token)).await);
    assert_ne!(shown(world.authorize(ask("放快递柜")).await).token, other.token);
    advance(TTL).await;
    token_refused(world.authorize(with_token(ask("放门口就行"), &first.token)).await, "");
}

#[tokio::test(start_paused = true)]
async fn consent_comes_back_when_nothing_was_sent() {
    let world = World::new();
    let ask = world.ask("send_message", &message("你好"));
    let token = shown(world.authorize(ask.clone()).await).token;
    let ask = with_token(ask, &token);
    let first = go(world.authorize(ask.clone()).await);
    assert_eq!(world.settle(&first, not_started()).await.state, CallState::Confirmed);
    let other = Ask { key: Some("k".into()), ..ask.clone() };
    token_refused(world.authorize(other).await, "key differs");
    let second = go(world.authorize(ask.clone()).await);
    assert_eq!((second.record.attempts, &second.key), (2, &first.key));
    let old = world.gate.lookup(&caller("t", "a"), first.record.id).await.unwrap().unwrap();
    assert_eq!((old.state, old.ending), (CallState::Cancelled, Some(not_started())));
    world.settle(&second, not_started()).await;
    advance(TOKEN_TTL).await;
    token_refused(world.authorize(ask).await, "late");
}

#[tokio::test(start_paused = true)]
async fn consent_can_be_given_and_called_off_by_itself() {
    let world = World::new();
    let (a, tool) = (caller("t", "a"), world.tool("send_message"));
    let ask = world.ask("send_message", &message("你好"));
    let first = shown(world.authorize(ask.clone()).await);
    let b = world.gate.confirm(&caller("t", "b"), first.record.id, &first.token, true, &tool).await.unwrap();
    assert_eq!(b.unwrap_err().code, ProblemCode::TokenRefused);
    let forged = world.gate.confirm(&a, first.record.id, "pt1.x", true, &tool).await.unwrap();
    assert_eq!(forged.unwrap_err().code, ProblemCode::TokenRefused);
    let agreed = world.gate.confirm(&a, first.record.id, &first.token, true, &tool).await.unwrap().unwrap();
    assert_eq!((agreed.state, agreed.confirmed_by.as_deref()), (CallState::Confirmed, Some("a")));
    shown(world.authorize(ask.clone()).await);
    let off = world.gate.confirm(&a, first.record.id, &first.token, false, &tool).await.unwrap().unwrap();
    assert_eq!(off.state, CallState::Cancelled);
    let again = world.gate.confirm(&a, first.record.id, &first.token, true, &tool).await.unwrap().unwrap_err();
    assert!(again.message.contains("called off"), "{}", again.message);
    token_refused(world.authorize(with_token(ask.clone(), &first.token)).await, "called off");
    let unsent = world.gate.settle(&a, first.record.id, done()).await.unwrap().unwrap_err();
    assert!(unsent.message.contains("not let go"), "{}", unsent.message);
    let third = world.ask("send_message", &message("再见"));
    let shown_third = shown(world.authorize(third.clone()).await);
    let third = with_token(third, &shown_third.token);
    let sent = go(world.authorize(third.clone()).await);
    let _ = world.settle(&sent, lost()).await;
    for agreed in [true, false] {
        let after = world.gate.confirm(&a, sent.record.id, &shown_third.token, agreed, &tool).await.unwrap();
        assert!(after.is_err(), "consent after the call was let go must not free it: {after:?}");
    }
    assert_eq!(refused(world.authorize(third).await).code, ProblemCode::EffectUnknown);
    let second = shown(world.authorize(ask.clone()).await);
    advance(TOKEN_TTL).await;
    assert_eq!(world.gate.lookup(&a, second.record.id).await.unwrap().unwrap().state, CallState::Expired);
    let late = world.gate.confirm(&a, second.record.id, &second.token, true, &tool).await.unwrap().unwrap_err();
    assert!(late.message.contains("late"), "{}", late.message);
}

#[tokio::test(start_paused = true)]
async fn a_second_person_has_to_be_another_one_who_may() {
    let world = World::new();
    let tool = world.tool("urge");
    let scope = Scope("refunds:approve".into());
    let ruling = || Ruling::Confirm { second_person: Some(scope.clone()) };
    let ask = world.ask("urge", &urge());
    let first = shown(world.ruled(ask.clone(), ruling()).await);
    assert_eq!(first.preview.second_person.as_deref(), Some("refunds:approve"));
    let ask = with_token(ask, &first.token);
    let waits = refused(world.ruled(ask.clone(), ruling()).await);
    assert_eq!(waits.code, ProblemCode::PolicyDenied);
    assert!(waits.message.contains("refunds:approve"), "{}", waits.message);

    let confirm = |who: Caller, version: &str| {
        let consent = super::settle::Consent {
            caller: who,
            id: first.record.id,
            token: first.token.clone(),
            agreed: true,
            tool: tool.clone(),
            policy_version: version.to_owned(),
        };
        world.gate.blocking(move |books| books.confirm(&consent))
    };
    let without = Caller::with_scopes("t", []).named("b");
    for who in [caller("t", "a"), without] {
        assert_eq!(confirm(who, "policy 1").await.unwrap().unwrap_err().code, ProblemCode::PolicyDenied);
    }
    let boss = Caller::with_scopes("t", [scope.clone()]).named("boss");
    let stale = confirm(boss.clone(), "policy 2").await.unwrap().unwrap_err();
    assert!(stale.message.contains("policy has changed"), "{}", stale.message);
    assert_eq!(confirm(boss, "policy 1").await.unwrap().unwrap().confirmed_by.as_deref(), Some("boss"));
    // Consent to less does not serve where more is asked.
    token_refused(world.ruled(ask.clone(), Ruling::Confirm { second_person: None }).await, "would be shown");
    assert_eq!(go(world.ruled(ask, ruling()).await).record.confirmed_by.as_deref(), Some("boss"));
}

#[tokio::test(start_paused = true)]
async fn policy_may_ask_for_consent_where_the_card_does_not() {
    let world = World::new();
    let ruling = || Ruling::Confirm { second_person: None };
    let read = shown(world.ruled(world.ask("get_refund", &json!({"order_id": ORDER})), ruling()).await);
    let ask = with_token(world.ask("get_refund", &json!({"order_id": ORDER})), &read.token);
    let _ = go(world.ruled(ask, ruling()).await);
    world.preview_refund(&json!({"order_id": ORDER}), "ct_aaaa").await;
    let ask = world.ask("execute_refund", &json!({"order_id": ORDER, "confirm_token": "ct_aaaa"}));
    let both = Ruling::Confirm { second_person: Some(Scope("s".into())) };
    shown(world.ruled(ask.clone(), both).await);
    let _ = go(world.ruled(ask, ruling()).await);
    assert!(matches!(world.authorize(world.ask("unknown_class", &json!({}))).await, Verdict::Confirm(_)));
}

#[tokio::test(start_paused = true)]
async fn what_is_only_proposed_is_never_run_here() {
    let world = World::new();
    let ask = |runner| Ask { runner, ..world.ask("write_off", &json!({"order_id": ORDER})) };
    let Verdict::Propose(shown) = world.authorize(ask(Runner::Gate)).await else { panic!() };
    assert!(!shown.record.key.is_empty());
    let here = refused(world.authorize(with_token(ask(Runner::Gate), &shown.token)).await);
    assert_eq!(here.code, ProblemCode::NotExecutable);
    let _ = go(world.authorize(with_token(ask(Runner::Caller), &shown.token)).await);
}

#[tokio::test(start_paused = true)]
async fn tokens_of_previews_count_once_for_what_the_preview_showed() {
    let world = World::new();
    let execute =
        |order: &str, token: &str| world.ask("execute_refund", &json!({"order_id": order, "confirm_token": token}));
    token_refused(world.authorize(execute(ORDER, "ct_0000")).await, "was not handed out");
    let missing = refused(world.authorize(world.ask("execute_refund", &json!({"order_id": ORDER}))).await);
    assert_eq!(missing.code, ProblemCode::PreconditionMissing);
    assert_eq!(missing.next.unwrap().tool.as_str(), "preview_refund");

    world.preview_refund(&json!({"order_id": ORDER, "amount": 30}), "ct_aaaa").await;
    token_refused(world.authorize(execute("SO-9999", "ct_aaaa")).await, "`order_id` differs");
    token_refused(
        world.authorize(Ask { conversation: "c2".into(), ..execute(ORDER, "ct_aaaa") }).await,
        "another conversation",
    );
    let first = go(world.authorize(execute(ORDER, "ct_aaaa")).await);
    assert!(matches!(world.authorize(execute(ORDER, "ct_aaaa")).await, Verdict::InFlight(_)));
    world.settle(&first, done()).await;
    replayed(world.authorize(execute(ORDER, "ct_aaaa")).await);
    let keyed = Ask { key: Some("k".into()), ..execute(ORDER, "ct_aaaa") };
    token_refused(world.authorize(keyed).await, "spent");

    // The same preview again is the same call; one that shows another sum is another.
    world.preview_refund(&json!({"order_id": ORDER, "amount": 30.0}), "ct_bbbb").await;
    replayed(world.authorize(execute(ORDER, "ct_bbbb")).await);
    world.preview_refund(&json!({"order_id": ORDER, "amount": 20}), "ct_cccc").await;
    let other = go(world.authorize(execute(ORDER, "ct_cccc")).await);
    assert_ne!(other.key, first.key);
    world.preview_refund(&json!({"order_id": ORDER, "amount": 10}), "ct_dddd").await;
    let busy = refused(world.authorize(execute(ORDER, "ct_dddd")).await);
    assert_eq!((busy.code, busy.retryable), (ProblemCode::InFlight, true));
    world.settle(&other, failed()).await;
    token_refused(world.authorize(execute(ORDER, "ct_aaaa")).await, "spent");
    assert_eq!(replayed(world.authorize(execute(ORDER, "ct_cccc")).await).ending, Some(failed()));

    advance(TOKEN_TTL).await;
    token_refused(world.authorize(execute(ORDER, "ct_dddd")).await, "late");
    assert_eq!(replayed(world.authorize(execute(ORDER, "ct_cccc")).await).ending, Some(failed()));
}

#[tokio::test(start_paused = true)]
async fn sums_have_to_be_the_previewed_ones_wherever_the_token_stands() {
    let world = World::new();
    let pay = |args: Value| world.ask("pay_out", &args);
    world.preview_refund(&json!({"order_id": ORDER, "amount": 82_000}), "ct_aaaa").await;
    for args in [
        json!({"order_id": ORDER, "confirm_token": "ct_aaaa", "amount": 820_000}),
        json!({"order_id": ORDER, "confirm_token": "ct_aaaa"}),
    ] {
        token_refused(world.authorize(pay(args)).await, "`amount` differs");
    }
    let two =
        json!({"order_id": ORDER, "confirm_token": "ct_aaaa", "amount": 82_000, "x": {"confirm_token": "ct_zzzz"}});
    token_refused(world.authorize(pay(two)).await, "more than one token");
    let hidden = json!({"order_id": ORDER, "amount": 82_000, "x": [{"confirm_token": "ct_zzzz"}]});
    token_refused(world.authorize(pay(hidden)).await, "was not handed out");
    let _ = go(world.authorize(pay(json!({"order_id": ORDER, "confirm_token": "ct_aaaa", "amount": 82_000.0}))).await);

    world.preview_refund(&json!({"order_id": "SO-0001"}), "ct_bbbb").await;
    let unseen = json!({"order_id": "SO-0001", "confirm_token": "ct_bbbb", "amount": 5});
    token_refused(world.authorize(pay(unseen)).await, "`amount` differs");
    // One preview serves two tools, but each token one call of each.
    let other = world.ask("execute_refund", &json!({"order_id": "SO-0001", "confirm_token": "ct_bbbb"}));
    let _ = go(world.authorize(other).await);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_effect_stops_everything_but_what_may_be_repeated() {
    let world = World::new();
    let first = go(world.authorize(world.ask("urge", &urge())).await);
    assert_eq!(world.settle(&first, lost()).await.state, CallState::EffectUnknown);
    let problem = refused(world.authorize(world.ask("urge", &urge())).await);
    assert_eq!(problem.code, ProblemCode::EffectUnknown);
    assert_eq!(problem.next.unwrap().tool.as_str(), "get_refund");
    // Found out later.
    assert_eq!(world.settle(&first, done()).await.state, CallState::Succeeded);
    replayed(world.authorize(world.ask("urge", &urge())).await);

    let args = json!({"order_id": ORDER, "note": "新地址"});
    let first = go(world.authorize(world.ask("set_address", &args)).await);
    advance(LEASE).await;
    let record = world.gate.lookup(&caller("t", "a"), first.record.id).await.unwrap().unwrap();
    assert_eq!(record.state, CallState::EffectUnknown);
    let second = go(world.authorize(world.ask("set_address", &args)).await);
    assert_eq!((second.record.attempts, &second.key), (2, &first.key));
    assert_ne!(second.record.id, first.record.id);
    assert_eq!(world.settle(&first, done()).await.state, CallState::Succeeded);
    assert!(matches!(world.authorize(world.ask("set_address", &args)).await, Verdict::InFlight(_)));

    world.preview_refund(&json!({"order_id": ORDER}), "ct_aaaa").await;
    let execute = |token: &str| world.ask("execute_refund", &json!({"order_id": ORDER, "confirm_token": token}));
    let _ = go(world.authorize(execute("ct_aaaa")).await);
    advance(LEASE).await;
    for (token, amount) in [("ct_bbbb", 30), ("ct_cccc", 20)] {
        world.preview_refund(&json!({"order_id": ORDER, "amount": amount}), token).await;
        let problem = refused(world.authorize(execute(token)).await);
        assert_eq!(problem.code, ProblemCode::EffectUnknown, "a new consent does not tell what happened");
        assert_eq!(problem.next.unwrap().tool.as_str(), "get_refund", "a preview does not tell either");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_came_to_nothing_does_not_hide_an_unknown_one() {
    let world = World::new();
    let args = json!({"order_id": ORDER, "note": "新地址"});
    let ask = || world.ask("set_address", &args);
    let first = go(world.authorize(ask()).await);
    assert_eq!(world.settle(&first, lost()).await.state, CallState::EffectUnknown);
    for nothing in [not_started(), failed()] {
        let again = go(world.authorize(ask()).await);
        assert_eq!(again.key, first.key, "the tool knows it as the same");
        assert_eq!(world.settle(&again, nothing).await.state, CallState::EffectUnknown);
    }
    let last = go(world.authorize(ask()).await);
    assert_eq!(world.settle(&last, done()).await.state, CallState::Succeeded);
    replayed(world.authorize(ask()).await);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_this_server_runs_is_reported_on_by_it_alone() {
    let world = World::new();
    let ask = || Ask { runner: Runner::Gate, ..world.ask("urge", &urge()) };
    let (sent, who) = (go(world.authorize(ask()).await), caller("t", "a"));
    for ending in [not_started(), done(), failed()] {
        assert!(world.gate.settle(&who, sent.record.id, ending).await.unwrap().is_err());
    }
    let lost = world.gate.report(&who, sent.record.id, lost(), Runner::Gate).await.unwrap().unwrap();
    assert!(lost.written && lost.record.state == CallState::EffectUnknown);
    assert!(world.gate.settle(&who, sent.record.id, not_started()).await.unwrap().is_err(), "the key stays taken");
    let found_out = world.gate.settle(&who, sent.record.id, done()).await.unwrap().unwrap();
    assert_eq!(found_out.state, CallState::Succeeded, "somebody looked");
}

#[tokio::test(start_paused = true)]
async fn reads_need_no_key_and_equal_ones_of_a_turn_are_one() {
    let world = World::new();
    let read = |turn: &str| Ask { turn: turn.into(), ..world.ask("get_refund", &json!({"order_id": ORDER})) };
    let plain = Ask { conversation: String::new(), ..read("") };
    let (one, two) = (go(world.authorize(plain.clone()).await), go(world.authorize(plain).await));
    assert!(one.key.is_none() && one.record.key.is_empty() && one.record.id != two.record.id);

    let first = go(world.authorize(read("1")).await);
    assert!(matches!(world.authorize(read("1")).await, Verdict::InFlight(_)));
    let _ = go(world.authorize(read("2")).await);
    let _ = go(world.authorize(second(read("1"))).await);
    world.settle(&first, done()).await;
    assert_eq!(replayed(world.authorize(read("1")).await).id, first.record.id);
    advance(LEASE).await;
    let late = world.gate.lookup(&caller("t", "a"), one.record.id).await.unwrap().unwrap();
    assert_eq!(late.state, CallState::Failed);
    // The lease of the second turn's read has passed: another try is allowed.
    let _ = go(world.authorize(read("2")).await);
    assert_eq!(world.settle(&one, done()).await.state, CallState::Succeeded, "the first report is believed");
}

#[tokio::test(start_paused = true)]
async fn a_turn_has_so_many_steps_and_so_much_time() {
    let world = World::new();
    let step = |at: usize, turn: &str| Ask {
        turn: turn.into(),
        ..world
            .ask(if at.is_multiple_of(2) { "get_refund" } else { "urge" }, &json!({"order_id": format!("SO-{at:04}")}))
    };
    for at in 0..8 {
        let cleared = go(world.authorize(step(at, "1")).await);
        assert_eq!(cleared.time_left, Some(Duration::from_secs(60)));
        world.settle(&cleared, done()).await;
    }
    assert_eq!(refused(world.authorize(step(8, "1")).await).code, ProblemCode::StepLimit);
    replayed(world.authorize(step(0, "1")).await);
    assert!(go(world.authorize(step(8, "")).await).time_left.is_none());
    let _ = go(world.authorize(step(10, "2")).await);
    advance(Duration::from_secs(45)).await;
    assert_eq!(go(world.authorize(step(12, "2")).await).time_left, Some(Duration::from_secs(15)));
    advance(Duration::from_secs(16)).await;
    assert_eq!(refused(world.authorize(step(14, "2")).await).code, ProblemCode::Timeout);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_at_once_one_is_let_go_and_the_others_get_its_end() {
    let world = Arc::new(World::new());
    let args = json!({"order_id": ORDER, "confirm_token": "ct_aaaa"});
    world.preview_refund(&json!({"order_id": ORDER}), "ct_aaaa").await;
    let message = message("你好");
    let token = shown(world.authorize(world.ask("send_message", &message)).await).token;
    let asks = [
        world.ask("execute_refund", &args),
        with_token(world.ask("send_message", &message), &token),
        world.ask("urge", &urge()),
    ];
    for ask in asks {
        let mut all = JoinSet::new();
        for _ in 0..50 {
            let (world, ask) = (Arc::clone(&world), ask.clone());
            all.spawn(async move {
                let until = Deadline::after(Duration::from_secs(60));
                match world.authorize(ask).await {
                    Verdict::Go(cleared) => {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        (true, world.settle(&cleared, done()).await)
                    }
                    Verdict::InFlight(record) => {
                        (false, world.gate.wait(&caller("t", "a"), record.id, until).await.unwrap().unwrap())
                    }
                    Verdict::Replay(record) => (false, record),
                    other => panic!("{other:?}"),
                }
            });
        }
        let answers = all.join_all().await;
        assert_eq!(answers.iter().filter(|(ran, _)| *ran).count(), 1);
        assert_eq!(answers.iter().map(|(_, record)| record.id).collect::<BTreeSet<_>>().len(), 1);
        assert!(answers.iter().all(|(_, record)| record.ending == Some(done())));
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_hears_the_end_also_from_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let (path, clock) = (folder.path().join("store.db"), Clock::tokio());
    let (world, other) = (World::open(&path, clock), World::open(&path, clock));
    let cleared = go(world.authorize(world.ask("urge", &urge())).await);
    let Verdict::InFlight(record) = other.authorize(other.ask("urge", &urge())).await else { panic!() };
    let a = caller("t", "a");
    let early = other.gate.wait(&a, record.id, Deadline::after(Duration::from_millis(500))).await.unwrap().unwrap();
    assert_eq!(early.state, CallState::Dispatched);
    let wait = other.gate.wait(&a, record.id, Deadline::after(Duration::from_secs(60)));
    let (heard, _) = tokio::join!(wait, async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.settle(&cleared, done()).await
    });
    assert_eq!(heard.unwrap().unwrap().ending, Some(done()));
}

#[tokio::test(start_paused = true)]
async fn what_was_recorded_survives_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let (path, clock) = (folder.path().join("store.db"), Clock::tokio());
    let world = World::open(&path, clock);
    let content = message("你好");
    let token = shown(world.authorize(world.ask("send_message", &content)).await).token;
    let sent = go(world.authorize(world.ask("urge", &urge())).await);
    world.preview_refund(&json!({"order_id": ORDER}), "ct_aaaa").await;
    drop(world);

    let world = World::open(&path, clock);
    let a = caller("t", "a");
    assert_eq!(world.gate.lookup(&a, sent.record.id).await.unwrap().unwrap().state, CallState::Dispatched);
    assert!(matches!(world.authorize(world.ask("urge", &urge())).await, Verdict::InFlight(_)));
    let _ = go(world.authorize(with_token(world.ask("send_message", &content), &token)).await);
    let _ =
        go(world.authorize(world.ask("execute_refund", &json!({"order_id": ORDER, "confirm_token": "ct_aaaa"}))).await);
    advance(LEASE).await;
    assert_eq!(world.gate.lookup(&a, sent.record.id).await.unwrap().unwrap().state, CallState::EffectUnknown);
    assert_eq!(refused(world.authorize(world.ask("urge", &urge())).await).code, ProblemCode::EffectUnknown);
}

#[tokio::test(start_paused = true)]
async fn keys_are_replaced_and_old_tokens_count_until_they_are_late() {
    let world = World::with(super::Settings { key_rotation: Duration::from_secs(300), ..settings() });
    let ask = world.ask("send_message", &message("你好"));
    let first = shown(world.authorize(ask.clone()).await).token;
    advance(Duration::from_secs(301)).await;
    let other = shown(world.authorize(world.ask("send_message", &message("再见"))).await).token;
    let key_of = |token: &str| token.split('.').nth(1).unwrap().to_owned();
    assert_ne!(key_of(&first), key_of(&other));
    let _ = go(world.authorize(with_token(ask, &first)).await);
}

#[tokio::test(start_paused = true)]
async fn records_are_bounded_and_those_at_work_are_never_forgotten() {
    let world = World::with(super::Settings { max_calls: 20, ..settings() });
    let ask = |at: usize| world.ask("urge", &json!({"order_id": format!("SO-{at:04}")}));
    let a = caller("t", "a");
    let first = go(world.authorize(ask(0)).await);
    for at in 1..100 {
        let cleared = go(world.authorize(ask(at)).await);
        world.settle(&cleared, done()).await;
    }
    assert!(matches!(world.authorize(ask(0)).await, Verdict::InFlight(_)));
    replayed(world.authorize(ask(99)).await);
    let mut open = Vec::new();
    let full = loop {
        match world.authorize(ask(200 + open.len())).await {
            Verdict::Go(cleared) => open.push(cleared),
            other => break refused(other),
        }
    };
    assert_eq!((full.code, full.retryable, open.len()), (ProblemCode::Unavailable, true, 19));
    assert!(world.gate.lookup(&a, first.record.id).await.unwrap().is_some());
    advance(LEASE + TTL).await;
    assert_eq!(world.gate.sweep().await.unwrap(), 20);
    assert_eq!(world.gate.lookup(&a, first.record.id).await.unwrap(), None);
}
