//! Domain errors become gRPC codes here and nowhere else.
//!
//! The caller gets a stable code and a short, safe sentence; the log gets the chain. Status texts travel in HTTP/2
//! headers, where a long one breaks the connection, so every text is cut.

use std::error::Error;

use tonic::Status;
use tracing::error;

use super::audit::AuditError;
use crate::embed::EmbedError;
use crate::identity::Refused;
use crate::pipeline::{BrakeError, InvokeError, RouteError, StartError};
use crate::types::{Administers, Problem};

/// Bytes of a status text, well below what any HTTP/2 peer accepts in a header (percent-encoding can triple it).
const MAX_MESSAGE: usize = 1000;

pub(super) fn route(error: &RouteError) -> Status {
    match error {
        RouteError::Invalid(problem) => invalid(problem),
        RouteError::Deadline => late(),
        RouteError::Overloaded => overloaded(),
        RouteError::Internal(_) => internal(error, "the request failed; the server's log says why"),
    }
}

/// A guarded call about which nothing was decided.
pub(super) fn invoke(error: &InvokeError) -> Status {
    match error {
        InvokeError::Overloaded => overloaded(),
        InvokeError::Gate(_) | InvokeError::Interrupted(_) => {
            internal(error, "nothing was decided about the call; `Lookup` tells where it stands")
        }
    }
}

/// Nothing was disabled, enabled or set.
pub(super) fn brake(error: &BrakeError) -> Status {
    match error {
        BrakeError::Unknown { .. } | BrakeError::NotDisabled { .. } => Status::not_found(cut(&error.to_string())),
        BrakeError::Ambiguous { .. } => Status::failed_precondition(cut(&error.to_string())),
        BrakeError::Full => Status::resource_exhausted(error.to_string()),
        BrakeError::Store(_) | BrakeError::Interrupted(_) => {
            internal(error, "nothing has changed; the server's log says why")
        }
    }
}

pub(super) fn no_such_call() -> Status {
    Status::not_found("there is no such call")
}

/// A change of the catalog that did not happen. The operator may be told the name of a file; the administrator of a
/// tenant may not, nor what is wrong with cards of others.
pub(super) fn change(error: &StartError, reach: Administers) -> Status {
    match error {
        StartError::NotOwn { .. } | StartError::Operators { .. } => {
            Status::permission_denied(cut(&format!("the catalog is unchanged: {error}")))
        }
        StartError::NoSuchVersion { .. } | StartError::NotHeld { .. } => Status::not_found(cut(&error.to_string())),
        StartError::Registry(_) | StartError::Strict(_) | StartError::Rules(_) | StartError::Policy(_)
            if reach != Administers::Everything =>
        {
            error!(error = chain(error), "a tenant's change was refused");
            Status::failed_precondition("the catalog is unchanged; the operator can read why in the server's log")
        }
        StartError::Registry(_) | StartError::Strict(_) | StartError::Rules(_) | StartError::Policy(_) => {
            Status::failed_precondition(cut(&format!("the catalog is unchanged: {}", chain(error))))
        }
        StartError::Embed(embed) => match embed {
            EmbedError::Overloaded => overloaded(),
            EmbedError::Deadline => late(),
            EmbedError::Stopped | EmbedError::NoRuntime(_) | EmbedError::Model { .. } => internal(error, UNCHANGED),
        },
        StartError::Store(_)
        | StartError::Unreadable { .. }
        | StartError::Build(_)
        | StartError::Log(_)
        | StartError::Execute(_)
        | StartError::Live(_)
        | StartError::Llm(_)
        | StartError::Fusion { .. }
        | StartError::Confidence { .. }
        | StartError::Interrupted(_) => internal(error, UNCHANGED),
    }
}

/// Something of earlier versions that could not be read.
pub(super) fn read(error: &StartError) -> Status {
    match error {
        StartError::NoSuchVersion { .. } => Status::not_found(cut(&error.to_string())),
        _ => internal(error, "the versions cannot be read; the server's log says why"),
    }
}

const UNCHANGED: &str = "the catalog is unchanged; the server's log says why";

pub(super) fn invalid(problem: &Problem) -> Status {
    let text = match problem.fields.first() {
        // The path stands once, whether or not the message names it too.
        Some(field) => {
            let message = problem.message.strip_prefix(field.path.as_str()).unwrap_or(&problem.message);
            let message = message.trim_start_matches([':', ' ', '`']);
            format!("{}: {message} (expected: {})", field.path, field.expected)
        }
        None => problem.message.clone(),
    };
    Status::invalid_argument(cut(&text))
}

