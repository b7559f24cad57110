//! What the conversation so far says about the next tool.
//!
//! Owns: which earlier turns count, what in them points at a tool, how much of it holds for this utterance.
//! Does not know: how its values are weighed against the other signals.
//!
//! An utterance with a subject of its own owes little to what came before; "ok do it" owes it everything. So each kind
//! of evidence is weighed by how the utterance hangs on the conversation ([`super::tie`]).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::eligible::Eligible;
use super::tie::{Tie, asks, tie};
use crate::catalog::{Catalog, Tool};
use crate::text::{Query, SlotKind, normalise, terms};
use crate::types::{Role, Spread, ToolId, Turn};

/// What earlier turns say about the next tool, in units of the fused score: from 1 on the conversation leads to this
/// tool whatever the utterance itself says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Context {
    weights: BTreeMap<ToolId, f32>,
}

impl Context {
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// 0 for a tool the history says nothing about.
    pub fn weight(&self, tool: &ToolId) -> f32 {
        self.weights.get(tool).copied().unwrap_or(0.0)
    }
}

/// How many turns, counted from the end, can still say something about the next tool.
const HISTORY_TURNS: usize = 8;
/// Characters of an earlier turn that are read, from its end: the question stands last.
const TURN_CHARS: usize = 300;
/// Different ids, from the end, that are held against the tools' arguments.
const MAX_IDS: usize = 4;
/// Longest text that counts as an id.
const MAX_ID_BYTES: usize = 64;
/// Strongest hint where the utterance has words of its own.
const MOST_BESIDE_WORDS: f32 = 0.95;
/// Standard deviations above the mean from which on a text certainly speaks of a tool.
const CERTAIN: f32 = 3.0;

/// What each kind of evidence is worth for one tie.
#[derive(Debug, Clone, Copy)]
struct Worth {
    /// The tool requires one whose result came last: after a preview, its second step.
    follows: f32,
    /// The tool was called last.
    used: f32,
    /// The assistant's last question speaks of it.
    asked: f32,
    /// The last user turn speaks of it.
    said: f32,
    /// Same domain as the tool called last.
    related: f32,
    /// Takes an id of the conversation.
    takes: f32,
}

impl Worth {
    fn of(tie: Tie) -> Option<Self> {
        let worth = |[follows, used, asked, said, related, takes]: [f32; 6]| {
            Some(Self { follows, used, asked, said, related, takes })
        };
        match tie {
            Tie::Confirms => worth([3.0, 0.2, 2.0, 1.0, 0.0, 0.2]),
            Tie::Value => worth([0.5, 0.5, 1.5, 2.0, 0.0, 0.2]),
            Tie::Continues => worth([0.3, 2.5, 0.0, 0.6, 0.2, 0.2]),
            Tie::Answers => worth([0.3, 0.2, 0.3, 0.6, 0.1, 0.1]),
            Tie::Refers => worth([0.4, 0.2, 0.0, 0.4, 0.3, 0.4]),
            Tie::Short => worth([0.4, 0.3, 0.0, 0.4, 0.2, 0.2]),
            Tie::Own => worth([0.2, 0.1, 0.0, 0.0, 0.0, 0.0]),
            Tie::Breaks => None,
        }
    }
}

/// Reads the last turns. Only tools in `eligible` are weighed, and against each other: a tool that is not open leaves
/// no trace.
pub fn context(catalog: &Catalog, query: &Query, history: &[Turn], eligible: &Eligible) -> Context {
    if history.is_empty() {
        return Context::default();
    }
    let recent = &history[history.len().saturating_sub(HISTORY_TURNS)..];
    let hung = tie(query, recent);
    let Some(worth) = Worth::of(hung) else { return Context::default() };
    let positions: Vec<usize> = eligible.positions().collect();
    let evidence = Evidence::read(catalog, recent, &positions, worth);
    let leads = match hung {
        Tie::Confirms | Tie::Value => true,
        Tie::Continues => !evidence.points_elsewhere(catalog, query, &positions),
        Tie::Answers | Tie::Refers | Tie::Short | Tie::Own | Tie::Breaks => false,
    };
    let most = if leads { f32::INFINITY } else { MOST_BESIDE_WORDS };
    let weighed = positions.iter().enumerate().filter_map(|(nth, position)| {
        let tool = &catalog.tools[*position];
        let weight = evidence.weigh(tool, nth, worth).min(most);
        (weight > 0.0).then(|| (tool.id().clone(), weight))
    });
    Context { weights: weighed.collect() }
}

