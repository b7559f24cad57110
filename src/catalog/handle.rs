//! The catalog being served: readers load one pointer, one writer at a time replaces it.
//!
//! A large catalog is served with an exact scan until its graph is built, so that a change does not wait minutes to be
//! seen.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use tokio::sync::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::build::{BuildError, BuildReport, Catalog, CatalogBuilder};
use crate::registry::{Diff, Registry, diff};
use crate::telemetry::names;

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
    /// Holds what ends the graph being built, if one is: it was begun for a catalog that is about to be replaced.
    writer: Mutex<Option<DropGuard>>,
}

impl<B: Send + Sync + 'static> CatalogHandle<B> {
    /// Builds the first catalog.
    ///
    /// # Errors
    /// [`BuildError`] when it cannot be built.
    pub async fn first(
        builder: CatalogBuilder,
        registry: Registry,
        beside: B,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<(Self, BuildReport), BuildError> {
        let (catalog, report) = builder.build(registry, 1, progress).await?;
        let serving = Arc::new(Serving { catalog: Arc::new(catalog), beside: Arc::new(beside) });
        let served = Served { current: ArcSwap::new(Arc::clone(&serving)), writer: Mutex::new(None) };
        let handle = Self { served: Arc::new(served), builder };
        *handle.served.writer.lock().await = handle.build_graphs(serving);
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
    /// what gets served is durable and what cannot be built is not. On error the current catalog keeps serving. The
    /// version stays when the cards do.
    ///
    /// # Errors
    /// What `change` or `commit` return, or [`BuildError`].
    pub async fn publish<E: From<BuildError>>(
        &self,
        change: impl AsyncFnOnce(&Serving<B>) -> Result<(Registry, B), E>,
        commit: impl AsyncFnOnce() -> Result<(), E>,
    ) -> Result<Published<B>, E> {
        // The difference is taken against the catalog that will be replaced, so writers wait for each other.
        let mut writer = self.served.writer.lock().await;
        let current = self.served.current.load_full();
        let (registry, beside) = change(&current).await?;
        let version = &current.catalog.version;
        let earlier = Some(Arc::clone(&current.catalog));
        let (mut next, report) =
            self.builder.build_after(earlier, registry, version.generation + 1, &|_, _| {}).await?;
        commit().await?;
        let diff = diff(&current.catalog.registry, &next.registry);
        if diff.is_empty() {
            next.version = version.clone();
        }
        let serving = Arc::new(Serving { catalog: Arc::new(next), beside: Arc::new(beside) });
        self.served.current.store(Arc::clone(&serving));
        *writer = self.build_graphs(Arc::clone(&serving));
        Ok(Published { serving, diff, report })
    }

    /// Builds the graphs that `catalog` lacks on a thread of their own and publishes them if it is still served then.
    /// Dropping what is returned ends that.
    fn build_graphs(&self, serving: Arc<Serving<B>>) -> Option<DropGuard> {
        let settings = self.builder.index().clone();
        if !serving.catalog.needs_graphs(&settings) {
            return None;
        }
        // Weak, so that nothing goes on after this handle.
        let (served, stop) = (Arc::downgrade(&self.served), CancellationToken::new());
        let guard = stop.clone().drop_guard();
        tokio::spawn(async move {
            let (of, go_on) = (Arc::clone(&serving.catalog), stop.clone());
            let built = tokio::task::spawn_blocking(move || of.with_graphs(&settings, &|| !go_on.is_cancelled())).await;
            let result = match built {
                Ok(Ok(Some(next))) => add_graphs(&served, &serving, next).await,
                Ok(Ok(None)) => "superseded",
                Ok(Err(error)) => {
                    tracing::error!(%error, "no graph; the exact scan goes on serving");
                    "failed"
                }
                Err(_) => "failed",
            };
            metrics::counter!(names::INDEX_GRAPHS, "result" => result).increment(1);
        });
        Some(guard)
    }
}

/// Replaces `of` by the same catalog `with` graphs unless it has been replaced by another.
async fn add_graphs<B>(served: &Weak<Served<B>>, of: &Arc<Serving<B>>, with: Catalog) -> &'static str {
    let Some(served) = served.upgrade() else { return "superseded" };
    let _one_writer = served.writer.lock().await;
    if !Arc::ptr_eq(of, &served.current.load()) {
        return "superseded";
    }
    tracing::info!(version = %with.version, index = with.index_kind().as_str(), "graph built");
    served.current.store(Arc::new(Serving { catalog: Arc::new(with), beside: Arc::clone(&of.beside) }));
    "ready"
}
