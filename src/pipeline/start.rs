//! Loading everything once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio_util::task::TaskTracker;

use super::brake::Brakes;
use super::change::{Next, StoreChange, report};
use super::history::{self, Cause};
use super::invoke::{OpenCalls, Pages, Turns};
use super::live::LiveSources;
use super::pending::PendingCalls;
use super::pins::{self, Rollback};
use super::shadow::MOST_SHADOWS;
use super::{Brake, ModeSet, Router, RunMode, Settings, Standing, StartError};
use crate::cache::DecisionCache;
use crate::catalog::{Catalog, CatalogBuilder, CatalogHandle};
use crate::decide::confidence::{Model, Models};
use crate::decide::llm::Llm;
use crate::decision::log::DecisionLog;
use crate::decision::redact::Salt;
use crate::embed::{Encoders, WordsManifest};
use crate::execute::Executors;
use crate::gate::{Gate, Policy, PolicyError};
use crate::registry::{self, Registry};
use crate::retrieve::Fusion;
use crate::rules::{self, RuleFile, Rules};
use crate::store::{Store, VersionRow};
use crate::text;
use crate::types::{Clock, Deadline, UnixMs};

impl Router {
    /// Loads encoders, store and registries and publishes the first catalog. `progress` hears of embedding work: done,
    /// total.
    ///
    /// # Errors
    /// [`StartError`] with what to do about it.
    pub async fn start(settings: Settings, progress: &(dyn Fn(usize, usize) + Sync)) -> Result<Arc<Self>, StartError> {
        let live = LiveSources::fetch(&settings.live).await?;
        let opened = {
            let settings = settings.clone();
            tokio::task::spawn_blocking(move || open(&settings, live)).await??
        };
        let Opened { store, salt, encoders, live, registry, rules, log, gate, brakes, last, stored } = opened;
        report_brakes(&brakes);
        if settings.strict && !registry.quarantined.is_empty() {
            return Err(StartError::Strict(registry.quarantined));
        }
        let llm = settings.llm.clone().map(Llm::new).transpose().map_err(StartError::Llm)?;
        let builder = CatalogBuilder::new(Arc::clone(&encoders), settings.index.clone());
        let since = last.as_ref().map(history::version);
        let made = history::now();
        let commit = async |catalog: Arc<Catalog>| {
            let (store, settings, follows) = (Arc::clone(&store), settings.clone(), since.clone());
            let why = (Cause::Start, made);
            let record = move || history::record((&store, &settings), follows.as_ref(), &catalog, None, &stored, why);
            tokio::task::spawn_blocking(record).await?
        };
        let (catalogs, _) = CatalogHandle::first(builder, registry, rules, since.clone(), commit, progress).await?;
        report(&catalogs.load(), &settings);
        let versions = watch::Sender::new(Arc::new(first_version(&catalogs.load().catalog, last, made)));
        warm_up(&encoders).await?;
        let fusion = fusion_weights(&encoders)?;
        let models = confidence_models(&settings, &encoders)?;
        let router = Arc::new(Self {
            cache: DecisionCache::new(settings.cache.clone()),
            brakes,
            pending: PendingCalls::new(),
            in_flight: Arc::new(Semaphore::new(settings.max_in_flight)),
            turns: Turns::new(),
            open_calls: OpenCalls::new(),
            pages: Pages::new(),
            calls: TaskTracker::new(),
            executors: Executors::new(settings.execute.clone())?,
            gate,
            shadows: Arc::new(Semaphore::new(MOST_SHADOWS)),
            settings,
            catalogs,
            live,
            lints: Default::default(),
            versions,
            encoders,
            store,
            llm,
            fusion,
            models,
            log,
            salt,
        });
        router.follow_live();
        Ok(router)
    }
}

/// Says what an operator has left in force.
fn report_brakes(brakes: &Brakes) {
    brakes.tell();
    let Standing { brakes, mode: ModeSet { mode, reason, .. } } = brakes.standing();
    for Brake { target, reason, .. } in &brakes {
        tracing::warn!(%target, reason, "disabled by an operator");
    }
    if mode == RunMode::Normal {
        tracing::info!(mode = mode.as_str(), disabled = brakes.len(), "mode in force");
    } else {
        tracing::warn!(mode = mode.as_str(), reason, disabled = brakes.len(), "mode in force");
    }
}

/// The weights of each encoder's signals; one that was never tuned has the usual ones.
fn fusion_weights(encoders: &Encoders) -> Result<BTreeMap<String, Fusion>, StartError> {
    let mut weights = BTreeMap::new();
    for encoder in encoders.all() {
        let name = encoder.name().to_owned();
        match encoder.fusion().map(Fusion::from_named) {
            Some(Ok(fusion)) => drop(weights.insert(name, fusion)),
            Some(Err(source)) => return Err(StartError::Fusion { encoder: name, source }),
            None => tracing::info!(encoder = name, "never tuned: the usual weights serve; see `pointsman tune`"),
        }
    }
    Ok(weights)
}