/// What the last turns hold. Lists are in the order of the eligible tools.
struct Evidence<'a> {
    used: Vec<(String, f32)>,
    asked: Option<Vec<f32>>,
    said: Option<Vec<f32>>,
    /// Domains of the tool called last.
    domains: BTreeSet<&'a str>,
    ids: BTreeSet<String>,
}

impl<'a> Evidence<'a> {
    /// Reads what has some worth.
    fn read(catalog: &'a Catalog, recent: &[Turn], positions: &[usize], worth: Worth) -> Self {
        let speaks = |turn: &Turn| spoken_of(catalog, &turn.content, positions);
        let question = recent.last().filter(|turn| worth.asked > 0.0 && asks(turn));
        let wish = recent.iter().rev().find(|turn| worth.said > 0.0 && turn.role == Role::User);
        let used = used(recent);
        Self {
            asked: question.map(speaks),
            said: wish.map(speaks),
            domains: last_domains(catalog, &used),
            ids: if worth.takes > 0.0 { ids(recent) } else { BTreeSet::new() },
            used,
        }
    }

    fn weigh(&self, tool: &Tool, nth: usize, worth: Worth) -> f32 {
        let of = |scores: &Option<Vec<f32>>| scores.as_ref().map_or(0.0, |scores| scores[nth]);
        let share = |holds: bool| f32::from(u8::from(holds));
        let called = self.called(tool);
        let domain = tool.card.domain.as_deref();
        let related = called == 0.0 && domain.is_some_and(|domain| self.domains.contains(domain));
        worth.follows * self.recency(|name| tool.card.requires.iter().any(|required| same(required, name)))
            + worth.used * called
            + worth.asked * of(&self.asked)
            + worth.said * of(&self.said)
            + worth.related * share(related)
            + worth.takes * share(takes(tool, &self.ids))
    }

    fn called(&self, tool: &Tool) -> f32 {
        self.recency(|name| tool.is_called(name))
    }

    fn recency(&self, is_meant: impl Fn(&str) -> bool) -> f32 {
        self.used.iter().find(|(name, _)| is_meant(name)).map_or(0.0, |(_, strength)| *strength)
    }

    /// "退款呢" after a look at a shipment: the words that remain belong to other tools than the one called last.
    fn points_elsewhere(&self, catalog: &Catalog, query: &Query, positions: &[usize]) -> bool {
        let scores = word_scores(catalog, &query.read_text(), positions);
        let best = scores.iter().copied().fold(0.0, f32::max);
        let last = positions.iter().zip(&scores).filter(|(position, _)| self.called(&catalog.tools[**position]) >= 1.0);
        best > 0.0 && last.map(|(_, score)| *score).fold(0.0, f32::max) < best / 2.0
    }
}

/// Names of the tools whose results came last, the latest first, each once, with a strength that halves from one to the
/// next.
fn used(recent: &[Turn]) -> Vec<(String, f32)> {
    let mut used: Vec<(String, f32)> = Vec::new();
    let mut strength = 1.0;
    for result in recent.iter().rev().filter_map(Turn::tool_result) {
        let Some(name) = result.get("tool").and_then(Value::as_str) else { continue };
        if !used.iter().any(|(known, _)| known == name) {
            used.push((name.to_owned(), strength));
            strength /= 2.0;
        }
    }
    used
}

/// Whether a reference of a card and a reported name mean the same tool.
fn same(required: &str, name: &str) -> bool {
    required == name || required.rsplit_once('/').is_some_and(|(_, bare)| bare == name)
}

/// Domains of the tool called last.
fn last_domains<'a>(catalog: &'a Catalog, used: &[(String, f32)]) -> BTreeSet<&'a str> {
    let Some((name, _)) = used.first() else { return BTreeSet::new() };
    let called = catalog.tools.iter().filter(|tool| tool.is_called(name));
    called.filter_map(|tool| tool.card.domain.as_deref()).collect()
}

