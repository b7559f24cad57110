//! The `Registry` service: reads for every caller, changes for those who administer it. Every change is audited.

mod brake;
mod lint;
mod versions;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;
use tonic::{Request, Response, Status, async_trait};

use super::app::App;
use super::audit::{Outcome, What};
use super::metrics::Method;
use super::{metadata, proto, status, wire};
use crate::pipeline::{Change, Router, StartError};
use crate::tool::ToolCard;
use crate::types::{Administers, Caller, Problem, ToolId};

pub(super) struct RegistryService(pub(super) Arc<App>);

/// Whether `caller` may read the card. An administrator reads what it may change, whatever scopes it holds.
fn sees(caller: &Caller, card: &ToolCard) -> bool {
    match caller.administers() {
        Administers::Everything => true,
        Administers::OwnTenant => caller.belongs_to(&card.tenants),
        Administers::Nothing => caller.belongs_to(&card.tenants) && card.scopes.iter().all(|scope| caller.holds(scope)),
    }
}

/// A change that its caller may make, checked and ready to run.
type Work = Pin<Box<dyn Future<Output = Result<Change, StartError>> + Send>>;

#[async_trait]
impl proto::registry_server::Registry for RegistryService {
    async fn list(&self, request: Request<proto::ListRequest>) -> Result<Response<proto::ListResponse>, Status> {
        self.0.requests.run(Method::List, self.list_cards(request)).await
    }

    async fn get(&self, request: Request<proto::GetRequest>) -> Result<Response<proto::GetResponse>, Status> {
        self.0.requests.run(Method::Get, self.get_card(request)).await
    }

    async fn put(&self, request: Request<proto::PutRequest>) -> Result<Response<proto::ChangeResponse>, Status> {
        let caller = metadata::caller(&self.0.identity, &request);
        let cards = wire::cards(request.into_inner().cards);
        let what = What::default().tools(cards.iter().flatten().filter_map(name_of));
        let work = self.change(Method::Put, caller, what, cards, |router, reach, cards| match reach {
            Reach::Everything => Box::pin(async move { router.put(cards).await }),
            Reach::Tenant(tenant) => Box::pin(async move { router.put_for(tenant, cards).await }),
        });
        self.0.requests.run(Method::Put, work).await
    }

    async fn delete(&self, request: Request<proto::DeleteRequest>) -> Result<Response<proto::ChangeResponse>, Status> {
        let caller = metadata::caller(&self.0.identity, &request);
        let names = wire::names(request.into_inner().names);
        let what = What::default().tools(names.iter().flatten());
        let work = self.change(Method::Delete, caller, what, names, |router, reach, names| match reach {
            Reach::Everything => Box::pin(async move { router.delete(names).await }),
            Reach::Tenant(tenant) => Box::pin(async move { router.delete_for(tenant, names).await }),
        });
        self.0.requests.run(Method::Delete, work).await
    }

    async fn replace(
        &self,
        request: Request<proto::ReplaceRequest>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        let caller = metadata::caller(&self.0.identity, &request);
        let cards = wire::cards(request.into_inner().cards);
        let what = What::default().tools(cards.iter().flatten().filter_map(name_of));
        let work = self.change(Method::Replace, caller, what, cards, |router, _, cards| {
            Box::pin(async move { router.replace(cards).await })
        });
        self.0.requests.run(Method::Replace, work).await
    }

    async fn reload(&self, request: Request<proto::ReloadRequest>) -> Result<Response<proto::ChangeResponse>, Status> {
        let caller = metadata::caller(&self.0.identity, &request);
        let work = self.change(Method::Reload, caller, What::default(), Ok(()), |router, _, ()| {
            Box::pin(async move { router.reload().await })
        });
        self.0.requests.run(Method::Reload, work).await
    }

    async fn lint(&self, request: Request<proto::LintRequest>) -> Result<Response<proto::LintResponse>, Status> {
        self.0.requests.run(Method::Lint, self.lint_of(request)).await
    }

    async fn diff(&self, request: Request<proto::DiffRequest>) -> Result<Response<proto::DiffResponse>, Status> {
        self.0.requests.run(Method::Diff, self.diff_of(request)).await
    }

    async fn history(
        &self,
        request: Request<proto::HistoryRequest>,
    ) -> Result<Response<proto::HistoryResponse>, Status> {
        self.0.requests.run(Method::History, self.history_of(request)).await
    }

    async fn rollback(
        &self,
        request: Request<proto::RollbackRequest>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        self.0.requests.run(Method::Rollback, self.rollback_of(request)).await
    }

