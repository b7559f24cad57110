//! Names of metrics and the labels they carry. Labels come from closed sets, so the number of series is bounded; tool
//! ids, tenants and utterances never become labels.

pub mod names;