/// How clearly `text` speaks of each tool, in `[0, 1]`: words shared, in standard deviations above the mean.
fn spoken_of(catalog: &Catalog, text: &str, positions: &[usize]) -> Vec<f32> {
    let scores = word_scores(catalog, &tail(text), positions);
    let spread = Spread::of(&scores);
    scores.iter().map(|score| (spread.standardise(*score) / CERTAIN).clamp(0.0, 1.0)).collect()
}

fn word_scores(catalog: &Catalog, text: &str, positions: &[usize]) -> Vec<f32> {
    let words = normalise(text).map(|query| terms(&query.retrieval_text())).unwrap_or_default();
    let scores = catalog.lexical.scores(&words);
    positions.iter().map(|position| scores[*position]).collect()
}

fn tail(text: &str) -> String {
    let skip = text.chars().count().saturating_sub(TURN_CHARS);
    text.chars().skip(skip).collect()
}

/// The latest ids of the conversation, out of what people said and what tools returned.
fn ids(recent: &[Turn]) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for turn in recent.iter().rev() {
        let mut found = Vec::new();
        match turn.tool_result() {
            Some(result) => returned_ids(&result, &mut found),
            None => said_ids(&turn.content, &mut found),
        }
        for id in found.into_iter().rev() {
            if ids.len() < MAX_IDS {
                ids.insert(id);
            }
        }
    }
    ids
}

fn said_ids(text: &str, found: &mut Vec<String>) {
    let Ok(said) = normalise(&tail(text)) else { return };
    let slots = said.slots.iter().filter(|slot| slot.kind == SlotKind::Id);
    found.extend(slots.map(|slot| said.text[slot.span.clone()].to_owned()));
}

/// Texts in a result that look like an id. A result is at most so deep as `serde_json` reads.
fn returned_ids(value: &Value, found: &mut Vec<String>) {
    let is_id = |text: &str| text.len() <= MAX_ID_BYTES && text.bytes().any(|byte| byte.is_ascii_digit());
    match value {
        Value::String(text) if is_id(text) => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| returned_ids(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| returned_ids(field, found)),
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {}
    }
}

