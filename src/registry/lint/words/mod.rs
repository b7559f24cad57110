//! The rules with their titles and explanations in English and Chinese.

pub(super) mod descriptions;
pub(super) mod effects;
pub(super) mod names;
pub(super) mod parameters;
pub(super) mod safety;
pub(super) mod set;

use super::Severity::{Error, Note, Warning};
use super::rule::Rule;
