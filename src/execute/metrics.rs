//! What executing tells the exporter. Labels are closed sets: tools stand in log lines and spans.

use std::time::Duration;

use metrics::{counter, histogram};

use crate::telemetry::names;
use crate::types::breaker::Change;

pub(super) fn attempt(result: &'static str, took: Duration) {
    counter!(names::EXECUTE_ATTEMPTS, "result" => result).increment(1);
    histogram!(names::EXECUTE_ATTEMPT_DURATION, "result" => result).record(took.as_secs_f64());
}

/// A call ended before anything was tried.
pub(super) fn refused(reason: &'static str) {
    counter!(names::EXECUTE_REFUSALS, "reason" => reason).increment(1);
}

pub(super) fn breaker(change: Change) {
    counter!(names::EXECUTE_BREAKER_CHANGES, "to" => change.as_str()).increment(1);
}
