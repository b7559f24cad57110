//! Random interleavings of duplicate, late, edited, foreign, crashed and replayed calls over the real gate and its
//! file, against a downstream that counts effects: never two effects of one intended call, never a success without one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pointsman::args::validate;
use pointsman::catalog::Tool;
use pointsman::gate::{Ask, Cleared, Ending, Gate, Policy, Runner, Settings, Verdict};
use pointsman::registry::Registry;
use pointsman::store::Store;
use pointsman::tool::{Confirmation, ConfirmedBy, SideEffect, ToolCard};
use pointsman::types::{CallId, CallState, Caller, Clock, Problem, ProblemCode, UnixMs};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tempfile::TempDir;

const TTL: Duration = Duration::from_secs(1800);
const TOKEN_TTL: Duration = Duration::from_secs(600);
const LEASE: Duration = Duration::from_secs(5);

/// Tenant and name of who calls.
const CALLERS: [(&str, &str); 3] = [("t", "a"), ("t", "b"), ("u", "a")];
const TOOLS: [&str; 4] = ["write", "send", "execute", "repeatable"];

#[derive(Debug, Clone)]
enum Op {
    Ask {
        who: usize,
        conversation: usize,
        tool: usize,
        order: usize,
        keyed: bool,
        token: Held,
    },
    Preview {
        who: usize,
        conversation: usize,
        order: usize,
    },
    /// The runner of a call that was let go does its work, and perhaps tells.
    Run {
        at: usize,
        how: How,
    },
    /// An old report once more.
    ReportAgain {
        at: usize,
    },
    /// Somebody else claims success.
    Forge {
        at: usize,
        who: usize,
    },
    Consent {
        at: usize,
        agreed: bool,
    },
    Wait {
        seconds: u64,
    },
    Crash,
    Sweep,
}

#[derive(Debug, Clone, Copy)]
enum Held {
    None,
    /// The last one for these arguments.
    Own,
    /// One that was handed out for something else.
    Other(usize),
    MadeUp,
}

#[derive(Debug, Clone, Copy)]
enum How {
    Done,
    DoneAndSilent,
    DoneAndLost,
    Failed,
    NotStarted,
    Dies,
}

fn any_op() -> impl Strategy<Value = Op> {
    let held = prop_oneof![
        3 => Just(Held::None),
        5 => Just(Held::Own),
        1 => any::<usize>().prop_map(Held::Other),
        1 => Just(Held::MadeUp)
    ];
    let how = prop::sample::select(vec![
        How::Done,
        How::Done,
        How::DoneAndSilent,
        How::DoneAndLost,
        How::Failed,
        How::NotStarted,
        How::Dies,
    ]);
    // Most of it is about the same few calls, so that they meet.
    let who = prop_oneof![6 => Just(0usize), 1 => Just(1usize), 1 => Just(2usize)];
    let few = prop_oneof![5 => Just(0usize), 1 => Just(1usize)];
    let (conversation, order, at) = (few.clone(), few, any::<usize>());
    let ask = (who.clone(), conversation.clone(), 0..TOOLS.len(), order.clone(), prop::bool::weighted(0.15), held);
    prop_oneof![
        10 => ask.prop_map(|(who, conversation, tool, order, keyed, token)| Op::Ask {
            who, conversation, tool, order, keyed, token
        }),
        3 => (who.clone(), conversation, order).prop_map(|(who, conversation, order)| Op::Preview {
            who, conversation, order
        }),
        6 => (at, how).prop_map(|(at, how)| Op::Run { at, how }),
        2 => at.prop_map(|at| Op::ReportAgain { at }),
        1 => (at, who).prop_map(|(at, who)| Op::Forge { at, who }),
        1 => (at, any::<bool>()).prop_map(|(at, agreed)| Op::Consent { at, agreed }),
        2 => prop::sample::select(vec![1, 1, 1, 4, 4, 6, 6, 599, 601, 1_799, 1_806]).prop_map(|seconds| Op::Wait { seconds }),
        1 => Just(Op::Crash),
        1 => Just(Op::Sweep),
    ]
}

/// What one caller means by a call: not seen by the gate.
type Intent = (usize, usize, usize, usize, bool);

struct Sent {
    cleared: Cleared,
    who: usize,
    intent: Intent,
    at: UnixMs,
    ran: bool,
    /// The report that was made.
    report: Option<Ending>,
}

