//! The `Registry` service: reads for every caller, changes for those who administer it.

use std::future::Future;
use std::sync::Arc;

use serde_json::Value;
use tonic::{Request, Response, Status, async_trait};

use super::app::App;
use super::metrics::Method;
use super::{metadata, proto, status, wire};
use crate::pipeline::{Change, Router, StartError};
use crate::tool::ToolCard;
use crate::types::{Caller, Problem};

pub(super) struct RegistryService(pub(super) Arc<App>);

/// Whose cards a reader may see.
enum Reader {
    /// The operator: everything, quarantined cards included.
    Operator,
    Caller(Caller),
}

impl Reader {
    fn identify<T>(app: &App, request: &Request<T>) -> Result<Self, Status> {
        let caller = metadata::caller(&app.identity, request)?;
        Ok(if caller.administers() { Self::Operator } else { Self::Caller(caller) })
    }

    fn sees(&self, card: &ToolCard) -> bool {
        match self {
            Self::Operator => true,
            Self::Caller(caller) => card.scopes.iter().all(|scope| caller.holds(scope)),
        }
    }
}

#[async_trait]
impl proto::registry_server::Registry for RegistryService {
    async fn list(&self, request: Request<proto::ListRequest>) -> Result<Response<proto::ListResponse>, Status> {
        self.0.requests.run(Method::List, self.list_cards(request)).await
    }

    async fn get(&self, request: Request<proto::GetRequest>) -> Result<Response<proto::GetResponse>, Status> {
        self.0.requests.run(Method::Get, self.get_card(request)).await
    }

    async fn put(&self, request: Request<proto::PutRequest>) -> Result<Response<proto::ChangeResponse>, Status> {
        let caller = self.administrator(&request);
        let work = self.change("put", caller, wire::cards(request.into_inner().cards), put);
        self.0.requests.run(Method::Put, work).await
    }

    async fn delete(&self, request: Request<proto::DeleteRequest>) -> Result<Response<proto::ChangeResponse>, Status> {
        let caller = self.administrator(&request);
        let work = self.change("delete", caller, wire::names(request.into_inner().names), delete);
        self.0.requests.run(Method::Delete, work).await
    }

    async fn replace(
        &self,
        request: Request<proto::ReplaceRequest>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        let caller = self.administrator(&request);
        let work = self.change("replace", caller, wire::cards(request.into_inner().cards), replace);
        self.0.requests.run(Method::Replace, work).await
    }

    async fn reload(&self, request: Request<proto::ReloadRequest>) -> Result<Response<proto::ChangeResponse>, Status> {
        let caller = self.administrator(&request).and_then(|caller| self.reload_callers().map(|()| caller));
        let work = self.change("reload", caller, Ok(()), reload);
        self.0.requests.run(Method::Reload, work).await
    }
}

impl RegistryService {
    async fn list_cards(&self, request: Request<proto::ListRequest>) -> Result<proto::ListResponse, Status> {
        let reader = Reader::identify(&self.0, &request)?;
        let router = self.0.router().ok_or_else(status::not_ready)?;
        let domains = request.into_inner().domains;
        let (catalog_version, registry) = router.registry();
        // Hashing thousands of cards takes longer than an async task may run.
        let list = move || {
            let wanted = |card: &ToolCard| {
                domains.is_empty() || card.domain.as_ref().is_some_and(|domain| domains.contains(domain))
            };
            let cards = registry.cards.values().filter(|card| wanted(card) && reader.sees(card));
            let quarantined = match reader {
                Reader::Operator => registry.quarantined.iter().map(wire::quarantined).collect(),
                Reader::Caller(_) => Vec::new(),
            };
            proto::ListResponse { catalog_version, tools: cards.map(|card| wire::summary(card)).collect(), quarantined }
        };
        tokio::task::spawn_blocking(list).await.map_err(|err| status::crashed(&err))
    }

    async fn get_card(&self, request: Request<proto::GetRequest>) -> Result<proto::GetResponse, Status> {
        let reader = Reader::identify(&self.0, &request)?;
        let router = self.0.router().ok_or_else(status::not_ready)?;
        let name = request.into_inner().name;
        let (catalog_version, registry) = router.registry();
        // A card the caller may not see is no different from one that does not exist.
        let card = registry
            .cards
            .get(name.as_str())
            .filter(|card| reader.sees(card))
            .ok_or_else(|| status::not_found(&name))?;
        Ok(proto::GetResponse { catalog_version, summary: Some(wire::summary(card)), card: Some(wire::card(card)) })
    }

    fn administrator<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        let caller = metadata::caller(&self.0.identity, request)?;
        if caller.administers() { Ok(caller) } else { Err(status::not_an_administrator()) }
    }

    /// The callers belong to what an operator changes on disk, as the cards do.
    fn reload_callers(&self) -> Result<(), Status> {
        self.0.reload_callers().map(drop).map_err(|error| status::callers(&error))
    }

    /// Runs a change to its end even when the caller leaves: half a change must not depend on a connection.
    async fn change<T, F>(
        &self,
        what: &'static str,
        caller: Result<Caller, Status>,
        input: Result<T, Problem>,
        apply: impl FnOnce(Arc<Router>, T) -> F,
    ) -> Result<proto::ChangeResponse, Status>
    where
        F: Future<Output = Result<Change, StartError>> + Send + 'static,
    {
        let Caller { name, tenant, .. } = caller?;
        let input = input.map_err(|problem| status::invalid(&problem))?;
        let router = self.0.router().ok_or_else(status::not_ready)?.clone();
        let change = self.0.writes.spawn(apply(router, input)).await.map_err(|err| status::crashed(&err))?;
        match change {
            Ok(change) => {
                let version = &change.catalog_version;
                tracing::info!(what, caller = name, tenant, version, "the registry was changed");
                Ok(wire::change(change))
            }
            Err(error) => {
                tracing::warn!(what, caller = name, tenant, "a change of the registry was refused");
                Err(status::change(&error))
            }
        }
    }
}

async fn put(router: Arc<Router>, cards: Vec<Value>) -> Result<Change, StartError> {
    router.put(cards).await
}

async fn delete(router: Arc<Router>, names: Vec<String>) -> Result<Change, StartError> {
    router.delete(names).await
}

async fn replace(router: Arc<Router>, cards: Vec<Value>) -> Result<Change, StartError> {
    router.replace(cards).await
}

async fn reload(router: Arc<Router>, (): ()) -> Result<Change, StartError> {
    router.reload().await
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
