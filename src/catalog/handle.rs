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

/// What a swap changed.
#[derive(Debug, Clone)]
pub struct Published {
    pub catalog: Arc<Catalog>,
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
pub struct CatalogHandle {
    served: Arc<Served>,
    builder: CatalogBuilder,
}

/// What a graph that was built in the background needs to be published.
struct Served {
    current: ArcSwap<Catalog>,
    /// Holds what ends the graph being built, if one is: it was begun for a catalog that is about to be replaced.
    writer: Mutex<Option<DropGuard>>,
}

impl CatalogHandle {
    /// Builds the first catalog.
    ///
    /// # Errors
    /// [`BuildError`] when it cannot be built.
    pub async fn first(
        builder: CatalogBuilder,
        registry: Registry,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<(Self, BuildReport), BuildError> {
        let (catalog, report) = builder.build(registry, 1, progress).await?;
        let catalog = Arc::new(catalog);
        let served = Served { current: ArcSwap::new(Arc::clone(&catalog)), writer: Mutex::new(None) };
        let handle = Self { served: Arc::new(served), builder };
        *handle.served.writer.lock().await = handle.build_graphs(catalog);
        Ok((handle, report))
    }

    /// The catalog to use for one whole request.
    pub fn load(&self) -> Arc<Catalog> {
        self.served.current.load_full()
    }

    pub fn builder(&self) -> &CatalogBuilder {
        &self.builder
    }

    /// Publishes what `change` makes of the current registry. `commit` runs after the build and before the swap, so that
    /// what gets served is durable and what cannot be built is not. On error the current catalog keeps serving. The
    /// version stays when the cards do.
    ///
    /// # Errors
    /// What `change` or `commit` return, or [`BuildError`].
    pub async fn publish<E: From<BuildError>>(
        &self,
        change: impl AsyncFnOnce(&Registry) -> Result<Registry, E>,
        commit: impl AsyncFnOnce() -> Result<(), E>,
    ) -> Result<Published, E> {
        // The difference is taken against the catalog that will be replaced, so writers wait for each other.
        let mut writer = self.served.writer.lock().await;
        let current = self.served.current.load_full();
        let registry = change(&current.registry).await?;
        let generation = current.version.generation + 1;
        let earlier = Some(Arc::clone(&current));
        let (mut next, report) = self.builder.build_after(earlier, registry, generation, &|_, _| {}).await?;
        commit().await?;
        let diff = diff(&current.registry, &next.registry);
        if diff.is_empty() {
            next.version = current.version.clone();
        }
        let catalog = Arc::new(next);
        self.served.current.store(Arc::clone(&catalog));
        *writer = self.build_graphs(Arc::clone(&catalog));
        Ok(Published { catalog, diff, report })
    }

    /// Builds the graphs that `catalog` lacks on a thread of their own and publishes them if it is still served then.
    /// Dropping what is returned ends that.
    fn build_graphs(&self, catalog: Arc<Catalog>) -> Option<DropGuard> {
        let settings = self.builder.index().clone();
        if !catalog.needs_graphs(&settings) {
            return None;
        }
        // Weak, so that nothing goes on after this handle.
        let (served, stop) = (Arc::downgrade(&self.served), CancellationToken::new());
        let guard = stop.clone().drop_guard();
        tokio::spawn(async move {
            let (of, go_on) = (Arc::clone(&catalog), stop.clone());
            let built = tokio::task::spawn_blocking(move || of.with_graphs(&settings, &|| !go_on.is_cancelled())).await;
            let result = match built {
                Ok(Ok(Some(next))) => add_graphs(&served, &catalog, next).await,
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
async fn add_graphs(served: &Weak<Served>, of: &Arc<Catalog>, with: Catalog) -> &'static str {
    let Some(served) = served.upgrade() else { return "superseded" };
    let _one_writer = served.writer.lock().await;
    if !Arc::ptr_eq(of, &served.current.load()) {
        return "superseded";
    }
    tracing::info!(version = %with.version, index = with.index_kind().as_str(), "graph built");
    served.current.store(Arc::new(with));
    "ready"
}
