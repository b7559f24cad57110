//! Between proto messages and domain types. Whatever comes from the wire is checked here: enum numbers, lengths, depth.

mod json;
mod registry;
mod request;
mod response;

pub use json::{MAX_DEPTH, to_struct};
pub(super) use registry::{card, cards, change, names, quarantined, summary};
pub use request::route_request;
pub use response::route_response;
