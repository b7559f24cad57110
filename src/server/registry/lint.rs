//! `Lint`: what is wrong with the cards that the caller administers.

use tonic::{Request, Status};

use super::{RegistryService, sees};
use crate::pipeline::View;
use crate::server::audit::What;
use crate::server::metrics::Method;
use crate::server::{metadata, proto, status, wire};
use crate::tool::ToolCard;
use crate::types::Administers;

impl RegistryService {
    pub(super) async fn lint_of(&self, request: Request<proto::LintRequest>) -> Result<proto::LintResponse, Status> {
        let caller = metadata::caller(&self.0.identity, &request)?;
        let request = request.into_inner();
        let view = match caller.administers() {
            Administers::Everything => None,
            Administers::OwnTenant => {
                let caller = caller.clone();
                Some(Box::new(move |card: &ToolCard| sees(&caller, card)) as View)
            }
            Administers::Nothing => {
                return Err(self
                    .refuse(&caller, Method::Lint, What::default().tools(request.tools), status::not_an_administrator())
                    .await);
            }
        };
        let (language, tools) = wire::lint_request(request).map_err(|problem| status::invalid(&problem))?;
        let router = self.0.router().ok_or_else(status::not_ready)?;
        let linted = router.lint(language, view).await.map_err(|err| status::crashed(&err))?;
        Ok(wire::linted(&linted, &tools))
    }
}
