//! The `Gate` service.

use std::sync::Arc;

use tonic::{Request, Response, Status, async_trait};

use super::app::App;
use super::audit::{Outcome, What};
use super::metrics::Method;
use super::{metadata, proto, status, wire};
use crate::pipeline::Router;
use crate::types::{Caller, Deadline};

pub(super) struct GateService(pub(super) Arc<App>);

/// One admitted call of the service.
struct Asked<'a, T> {
    router: &'a Arc<Router>,
    caller: Caller,
    deadline: Deadline,
    message: T,
}

impl GateService {
    fn asked<T>(&self, request: Request<T>) -> Result<Asked<'_, T>, Status> {
        let app = &self.0;
        let caller = metadata::caller(&app.identity, &request)?;
        let deadline = metadata::deadline(request.metadata(), app.pipeline.deadline)
            .map_err(|problem| status::invalid(&problem))?;
        if deadline.has_passed() {
            return Err(status::late());
        }
        let router = app.router().ok_or_else(status::not_ready)?;
        Ok(Asked { router, caller, deadline, message: request.into_inner() })
    }
}

#[async_trait]
impl proto::gate_server::Gate for GateService {
    async fn authorize(
        &self,
        request: Request<proto::AuthorizeRequest>,
    ) -> Result<Response<proto::AuthorizeResponse>, Status> {
        let work = async {
            let Asked { router, caller, deadline, message } = self.asked(request)?;
            let wish = wire::wish(message.wish).map_err(|problem| status::invalid(&problem))?;
            let caller = caller.within(&wish.conversation);
            let answer = router.authorize(wish, &caller, deadline).await.map_err(|err| status::invoke(&err))?;
            Ok(wire::authorize_response(answer))
        };
        self.0.requests.run(Method::Authorize, work).await
    }

    async fn confirm(
        &self,
        request: Request<proto::ConfirmRequest>,
    ) -> Result<Response<proto::ConfirmResponse>, Status> {
        use proto::confirm_response::Answer;
        let work = async {
            let Asked { router, caller, message, .. } = self.asked(request)?;
            let call = wire::call_id("call_id", &message.call_id).map_err(|problem| status::invalid(&problem))?;
            // Consent is an act of its own: who gave it is on record before it counts.
            let what = || What::default().word("call", call.to_string()).word("agreed", message.agreed.to_string());
            let begun = self.0.audit.begin(&caller, Method::Confirm.as_str(), what()).await;
            let begun = begun.map_err(|error| status::not_audited(&error))?;
            let confirmed = router.confirm(call, &message.confirm_token, message.agreed, &caller).await;
            let (outcome, answer) = match confirmed {
                Ok(Ok(record)) => (Outcome::Done, Ok(Answer::Call(wire::call_record(&record)))),
                Ok(Err(refused)) => (Outcome::Refused, Ok(Answer::Refused(wire::problem(&refused)))),
                Err(error) => (Outcome::Failed, Err(status::invoke(&error))),
            };
            if let Err(error) = begun.end(outcome, what()).await {
                let error: &dyn std::error::Error = &error;
                tracing::error!(error, "the end of a confirmation could not be written into the audit record");
            }
            let answer = answer?;
            Ok(proto::ConfirmResponse { answer: Some(answer) })
        };
        self.0.requests.run(Method::Confirm, work).await
    }

    async fn complete(
        &self,
        request: Request<proto::CompleteRequest>,
    ) -> Result<Response<proto::CompleteResponse>, Status> {
        let work = async {
            let Asked { router, caller, message, .. } = self.asked(request)?;
            let read = || {
                let call = wire::call_id("call_id", &message.call_id)?;
                let locale = wire::locale("locale", &message.locale)?;
                Ok((call, locale, wire::reported(message.outcome, message.http_status)?))
            };
            let (call, locale, reported) = read().map_err(|problem| status::invalid(&problem))?;
            let answer = router.complete(call, reported, locale, &caller).await.map_err(|err| status::invoke(&err))?;
            Ok(wire::complete_response(answer))
        };
        self.0.requests.run(Method::Complete, work).await
    }

    /// A client that leaves does not stop a call with an effect; it is seen through and `Lookup` tells its end.
    async fn invoke(&self, request: Request<proto::InvokeRequest>) -> Result<Response<proto::InvokeResponse>, Status> {
        let work = async {
            let Asked { router, caller, deadline, message } = self.asked(request)?;
            let wish = wire::wish(message.wish).map_err(|problem| status::invalid(&problem))?;
            let caller = caller.within(&wish.conversation);
            let answer = router.invoke(wish, &caller, deadline).await.map_err(|err| status::invoke(&err))?;
            Ok(wire::invoke_response(answer))
        };
        self.0.requests.run(Method::Invoke, work).await
    }

    async fn lookup(&self, request: Request<proto::LookupRequest>) -> Result<Response<proto::LookupResponse>, Status> {
        let work = async {
            let Asked { router, caller, message, .. } = self.asked(request)?;
            let which = wire::which(&message).map_err(|problem| status::invalid(&problem))?;
            let record = router.lookup(which, &caller).await.map_err(|err| status::invoke(&err))?;
            record.as_ref().map(wire::lookup_response).ok_or_else(status::no_such_call)
        };
        self.0.requests.run(Method::Lookup, work).await
    }

    async fn next_page(
        &self,
        request: Request<proto::NextPageRequest>,
    ) -> Result<Response<proto::NextPageResponse>, Status> {
        use proto::next_page_response::Answer;
        let work = async {
            let Asked { router, caller, message, .. } = self.asked(request)?;
            let answer = match router.next_page(&message.cursor, &caller) {
                Ok(result) => Answer::ResultJson(result.to_string()),
                Err(refused) => Answer::Refused(wire::problem(&refused)),
            };
            Ok(proto::NextPageResponse { answer: Some(answer) })
        };
        self.0.requests.run(Method::NextPage, work).await
    }
}
