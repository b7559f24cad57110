//! Between proto messages and domain types. Whatever comes from the wire is checked here: enum numbers, lengths, depth.

mod brake;
mod gate;
mod json;
mod registry;
mod request;
mod response;
mod versions;

pub(super) use brake::{mode, reason, standing, target, until};
pub(super) use gate::{
    authorize_response, call_id, call_record, complete_response, invoke_response, locale, lookup_response, reported,
    which, wish,
};
pub use json::{MAX_DEPTH, to_struct};
pub(super) use registry::{card, cards, change, lint_request, linted, names, quarantined, summary};
pub use request::route_request;
pub use response::route_response;
pub(super) use response::{count, problem};
pub(super) use versions::{approvals, field_change, held, version, version_name};