struct World {
    path: PathBuf,
    clock: Clock,
    gate: Option<Gate>,
    registry: Arc<Registry>,
    sent: Vec<Sent>,
    /// When each intended call took effect, by its place at the downstream.
    effects: BTreeMap<(String, usize, usize, usize, bool), Vec<UnixMs>>,
    /// Keys under which the downstream did something.
    done: BTreeMap<String, CallId>,
    /// Calls of which the effect happened.
    took_effect: Vec<CallId>,
    /// Every token with what it was handed out for.
    tokens: Vec<(Intent, String, CallId)>,
    previews: usize,
}

impl World {
    fn new(folder: &Path) -> Self {
        let cards = cards().into_iter().map(|card| (card.id.clone(), Arc::new(card)));
        let mut world = Self {
            path: folder.join("store.db"),
            clock: Clock::tokio(),
            gate: None,
            registry: Arc::new(Registry { cards: cards.collect(), ..Registry::default() }),
            sent: Vec::new(),
            effects: BTreeMap::new(),
            done: BTreeMap::new(),
            took_effect: Vec::new(),
            tokens: Vec::new(),
            previews: 0,
        };
        world.start();
        world
    }

    /// A new process over the same file.
    fn start(&mut self) {
        self.gate = None;
        let settings = Settings {
            token_ttl: TOKEN_TTL,
            idempotency_ttl: TTL,
            grace: Duration::from_secs(2),
            key_rotation: Duration::from_secs(900),
            max_calls: 10_000,
            max_steps: 8,
            turn_budget: Duration::from_secs(60),
        };
        let store = Arc::new(Store::open(&self.path).unwrap());
        self.gate = Some(Gate::new(settings, Policy::none(), store, self.clock).unwrap());
    }

    fn gate(&self) -> &Gate {
        self.gate.as_ref().unwrap()
    }

    fn ask(&self, who: usize, conversation: usize, tool: &str, args: &Value) -> Ask {
        let tool = Tool::new(Arc::clone(&self.registry.cards[tool])).unwrap();
        Ask {
            caller: caller(who),
            args: validate(&tool.schema, args).unwrap().args,
            tool,
            registry: Arc::clone(&self.registry),
            conversation: format!("会话 {conversation}"),
            turn: String::new(),
            key: None,
            token: None,
            runner: Runner::Caller,
            timeout: Duration::from_secs(3),
        }
    }

    async fn apply(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match *op {
            Op::Ask { who, conversation, tool, order, keyed, token } => {
                self.authorize((who, conversation, tool, order, keyed), token).await?;
            }
            Op::Preview { who, conversation, order } => self.preview(who, conversation, order).await,
            Op::Run { at, how } => self.run(at, how).await?,
            Op::ReportAgain { at } => {
                let reported: Vec<usize> = (0..self.sent.len()).filter(|at| self.sent[*at].report.is_some()).collect();
                if !reported.is_empty() {
                    let at = reported[at % reported.len()];
                    let ending = self.sent[at].report.clone().unwrap();
                    self.report(at, ending).await;
                }
            }
            Op::Forge { at, who } => {
                if !self.sent.is_empty() {
                    let sent = &self.sent[at % self.sent.len()];
                    if who != sent.who {
                        let forged = self.gate().settle(&caller(who), sent.cleared.record.id, success()).await.unwrap();
                        prop_assert!(forged.is_err(), "{:?}", forged);
                    }
                }
            }
            Op::Consent { at, agreed } => {
                let ours: Vec<&(Intent, String, CallId)> =
                    self.tokens.iter().filter(|(intent, ..)| intent.2 == 1).collect();
                if !ours.is_empty() {
                    let (intent, token, id) = ours[at % ours.len()];
                    let tool = Tool::new(Arc::clone(&self.registry.cards["send"])).unwrap();
                    let _ = self.gate().confirm(&caller(intent.0), *id, token, agreed, &tool).await.unwrap();
                }
            }
            Op::Wait { seconds } => tokio::time::advance(Duration::from_secs(seconds)).await,
            Op::Crash => self.start(),
            Op::Sweep => drop(self.gate().sweep().await.unwrap()),
        }
        self.check().await
    }

