//! What an endpoint can do, found out by asking it.
//!
//! Owns: the checks, their order, the settings that follow from them.
//! Does not know: how a report is printed. Nothing a server does comes here: no request pays for probing.

mod check;

mod ask;
mod bodies;

mod basics;
mod forms;
mod functions;
mod trial;

mod advice;

use std::time::Duration;

use super::{EndpointSettings, Settings};

pub use advice::{Advice, Refusal};
pub use check::{Check, Finding, Grade};

use ask::Asker;

/// How far the probing goes.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Longest one check may take.
    pub patience: Duration,
    /// Leaves out how many tools are accepted, the one check with long prompts.
    pub quick: bool,
    /// Time one request has in service.
    pub deadline: Duration,
}

/// What was found out about one endpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub base_url: String,
    pub model: String,
    /// One for each [`Check`], in their order.
    pub findings: Vec<Finding>,
    /// The settings to use, or why it cannot serve.
    pub result: Result<Advice, Refusal>,
}

impl Report {
    /// What `check` found out.
    pub fn finding(&self, check: Check) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.check == check)
    }
}

/// Asks the endpoint, one request at a time. `started` is told each check as it begins. Cancel safe: dropping the
/// future aborts the exchange under way.
///
/// # Errors
/// A message for the operator when the settings cannot be used.
pub async fn examine(
    settings: &Settings,
    endpoint: &EndpointSettings,
    options: &Options,
    started: &(dyn Fn(Check) + Sync),
) -> Result<Report, String> {
    let mut probe = Probe {
        ask: Asker::new(endpoint, options.patience)?,
        settings,
        endpoint,
        options,
        started,
        findings: Vec::new(),
        facts: Facts::default(),
    };
    let result = probe.run().await;
    probe.skip_the_rest();
    let EndpointSettings { base_url, model, .. } = endpoint;
    Ok(Report { base_url: base_url.clone(), model: model.clone(), findings: probe.findings, result })
}

/// The probing of one endpoint under way.
struct Probe<'a> {
    ask: Asker,
    settings: &'a Settings,
    endpoint: &'a EndpointSettings,
    options: &'a Options,
    started: &'a (dyn Fn(Check) + Sync),
    findings: Vec<Finding>,
    facts: Facts,
}

/// What later checks and the advice build on.
#[derive(Debug, Default)]
struct Facts {
    /// The name under which a limit of the answer's length works.
    limit: Option<&'static str>,
    /// `required` where it is accepted, else `auto`.
    tool_choice: Option<&'static str>,
    seed_refused: bool,
    temperature_refused: bool,
    /// Most functions accepted, and whether more were refused.
    functions: Option<(usize, bool)>,
    /// Median of short answers.
    latency: Option<Duration>,
    logprobs: Logprobs,
    /// The mode in which a decision came out right.
    mode: Option<super::AnswerMode>,
}

/// In which answers probabilities stand.
#[derive(Debug, Default, Clone, Copy)]
struct Logprobs {
    json: bool,
    functions: bool,
}

impl Probe<'_> {
    async fn run(&mut self) -> Result<Advice, Refusal> {
        let listed = self.models().await;
        if let Err(trouble) = listed
            && trouble.is_final()
        {
            return Err(Refusal::of(&trouble, self.endpoint));
        }
        self.plain().await.map_err(|trouble| Refusal::of(&trouble, self.endpoint))?;
        self.usage();
        self.latency().await;
        self.token_limit().await;
        self.temperature().await;
        self.seed().await;
        self.tools().await;
        self.tool_choice().await;
        self.parallel_tool_calls().await;
        self.json_schema().await;
        self.logprobs().await;
        self.chinese().await;
        self.max_tools().await;
        self.decision().await;
        Advice::from(self).ok_or_else(Refusal::no_mode)
    }

    fn begin(&mut self, check: Check) {
        (self.started)(check);
        self.ask.begin();
    }

    fn end(&mut self, check: Check, (grade, remark): (Grade, String)) {
        self.findings.push(Finding { check, grade, remark, took: Some(self.ask.elapsed()) });
    }

    fn skip(&mut self, check: Check, remark: &str) {
        self.findings.push(Finding { check, grade: Grade::Skipped, remark: remark.into(), took: None });
    }

    fn grade(&self, check: Check) -> Option<Grade> {
        self.findings.iter().find(|finding| finding.check == check).map(|finding| finding.grade)
    }

    /// Whether an answer of that form can be used.
    fn works(&self, check: Check) -> bool {
        matches!(self.grade(check), Some(Grade::Yes | Grade::Partly))
    }

    /// So that a report always holds every check.
    fn skip_the_rest(&mut self) {
        for check in Check::ALL {
            if self.grade(check).is_none() {
                self.skip(check, "not tried");
            }
        }
        self.findings.sort_by_key(|finding| finding.check);
    }
}
