//! From a wish to what the gate is asked: the tool found, its arguments valid.

use std::sync::Arc;
use std::time::Duration;

use super::super::Router;
use super::page::is_own_cursor;
use super::turn::TurnKey;
use super::{Locale, Wish};
use crate::args::{self, ValidArgs};
use crate::catalog::{Catalog, Tool};
use crate::gate::{Ask, Runner};
use crate::registry::{Registry, suggest};
use crate::tool::{ConfirmedBy, Execution, ToolCard};
use crate::types::{CallId, Caller, NextStep, Problem, ProblemCode};
use moka::sync::Cache;

/// How long a call that the caller runs is remembered with its arguments, and how many are.
const REMEMBERED_FOR: Duration = Duration::from_secs(60 * 60);
const MOST_BYTES: u64 = 64 * 1024 * 1024;
const OWN_BYTES: usize = 1024;

/// A wish with its tool and valid arguments.
#[derive(Debug, Clone)]
pub(in crate::pipeline) struct Prepared {
    pub tool: Tool,
    pub registry: Arc<Registry>,
    pub args: ValidArgs,
    pub turn: Option<TurnKey>,
    /// How long one attempt may take: read once, so that the record and the run agree.
    pub timeout: Duration,
    pub locale: Locale,
}

impl Prepared {
    pub fn is_for_a_person(&self) -> bool {
        self.tool.card.execution == Execution::ProposeOnly
    }

    pub fn ask(&self, wish: &Wish, caller: &Caller, runner: Runner) -> Ask {
        Ask {
            caller: caller.clone(),
            tool: self.tool.clone(),
            registry: Arc::clone(&self.registry),
            args: self.args.clone(),
            conversation: wish.conversation.clone(),
            turn: wish.turn.clone(),
            key: wish.key.clone(),
            token: wish.token.clone(),
            runner,
            timeout: self.timeout,
        }
    }
}

impl Router {
    pub(super) fn prepare(&self, wish: &Wish, caller: &Caller) -> Result<Prepared, Box<Problem>> {
        let serving = self.catalogs.load();
        let catalog = &serving.catalog;
        let tool = find(catalog, &wish.tool, caller, &|card| self.is_in_service(card))?;
        if let Some(hold) = self.hold(&tool.card, &catalog.registry) {
            let tell = tool.card.scopes.iter().all(|scope| caller.holds(scope));
            let chinese = wish.locale == Locale::Chinese;
            return Err(Box::new(self.refusal(tool.id(), &hold, tell, chinese)));
        }
        let checked =
            args::validate(&tool.schema, &wish.arguments).map_err(|problem| refine(problem, tool, catalog))?;
        if let Some((name, _)) = checked.args.as_map().iter().find(|(_, value)| is_own_cursor(value)) {
            let message = format!("`{name}` is a cursor of this server: it goes to NextPage, not to the tool");
            return Err(Box::new(Problem::repairable("bad_params", ProblemCode::InvalidArgs, message)));
        }
        // Without its conversation a turn would be everybody's; the gate refuses it.
        let turn = (!wish.turn.is_empty() && !wish.conversation.is_empty())
            .then(|| TurnKey::new(&caller.tenant, &wish.conversation, &wish.turn));
        let registry = Arc::clone(&catalog.registry);
        let timeout = self.executors.timeout(&tool.card);
        Ok(Prepared { tool: tool.clone(), registry, args: checked.args, turn, timeout, locale: wish.locale })
    }
}

/// The tool of this id or, where only one has it, of this name, among those the caller's tenant may see. That a scope is
/// missing is for the gate to say.
fn find<'a>(
    catalog: &'a Catalog,
    name: &str,
    caller: &Caller,
    in_service: &dyn Fn(&ToolCard) -> bool,
) -> Result<&'a Tool, Box<Problem>> {
    let visible = |tool: &&Tool| caller.belongs_to(&tool.card.tenants);
    let mut named = catalog.tools.iter().filter(visible).filter(|tool| tool.is_called(name));
    let by_id = catalog.tools.iter().filter(visible).find(|tool| tool.id().as_str() == name);
    match (by_id, named.next(), named.next()) {
        (Some(tool), ..) | (None, Some(tool), None) => Ok(tool),
        (None, Some(_), Some(_)) => {
            let message = "several tools have this name; use one with its source in front (`source/name`)";
            Err(Box::new(Problem::repairable("unknown_tool", ProblemCode::UnknownTool, message)))
        }
        (None, None, _) => {
            let shown: String = name.chars().take(64).collect();
            let open =
                |tool: &&Tool| tool.card.scopes.iter().all(|scope| caller.holds(scope)) && in_service(&tool.card);
            let known = catalog.tools.iter().filter(visible).filter(open).map(|tool| tool.id().as_str());
            let message = format!("there is no tool `{shown}`{}", suggest(&shown, known));
            Err(Box::new(Problem::repairable("unknown_tool", ProblemCode::UnknownTool, message)))
        }
    }
}

/// Where nothing but the token is missing, it is not the arguments that are wrong but the order of steps.
fn refine(problem: Problem, tool: &Tool, catalog: &Catalog) -> Box<Problem> {
    let confirmation =
        tool.card.confirmation.as_ref().filter(|confirmation| confirmation.by == ConfirmedBy::PreviewTool);
    let preview = confirmation.and_then(|confirmation| confirmation.tool.as_deref());
    let token = confirmation.and_then(|confirmation| confirmation.token_param.as_deref());
    let (Some(preview), Some(token)) = (preview, token) else { return Box::new(problem) };
    let concerns_token = |path: &str| path.strip_prefix('/') == Some(token);
    if problem.fields.is_empty() || !problem.fields.iter().all(|field| concerns_token(&field.path)) {
        return Box::new(problem);
    }
    let step = catalog.tools.iter().find(|tool| tool.is_called(preview)).map(|tool| NextStep {
        tool: tool.id().clone(),
        hint: "show its result to the user; once they agree, call this tool with the token in it".into(),
    });
    Box::new(Problem {
        status: "precondition_missing".into(),
        code: ProblemCode::PreconditionMissing,
        message: format!("`{token}` is missing or has the wrong form: it comes from a preview by `{preview}`"),
        next: step,
        ..problem
    })
}

/// Calls that their callers run, so that their results can be shaped with tool and arguments. They live in this process:
/// after a restart a result is shaped by its tool's card alone.
pub(in crate::pipeline) struct OpenCalls(Cache<(String, CallId), Arc<Prepared>>);

impl OpenCalls {
    pub fn new() -> Self {
        let weight = |_: &(String, CallId), prepared: &Arc<Prepared>| {
            let args = prepared.args.as_map().iter().map(|(name, value)| name.len() + value.to_string().len());
            u32::try_from(OWN_BYTES + args.sum::<usize>()).unwrap_or(u32::MAX)
        };
        Self(Cache::builder().max_capacity(MOST_BYTES).weigher(weight).time_to_live(REMEMBERED_FOR).build())
    }

    pub fn keep(&self, caller: &Caller, call: CallId, prepared: Prepared) {
        self.0.insert((caller.tenant.clone(), call), Arc::new(prepared));
    }

    pub fn get(&self, caller: &Caller, call: CallId) -> Option<Arc<Prepared>> {
        self.0.get(&(caller.tenant.clone(), call))
    }
}
