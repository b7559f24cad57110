//! Labels of what the transport measures.

use std::time::Duration;

use metrics::{counter, gauge, histogram};
use tonic::Code;

use crate::telemetry::names;

/// Everything callers can call: the closed set behind the label `method`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Route,
    List,
    Get,
    Put,
    Delete,
    Replace,
    Reload,
    Lint,
    Watch,
    Diff,
    History,
    Rollback,
    Held,
    Approve,
    Disable,
    Enable,
    Brakes,
    SetMode,
    Authorize,
    Confirm,
    Complete,
    Invoke,
    Lookup,
    NextPage,
}

impl Method {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Route => "Route",
            Self::List => "List",
            Self::Get => "Get",
            Self::Put => "Put",
            Self::Delete => "Delete",
            Self::Replace => "Replace",
            Self::Reload => "Reload",
            Self::Lint => "Lint",
            Self::Watch => "Watch",
            Self::Diff => "Diff",
            Self::History => "History",
            Self::Rollback => "Rollback",
            Self::Held => "Held",
            Self::Approve => "Approve",
            Self::Disable => "Disable",
            Self::Enable => "Enable",
            Self::Brakes => "Brakes",
            Self::SetMode => "SetMode",
            Self::Authorize => "Authorize",
            Self::Confirm => "Confirm",
            Self::Complete => "Complete",
            Self::Invoke => "Invoke",
            Self::Lookup => "Lookup",
            Self::NextPage => "NextPage",
        }
    }
}

pub(super) fn started(method: Method) {
    gauge!(names::REQUESTS_IN_FLIGHT, "method" => method.as_str()).increment(1.0);
}

pub(super) fn ended(method: Method, code: Code, took: Duration) {
    gauge!(names::REQUESTS_IN_FLIGHT, "method" => method.as_str()).decrement(1.0);
    counter!(names::REQUESTS, "method" => method.as_str(), "code" => code_label(code)).increment(1);
    histogram!(names::REQUEST_DURATION, "method" => method.as_str()).record(took.as_secs_f64());
}

fn code_label(code: Code) -> &'static str {
    match code {
        Code::Ok => "ok",
        Code::Cancelled => "cancelled",
        Code::Unknown => "unknown",
        Code::InvalidArgument => "invalid_argument",
        Code::DeadlineExceeded => "deadline_exceeded",
        Code::NotFound => "not_found",
        Code::AlreadyExists => "already_exists",
        Code::PermissionDenied => "permission_denied",
        Code::ResourceExhausted => "resource_exhausted",
        Code::FailedPrecondition => "failed_precondition",
        Code::Aborted => "aborted",
        Code::OutOfRange => "out_of_range",
        Code::Unimplemented => "unimplemented",
        Code::Internal => "internal",
        Code::Unavailable => "unavailable",
        Code::DataLoss => "data_loss",
        Code::Unauthenticated => "unauthenticated",
    }
}
