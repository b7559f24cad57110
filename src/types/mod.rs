//! The vocabulary every stage shares: ids, scores, vectors, deadlines, callers, candidates and the error body.
//!
//! Owns: newtypes that keep a `Confidence` from being compared with a `Similarity`, and the checked facts about them.
//! Does not know: how any of these values come about. No IO.

pub mod answer;
pub(crate) mod breaker;
pub mod call;
pub mod caller;
pub mod candidate;
pub mod deadline;
pub mod encoding;
pub mod evidence;
pub mod ids;
pub(crate) mod latencies;
pub mod problem;
pub mod reported;
pub(crate) mod retry_after;
pub mod score;
pub mod turn;
pub mod vector;

pub use answer::{Body, ToolAnswer};
pub use call::{CallId, CallState, Clock, UnixMs};
pub use caller::{Administers, Caller, Scope};
pub use candidate::{Candidate, IndexKind, Signal};
pub use deadline::Deadline;
pub use evidence::{Distribution, Evidence, Spread};
pub use ids::{CardHash, CatalogVersion, DecisionId, ToolId};
pub use problem::{FieldProblem, NextStep, Problem, ProblemCode, ToolCode};
pub use score::{Confidence, NotANumber, Score, Similarity};
pub use turn::{Role, Turn};
pub use vector::{Vector, VectorError};
