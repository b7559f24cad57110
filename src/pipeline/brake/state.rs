//! What is in force: readers load one pointer, one writer at a time replaces it once its change is on the disk.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::{Brake, BrakeError, MOST, ModeSet, RunMode, Standing, Target};
use crate::store::{BrakeFacts, BrakeRow, Store, StoreError};
use crate::telemetry::names;
use crate::tool::ToolCard;
use crate::types::{Clock, UnixMs};

/// Name of the mode among the settings in the store.
const MODE: &str = "mode";

pub(in crate::pipeline) struct Brakes {
    state: ArcSwap<State>,
    /// Held while a change is written: what is read back holds every change before it.
    writer: Mutex<()>,
    clock: Clock,
}

/// One brake as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Set {
    brake: Arc<Brake>,
    facts: BrakeFacts,
}

/// Everything that was set, what has ended by itself included.
#[derive(Debug, Clone, Default)]
pub(in crate::pipeline) struct State {
    tools: BTreeMap<String, Arc<Set>>,
    /// The same tools by source and own name: ids change when another source takes the same name.
    by_source: BTreeMap<String, BTreeMap<String, Arc<Set>>>,
    sources: BTreeMap<String, Arc<Set>>,
    mode: ModeSet,
}

impl Brakes {
    /// Nothing disabled, whatever a store says.
    pub fn none(clock: Clock) -> Self {
        Self { state: ArcSwap::from_pointee(State::default()), writer: Mutex::new(()), clock }
    }

    /// # Errors
    /// [`StoreError`] when the store cannot be read: a server that forgot what is disabled would be worse than none.
    pub fn read(store: &Store, clock: Clock) -> Result<Self, StoreError> {
        let brakes = Self::none(clock);
        brakes.state.store(Arc::new(State::read(store)?));
        Ok(brakes)
    }

    pub fn now(&self) -> UnixMs {
        self.clock.now()
    }

    pub fn load(&self) -> Arc<State> {
        self.state.load_full()
    }

    pub fn standing(&self) -> Standing {
        let (state, now) = (self.load(), self.now());
        Standing { brakes: state.in_force(now).map(|set| (*set.brake).clone()).collect(), mode: state.mode(now) }
    }

    /// Writes a brake down and puts it in force. Blocks.
    pub fn pull(&self, store: &Store, row: BrakeRow) -> Result<(), BrakeError> {
        self.change(store, |state, now| {
            store.sweep_brakes(now)?;
            let is_new = state.facts(&target(&row.kind, &row.name)).is_none();
            if is_new && state.in_force(now).count() >= MOST {
                return Err(BrakeError::Full);
            }
            Ok(store.put_brake(&row)?)
        })
    }

    /// Whether there was one. Blocks.
    pub fn release(&self, store: &Store, target: &Target) -> Result<bool, BrakeError> {
        self.change(store, |_, _| Ok(store.remove_brake(target.kind(), target.name())?))
    }

    /// Blocks.
    pub fn switch(&self, store: &Store, mode: ModeSet) -> Result<(), BrakeError> {
        let text = serde_json::to_string(&mode).unwrap_or_default();
        self.change(store, |_, _| Ok(store.put_setting(MODE, &text)?))
    }

    /// Forgets what has ended by itself, and tells the metrics. Blocks.
    pub fn sweep(&self, store: &Store) -> Result<(), StoreError> {
        let now = self.now();
        let late = self.load().all().any(|set| !is_open(set.brake.until, now));
        if late {
            let result = self.change(store, |_, now| Ok(store.sweep_brakes(now)?));
            match result {
                Ok(ended) => tracing::info!(ended, "brakes have ended by themselves"),
                Err(BrakeError::Store(error)) => return Err(error),
                Err(_) => {}
            }
        }
        self.tell();
        Ok(())
    }

    /// Tells the metrics what is in force.
    pub fn tell(&self) {
        let (state, now) = (self.load(), self.now());
        for kind in Target::KINDS {
            let count = state.in_force(now).filter(|set| set.brake.target.kind() == kind).count();
            metrics::gauge!(names::BRAKES, "kind" => kind).set(count as f64);
        }
        let current = state.mode(now).mode;
        for mode in RunMode::ALL {
            let value = if mode == current { 1.0 } else { 0.0 };
            metrics::gauge!(names::MODE, "mode" => mode.as_str()).set(value);
        }
    }

