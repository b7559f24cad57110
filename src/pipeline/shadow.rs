//! The choice that is made beside the rules, compared with theirs and never served.
//!
//! It runs in a task of its own. The answer waits for it a bounded time at most; what comes later is counted and logged.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::route::Work;
use super::skeleton::Open;
use super::{RouteError, Router};
use crate::decision::{Agreement, Decision, Outcome, Shadow, log};
use crate::telemetry::names;
use crate::types::{Deadline, DecisionId, ToolId};

/// Such choices in work, beyond which further ones are skipped: requests come first.
pub(super) const MOST_SHADOWS: usize = 32;

/// A choice in work.
pub(super) struct Running {
    /// `None` when it was skipped.
    task: Option<JoinHandle<Result<Decision, RouteError>>>,
    domain: String,
}

/// What a shadowed choice is compared with.
struct Served {
    id: DecisionId,
    trace_id: String,
    outcome: Outcome,
}

impl Router {
    /// Starts the dynamic choice among `open`, with the same catalog, from the same state.
    pub(super) fn start_shadow(self: &Arc<Self>, work: &Work<'_>, open: Open) -> Running {
        let Open { eligible, domain } = open;
        let Ok(place) = Arc::clone(&self.shadows).try_acquire_owned() else { return Running { task: None, domain } };
        let (router, serving) = (Arc::clone(self), Arc::clone(&work.serving));
        let (request, caller) = (work.request.clone(), work.caller.clone());
        let task = tokio::spawn(async move {
            let _place = place;
            let deadline = Deadline::after(router.settings.deadline);
            let choice = async {
                let mut work = router.begin(serving, &request, &caller, deadline)?;
                work.eligible = eligible;
                router.dynamic(work).await
            };
            tokio::time::timeout_at(deadline.instant(), choice).await.map_err(|_| RouteError::Deadline)?
        });
        Running { task: Some(task), domain }
    }

    /// Notes in `decision` how the two choices compare, if that is known soon enough.
    pub(super) async fn compare_shadow(
        self: &Arc<Self>,
        running: Running,
        decision: &mut Decision,
        deadline: Deadline,
    ) {
        let Running { task, domain } = running;
        let Some(mut task) = task else {
            count(&domain, Agreement::Skipped);
            decision.trace.shadow = Some(without(Agreement::Skipped));
            return;
        };
        let served = Served { id: decision.id, trace_id: decision.trace_id.clone(), outcome: decision.outcome.clone() };
        let wait = self.settings.rules.shadow_wait.min(deadline.remaining() / 2);
        let shadow = match tokio::time::timeout(wait, &mut task).await {
            Ok(ended) => {
                let shadow = compare(&served.outcome, ended.ok());
                count(&domain, shadow.agreement);
                shadow
            }
            Err(_) => {
                let router = Arc::clone(self);
                tokio::spawn(async move {
                    let shadow = compare(&served.outcome, task.await.ok());
                    count(&domain, shadow.agreement);
                    if router.log.is_on() {
                        router.log.write(log::shadow_line(served.id, &served.trace_id, &shadow));
                    }
                });
                without(Agreement::Late)
            }
        };
        decision.trace.shadow = Some(shadow);
    }
}

fn count(domain: &str, agreement: Agreement) {
    metrics::counter!(names::RULE_SHADOWS, "domain" => domain.to_owned(), "result" => agreement.as_str()).increment(1);
}

fn without(agreement: Agreement) -> Shadow {
    Shadow { agreement, outcome: String::new(), tools: Vec::new(), decided_by: None }
}

fn compare(served: &Outcome, ended: Option<Result<Decision, RouteError>>) -> Shadow {
    let Some(Ok(other)) = ended else { return without(Agreement::Failed) };
    let tools = tools(&other.outcome);
    let alike = served.kind() == other.outcome.kind() && self::tools(served) == tools;
    let agreement = match (alike, arguments(served) == arguments(&other.outcome)) {
        (true, true) => Agreement::Same,
        (true, false) => Agreement::SameTool,
        (false, _) => Agreement::Different,
    };
    Shadow { agreement, outcome: other.outcome.kind().into(), tools, decided_by: Some(other.decided_by) }
}

fn tools(outcome: &Outcome) -> Vec<ToolId> {
    match outcome {
        Outcome::Call { calls } => calls.iter().map(|call| call.tool.clone()).collect(),
        Outcome::Clarify(question) => question.tool.iter().cloned().collect(),
        Outcome::NoTool { .. } | Outcome::Handoff { .. } => Vec::new(),
    }
}

fn arguments(outcome: &Outcome) -> Vec<&serde_json::Map<String, serde_json::Value>> {
    match outcome {
        Outcome::Call { calls } => calls.iter().map(|call| &call.arguments).collect(),
        Outcome::Clarify(question) => vec![&question.arguments],
        Outcome::NoTool { .. } | Outcome::Handoff { .. } => Vec::new(),
    }
}
