//! Loading everything once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::change::report;
use super::invoke::{OpenCalls, Pages, Turns};
use super::pending::PendingCalls;
use super::shadow::MOST_SHADOWS;
use super::{Router, Settings, StartError};
use crate::cache::DecisionCache;
use crate::catalog::{CatalogBuilder, CatalogHandle};
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
use crate::store::Store;
use crate::text;
use crate::types::{Clock, Deadline};

impl Router {
    /// Loads encoders, store and registries and publishes the first catalog. `progress` hears of embedding work: done,
    /// total.
    ///
    /// # Errors
    /// [`StartError`] with what to do about it.
    pub async fn start(settings: Settings, progress: &(dyn Fn(usize, usize) + Sync)) -> Result<Arc<Self>, StartError> {
        let opened = {
            let settings = settings.clone();
            tokio::task::spawn_blocking(move || open(&settings)).await??
        };
        let Opened { store, salt, encoders, registry, rules, log, gate } = opened;
        if settings.strict && !registry.quarantined.is_empty() {
            return Err(StartError::Strict(registry.quarantined));
        }
        let llm = settings.llm.clone().map(Llm::new).transpose().map_err(StartError::Llm)?;
        let builder = CatalogBuilder::new(Arc::clone(&encoders), settings.index.clone());
        let (catalogs, _) = CatalogHandle::first(builder, registry, rules, progress).await?;
        report(&catalogs.load(), &settings);
        warm_up(&encoders).await?;
        let fusion = fusion_weights(&encoders)?;
        let models = confidence_models(&settings, &encoders)?;
        Ok(Arc::new(Self {
            cache: DecisionCache::new(settings.cache.clone()),
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
            encoders,
            store,
            llm,
            fusion,
            models,
            log,
            salt,
        }))
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

struct Opened {
    store: Arc<Store>,
    salt: Salt,
    encoders: Arc<Encoders>,
    registry: Registry,
    rules: Rules,
    log: DecisionLog,
    gate: Gate,
}

fn open(settings: &Settings) -> Result<Opened, StartError> {
    let registry = read_files(settings)?;
    let file = read_rules(settings)?;
    let store = Arc::new(match &settings.store {
        Some(path) => Store::open(path)?,
        None => Store::in_memory()?,
    });
    let encoders = Arc::new(load_encoders(settings, &store)?);
    let registry = with_stored(settings, registry, &store)?;
    // Before anything is embedded: a rule that names no tool fails the start.
    let rules = Rules::bind(file, settings.rules.modes.clone(), &registry)?;
    let policy = read_policy(settings)?;
    let log = DecisionLog::start(&settings.log)?;
    let salt = Salt::new(store.secret("decision-log-salt")?);
    policy.check(&registry)?;
    let gate = Gate::new(settings.gate.clone(), policy, Arc::clone(&store), Clock::System)?;
    Ok(Opened { store, salt, encoders, registry, rules, log, gate })
}

/// Reads the registry files.
pub(super) fn read_files(settings: &Settings) -> Result<Registry, StartError> {
    let mut registry = registry::load(&settings.registries)?;
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