    /// What is in force is what the store holds after `write`.
    fn change<T>(
        &self,
        store: &Store,
        write: impl FnOnce(&State, UnixMs) -> Result<T, BrakeError>,
    ) -> Result<T, BrakeError> {
        let _one_writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let done = write(&self.load(), self.now())?;
        self.state.store(Arc::new(State::read(store)?));
        self.tell();
        Ok(done)
    }
}

impl State {
    fn read(store: &Store) -> Result<Self, StoreError> {
        let mut state = Self { mode: read_mode(store)?, ..Self::default() };
        for row in store.brakes()? {
            state.add(row);
        }
        Ok(state)
    }

    fn add(&mut self, row: BrakeRow) {
        let BrakeRow { kind, name, since, until, facts } = row;
        let target = target(&kind, &name);
        let (reason, caller) = (facts.reason.clone(), facts.caller.clone());
        let by_source = facts.source.clone().zip(facts.own_name.clone());
        let set = Arc::new(Set { brake: Arc::new(Brake { target, reason, since, until, caller }), facts });
        if set.brake.target.kind() == "source" {
            self.sources.insert(name, set);
            return;
        }
        if let Some((source, own_name)) = by_source {
            self.by_source.entry(source).or_default().insert(own_name, Arc::clone(&set));
        }
        self.tools.insert(name, set);
    }

    /// By kind, then by name.
    fn all(&self) -> impl Iterator<Item = &Arc<Set>> {
        self.sources.values().chain(self.tools.values())
    }

    fn in_force(&self, now: UnixMs) -> impl Iterator<Item = &Arc<Set>> {
        self.all().filter(move |set| is_open(set.brake.until, now))
    }

    /// Whether nothing was ever set: then nobody has to look.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.sources.is_empty()
    }

    /// What keeps the tool of this card out of service.
    pub fn of(&self, card: &ToolCard, now: UnixMs) -> Option<&Arc<Brake>> {
        let own = || self.by_source.get(&card.source).and_then(|tools| tools.get(&card.name));
        let found = [self.tools.get(card.id.as_str()), own(), self.sources.get(&card.source)];
        found.into_iter().flatten().map(|set| &set.brake).find(|brake| is_open(brake.until, now))
    }

    /// The mode in force; one that has ended is the normal one.
    pub fn mode(&self, now: UnixMs) -> ModeSet {
        if is_open(self.mode.until, now) { self.mode.clone() } else { ModeSet::default() }
    }

    pub(super) fn facts(&self, target: &Target) -> Option<BrakeFacts> {
        let set = match target {
            Target::Tool(name) => self.tools.get(name),
            Target::Source(name) => self.sources.get(name),
        };
        set.map(|set| set.facts.clone())
    }

    pub(super) fn names(&self, kind: &str) -> Vec<String> {
        let of_kind = self.all().filter(|set| set.brake.target.kind() == kind);
        of_kind.map(|set| set.brake.target.name().to_owned()).collect()
    }
}

fn target(kind: &str, name: &str) -> Target {
    // Only these two were ever written.
    if kind == "source" { Target::Source(name.to_owned()) } else { Target::Tool(name.to_owned()) }
}

fn is_open(until: Option<UnixMs>, now: UnixMs) -> bool {
    until.is_none_or(|until| until > now)
}

