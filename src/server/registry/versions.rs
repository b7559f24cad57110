//! `Watch`, `Diff`, `History`, `Rollback`, `Held` and `Approve`.
//!
//! A caller reads of a card what `List` and `Get` would show it: a change that brings a card into its sight is an
//! addition to it, one that takes a card out of its sight a removal.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;

use metrics::counter;
use tokio::sync::{mpsc, watch};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status};

use super::{RegistryService, sees};
use crate::pipeline::{Touched, Version};
use crate::server::app::App;
use crate::server::audit::What;
use crate::server::metrics::Method;
use crate::server::{metadata, proto, status, wire};
use crate::telemetry::names;
use crate::tool::ToolCard;
use crate::types::{Administers, Caller};

/// Versions as they are published.
pub(super) type Versions = Pin<Box<dyn Stream<Item = Result<proto::Version, Status>> + Send>>;

impl RegistryService {
    pub(super) async fn diff_of(&self, request: Request<proto::DiffRequest>) -> Result<proto::DiffResponse, Status> {
        let caller = metadata::caller(&self.0.identity, &request)?;
        let router = self.0.router().ok_or_else(status::not_ready)?;
        let proto::DiffRequest { from, to } = request.into_inner();
        let difference = router.difference(from, to).await.map_err(|error| status::read(&error))?;
        let tell = move || {
            let mut told = proto::DiffResponse {
                from: difference.from.to_string(),
                to: difference.to.to_string(),
                ..proto::DiffResponse::default()
            };
            for touched in &difference.touched {
                let name = touched.id.to_string();
                match seen(&caller, touched.before.as_deref(), touched.after.as_deref()) {
                    Some(Seen::Added) => told.added.push(name),
                    Some(Seen::Removed) => told.removed.push(name),
                    Some(Seen::Changed) => {
                        let fields = touched.fields().into_iter().map(wire::field_change).collect();
                        told.changed.push(proto::CardChange { name, fields });
                    }
                    None => {}
                }
            }
            told
        };
        // Comparing thousands of cards takes longer than an async task may run.
        tokio::task::spawn_blocking(tell).await.map_err(|err| status::crashed(&err))
    }

    pub(super) async fn history_of(
        &self,
        request: Request<proto::HistoryRequest>,
    ) -> Result<proto::HistoryResponse, Status> {
        let caller = metadata::caller(&self.0.identity, &request)?;
        let router = self.0.router().ok_or_else(status::not_ready)?;
        let kept = router.history().await.map_err(|error| status::read(&error))?;
        let all = caller.administers() == Administers::Everything;
        let hashes = |change: &'_ crate::store::ChangeRow| [change.before.clone(), change.after.clone()];
        let needed: BTreeSet<String> = match all {
            true => BTreeSet::new(),
            false => kept.iter().flat_map(|kept| &kept.changes).flat_map(hashes).flatten().collect(),
        };
        let cards = router.kept_cards(needed).await.map_err(|error| status::read(&error))?;
        let tell = move || {
            let versions = kept.into_iter().map(|kept| {
                let mut told = wire::version(&kept.version, kept.made, &kept.cause);
                let facts = if all { kept.facts } else { Default::default() };
                (told.tools, told.held) = (wire::count(facts.tools), wire::count(facts.held));
                told.quarantined = wire::count(facts.quarantined);
                for change in kept.changes {
                    let card = |hash: &Option<String>| cards.get(hash.as_deref()?).map(Arc::as_ref);
                    let seen = match all {
                        true => of(change.before.is_some(), change.after.is_some()),
                        false => seen(&caller, card(&change.before), card(&change.after)),
                    };
                    add(&mut told, seen, change.tool);
                }
                told
            });
            proto::HistoryResponse { versions: versions.collect() }
        };
        tokio::task::spawn_blocking(tell).await.map_err(|err| status::crashed(&err))
    }

    pub(super) async fn rollback_of(
        &self,
        request: Request<proto::RollbackRequest>,
    ) -> Result<proto::ChangeResponse, Status> {
        let caller = metadata::caller(&self.0.identity, &request);
        let version = wire::version_name(request.into_inner().version);
        let what = version.as_ref().map(|version| What::default().word("version", version)).unwrap_or_default();
        self.change(Method::Rollback, caller, what, version, |router, _, version| {
            Box::pin(async move { router.rollback(version).await })
        })
        .await
    }

