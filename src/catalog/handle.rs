//! The catalog being served: readers load one pointer, one writer at a time replaces it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Mutex;

use super::build::{BuildError, BuildReport, Catalog, CatalogBuilder};
use crate::registry::{Diff, Registry, diff};

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
    current: ArcSwap<Catalog>,
    builder: CatalogBuilder,
    writer: Mutex<()>,
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
        Ok((Self { current: ArcSwap::from_pointee(catalog), builder, writer: Mutex::new(()) }, report))
    }

    /// The catalog to use for one whole request.
    pub fn load(&self) -> Arc<Catalog> {
        self.current.load_full()
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
        let _one_writer = self.writer.lock().await;
        let current = self.current.load_full();
        let registry = change(&current.registry).await?;
        let (mut next, report) = self.builder.build(registry, current.version.generation + 1, &|_, _| {}).await?;
        commit().await?;
        let diff = diff(&current.registry, &next.registry);
        if diff.is_empty() {
            next.version = current.version.clone();
        }
        let catalog = Arc::new(next);
        self.current.store(Arc::clone(&catalog));
        Ok(Published { catalog, diff, report })
    }
}