    async fn held(&self, request: Request<proto::HeldRequest>) -> Result<Response<proto::HeldResponse>, Status> {
        self.0.requests.run(Method::Held, self.held_of(request)).await
    }

    async fn approve(
        &self,
        request: Request<proto::ApproveRequest>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        self.0.requests.run(Method::Approve, self.approve_of(request)).await
    }

    async fn disable(
        &self,
        request: Request<proto::DisableRequest>,
    ) -> Result<Response<proto::BrakesResponse>, Status> {
        self.0.requests.run(Method::Disable, self.disable_of(request)).await
    }

    async fn enable(&self, request: Request<proto::EnableRequest>) -> Result<Response<proto::BrakesResponse>, Status> {
        self.0.requests.run(Method::Enable, self.enable_of(request)).await
    }

    async fn brakes(&self, request: Request<proto::BrakesRequest>) -> Result<Response<proto::BrakesResponse>, Status> {
        self.0.requests.run(Method::Brakes, self.brakes_of(request)).await
    }

    async fn set_mode(
        &self,
        request: Request<proto::SetModeRequest>,
    ) -> Result<Response<proto::BrakesResponse>, Status> {
        self.0.requests.run(Method::SetMode, self.set_mode_of(request)).await
    }

    type WatchStream = versions::Versions;

    async fn watch(&self, request: Request<proto::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        self.0.requests.run(Method::Watch, self.watch_of(request)).await
    }
}

/// How far a change may reach.
enum Reach {
    Everything,
    Tenant(String),
}

impl RegistryService {
    async fn list_cards(&self, request: Request<proto::ListRequest>) -> Result<proto::ListResponse, Status> {
        let caller = metadata::caller(&self.0.identity, &request)?;
        let router = self.0.router().ok_or_else(status::not_ready)?;
        let domains = request.into_inner().domains;
        let (catalog_version, registry) = router.registry();
        // Hashing thousands of cards takes longer than an async task may run.
        let list = move || {
            let wanted = |card: &ToolCard| {
                domains.is_empty() || card.domain.as_ref().is_some_and(|domain| domains.contains(domain))
            };
            let cards = registry.cards.values().filter(|card| wanted(card) && sees(&caller, card));
            // Whose a card is that cannot be read, nobody knows.
            let quarantined = match caller.administers() {
                Administers::Everything => registry.quarantined.iter().map(wire::quarantined).collect(),
                Administers::OwnTenant | Administers::Nothing => Vec::new(),
            };
            let notices = match caller.administers() {
                Administers::Everything => registry.notices.clone(),
                Administers::OwnTenant | Administers::Nothing => Vec::new(),
            };
            let tools = cards.map(|card| wire::summary(card)).collect();
            proto::ListResponse { catalog_version, tools, quarantined, notices }
        };
        tokio::task::spawn_blocking(list).await.map_err(|err| status::crashed(&err))
    }

    async fn get_card(&self, request: Request<proto::GetRequest>) -> Result<proto::GetResponse, Status> {
        let caller = metadata::caller(&self.0.identity, &request)?;
        let router = self.0.router().ok_or_else(status::not_ready)?;
        let name = request.into_inner().name;
        let (catalog_version, registry) = router.registry();
        // A card the caller may not see is no different from one that does not exist.
        let card = registry
            .cards
            .get(name.as_str())
            .filter(|card| sees(&caller, card))
            .ok_or_else(|| status::not_found(&name))?;
        Ok(proto::GetResponse { catalog_version, summary: Some(wire::summary(card)), card: Some(wire::card(card)) })
    }

    /// Runs a change to its end even when the caller leaves: half a change must not depend on a connection.
    async fn change<T>(
        &self,
        method: Method,
        caller: Result<Caller, Status>,
        what: What,
        input: Result<T, Problem>,
        work: impl FnOnce(Arc<Router>, Reach, T) -> Work,
    ) -> Result<proto::ChangeResponse, Status> {
        let caller = caller?;
        let reach = match caller.administers() {
            Administers::Everything => Reach::Everything,
            Administers::OwnTenant if is_the_operators(method) => {
                return Err(self.refuse(&caller, method, what, status::not_the_operator()).await);
            }
            Administers::OwnTenant => Reach::Tenant(caller.tenant.clone()),
            Administers::Nothing => {
                return Err(self.refuse(&caller, method, what, status::not_an_administrator()).await);
            }
        };
        let input = input.map_err(|problem| status::invalid(&problem))?;
        let work = work(self.0.router().ok_or_else(status::not_ready)?.clone(), reach, input);
        let app = Arc::clone(&self.0);
        let audited = async move { audited(&app, &caller, method, what, work).await };
        self.0.writes.spawn(audited).await.map_err(|err| status::crashed(&err))?
    }