/// The confidence model of each encoder; one that was never calibrated has the default.
fn confidence_models(settings: &Settings, encoders: &Encoders) -> Result<Models, StartError> {
    let model = |encoder: &str, named: &BTreeMap<String, f64>| {
        Model::from_named(named).map_err(|source| StartError::Confidence { encoder: encoder.to_owned(), source })
    };
    let mut by_encoder = BTreeMap::new();
    for encoder in encoders.all() {
        match encoder.confidence() {
            Some(named) => drop(by_encoder.insert(encoder.name().to_owned(), model(encoder.name(), named)?)),
            None => tracing::info!(
                encoder = encoder.name(),
                "never calibrated: confidences are rough; see `pointsman calibrate`"
            ),
        }
    }
    let words = WordsManifest::read(&settings.embed.models_dir)?.confidence;
    let words = words.map(|named| model("words", &named)).transpose()?;
    Ok(Models::new(by_encoder, words))
}

/// Runs what is set up on first use, so that the first request is as fast as the hundredth.
async fn warm_up(encoders: &Encoders) -> Result<(), StartError> {
    for utterance in ["where is order 1", "订单 1 到哪了"] {
        let Ok(query) = text::normalise(utterance) else { continue };
        if let Some(encoder) = encoders.for_language(query.language) {
            encoder.embed_query(&query.retrieval_text(), Deadline::after(WARM_UP_WITHIN)).await?;
        }
    }
    Ok(())
}

/// An encoder that takes longer than this for a short text cannot serve.
const WARM_UP_WITHIN: Duration = Duration::from_secs(30);

/// The version that serves first: a new one, or that of the process before where the cards are.
fn first_version(catalog: &Catalog, last: Option<VersionRow>, made: UnixMs) -> history::Version {
    let same = last.filter(|row| history::version(row) == catalog.version);
    let (made, cause) = same.map_or((made, Cause::Start.as_str().to_owned()), |row| (row.made, row.cause));
    let registry = Arc::clone(&catalog.registry);
    history::Version { version: catalog.version.clone(), made, cause, registry, touched: Vec::new() }
}

struct Opened {
    store: Arc<Store>,
    salt: Salt,
    encoders: Arc<Encoders>,
    live: LiveSources,
    registry: Registry,
    rules: Rules,
    log: DecisionLog,
    gate: Gate,
    brakes: Brakes,
    /// The version served last.
    last: Option<VersionRow>,
    stored: StoreChange,
}

fn open(settings: &Settings, live: LiveSources) -> Result<Opened, StartError> {
    let mut files = read_files(settings, &live);
    if !settings.keeps_history() || settings.strict || settings.store.is_none() {
        // There is nothing else to serve, so the store is not even made.
        files = Ok(files?);
    }
    let file = read_rules(settings)?;
    let store = Arc::new(match &settings.store {
        Some(path) => Store::open(path)?,
        None => Store::in_memory()?,
    });
    if !settings.live.is_empty() {
        // What a source that is down listed last is in the store.
        live.recall(&store);
        files = read_files(settings, &live);
    }
    let encoders = Arc::new(load_encoders(settings, &store)?);
    let last = if settings.keeps_history() { store.last_version()? } else { None };
    let (registry, stored) = first_registry(settings, files, &store)?;
    // Before anything is embedded: a rule that names no tool fails the start.
    let rules = Rules::bind(file, settings.rules.modes.clone(), &registry)?;
    let policy = read_policy(settings)?;
    let log = DecisionLog::start(&settings.log)?;
    let salt = Salt::new(store.secret("decision-log-salt")?);
    policy.check(&registry)?;
    let gate = Gate::new(settings.gate.clone(), policy, Arc::clone(&store), Clock::System)?;
    // What is measured on labelled sets is measured on the cards as they are.
    let brakes = if settings.stored_cards { Brakes::read(&store, Clock::System)? } else { Brakes::none(Clock::System) };
    Ok(Opened { store, salt, encoders, live, registry, rules, log, gate, brakes, last, stored })
}