    async fn authorize(&mut self, intent: Intent, held: Held) -> Result<(), TestCaseError> {
        let (who, conversation, tool, order, keyed) = intent;
        let own = self.tokens.iter().rev().find(|(of, ..)| same_purpose(of, &intent));
        let token = match held {
            Held::None => None,
            Held::Own => own.map(|(_, token, _)| token.clone()),
            Held::Other(_) if self.tokens.is_empty() => None,
            Held::Other(at) => Some(self.tokens[at % self.tokens.len()].1.clone()),
            Held::MadeUp => Some("ct_0000".to_owned()),
        };
        let mut args = json!({"order_id": order});
        if TOOLS[tool] == "execute" {
            args["confirm_token"] = json!(token.clone().unwrap_or_else(|| "ct_none".into()));
        }
        let mut ask = self.ask(who, conversation, TOOLS[tool], &args);
        ask.key = keyed.then(|| format!("key {tool} {order}"));
        if TOOLS[tool] == "send" {
            ask.token.clone_from(&token);
        }
        let verdict = self.gate().authorize(ask).await.unwrap();
        SEEN[kind(&verdict)].fetch_add(1, Ordering::Relaxed);
        match verdict {
            Verdict::Go(cleared) => {
                let fits = |(of, text, _): &(Intent, String, CallId)| {
                    same_purpose(of, &intent) && Some(text) == token.as_ref()
                };
                let consented = !matches!(TOOLS[tool], "send" | "execute") || self.tokens.iter().any(fits);
                prop_assert!(consented, "let go without consent to it: {:?}", cleared);
                let id = cleared.record.id;
                prop_assert!(self.sent.iter().all(|sent| sent.cleared.record.id != id), "{} twice", id);
                let at = self.clock.now();
                self.sent.push(Sent { cleared, who, intent, at, ran: false, report: None });
            }
            Verdict::Confirm(shown) => {
                prop_assert_eq!(Value::Object(shown.preview.arguments), args);
                self.tokens.push((intent, shown.token, shown.record.id));
            }
            Verdict::Propose(_) => prop_assert!(false, "nothing here is only proposed"),
            Verdict::Replay(record) | Verdict::InFlight(record) => {
                prop_assert_eq!(record.tool.as_str(), TOOLS[tool]);
                let tenant = CALLERS[who].0;
                let ours =
                    self.sent.iter().any(|sent| sent.cleared.record.id == record.id && CALLERS[sent.who].0 == tenant);
                prop_assert!(ours, "a record of another tenant");
            }
            Verdict::Refused(_) => {}
        }
        Ok(())
    }

    async fn preview(&mut self, who: usize, conversation: usize, order: usize) {
        let ask = self.ask(who, conversation, "preview", &json!({"order_id": order}));
        let (tool, args) = (ask.tool.clone(), ask.args.clone());
        let Verdict::Go(cleared) = self.gate().authorize(ask).await.unwrap() else { panic!("a read was not let go") };
        let token = format!("ct_{}", self.previews);
        self.previews += 1;
        let result = json!({"confirm_token": token});
        let gate = self.gate();
        gate.observe(&cleared.record, &caller(who), &tool, &args, &self.registry, &result).await.unwrap();
        for keyed in [false, true] {
            self.tokens.push(((who, conversation, 2, order, keyed), token.clone(), cleared.record.id));
        }
    }

    /// A runner keeps to the time it was given: what it has not begun by then it leaves alone.
    async fn run(&mut self, at: usize, how: How) -> Result<(), TestCaseError> {
        let open: Vec<usize> = (0..self.sent.len()).filter(|at| !self.sent[*at].ran).collect();
        if open.is_empty() {
            return Ok(());
        }
        let at = open[at % open.len()];
        self.sent[at].ran = true;
        let in_time = self.clock.now() < self.sent[at].at.plus(LEASE);
        let acts = in_time && matches!(how, How::Done | How::DoneAndSilent | How::DoneAndLost);
        if acts {
            self.act(at)?;
        }
        let ending = match how {
            How::Done if acts => success(),
            How::DoneAndLost if acts => Ending::EffectUnknown(problem(ProblemCode::EffectUnknown)),
            How::Failed if in_time => Ending::Failed(problem(ProblemCode::Unavailable)),
            How::NotStarted => Ending::NotStarted(problem(ProblemCode::Unavailable)),
            _ => return Ok(()),
        };
        self.report(at, ending).await;
        Ok(())
    }

