//! The catalog being served: readers load one pointer, one writer at a time replaces it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Mutex;

use super::build::{BuildError, BuildReport, Catalog, CatalogBuilder};
use crate::registry::{Diff, Registry, diff};

/// A catalog and what was made for exactly this one: behind one pointer, so that no request sees halves of two versions.
#[derive(Debug)]
pub struct Serving<B> {
    pub catalog: Arc<Catalog>,
    pub beside: B,
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
    current: ArcSwap<Serving<B>>,
    builder: CatalogBuilder,
    writer: Mutex<()>,
}

impl<B> CatalogHandle<B> {
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
        let serving = Serving { catalog: Arc::new(catalog), beside };
        Ok((Self { current: ArcSwap::from_pointee(serving), builder, writer: Mutex::new(()) }, report))
    }

    /// The catalog to use for one whole request.
    pub fn load(&self) -> Arc<Serving<B>> {
        self.current.load_full()
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
        let _one_writer = self.writer.lock().await;
        let current = self.current.load_full();
        let (registry, beside) = change(&current).await?;
        let version = &current.catalog.version;
        let (mut next, report) = self.builder.build(registry, version.generation + 1, &|_, _| {}).await?;
        commit().await?;
        let diff = diff(&current.catalog.registry, &next.registry);
        if diff.is_empty() {
            next.version = version.clone();
        }
        let serving = Arc::new(Serving { catalog: Arc::new(next), beside });
        self.current.store(Arc::clone(&serving));
        Ok(Published { serving, diff, report })
    }
}
