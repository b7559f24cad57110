//! `Disable`, `Enable`, `Brakes` and `SetMode`: the operator's. What changes is on record before it does.

use std::future::Future;
use std::sync::Arc;

use tonic::{Request, Status};

use super::{RegistryService, sees};
use crate::pipeline::{BrakeError, ModeSet, Router, RunMode, Standing, Target};
use crate::server::audit::{Outcome, What};
use crate::server::metrics::Method;
use crate::server::{metadata, proto, status, wire};
use crate::types::{Administers, Caller, Problem, UnixMs};

impl RegistryService {
    pub(super) async fn disable_of(
        &self,
        request: Request<proto::DisableRequest>,
    ) -> Result<proto::BrakesResponse, Status> {
        use proto::disable_request::What as Named;
        let caller = metadata::caller(&self.0.identity, &request)?;
        let message = request.into_inner();
        let (tool, source) = match message.what {
            Some(Named::Tool(tool)) => (Some(tool), None),
            Some(Named::Source(source)) => (None, Some(source)),
            None => (None, None),
        };
        let read = || {
            let target = wire::target(tool, source)?;
            Ok((target, wire::reason(&message.reason)?, wire::until(message.until_ms, now())?))
        };
        let what = |(target, reason, until): &(Target, String, Option<UnixMs>)| {
            let what = named(target).word("reason", reason);
            until.map_or(what.clone(), |until| what.word("until_ms", until.0.to_string()))
        };
        self.brake(Method::Disable, caller, read(), what, |router, caller, (target, reason, until)| async move {
            router.disable(target, reason, until, caller).await
        })
        .await
    }

    pub(super) async fn enable_of(
        &self,
        request: Request<proto::EnableRequest>,
    ) -> Result<proto::BrakesResponse, Status> {
        use proto::enable_request::What as Named;
        let caller = metadata::caller(&self.0.identity, &request)?;
        let target = match request.into_inner().what {
            Some(Named::Tool(tool)) => wire::target(Some(tool), None),
            Some(Named::Source(source)) => wire::target(None, Some(source)),
            None => wire::target(None, None),
        };
        self.brake(
            Method::Enable,
            caller,
            target,
            named,
            |router, _, target| async move { router.enable(target).await },
        )
        .await
    }

    /// An operator sees everything; others see the tools they may see, and the mode, but not why.
    pub(super) async fn brakes_of(
        &self,
        request: Request<proto::BrakesRequest>,
    ) -> Result<proto::BrakesResponse, Status> {
        let caller = metadata::caller(&self.0.identity, &request)?;
        let router = self.0.router().ok_or_else(status::not_ready)?;
        let mut standing = router.standing();
        if caller.administers() != Administers::Everything {
            let (_, registry) = router.registry();
            standing.brakes.retain(|brake| match &brake.target {
                Target::Tool(name) => registry.cards.get(name.as_str()).is_some_and(|card| sees(&caller, card)),
                Target::Source(_) => false,
            });
            for brake in &mut standing.brakes {
                brake.caller.clear();
            }
            standing.mode.reason.clear();
        }
        Ok(wire::standing(&standing))
    }

    pub(super) async fn set_mode_of(
        &self,
        request: Request<proto::SetModeRequest>,
    ) -> Result<proto::BrakesResponse, Status> {
        let caller = metadata::caller(&self.0.identity, &request)?;
        let message = request.into_inner();
        let read = || {
            let mode = wire::mode(&message.mode)?;
            // Going back to normal explains itself.
            let reason = match mode {
                RunMode::Normal => String::new(),
                RunMode::LocalOnly | RunMode::RulesOnly => wire::reason(&message.reason)?,
            };
            let until = wire::until(message.until_ms, now())?;
            Ok(ModeSet { mode, reason, until: until.filter(|_| mode != RunMode::Normal), caller: String::new() })
        };
        let what = |mode: &ModeSet| {
            let what = What::default().word("mode", mode.mode.as_str()).word("reason", &mode.reason);
            mode.until.map_or(what.clone(), |until| what.word("until_ms", until.0.to_string()))
        };
        self.brake(Method::SetMode, caller, read(), what, |router, caller, mode| async move {
            router.set_mode(ModeSet { caller, ..mode }).await
        })
        .await
    }

    /// Runs a change between the two lines of its record, to its end even when the caller leaves.
    async fn brake<T, F>(
        &self,
        method: Method,
        caller: Caller,
        input: Result<T, Problem>,
        what: impl FnOnce(&T) -> What,
        work: impl FnOnce(Arc<Router>, String, T) -> F + Send + 'static,
    ) -> Result<proto::BrakesResponse, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<Standing, BrakeError>> + Send,
    {
        if caller.administers() != Administers::Everything {
            return Err(self.refuse(&caller, method, What::default(), status::not_the_operator()).await);
        }
        let input = input.map_err(|problem| status::invalid(&problem))?;
        let router = Arc::clone(self.0.router().ok_or_else(status::not_ready)?);
        let (app, what) = (Arc::clone(&self.0), what(&input));
        let audited = async move {
            let begun = app.audit.begin(&caller, method.as_str(), what.clone()).await;
            let begun = begun.map_err(|error| status::not_audited(&error))?;
            let result = work(router, caller.name, input).await;
            let outcome = match &result {
                Ok(_) => Outcome::Done,
                Err(BrakeError::Store(_) | BrakeError::Interrupted(_)) => Outcome::Failed,
                Err(_) => Outcome::Refused,
            };
            let ended = begun.end(outcome, what).await;
            let standing = result.map_err(|error| status::brake(&error))?;
            ended.map_err(|error| status::end_not_audited(&error))?;
            Ok(wire::standing(&standing))
        };
        self.0.writes.spawn(audited).await.map_err(|err| status::crashed(&err))?
    }
}

fn named(target: &Target) -> What {
    match target {
        Target::Tool(name) => What::default().tools([name]),
        Target::Source(name) => What::default().word("source", name),
    }
}

/// Ends are times of the wall clock, whoever reads them.
fn now() -> UnixMs {
    std::time::SystemTime::now().into()
}
