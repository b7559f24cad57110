//! Between proto messages and domain types. Whatever comes from the wire is checked here: enum numbers, lengths, depth.

mod gate;
mod json;
mod registry;
mod request;
mod response;

pub(super) use gate::{
    authorize_response, call_id, call_record, complete_response, invoke_response, locale, lookup_response, reported,
    which, wish,
};
pub use json::{MAX_DEPTH, to_struct};
pub(super) use registry::{card, cards, change, names, quarantined, summary};
pub use request::route_request;
pub(super) use response::problem;
pub use response::route_response;
