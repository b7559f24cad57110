//! Records, tools and gates for this module's tests.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::plan::Plan;
use super::{Ask, Cleared, Ending, Gate, Policy, Record, Ruling, Runner, Settings, Shown, Verdict};
use crate::args::{ValidArgs, validate};
use crate::catalog::Tool;
use crate::registry::Registry;
use crate::store::{CallFacts, CallRow, Store};
use crate::tool::{Confirmation, ConfirmedBy, Execution, SideEffect, ToolCard};
use crate::types::{CallId, CallState, Caller, CardHash, Clock, Problem, ProblemCode, ToolId, UnixMs};

pub(super) const TTL: Duration = Duration::from_secs(1800);
pub(super) const TOKEN_TTL: Duration = Duration::from_secs(600);
/// Timeout and grace.
pub(super) const LEASE: Duration = Duration::from_secs(5);

pub(super) fn row(state: CallState) -> CallRow {
    let id = CallId::generate();
    CallRow {
        id,
        tenant: "t".into(),
        conversation: "会话".into(),
        key: "k".into(),
        current: true,
        state,
        revision: 0,
        updated: UnixMs(0),
        until: UnixMs(100),
        keep: UnixMs(1_000),
        facts: CallFacts {
            tool: ToolId::new("execute_refund"),
            card_hash: CardHash("h".into()),
            class: SideEffect::Destructive,
            origin: id.to_string(),
            caller: "a".into(),
            runner: "a".into(),
            by_gate: false,
            unknown_before: false,
            confirmed_by: None,
            arguments: "d".into(),
            policy_version: String::new(),
            preview: "p".into(),
            second_person: None,
            token: None,
            previewed: None,
            consent_until: UnixMs(100),
            ttl_ms: 500,
            attempts: 0,
            created: UnixMs(0),
            ending: None,
        },
    }
}

pub(super) fn settings() -> Settings {
    Settings {
        token_ttl: TOKEN_TTL,
        idempotency_ttl: TTL,
        grace: Duration::from_secs(2),
        key_rotation: Duration::from_secs(24 * 3600),
        max_calls: 1_000,
        max_steps: 8,
        turn_budget: Duration::from_secs(60),
    }
}

/// A gate over a few tools.
pub(super) struct World {
    pub gate: Gate,
    pub registry: Arc<Registry>,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(settings())
    }

    pub(super) fn with(settings: Settings) -> Self {
        Self::over(settings, Arc::new(Store::in_memory().unwrap()), Clock::tokio())
    }

    pub(super) fn open(path: &Path, clock: Clock) -> Self {
        Self::over(settings(), Arc::new(Store::open(path).unwrap()), clock)
    }

    fn over(settings: Settings, store: Arc<Store>, clock: Clock) -> Self {
        let gate = Gate::new(settings, Policy::none(), store, clock).unwrap();
        let cards = cards().into_iter().map(|card| (card.id.clone(), Arc::new(card)));
        Self { gate, registry: Arc::new(Registry { cards: cards.collect(), ..Registry::default() }) }
    }

    pub(super) fn tool(&self, name: &str) -> Tool {
        Tool::new(Arc::clone(&self.registry.cards[name])).unwrap()
    }

    /// The caller `a` of the tenant `t` wants this in the conversation `c1`.
    pub(super) fn ask(&self, tool: &str, args: &Value) -> Ask {
        let tool = self.tool(tool);
        Ask {
            caller: caller("t", "a"),
            args: args_of(&tool, args),
            tool,
            registry: Arc::clone(&self.registry),
            conversation: "c1".into(),
            turn: String::new(),
            key: None,
            token: None,
            runner: Runner::Caller,
            timeout: Duration::from_secs(3),
        }
    }

    /// As if the policy had ruled so.
    pub(super) async fn ruled(&self, ask: Ask, ruling: Ruling) -> Verdict {
        match Plan::of(ask, ruling, "policy 1", &self.gate.settings) {
            Ok(plan) => self.gate.blocking(move |books| books.decide(&plan)).await.unwrap(),
            Err(problem) => Verdict::Refused(problem),
        }
    }

    pub(super) async fn authorize(&self, ask: Ask) -> Verdict {
        self.gate.authorize(ask).await.unwrap()
    }

    pub(super) async fn settle(&self, cleared: &Cleared, ending: Ending) -> Record {
        let caller = caller("t", &cleared.record.caller);
        self.gate.settle(&caller, cleared.record.id, ending).await.unwrap().unwrap()
    }

    /// Runs the preview of a refund; its result holds `token`.
    pub(super) async fn preview_refund(&self, args: &Value, token: &str) {
        let ask = self.ask("preview_refund", args);
        let (tool, args) = (ask.tool.clone(), ask.args.clone());
        let cleared = go(self.authorize(ask).await);
        let result = json!({"refundable_amount": 30, "nested": [{"confirm_token": token}]});
        let caller = caller("t", "a");
        self.gate.observe(&cleared.record, &caller, &tool, &args, &self.registry, &result).await.unwrap();
        self.settle(&cleared, done()).await;
    }
}

