//! The catalog being served: readers load one pointer, one writer at a time replaces it.
//!
//! A large catalog is served with an exact scan until its graph is built, so that a change does not wait minutes to be
//! seen. A change of few cards does not end a graph in the making: it is finished and serves the changed catalog, what is
//! new being scanned; else a catalog that changes every minute would never have one.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use tokio::sync::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::build::{BuildError, BuildReport, Catalog, CatalogBuilder};
use crate::index::Settings;
use crate::registry::{Diff, Registry, diff};
use crate::telemetry::names;
use crate::types::CatalogVersion;

/// A catalog and what was made for exactly this one: behind one pointer, so that no request sees halves of two versions.
#[derive(Debug)]
pub struct Serving<B> {
    pub catalog: Arc<Catalog>,
    pub beside: Arc<B>,
}

/// What a swap changed.
#[derive(Debug)]
pub struct Published<B> {
    pub serving: Arc<Serving<B>>,
    pub diff: Diff,
    pub report: BuildReport,
}

/// A catalog that is complete and about to be served.
#[derive(Debug)]
pub struct Change {
    pub before: Arc<Catalog>,
    /// Its version is that of `before` where the cards are.
    pub after: Arc<Catalog>,
    pub diff: Diff,
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog")
            .field("version", &self.version)
            .field("tools", &self.tools.len())
            .finish_non_exhaustive()
    }
}

/// Holds the current catalog.
pub struct CatalogHandle<B> {
    served: Arc<Served<B>>,
    builder: CatalogBuilder,
}

/// What a graph that was built in the background needs to be published.
struct Served<B> {
    current: ArcSwap<Serving<B>>,
    /// Held by who changes `current`; with the graphs being built, if any are.
    writer: Mutex<Option<Building>>,
}

/// Graphs in the making. Dropping this ends that.
struct Building {
    of: Arc<Catalog>,
    _stop: DropGuard,
}

impl<B: Send + Sync + 'static> CatalogHandle<B> {
    /// Builds the first catalog of this process. `since` is the version that was served last, if one is known: its
    /// generation goes on, and the version stays where the cards do. `commit` is as for [`CatalogHandle::publish`].
    ///
    /// # Errors
    /// What `commit` returns, or [`BuildError`].
    pub async fn first<E: From<BuildError>>(
        builder: CatalogBuilder,
        registry: Registry,
        beside: B,
        since: Option<CatalogVersion>,
        commit: impl AsyncFnOnce(Arc<Catalog>) -> Result<Option<u64>, E>,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<(Self, BuildReport), E> {
        let generation = since.as_ref().map_or(1, |since| since.generation + 1);
        let (mut catalog, report) = builder.build(registry, generation, progress).await?;
        if let Some(since) = since.filter(|since| since.digest == catalog.version.digest) {
            catalog.version = since;
        }
        let catalog = Arc::new(catalog);
        let generation = commit(Arc::clone(&catalog)).await?;
        let catalog = with_generation(catalog, generation);
        let serving = Arc::new(Serving { catalog: Arc::new(catalog), beside: Arc::new(beside) });
        let served = Served { current: ArcSwap::new(Arc::clone(&serving)), writer: Mutex::new(None) };
        let handle = Self { served: Arc::new(served), builder };
        *handle.served.writer.lock().await = build_graphs(&handle.served, handle.builder.index(), &serving);
        Ok((handle, report))
    }

    /// The catalog to use for one whole request.
    pub fn load(&self) -> Arc<Serving<B>> {
        self.served.current.load_full()
    }

    pub fn builder(&self) -> &CatalogBuilder {
        &self.builder
    }

    /// Publishes what `change` makes of the current catalog: a registry and what goes with it. `commit` runs after the build and before the swap, so that
    /// what gets served is durable and what cannot be built is not; it may give another generation to the next catalog. On error the current catalog keeps serving. The
    /// version stays when the cards do.
    ///
    /// # Errors
    /// What `change` or `commit` return, or [`BuildError`].
    pub async fn publish<E: From<BuildError>>(
        &self,
        change: impl AsyncFnOnce(&Serving<B>) -> Result<(Registry, B), E>,
        commit: impl AsyncFnOnce(Change) -> Result<Option<u64>, E>,
    ) -> Result<Published<B>, E> {
        // The difference is taken against the catalog that will be replaced, so writers wait for each other.
        let mut writer = self.served.writer.lock().await;
        let current = self.served.current.load_full();
        let (registry, beside) = change(&current).await?;
        let version = &current.catalog.version;
        let earlier = Some(Arc::clone(&current.catalog));
        let (mut next, report) =
            self.builder.build_after(earlier, registry, version.generation + 1, &|_, _| {}).await?;
        let diff = diff(&current.catalog.registry, &next.registry);
        if diff.is_empty() {
            next.version = version.clone();
        }
        let next = Arc::new(next);
        let change = Change { before: Arc::clone(&current.catalog), after: Arc::clone(&next), diff: diff.clone() };
        let generation = commit(change).await?;
        let next = with_generation(next, generation);
        let serving = Arc::new(Serving { catalog: Arc::new(next), beside: Arc::new(beside) });
        self.served.current.store(Arc::clone(&serving));
        let settings = self.builder.index();
        let fits = |building: &Building| {
            serving.catalog.needs_graphs(settings) && serving.catalog.shares_most_rows(&building.of)
        };
        if !writer.as_ref().is_some_and(fits) {
            *writer = build_graphs(&self.served, settings, &serving);
        }
        Ok(Published { serving, diff, report })
    }
}