    /// The downstream does it, once for each key of a tool that may be repeated.
    fn act(&mut self, at: usize) -> Result<(), TestCaseError> {
        let now = self.clock.now();
        let Sent { cleared, who, intent, .. } = &self.sent[at];
        self.took_effect.push(cleared.record.id);
        let key = cleared.key.clone().unwrap();
        let first = self.done.insert(key, cleared.record.id).is_none();
        if TOOLS[intent.2] == "repeatable" && !first {
            return Ok(());
        }
        let place = (CALLERS[*who].0.to_owned(), intent.1, intent.2, intent.3, intent.4);
        let times = self.effects.entry(place).or_default();
        let again = times.iter().any(|before| now < before.plus(TTL));
        prop_assert!(!again, "a second effect of {:?} at {:?} after {:?}", self.sent[at].intent, now, times);
        times.push(now);
        SEEN[EFFECT].fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn report(&mut self, at: usize, ending: Ending) {
        let id = self.sent[at].cleared.record.id;
        let _ = self.gate().settle(&caller(self.sent[at].who), id, ending.clone()).await.unwrap();
        self.sent[at].report.get_or_insert(ending);
    }

    /// What the records say is true.
    async fn check(&self) -> Result<(), TestCaseError> {
        let now = self.clock.now();
        for sent in &self.sent {
            let id = sent.cleared.record.id;
            let stranger = caller(if CALLERS[sent.who].0 == "t" { 2 } else { 0 });
            prop_assert_eq!(self.gate().lookup(&stranger, id).await.unwrap(), None);
            let Some(record) = self.gate().lookup(&caller(sent.who), id).await.unwrap() else {
                prop_assert!(now >= sent.at.plus(TTL), "{} was forgotten", id);
                continue;
            };
            let happened = self.took_effect.contains(&id);
            match record.state {
                CallState::Succeeded => prop_assert!(happened, "{} succeeded without an effect", id),
                CallState::Failed => prop_assert!(!happened, "{} failed with an effect", id),
                CallState::Dispatched => prop_assert!(now < sent.at.plus(LEASE), "{} runs on", id),
                CallState::EffectUnknown => {}
                _ => {
                    let unsent = matches!(sent.report, Some(Ending::NotStarted(_)));
                    prop_assert!(unsent && !happened, "{} is {:?} after it was let go", id, record.state);
                }
            }
        }
        Ok(())
    }
}

/// How often each kind of answer came, and how often something took effect: a test that never gets there proves nothing.
static SEEN: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];
const EFFECT: usize = 6;
const UNKNOWN: usize = 7;

fn kind(verdict: &Verdict) -> usize {
    match verdict {
        Verdict::Go(_) => 0,
        Verdict::Confirm(_) => 1,
        Verdict::Replay(_) => 2,
        Verdict::InFlight(_) => 3,
        Verdict::Refused(problem) if problem.code == ProblemCode::EffectUnknown => UNKNOWN,
        Verdict::Refused(problem) if problem.code == ProblemCode::TokenRefused => 4,
        Verdict::Refused(_) | Verdict::Propose(_) => 5,
    }
}

/// Tokens belong to a caller, a conversation, a tool, its arguments and a key.
fn same_purpose(of: &Intent, intent: &Intent) -> bool {
    of == intent
}

fn caller(who: usize) -> Caller {
    Caller::with_every_scope(CALLERS[who].0).named(CALLERS[who].1)
}

fn success() -> Ending {
    Ending::Succeeded(json!({"ok": true}))
}

fn problem(code: ProblemCode) -> Problem {
    Problem::refused("failed", code, "没有成功")
}

fn cards() -> Vec<ToolCard> {
    let card = |name: &str, class| ToolCard {
        side_effect: class,
        idempotent: class == SideEffect::Read || name == "repeatable",
        ..ToolCard::reading(
            name,
            json!({"type": "object", "properties": {"order_id": {"type": "integer"}, "confirm_token": {"type": "string"}}}),
        )
    };
    let by = |by, tool: Option<&str>| {
        let (tool, token_param) = (tool.map(str::to_owned), tool.map(|_| "confirm_token".to_owned()));
        Some(Confirmation { by, tool, token_param })
    };
    vec![
        card("preview", SideEffect::Read),
        card("write", SideEffect::Write),
        card("repeatable", SideEffect::Write),
        ToolCard { confirmation: by(ConfirmedBy::Gate, None), ..card("send", SideEffect::Destructive) },
        ToolCard {
            confirmation: by(ConfirmedBy::PreviewTool, Some("preview")),
            ..card("execute", SideEffect::Destructive)
        },
    ]
}

#[test]
fn no_interleaving_has_two_effects_or_a_false_record() {
    let soak = std::env::var_os("POINTSMAN_SOAK").is_some();
    let (cases, longest) = if soak { (3_000, 160) } else { (64, 80) };
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let ops = prop::collection::vec(any_op(), 1..longest);
    let outcome = TestRunner::new(config).run(&ops, |ops| {
        let folder = TempDir::new().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut world = World::new(folder.path());
            for op in &ops {
                world.apply(op).await?;
            }
            Ok(())
        })
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    let seen: Vec<usize> = SEEN.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    println!("go, confirm, replay, in flight, token refused, other, effects, unknown: {seen:?}");
    assert!([0, 1, 2, 3, 4, EFFECT, UNKNOWN].iter().all(|kind| seen[*kind] > 0), "{seen:?}");
}