/// The first registry, compared with what the store says was served last.
///
/// Files that cannot be read do not keep the server from starting: what was served last is served again, said loudly.
/// That holds for the same files alone: with a list that has none of them, what is stored is another registry's, and
/// says nothing about this one.
fn first_registry(settings: &Settings, files: Result<Registry, StartError>, store: &Store) -> Result<Next, StartError> {
    if !settings.keeps_history() {
        return Ok((with_stored(settings, files?, store)?, StoreChange::Nothing));
    }
    let sources = sources(settings);
    let known: Option<Vec<String>> = store.setting(SOURCES)?.and_then(|json| serde_json::from_str(&json).ok());
    let is_same =
        known.as_ref().is_none_or(|known| *known == sources || known.iter().any(|source| sources.contains(source)));
    let last = || pins::last_served(store);
    let (mut registry, stored) = if is_same {
        let serving = || Ok(last()?.map(|(registry, _)| registry).unwrap_or_default());
        match from_files(settings, files, store, &serving) {
            Err(StartError::Registry(error)) if !settings.strict => {
                let Some((mut registry, version)) = last()? else { return Err(error.into()) };
                registry.last_good = Some(format!(
                    "the registry files cannot be used, so the last good catalog, version {version}, is served: {error}"
                ));
                (registry, StoreChange::Nothing)
            }
            next => next?,
        }
    } else {
        tracing::info!("the store holds the catalogs of other registry files: nothing is compared with them");
        (with_stored(settings, files?, store)?, StoreChange::Files)
    };
    if is_same {
        pins::apply_first(settings, store, &mut registry)?;
    }
    pins::add_notices(&mut registry);
    let sources = serde_json::to_string(&sources).unwrap_or_default();
    Ok((registry, StoreChange::First { sources, rollback_is_over: matches!(stored, StoreChange::Files) }))
}

/// The setting that says which files the served cards came from.
pub(super) const SOURCES: &str = "registry.sources";

fn sources(settings: &Settings) -> Vec<String> {
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    settings
        .registries
        .iter()
        .map(|path| absolute(path).display().to_string())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

/// The cards of the files and those that were put, unless a rollback is in force: then `serving`, what is served.
pub(super) fn from_files(
    settings: &Settings,
    files: Result<Registry, StartError>,
    store: &Store,
    serving: &dyn Fn() -> Result<Registry, StartError>,
) -> Result<Next, StartError> {
    let rollback = if settings.keeps_history() { Rollback::of(store)? } else { None };
    let Some(rollback) = rollback else {
        return Ok((with_stored(settings, files?, store)?, StoreChange::Nothing));
    };
    if rollback.files == pins::fingerprint(&files) {
        let mut next = serving()?;
        let files = files.unwrap_or_default();
        next.quarantined = files.quarantined;
        next.scopes = files.scopes;
        next.imported = files.imported;
        next.notices = files.notices;
        next.notices
            .push(format!("the rollback to version {} is in force until the registry files change", rollback.to));
        return Ok((next, StoreChange::Nothing));
    }
    let mut next = with_stored(settings, files?, store)?;
    next.notices.push(format!("the registry files have changed: the rollback to version {} is over", rollback.to));
    Ok((next, StoreChange::Files))
}

/// Reads the registry files; beside them stand the tools that live sources listed last.
pub(super) fn read_files(settings: &Settings, live: &LiveSources) -> Result<Registry, StartError> {
    let mut registry = registry::load(&settings.registries, &live.listed())?;
    live.remark(&mut registry);
    for card in registry.cards.values_mut() {
        if let Some(examples) = settings.extra_examples.get(&card.name) {
            Arc::make_mut(card).examples.extend(examples.iter().cloned());
        }
    }
    Ok(registry)
}

/// Reads the policy; without a file scopes alone decide.
pub(super) fn read_policy(settings: &Settings) -> Result<Policy, PolicyError> {
    settings.policy.as_deref().map_or_else(|| Ok(Policy::none()), Policy::read)
}

/// Reads the rule file, if there is one.
pub(super) fn read_rules(settings: &Settings) -> Result<Option<Arc<RuleFile>>, StartError> {
    Ok(settings.rules.file.as_deref().map(rules::read).transpose()?.map(Arc::new))
}

/// Adds the cards that were put earlier.
pub(super) fn with_stored(settings: &Settings, files: Registry, store: &Store) -> Result<Registry, StartError> {
    if !settings.stored_cards {
        return Ok(files);
    }
    let cards: Vec<Value> = store
        .cards()?
        .into_iter()
        // A stored text that is no JSON any more shows up as a quarantined card instead of vanishing.
        .map(|(name, json)| serde_json::from_str(&json).unwrap_or(Value::String(name)))
        .collect();
    if !cards.is_empty() {
        tracing::info!(cards = cards.len(), "tools that were put earlier are served as well");
    }
    Ok(if cards.is_empty() { files } else { registry::merge(files, registry::from_values(&cards)) })
}

fn load_encoders(settings: &Settings, store: &Arc<Store>) -> Result<Encoders, StartError> {
    match Encoders::load(&settings.embed, Arc::clone(store)) {
        Ok(encoders) => Ok(encoders),
        Err(error) if settings.allow_lexical_only => {
            tracing::warn!(%error, "no encoder can be loaded; words alone decide (lexical_only)");
            Ok(Encoders::none())
        }
        Err(error) => Err(error.into()),
    }
}