    pub(super) async fn held_of(&self, request: Request<proto::HeldRequest>) -> Result<proto::HeldResponse, Status> {
        let caller = metadata::caller(&self.0.identity, &request)?;
        let router = self.0.router().ok_or_else(status::not_ready)?;
        let (catalog_version, registry) = router.registry();
        let tell = move || {
            let visible = registry.held.iter().filter_map(|(id, held)| {
                let serving = registry.cards.get(id)?;
                (sees(&caller, serving) && sees(&caller, &held.card)).then(|| wire::held(id, held, serving))
            });
            proto::HeldResponse { catalog_version, cards: visible.collect() }
        };
        tokio::task::spawn_blocking(tell).await.map_err(|err| status::crashed(&err))
    }

    pub(super) async fn approve_of(
        &self,
        request: Request<proto::ApproveRequest>,
    ) -> Result<proto::ChangeResponse, Status> {
        let caller = metadata::caller(&self.0.identity, &request);
        let approvals = wire::approvals(request.into_inner().approvals);
        let what = What::default().tools(approvals.iter().flatten().map(|(name, _)| name));
        self.change(Method::Approve, caller, what, approvals, |router, _, approvals| {
            Box::pin(async move { router.approve(approvals).await })
        })
        .await
    }

    /// The stream ends when the server stops. A receiver that is slow delays nobody: it misses versions and is told how
    /// many.
    pub(super) async fn watch_of(&self, request: Request<proto::WatchRequest>) -> Result<Versions, Status> {
        let caller = metadata::caller(&self.0.identity, &request)?;
        let router = self.0.router().ok_or_else(status::not_ready)?;
        let (send, receive) = mpsc::channel(1);
        tokio::spawn(follow(Arc::clone(&self.0), router.versions(), caller, send));
        Ok(Box::pin(ReceiverStream::new(receive)))
    }
}

/// Sends versions until the server stops or nobody listens.
async fn follow(
    app: Arc<App>,
    mut versions: watch::Receiver<Arc<Version>>,
    caller: Caller,
    to: mpsc::Sender<Result<proto::Version, Status>>,
) {
    let caller = Arc::new(caller);
    let sending = async {
        let mut last: Option<u64> = None;
        loop {
            let version = Arc::clone(&versions.borrow_and_update());
            let generation = version.version.generation;
            let skipped = last.map_or(0, |last| generation.saturating_sub(last + 1));
            counter!(names::WATCH_SKIPPED).increment(skipped);
            let (first, caller) = (last.is_none(), Arc::clone(&caller));
            // Looking through thousands of cards takes longer than an async task may run.
            let told = tokio::task::spawn_blocking(move || told(&version, &caller, first)).await;
            let Ok(told) = told else { break };
            if to.send(Ok(proto::Version { skipped, ..told })).await.is_err() {
                break;
            }
            last = Some(generation);
            if versions.changed().await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = app.stopping() => {}
        () = to.closed() => {}
        () = sending => {}
    }
}

/// What `caller` may read of a version. The first of a stream tells what is, not what changed.
fn told(version: &Version, caller: &Caller, first: bool) -> proto::Version {
    let registry = &version.registry;
    let mut told = wire::version(&version.version, version.made, &version.cause);
    told.tools = wire::count(registry.cards.values().filter(|card| sees(caller, card)).count());
    if caller.administers() == Administers::Everything {
        told.quarantined = wire::count(registry.quarantined.len());
        told.held = wire::count(registry.held.len());
    }
    let touched = if first { &[] } else { version.touched.as_slice() };
    for Touched { id, before, after } in touched {
        add(&mut told, seen(caller, before.as_deref(), after.as_deref()), id.to_string());
    }
    told
}

/// What a change is to one caller.
enum Seen {
    Added,
    Changed,
    Removed,
}

fn seen(caller: &Caller, before: Option<&ToolCard>, after: Option<&ToolCard>) -> Option<Seen> {
    let visible = |card: Option<&ToolCard>| card.is_some_and(|card| sees(caller, card));
    of(visible(before), visible(after))
}

fn of(before: bool, after: bool) -> Option<Seen> {
    match (before, after) {
        (false, true) => Some(Seen::Added),
        (true, true) => Some(Seen::Changed),
        (true, false) => Some(Seen::Removed),
        (false, false) => None,
    }
}

fn add(told: &mut proto::Version, seen: Option<Seen>, name: String) {
    match seen {
        Some(Seen::Added) => told.added.push(name),
        Some(Seen::Changed) => told.changed.push(name),
        Some(Seen::Removed) => told.removed.push(name),
        None => {}
    }
}