fn read_mode(store: &Store) -> Result<ModeSet, StoreError> {
    let Some(text) = store.setting(MODE)? else { return Ok(ModeSet::default()) };
    Ok(serde_json::from_str(&text).unwrap_or_else(|error| {
        tracing::error!(%error, "the mode in the store cannot be read; the normal one is in force");
        ModeSet::default()
    }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::types::ToolId;

    fn card(id: &str, source: &str) -> ToolCard {
        let name = id.rsplit('/').next().unwrap_or(id);
        ToolCard { id: ToolId::new(id), source: source.into(), ..ToolCard::reading(name, json!({"type": "object"})) }
    }

    fn row(target: &Target, until: Option<UnixMs>, own: Option<(&str, &str)>) -> BrakeRow {
        let (source, own_name) = own.map(|(source, name)| (source.to_owned(), name.to_owned())).unzip();
        let facts = BrakeFacts { reason: "坏了".into(), caller: "op".into(), source, own_name };
        BrakeRow { kind: target.kind().into(), name: target.name().into(), since: UnixMs(1), until, facts }
    }

    fn is_held(brakes: &Brakes, card: &ToolCard) -> bool {
        brakes.load().of(card, brakes.now()).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn a_brake_holds_until_it_is_released_or_its_time_is_over() {
        let (store, clock) = (Store::in_memory().unwrap(), Clock::tokio());
        let brakes = Brakes::read(&store, clock).unwrap();
        let (coupon, order) = (card("issue_coupon", "shop"), card("get_order", "shop"));
        let target = Target::Tool("issue_coupon".into());
        brakes.pull(&store, row(&target, None, None)).unwrap();
        assert!(is_held(&brakes, &coupon) && !is_held(&brakes, &order));
        assert!(brakes.release(&store, &target).unwrap() && !brakes.release(&store, &target).unwrap());
        assert!(!is_held(&brakes, &coupon));

        let until = brakes.now().plus(Duration::from_secs(60));
        let source = Target::Source("shop".into());
        brakes.pull(&store, row(&source, Some(until), None)).unwrap();
        brakes.switch(&store, ModeSet { mode: RunMode::RulesOnly, until: Some(until), ..ModeSet::default() }).unwrap();
        assert!(is_held(&brakes, &coupon) && is_held(&brakes, &order));
        assert_eq!(brakes.standing().mode.mode, RunMode::RulesOnly);
        tokio::time::advance(Duration::from_secs(59)).await;
        let again = Brakes::read(&store, clock).unwrap();
        assert!(is_held(&again, &order), "kept over a restart");
        tokio::time::advance(Duration::from_secs(1)).await;
        for brakes in [&brakes, &again] {
            assert!(!is_held(brakes, &order));
            assert_eq!((brakes.standing().brakes.len(), brakes.standing().mode), (0, ModeSet::default()));
        }
        brakes.sweep(&store).unwrap();
        assert!(store.brakes().unwrap().is_empty() && brakes.load().is_empty());
    }

    #[test]
    fn a_tool_stays_disabled_under_the_id_it_gets_beside_a_namesake() {
        let store = Store::in_memory().unwrap();
        let brakes = Brakes::read(&store, Clock::System).unwrap();
        brakes.pull(&store, row(&Target::Tool("search".into()), None, Some(("a", "search")))).unwrap();
        assert!(is_held(&brakes, &card("search", "a")) && is_held(&brakes, &card("a/search", "a")));
        assert!(!is_held(&brakes, &card("b/search", "b")));
    }

    #[test]
    fn what_cannot_be_written_is_not_in_force() {
        let store = Store::in_memory().unwrap();
        let brakes = Brakes::read(&store, Clock::System).unwrap();
        brakes.pull(&store, row(&Target::Tool("a".into()), None, None)).unwrap();
        let before = brakes.standing();
        let refused = brakes.change(&store, |_, _| Err::<(), _>(BrakeError::Full));
        assert!(matches!(refused, Err(BrakeError::Full)));
        assert_eq!(brakes.standing(), before);
    }

    #[test]
    fn a_mode_that_cannot_be_read_is_the_normal_one() {
        let store = Store::in_memory().unwrap();
        store.put_setting(MODE, "{\"mode\":\"turbo\"}").unwrap();
        let brakes = Brakes::read(&store, Clock::System).unwrap();
        assert_eq!(brakes.standing().mode, ModeSet::default());
        brakes.switch(&store, ModeSet { mode: RunMode::LocalOnly, ..ModeSet::default() }).unwrap();
        assert_eq!(Brakes::read(&store, Clock::System).unwrap().standing().mode.mode, RunMode::LocalOnly);
    }
}