pub(super) fn refused(refused: Refused) -> Status {
    match refused {
        Refused::NotLocal | Refused::HeaderFromAfar => Status::permission_denied(refused.to_string()),
        Refused::NoToken
        | Refused::UnknownToken
        | Refused::BadHeader
        | Refused::UnknownCertificate
        | Refused::Ambiguous => Status::unauthenticated(refused.to_string()),
    }
}

/// A file that is read with the registry cannot be used.
pub(super) fn not_reread(error: &dyn Error, what: &'static str) -> Status {
    error!(error = chain(error), what, "cannot be read again; what was in force stays");
    Status::failed_precondition(format!(
        "the registry was not read again: {what} cannot be used; the server's log says why"
    ))
}

/// Without its line in the audit record nothing is done.
pub(super) fn not_audited(error: &AuditError) -> Status {
    error!(error = chain(error), "the audit record cannot be written");
    Status::unavailable("the audit record cannot be written, so nothing was done")
}

/// It is done, and the record holds its beginning alone.
pub(super) fn end_not_audited(error: &AuditError) -> Status {
    error!(error = chain(error), "the audit record cannot be written");
    Status::internal("it was done, but its end could not be written into the audit record")
}

pub(super) fn not_an_administrator() -> Status {
    Status::permission_denied(
        "this caller may not change the registry; `admin` allows it for the cards of a tenant, `operator` for all",
    )
}

pub(super) fn not_the_operator() -> Status {
    Status::permission_denied("only an operator may do this: it reaches beyond one tenant")
}

pub(super) fn not_found(what: &str) -> Status {
    Status::not_found(cut(&format!("there is no card `{what}`")))
}

pub(super) fn not_ready() -> Status {
    Status::unavailable("the catalog is not ready yet")
}

pub(super) fn stopping() -> Status {
    Status::unavailable("the server is stopping")
}

pub(super) fn late() -> Status {
    Status::deadline_exceeded("no answer within the deadline")
}

pub(super) fn overloaded() -> Status {
    Status::resource_exhausted("too many requests are waiting")
}

/// A task of ours died: the panic is in the log already.
pub(super) fn crashed(error: &tokio::task::JoinError) -> Status {
    internal(error, "the request failed; the server's log says why")
}

fn internal(error: &dyn Error, safe: &'static str) -> Status {
    error!(error = chain(error), "request failed");
    Status::internal(safe)
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn cut(text: &str) -> String {
    if text.len() <= MAX_MESSAGE {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(MAX_MESSAGE)])
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::types::FieldProblem;

    fn problem(message: &str, path: &str, expected: &str) -> Problem {
        let field = FieldProblem { path: path.into(), expected: expected.into(), example: None };
        Problem::invalid_request(message, vec![field])
    }

    #[test]
    fn bad_input_names_its_field_once() {
        let check = |message: &str, expect: &str| {
            let status = route(&RouteError::Invalid(problem(message, "utterance", "1 to 8,000 characters")));
            assert_eq!(status.code(), Code::InvalidArgument);
            assert_eq!(status.message(), expect);
        };
        check("must not be empty", "utterance: must not be empty (expected: 1 to 8,000 characters)");
        check("utterance: must not be empty", "utterance: must not be empty (expected: 1 to 8,000 characters)");
        check("utterance must not be empty", "utterance: must not be empty (expected: 1 to 8,000 characters)");
    }

    #[test]
    fn status_texts_stay_short_whatever_the_input() {
        let status = invalid(&problem(&"退款".repeat(20_000), "utterance", "less"));
        assert!(status.message().len() < 1024, "{}", status.message().len());
        assert!(status.message().starts_with("utterance: 退款"));
    }

    #[test]
    fn each_failure_has_its_code_and_no_internals() {
        assert_eq!(route(&RouteError::Deadline).code(), Code::DeadlineExceeded);
        assert_eq!(route(&RouteError::Overloaded).code(), Code::ResourceExhausted);
        let status = route(&RouteError::Internal("thread 'main' panicked at db.internal:5432".into()));
        assert_eq!(status.code(), Code::Internal);
        assert!(!status.message().contains("db.internal"));
        assert_eq!(
            change(&StartError::Embed(EmbedError::Overloaded), Administers::Everything).code(),
            Code::ResourceExhausted
        );
        assert_eq!(change(&StartError::Strict(Vec::new()), Administers::Everything).code(), Code::FailedPrecondition);
        assert_eq!(change(&StartError::Llm("x".into()), Administers::Everything).code(), Code::Internal);
    }
}
