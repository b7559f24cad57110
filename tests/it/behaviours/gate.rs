//! Consent, keys and order of steps, as the gate alone ensures them.

use std::sync::Arc;
use std::time::Duration;

use pointsman::args::validate;
use pointsman::catalog::Tool;
use pointsman::gate::{Ask, Cleared, Ending, Gate, Policy, Record, Runner, Settings, Shown, Verdict};
use pointsman::registry::{self, Registry};
use pointsman::store::Store;
use pointsman::types::{CallState, Caller, Clock, Deadline, Problem, ProblemCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::advance;

use crate::support::shop;

const ORDER: &str = "SO-20260418000736";
const OTHER: &str = "SO-20260105000017";
const TOKEN: &str = "ct_4f0c2a9be17d6358";

struct Desk {
    gate: Gate,
    registry: Arc<Registry>,
}

impl Desk {
    fn open() -> Self {
        let settings = Settings {
            token_ttl: Duration::from_secs(600),
            idempotency_ttl: Duration::from_secs(86_400),
            grace: Duration::from_secs(5),
            key_rotation: Duration::from_secs(86_400),
            max_calls: 10_000,
            max_steps: 8,
            turn_budget: Duration::from_secs(60),
        };
        let store = Arc::new(Store::in_memory().unwrap());
        let gate = Gate::new(settings, Policy::none(), store, Clock::tokio()).unwrap();
        Self { gate, registry: Arc::new(registry::load(&[shop()], &[]).unwrap()) }
    }

    fn ask(&self, tool: &str, args: &Value) -> Ask {
        let tool = Tool::new(Arc::clone(&self.registry.cards[tool])).unwrap();
        Ask {
            caller: Caller::local(),
            args: validate(&tool.schema, args).unwrap().args,
            tool,
            registry: Arc::clone(&self.registry),
            conversation: "会话一".into(),
            turn: String::new(),
            key: None,
            token: None,
            runner: Runner::Caller,
            timeout: Duration::from_secs(3),
        }
    }

    async fn authorize(&self, ask: Ask) -> Verdict {
        self.gate.authorize(ask).await.unwrap()
    }

    async fn settle(&self, cleared: &Cleared, ending: Ending) -> Record {
        self.gate.settle(&Caller::local(), cleared.record.id, ending).await.unwrap().unwrap()
    }

    /// Lets it go and says that it was done.
    async fn run(&self, ask: Ask) -> Cleared {
        let cleared = go(self.authorize(ask).await);
        self.settle(&cleared, done()).await;
        cleared
    }

    async fn preview(&self, tool: &str, order: &str, token: &str) {
        let ask = self.ask(tool, &json!({"order_id": order}));
        let (of, args) = (ask.tool.clone(), ask.args.clone());
        let cleared = self.run(ask).await;
        let result = json!({"order_id": order, "reversible": false, "confirm_token": token});
        self.gate.observe(&cleared.record, &Caller::local(), &of, &args, &self.registry, &result).await.unwrap();
    }

    /// Asks, shows, agrees.
    async fn agreed(&self, ask: Ask) -> Ask {
        let token = shown(self.authorize(ask.clone()).await).token;
        Ask { token: Some(token), ..ask }
    }
}

fn executing(order: &str, token: &str) -> Value {
    json!({"order_id": order, "confirm_token": token})
}

fn coupon() -> Value {
    json!({"coupon_type": "free_shipping", "reason": "late_delivery"})
}

fn elsewhere(ask: Ask) -> Ask {
    Ask { conversation: "会话二".into(), ..ask }
}

fn done() -> Ending {
    Ending::Succeeded(json!({"ok": true, "data": {"done": true}}))
}

#[track_caller]
fn go(verdict: Verdict) -> Cleared {
    match verdict {
        Verdict::Go(cleared) => cleared,
        other => panic!("not let go: {other:?}"),
    }
}

#[track_caller]
fn shown(verdict: Verdict) -> Shown {
    match verdict {
        Verdict::Confirm(shown) => shown,
        other => panic!("nothing to agree to: {other:?}"),
    }
}

#[track_caller]
fn replayed(verdict: Verdict) -> Record {
    match verdict {
        Verdict::Replay(record) => record,
        other => panic!("no replay: {other:?}"),
    }
}

#[track_caller]
fn refused(verdict: Verdict) -> Problem {
    match verdict {
        Verdict::Refused(problem) => problem,
        other => panic!("not refused: {other:?}"),
    }
}

#[track_caller]
fn token_refused(verdict: Verdict, preview: &str) {
    let problem = refused(verdict);
    assert_eq!(problem.code, ProblemCode::TokenRefused, "{problem:?}");
    assert_eq!(problem.next.unwrap().tool.as_str(), preview);
}

#[tokio::test(start_paused = true)]
async fn idempotent_writes_run_silently_with_a_key() {
    let desk = Desk::open();
    let switch = |on: bool| desk.ask("set_notification_preference", &json!({"topic": "promotion", "enabled": on}));
    let off = desk.run(switch(false)).await;
    assert!(off.key.is_some() && off.record.confirmed_by.is_none());
    let on = desk.run(switch(true)).await;
    assert_ne!(on.key, off.key);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_undone_needs_preview_consent_and_key() {
    let desk = Desk::open();
    let invented = desk.ask("cancel_order", &executing(ORDER, TOKEN));
    token_refused(desk.authorize(invented).await, "preview_cancel_order");
    desk.preview("preview_cancel_order", ORDER, TOKEN).await;
    let cleared = go(desk.authorize(desk.ask("cancel_order", &executing(ORDER, TOKEN))).await);
    assert!(cleared.key.is_some() && !cleared.record.key.is_empty());
    let mut bare = (*desk.registry.cards["cancel_order"]).clone();
    bare.confirmation = None;
    let tool = Tool::new(Arc::new(bare)).unwrap();
    shown(desk.authorize(Ask { tool, ..desk.ask("cancel_order", &executing(OTHER, TOKEN)) }).await);
}

#[tokio::test(start_paused = true)]
async fn the_token_of_the_preview_enforces_the_order_of_steps() {
    let desk = Desk::open();
    let tool = Tool::new(Arc::clone(&desk.registry.cards["cancel_order"])).unwrap();
    assert!(validate(&tool.schema, &json!({"order_id": ORDER})).is_err());
    desk.preview("preview_cancel_order", ORDER, TOKEN).await;
    let ask = desk.ask("cancel_order", &executing(ORDER, TOKEN));
    let first = desk.run(ask.clone()).await;
    assert_eq!(replayed(desk.authorize(ask.clone()).await).id, first.record.id);
    token_refused(desk.authorize(Ask { key: Some("k".into()), ..ask }).await, "preview_cancel_order");
}

#[tokio::test(start_paused = true)]
async fn a_made_up_token_is_refused_though_its_form_is_right() {
    let desk = Desk::open();
    let ask = desk.ask("cancel_order", &executing(ORDER, "ct_0000000000000000"));
    token_refused(desk.authorize(ask).await, "preview_cancel_order");
}

#[tokio::test(start_paused = true)]
async fn a_token_counts_for_what_was_previewed_alone() {
    let desk = Desk::open();
    desk.preview("preview_cancel_order", ORDER, TOKEN).await;
    let cancel = |order: &str| desk.ask("cancel_order", &executing(order, TOKEN));
    token_refused(desk.authorize(cancel(OTHER)).await, "preview_cancel_order");
    token_refused(desk.authorize(elsewhere(cancel(ORDER))).await, "preview_cancel_order");
    let refund = desk.ask("execute_refund", &executing(ORDER, TOKEN));
    token_refused(desk.authorize(refund).await, "preview_refund");
    advance(Duration::from_secs(600)).await;
    token_refused(desk.authorize(cancel(ORDER)).await, "preview_cancel_order");
}

#[tokio::test(start_paused = true)]
async fn sb_114_after_a_no_nothing_happens_and_the_token_is_void() {
    let desk = Desk::open();
    let ask = desk.ask("issue_coupon", &coupon());
    let first = shown(desk.authorize(ask.clone()).await);
    let (caller, tool) = (Caller::local(), ask.tool.clone());
    let off = desk.gate.confirm(&caller, first.record.id, &first.token, false, &tool).await.unwrap().unwrap();
    assert_eq!((off.state, off.attempts), (CallState::Cancelled, 0));
    token_refused(desk.authorize(Ask { token: Some(first.token), ..ask }).await, "issue_coupon");
}

#[tokio::test(start_paused = true)]
async fn consent_holds_for_its_conversation() {
    let desk = Desk::open();
    let agreed = desk.agreed(desk.ask("issue_coupon", &coupon())).await;
    let _ = desk.run(agreed.clone()).await;
    shown(desk.authorize(elsewhere(desk.ask("issue_coupon", &coupon()))).await);
    token_refused(desk.authorize(elsewhere(agreed)).await, "issue_coupon");
}

#[tokio::test(start_paused = true)]
async fn sb_120_the_key_is_made_of_tool_arguments_and_conversation() {
    let desk = Desk::open();
    let preview = |amount: f64| desk.ask("update_default_address", &json!({"address": format!("中山路{amount}号")}));
    let first = desk.run(preview(1.0)).await.record.key;
    assert_ne!(desk.run(elsewhere(preview(1.0))).await.record.key, first);
    assert_ne!(desk.run(preview(2.0)).await.record.key, first);
}

#[tokio::test(start_paused = true)]
async fn sb_121_spelling_does_not_matter_where_it_means_nothing() {
    let desk = Desk::open();
    let read = |text: &str| desk.ask("urge_shipment", &serde_json::from_str(text).unwrap());
    let first = desk.run(read(&format!(r#"{{"order_id": "{ORDER}"}}"#))).await;
    let again = replayed(desk.authorize(read(r#"{"order_id": " so-20260418000736 "}"#)).await);
    assert_eq!(again.key, first.record.key);
    let message = |content: &str| desk.ask("send_message", &json!({"order_id": ORDER, "content": content}));
    let keys = [shown(desk.authorize(message("VIP")).await), shown(desk.authorize(message("vip")).await)];
    assert_ne!(keys[0].record.key, keys[1].record.key);
}

#[tokio::test(start_paused = true)]
async fn once_in_a_conversation_twice_in_two() {
    let desk = Desk::open();
    let first = desk.run(desk.agreed(desk.ask("issue_coupon", &coupon())).await).await;
    assert_eq!(replayed(desk.authorize(desk.ask("issue_coupon", &coupon())).await).id, first.record.id);
    let second = desk.agreed(elsewhere(desk.ask("issue_coupon", &coupon()))).await;
    assert_ne!(desk.run(second).await.key, first.key);
}

#[tokio::test(start_paused = true)]
async fn sb_123_keys_end_with_the_time_in_which_it_can_be_taken_back() {
    let desk = Desk::open();
    desk.preview("preview_cancel_order", ORDER, TOKEN).await;
    let ask = desk.ask("cancel_order", &executing(ORDER, TOKEN));
    let first = desk.run(ask.clone()).await;
    advance(Duration::from_secs(1_799)).await;
    assert_eq!(replayed(desk.authorize(ask.clone()).await).id, first.record.id);
    advance(Duration::from_secs(2)).await;
    token_refused(desk.authorize(ask).await, "preview_cancel_order");
    let fresh = "ct_0f0c2a9be17d6358";
    desk.preview("preview_cancel_order", ORDER, fresh).await;
    let second = go(desk.authorize(desk.ask("cancel_order", &executing(ORDER, fresh))).await);
    assert_ne!(second.record.id, first.record.id);
}

#[tokio::test(start_paused = true)]
async fn a_repetition_gets_the_first_result() {
    let desk = Desk::open();
    let ask = desk.ask("urge_shipment", &json!({"order_id": ORDER}));
    let _ = desk.run(ask.clone()).await;
    assert_eq!(replayed(desk.authorize(ask).await).ending, Some(done()));
}

#[tokio::test(start_paused = true)]
async fn two_different_changes_both_happen() {
    let desk = Desk::open();
    let to = |address: &str| desk.ask("update_default_address", &json!({"address": address}));
    let (a, b) = (desk.run(to("人民路一号")).await, desk.run(to("人民路二号")).await);
    assert_ne!(a.record.key, b.record.key);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_parallel_writes_with_one_token_one_runs() {
    let desk = Arc::new(Desk::open());
    desk.preview("preview_refund", ORDER, TOKEN).await;
    let ask = desk.ask("execute_refund", &executing(ORDER, TOKEN));
    let mut all = JoinSet::new();
    for _ in 0..50 {
        let (desk, ask) = (Arc::clone(&desk), ask.clone());
        all.spawn(async move {
            match desk.authorize(ask).await {
                Verdict::Go(cleared) => (1, desk.settle(&cleared, done()).await),
                Verdict::Replay(record) => (0, record),
                Verdict::InFlight(record) => {
                    let until = Deadline::after(Duration::from_secs(60));
                    (0, desk.gate.wait(&Caller::local(), record.id, until).await.unwrap().unwrap())
                }
                other => panic!("{other:?}"),
            }
        });
    }
    let answers = all.join_all().await;
    assert_eq!(answers.iter().map(|(ran, _)| ran).sum::<i32>(), 1);
    assert!(answers.iter().all(|(_, record)| record.ending == Some(done()) && record.id == answers[0].1.id));
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_done_is_looked_up_before_it_is_tried_again() {
    let desk = Desk::open();
    let topic = json!({"category": "complaint"});
    let ask = desk.ask("create_ticket", &topic);
    let first = go(desk.authorize(ask.clone()).await);
    let timeout = Problem::passing("timeout", ProblemCode::Timeout, "no answer in time");
    desk.settle(&first, Ending::EffectUnknown(timeout)).await;
    let again = refused(desk.authorize(ask.clone()).await);
    assert_eq!((again.code, again.retryable), (ProblemCode::EffectUnknown, false));
    assert!(desk.registry.cards[again.next.unwrap().tool.as_str()].is_known_to_read());
    // Somebody looked: there is one ticket.
    desk.settle(&first, done()).await;
    assert_eq!(replayed(desk.authorize(ask).await).id, first.record.id);
}