pub(super) fn caller(tenant: &str, name: &str) -> Caller {
    Caller::with_every_scope(tenant).named(name)
}

pub(super) fn args_of(tool: &Tool, args: &Value) -> ValidArgs {
    validate(&tool.schema, args).unwrap().args
}

pub(super) fn done() -> Ending {
    Ending::Succeeded(json!({"ok": true, "data": {"done": true}}))
}

pub(super) fn failed() -> Ending {
    Ending::Failed(Problem::refused("failed", ProblemCode::parse("ORDER_ALREADY_SHIPPED").unwrap(), "发货了"))
}

pub(super) fn not_started() -> Ending {
    Ending::NotStarted(Problem::passing("unavailable", ProblemCode::Unavailable, "no connection"))
}

pub(super) fn lost() -> Ending {
    Ending::EffectUnknown(Problem::refused("timeout", ProblemCode::EffectUnknown, "no answer"))
}

#[track_caller]
pub(super) fn go(verdict: Verdict) -> Cleared {
    match verdict {
        Verdict::Go(cleared) => cleared,
        other => panic!("not let go: {other:?}"),
    }
}

#[track_caller]
pub(super) fn shown(verdict: Verdict) -> Shown {
    match verdict {
        Verdict::Confirm(shown) => shown,
        other => panic!("nothing to confirm: {other:?}"),
    }
}

#[track_caller]
pub(super) fn replayed(verdict: Verdict) -> Record {
    match verdict {
        Verdict::Replay(record) => record,
        other => panic!("no replay: {other:?}"),
    }
}

#[track_caller]
pub(super) fn refused(verdict: Verdict) -> Problem {
    match verdict {
        Verdict::Refused(problem) => problem,
        other => panic!("not refused: {other:?}"),
    }
}

#[track_caller]
pub(super) fn token_refused(verdict: Verdict, why: &str) {
    let problem = refused(verdict);
    assert_eq!(problem.code, ProblemCode::TokenRefused, "{problem:?}");
    assert!(problem.message.contains(why), "{} holds no `{why}`", problem.message);
    assert!(problem.next.is_some(), "{problem:?}");
}

fn cards() -> Vec<ToolCard> {
    let order = json!({"type": "string", "pattern": "^SO-\\d{4}$"});
    let schema = |own: Value| {
        let mut properties = json!({"order_id": order});
        properties.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        json!({"type": "object", "properties": properties})
    };
    let card = |name: &str, class, own: Value| ToolCard {
        domain: Some("refunds".into()),
        side_effect: class,
        idempotent: class == SideEffect::Read,
        ..ToolCard::reading(name, schema(own))
    };
    let by = |by, tool: Option<&str>, param: Option<&str>| {
        Some(Confirmation { by, tool: tool.map(str::to_owned), token_param: param.map(str::to_owned) })
    };
    let token = json!({"type": "string", "pattern": "^ct_[a-z0-9]{4}$"});
    vec![
        card("get_refund", SideEffect::Read, json!({})),
        card("preview_refund", SideEffect::Read, json!({"amount": {"type": "number"}, "reason": {"type": "string"}})),
        ToolCard {
            confirmation: by(ConfirmedBy::PreviewTool, Some("preview_refund"), Some("confirm_token")),
            requires: vec!["preview_refund".into()],
            ..card("execute_refund", SideEffect::Destructive, json!({"confirm_token": token}))
        },
        ToolCard {
            confirmation: by(ConfirmedBy::PreviewTool, Some("preview_refund"), Some("confirm_token")),
            ..card("pay_out", SideEffect::Destructive, json!({"confirm_token": token, "amount": {"type": "number"}}))
        },
        ToolCard {
            confirmation: by(ConfirmedBy::Gate, None, None),
            ..card("send_message", SideEffect::Destructive, json!({"content": {"type": "string"}}))
        },
        card("urge", SideEffect::Write, json!({"amount": {"type": "number"}, "note": {"type": "string"}})),
        ToolCard { idempotent: true, ..card("set_address", SideEffect::Write, json!({"note": {"type": "string"}})) },
        ToolCard { side_effect_declared: false, ..card("unknown_class", SideEffect::Destructive, json!({})) },
        ToolCard { execution: Execution::ProposeOnly, ..card("write_off", SideEffect::Write, json!({})) },
    ]
}