/// Whether one of `ids` fits an argument. Only forms with a fixed beginning count: others fit by chance.
fn takes(tool: &Tool, ids: &BTreeSet<String>) -> bool {
    !ids.is_empty()
        && tool.schema.views().filter(|property| property.pattern().is_some()).any(|property| {
            let prefix = property.literal_prefix();
            let fits = |id: &&String| {
                id.starts_with(&prefix) && tool.schema.fits(property.name, &Value::String((*id).clone()))
            };
            !prefix.is_empty() && ids.iter().any(|id| fits(&id))
        })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::catalog::CatalogBuilder;
    use crate::embed::Encoders;
    use crate::index::{Mode, Settings};
    use crate::registry;
    use crate::retrieve::{Narrowing, eligible};
    use crate::types::Caller;

    /// Name, what it does, domain, requires.
    const CARDS: [(&str, &str, &str, &[&str]); 5] = [
        ("preview_refund", "Shows what a refund of an order would pay back. 退款试算", "refunds", &[]),
        ("execute_refund", "Pays the refund out. 执行退款", "refunds", &["preview_refund"]),
        ("track_shipment", "Where a parcel is. 快递物流到哪了", "logistics", &[]),
        ("urge_shipment", "Puts an order on the hurry list. 催发货", "logistics", &[]),
        ("search_faq", "Answers questions about shop rules. 运费规则", "knowledge", &[]),
    ];

    async fn catalog() -> Catalog {
        let card = |(name, what, domain, requires): (&str, &str, &str, &[&str])| {
            let order = json!({"type": "string", "pattern": "^SO-\\d{14}$"});
            let properties = if name == "search_faq" { json!({}) } else { json!({"order_id": order}) };
            json!({"name": name, "version": 1, "domain": domain, "requires": requires,
                "description": {"what": what, "when_to_use": [], "when_not_to_use": [], "returns": "x"},
                "parameters": {"type": "object", "properties": properties},
                "side_effect": "read", "timeout_ms": 10, "permissions": []})
        };
        let registry = registry::from_values(&CARDS.map(card));
        let settings = Settings { mode: Mode::Auto, exact_up_to: 1_000, recall_sample: 0.0 };
        let builder = CatalogBuilder::new(Arc::new(Encoders::none()), settings);
        let registry = registry::merge(registry::Registry::default(), registry);
        builder.build(registry, 1, &|_, _| {}).await.unwrap().0
    }

    fn turn(role: Role, content: &str) -> Turn {
        Turn { role, content: content.into() }
    }

    fn result(tool: &str) -> Turn {
        turn(Role::Tool, &json!({"tool": tool, "ok": true, "data": {"order_id": "SO-20260418000736"}}).to_string())
    }

    fn weights(catalog: &Catalog, utterance: &str, history: &[Turn]) -> Vec<f32> {
        let open = eligible(catalog, &Caller::local(), &Narrowing::default(), history);
        let context = context(catalog, &normalise(utterance).unwrap(), history, &open);
        CARDS.iter().map(|(name, ..)| context.weight(&ToolId::new(*name))).collect()
    }

    fn strongest(weights: &[f32]) -> &'static str {
        let best = (0..CARDS.len()).max_by(|a, b| weights[*a].total_cmp(&weights[*b])).unwrap();
        CARDS[best].0
    }

    #[tokio::test]
    async fn the_tie_says_which_tool_is_next() {
        let catalog = catalog().await;
        assert_eq!(catalog.tools.len(), CARDS.len());
        let previewed =
            [turn(Role::User, "refund please"), result("preview_refund"), turn(Role::Assistant, "Shall I?")];
        for consent in ["ok do it", "确认", "就这么办"] {
            let found = weights(&catalog, consent, &previewed);
            assert_eq!(strongest(&found), "execute_refund", "{consent}: {found:?}");
            assert!(found[1] >= 1.0, "{consent}: {found:?}");
        }
        for pointer in ["那第二个呢", "and the second one?"] {
            let found = weights(&catalog, pointer, &[turn(Role::User, "快递到哪了"), result("track_shipment")]);
            assert_eq!(strongest(&found), "track_shipment", "{pointer}: {found:?}");
        }
        // Agreeing to what the assistant offered, without any call before.
        for (offer, yes) in [("要帮您催发货吗？", "好的"), ("Shall I put the order on the hurry list?", "yes please")]
        {
            let found = weights(&catalog, yes, &[turn(Role::User, "SO-20260418000736"), turn(Role::Assistant, offer)]);
            assert_eq!(strongest(&found), "urge_shipment", "{yes}: {found:?}");
        }
        // The number that was asked for fills the wish of the turn before.
        let asked = [turn(Role::User, "快递到哪了"), turn(Role::Assistant, "请告诉我订单号。")];
        assert_eq!(strongest(&weights(&catalog, "SO-20260418000736", &asked)), "track_shipment");
    }

    #[tokio::test]
    async fn a_new_subject_owes_the_history_little_or_nothing() {
        let catalog = catalog().await;
        let previewed =
            [turn(Role::User, "refund please"), result("preview_refund"), turn(Role::Assistant, "Shall I?")];
        for over in ["算了，还是留着吧", "no thanks", "对了，你们满多少包邮", "by the way, how much is shipping"]
        {
            assert_eq!(weights(&catalog, over, &previewed), [0.0; 5], "{over}");
        }
        for own in ["请问你们店里的运费规则是怎样规定的", "can you tell me where my big parcel has gone", "快递呢"]
        {
            let found = weights(&catalog, own, &previewed);
            assert!(found.iter().all(|weight| *weight < 1.0), "{own}: {found:?}");
        }
        assert_eq!(weights(&catalog, "ok do it", &[]), [0.0; 5]);
        let broken = [turn(Role::Tool, "{"), turn(Role::Tool, r#"{"tool": 7}"#), turn(Role::User, "")];
        assert_eq!(weights(&catalog, "ok do it", &broken), [0.0; 5]);
    }
}