    /// Records that the caller was not let; `status` says so in any case.
    async fn refuse(&self, caller: &Caller, method: Method, what: What, status: Status) -> Status {
        if let Err(error) = self.0.audit.refused(caller, method.as_str(), what).await {
            let error: &dyn std::error::Error = &error;
            tracing::error!(error, "a refusal could not be written into the audit record");
        }
        status
    }
}

/// Whether a change reaches beyond one tenant by its nature.
fn is_the_operators(method: Method) -> bool {
    match method {
        Method::Replace
        | Method::Reload
        | Method::Rollback
        | Method::Approve
        | Method::Disable
        | Method::Enable
        | Method::SetMode => true,
        Method::Put
        | Method::Delete
        | Method::Route
        | Method::List
        | Method::Get
        | Method::Lint
        | Method::Watch
        | Method::Diff
        | Method::History
        | Method::Held
        | Method::Brakes
        | Method::Authorize
        | Method::Confirm
        | Method::Complete
        | Method::Invoke
        | Method::Lookup
        | Method::NextPage => false,
    }
}

/// The change between the two lines of its record.
async fn audited(
    app: &App,
    caller: &Caller,
    method: Method,
    what: What,
    work: Work,
) -> Result<proto::ChangeResponse, Status> {
    let begun = app.audit.begin(caller, method.as_str(), what).await;
    let begun = begun.map_err(|error| status::not_audited(&error))?;
    let result = match method {
        Method::Reload => reread(app),
        _ => Ok(()),
    };
    let result = match result {
        Ok(()) => work.await.map_err(|error| (outcome(&error), status::change(&error, caller.administers()))),
        Err(status) => Err((Outcome::Failed, status)),
    };
    let (outcome, what) = match &result {
        Ok(change) => (Outcome::Done, told(change)),
        Err((outcome, _)) => (*outcome, What::default()),
    };
    let ended = begun.end(outcome, what).await;
    let change = result.map_err(|(_, status)| status)?;
    ended.map_err(|error| status::end_not_audited(&error))?;
    Ok(wire::change(change))
}

/// Callers, keys and certificates belong to what an operator changes on disk, as the cards do.
fn reread(app: &App) -> Result<(), Status> {
    app.reload_callers().map_err(|error| status::not_reread(&error, "callers or keys"))?;
    app.reload_certificates().map_err(|error| status::not_reread(&error, "certificates"))?;
    Ok(())
}

fn outcome(error: &StartError) -> Outcome {
    match error {
        StartError::NotOwn { .. } | StartError::Operators { .. } => Outcome::Refused,
        _ => Outcome::Failed,
    }
}

fn told(change: &Change) -> What {
    let count = |ids: &[ToolId]| ids.len().to_string();
    What::default()
        .word("catalog_version", &change.catalog_version)
        .word("added", count(&change.added))
        .word("changed", count(&change.changed))
        .word("removed", count(&change.removed))
        .word("quarantined", change.quarantined.len().to_string())
        .word("held", change.held.len().to_string())
}

fn name_of(card: &Value) -> Option<&str> {
    card.get("name")?.as_str()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tonic::Code;
    use tonic::transport::server::TcpConnectInfo;

    use super::*;
    use crate::config::{Loaded, Sources};

    fn service() -> RegistryService {
        let settings = Loaded::load(&Sources { file: None, env: BTreeMap::new(), flags: Vec::new() }).unwrap().settings;
        RegistryService(Arc::new(App::new(settings.server, settings.pipeline).unwrap()))
    }

    async fn change_from(peer: &str) -> Code {
        let info = TcpConnectInfo { local_addr: None, remote_addr: Some(peer.parse().unwrap()) };
        let mut request = Request::new(proto::ReloadRequest {});
        request.extensions_mut().insert(info);
        proto::registry_server::Registry::reload(&service(), request).await.unwrap_err().code()
    }

    #[tokio::test]
    async fn changes_are_refused_beyond_loopback_before_anything_else() {
        for peer in ["10.1.2.3:4000", "[2001:db8::1]:4000", "0.0.0.0:1"] {
            assert_eq!(change_from(peer).await, Code::PermissionDenied, "{peer}");
        }
        // From here the call reaches the router, which is not loaded in this test.
        for peer in ["127.0.0.1:4000", "127.9.9.9:1", "[::1]:4000"] {
            assert_eq!(change_from(peer).await, Code::Unavailable, "{peer}");
        }
    }
}