fn with_generation(catalog: Arc<Catalog>, generation: Option<u64>) -> Catalog {
    let mut catalog = Arc::unwrap_or_clone(catalog);
    if let Some(generation) = generation {
        catalog.version.generation = generation;
    }
    catalog
}

/// Builds the graphs that the catalog lacks on a thread of their own and publishes them if they are still wanted then.
fn build_graphs<B: Send + Sync + 'static>(
    served: &Arc<Served<B>>,
    settings: &Settings,
    serving: &Arc<Serving<B>>,
) -> Option<Building> {
    let catalog = Arc::clone(&serving.catalog);
    if !catalog.needs_graphs(settings) {
        return None;
    }
    // Weak, so that nothing goes on after the handle.
    let (served, settings, stop) = (Arc::downgrade(served), settings.clone(), CancellationToken::new());
    let building = Building { of: Arc::clone(&catalog), _stop: stop.clone().drop_guard() };
    tokio::spawn(async move {
        let (with, go_on) = (settings.clone(), stop.clone());
        let built = move || catalog.with_graphs(&with, &|| !go_on.is_cancelled());
        let built = match tokio::task::spawn_blocking(built).await {
            Ok(Ok(built)) => built,
            Ok(Err(error)) => {
                tracing::error!(%error, "no graph; the exact scan goes on serving");
                return count("failed");
            }
            Err(_) => return count("failed"),
        };
        let added = match built {
            Some(built) => add_graphs(&served, &settings, &stop, built).await,
            None => false,
        };
        count(if added { "ready" } else { "superseded" });
    });
    Some(building)
}

fn count(result: &'static str) {
    metrics::counter!(names::INDEX_GRAPHS, "result" => result).increment(1);
}

/// Replaces what is served by the same catalog with the graphs of `built`, unless others were begun meanwhile.
async fn add_graphs<B: Send + Sync + 'static>(
    served: &Weak<Served<B>>,
    settings: &Settings,
    stop: &CancellationToken,
    built: Catalog,
) -> bool {
    let Some(served) = served.upgrade() else { return false };
    let mut writer = served.writer.lock().await;
    if stop.is_cancelled() {
        return false;
    }
    let current = served.current.load_full();
    let (catalog, settings) = (Arc::clone(&current.catalog), settings.clone());
    let adopting = move || (catalog.adopting(&built, &settings), settings);
    let Ok((with, settings)) = tokio::task::spawn_blocking(adopting).await else { return false };
    tracing::info!(version = %with.version, index = with.index_kind().as_str(), "graph built");
    let serving = Arc::new(Serving { catalog: Arc::new(with), beside: Arc::clone(&current.beside) });
    served.current.store(Arc::clone(&serving));
    // So much may have changed meanwhile that the next one is begun at once.
    *writer = build_graphs(&served, &settings, &serving);
    true
}
