//! The `Router` service.

use std::sync::Arc;

use tonic::{Request, Response, Status, async_trait};

use super::app::App;
use super::metrics::Method;
use super::{metadata, proto, status, wire};

pub(super) struct RouterService(pub(super) Arc<App>);

#[async_trait]
impl proto::router_server::Router for RouterService {
    /// Cancel safe: a client that leaves drops this future, and nothing of the request remains.
    async fn route(&self, request: Request<proto::RouteRequest>) -> Result<Response<proto::RouteResponse>, Status> {
        self.0.requests.run(Method::Route, route(&self.0, request)).await
    }
}

async fn route(app: &App, request: Request<proto::RouteRequest>) -> Result<proto::RouteResponse, Status> {
    let caller = metadata::caller(&app.identity, &request)?;
    let deadline =
        metadata::deadline(request.metadata(), app.pipeline.deadline).map_err(|problem| status::invalid(&problem))?;
    if deadline.has_passed() {
        return Err(status::late());
    }
    let trace_id = metadata::trace_id(request.metadata());
    let mut request = wire::route_request(request.into_inner()).map_err(|problem| status::invalid(&problem))?;
    request.trace_id = trace_id;
    let caller = caller.within(&request.session_id);
    let router = app.router().ok_or_else(status::not_ready)?;
    // Every stage watches the deadline itself; this one is for a stage that does not.
    let decision = tokio::time::timeout_at(deadline.instant(), router.route(request, &caller, deadline))
        .await
        .map_err(|_| status::late())?
        .map_err(|err| status::route(&err))?;
    Ok(wire::route_response(&decision))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tonic::Code;

    use super::*;
    use crate::config::{Loaded, Sources};

    /// Of a server whose catalog is not loaded, so that a request that passes all checks is UNAVAILABLE.
    async fn code(timeout: Option<&str>, request: proto::RouteRequest) -> Code {
        let sources = Sources { file: None, env: BTreeMap::new(), flags: Vec::new() };
        let settings = Loaded::load(&sources).unwrap().settings;
        let app = App::new(settings.server, settings.pipeline).unwrap();
        let mut request = Request::new(request);
        if let Some(timeout) = timeout {
            request.metadata_mut().insert("grpc-timeout", timeout.parse().unwrap());
        }
        route(&app, request).await.unwrap_err().code()
    }

    #[tokio::test]
    async fn time_and_input_are_checked_before_any_work() {
        let sound = || proto::RouteRequest { utterance: "我的快递到哪了".into(), ..Default::default() };
        assert_eq!(code(None, sound()).await, Code::Unavailable);
        assert_eq!(code(Some("5S"), sound()).await, Code::Unavailable);
        assert_eq!(code(Some("1m"), sound()).await, Code::DeadlineExceeded);
        assert_eq!(code(Some("soon"), sound()).await, Code::InvalidArgument);
        let turn = proto::Turn { role: 9, content: String::new() };
        assert_eq!(code(None, proto::RouteRequest { history: vec![turn], ..sound() }).await, Code::InvalidArgument);
    }
}
