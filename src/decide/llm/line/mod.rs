//! One question to an endpoint: place, rate, breaker, attempts, pauses, a second request beside a slow one.
//!
//! Owns: everything between a request body and a response that could be read.
//! Does not know: what an answer is worth, or what a decision does when no endpoint gives one.

mod attempt;
mod budget;
mod client;
mod hedge;
mod limit;
mod rate;
mod usage;

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, sleep, timeout};

use super::metrics::{self, Number};
use super::read::{Completion, Unusable};
use super::{EndpointSettings, LlmError, NO_TIME, Settings};
use crate::decision::TokenUse;
use crate::types::breaker::{Admission, Breaker, Change};
use crate::types::latencies::Latencies;
use attempt::{AttemptError, NextStep};
use budget::Allowed;
use client::Parameter;
use limit::Limit;
use rate::Rate;

pub(crate) use budget::Budget;
pub(crate) use client::{Endpoint, ExchangeError};

const NOTE_WITHDRAWN: &str = "the endpoint refuses a parameter by name; it was left out";

/// How a response is told from garbage.
pub(crate) type Read<'r> = dyn Fn(&Value) -> Result<Completion, Unusable> + Sync + 'r;

/// An endpoint with everything that protects it and us.
pub(crate) struct Line {
    number: Number,
    endpoint: Endpoint,
    limit: Limit,
    /// `None` without a limit.
    rate: Option<Rate>,
    breaker: Breaker,
    /// `None` when nothing is hedged.
    latencies: Option<Latencies>,
    /// Parameters this endpoint has refused by name; never sent again.
    withdrawn: Mutex<BTreeSet<Parameter>>,
}

/// One endpoint in the order in which they are asked.
#[derive(Clone, Copy)]
pub(crate) struct Spot<'a> {
    line: &'a Line,
    /// The ones after it.
    further: &'a [Line],
}

impl<'a> Spot<'a> {
    /// Every endpoint with the ones that follow it.
    pub fn all(lines: &'a [Line]) -> impl Iterator<Item = Self> {
        lines.iter().enumerate().map(|(at, line)| Self { line, further: &lines[at + 1..] })
    }

    pub fn number(&self) -> Number {
        self.line.number
    }

    /// Whether an endpoint after this one can be asked.
    pub fn has_another(&self) -> bool {
        self.further.iter().any(Line::is_ready)
    }

    /// Sends `body` until `read` accepts a response or the budget is used up; after a failure another endpoint that is
    /// ready is worth more than another attempt here. Cancel safe: dropping the future aborts what is under way and
    /// frees its place.
    ///
    /// # Errors
    /// [`LlmError`] when this endpoint gave no usable response.
    pub async fn ask(
        &self,
        mut body: Map<String, Value>,
        budget: &mut Budget,
        read: &Read<'_>,
    ) -> Result<Completion, LlmError> {
        let line = self.line;
        let mut withdrawn = line.withdrawn();
        withdrawn.iter().for_each(|parameter| parameter.withdraw(&mut body));
        let mut failures = 0;
        let mut may_hedge = true;
        loop {
            let another = self.has_another();
            let error = match line.attempt(&body, budget, read, &mut may_hedge, another).await? {
                Ok(mut completion) => {
                    if completion.usage == TokenUse::default() {
                        completion.usage = usage::estimate(&body, &completion);
                        budget.note(usage::NOTE);
                    }
                    line.withdraw(&withdrawn);
                    return Ok(completion);
                }
                Err(error) => error,
            };
            tracing::debug!(endpoint = %line.number, attempt = budget.spent, %error, "LLM attempt failed");
            match error.next_step() {
                NextStep::Withdraw(refused) => {
                    let sent = |parameter: &Parameter| body.contains_key(parameter.as_str());
                    let news: Vec<Parameter> = refused
                        .into_iter()
                        .filter(|parameter| sent(parameter) && !withdrawn.contains(parameter))
                        .collect();
                    if news.is_empty() {
                        return Err(error.into_llm_error());
                    }
                    news.iter().for_each(|parameter| parameter.withdraw(&mut body));
                    withdrawn.extend(news);
                    budget.note(NOTE_WITHDRAWN);
                    if !budget.has_attempt() {
                        // The next decision need not find out again.
                        line.withdraw(&withdrawn);
                        return Err(error.into_llm_error());
                    }
                }
                NextStep::Stop => return Err(error.into_llm_error()),
                NextStep::Retry { .. } if another => return Err(error.into_llm_error()),
                NextStep::Retry { after } => {
                    failures += 1;
                    let Some(pause) = budget.pause(failures, after) else {
                        if budget.has_attempt() {
                            budget.note(NO_TIME);
                        }
                        return Err(error.into_llm_error());
                    };
                    sleep(pause).await;
                }
            }
        }
    }
}

/// Everything one attempt needs to be allowed to run; dropping it gives the place back.
struct Ticket<'a> {
    admission: Admission<'a>,
    _place: SemaphorePermit<'a>,
    allowed: Allowed,
}

/// Counts an attempt however it ends.
struct Counted {
    endpoint: Number,
    started: Instant,
    result: &'static str,
}

impl Drop for Counted {
    fn drop(&mut self) {
        metrics::attempt(self.endpoint, self.result, self.started.elapsed());
    }
}

/// A breaker whose changes are counted and logged under the endpoint's number.
fn breaker(number: Number, settings: &Settings) -> Breaker {
    let window = settings.breaker_window;
    metrics::breaker_open(number, false);
    Breaker::new(settings.breaker_failures, window, move |change| {
        metrics::breaker(number, change.as_str(), change != Change::Closed);
        match change {
            Change::Open => tracing::warn!(endpoint = %number, open_for = ?window, "LLM breaker opened"),
            Change::HalfOpen => {}
            Change::Closed => tracing::info!(endpoint = %number, "LLM breaker closed"),
        }
    })
}

impl Line {
    pub fn new(number: Number, endpoint: &EndpointSettings, settings: &Settings) -> Result<Self, String> {
        Ok(Self {
            number,
            endpoint: Endpoint::new(&endpoint.base_url, endpoint.api_key.as_ref(), settings.timeout)?,
            limit: Limit::new(number, settings.concurrency, settings.queue),
            rate: Rate::new(number, settings.requests_per_minute),
            breaker: breaker(number, settings),
            latencies: settings.hedge.then(Latencies::default),
            withdrawn: Mutex::new(BTreeSet::new()),
        })
    }

    /// One attempt, or two beside each other. The outer error means that none was made.
    async fn attempt(
        &self,
        body: &Map<String, Value>,
        budget: &mut Budget,
        read: &Read<'_>,
        may_hedge: &mut bool,
        another: bool,
    ) -> Result<Result<Completion, AttemptError>, LlmError> {
        let refused = || LlmError::Unavailable("the circuit breaker is open".into());
        if self.breaker.refuses() {
            return Err(refused());
        }
        let place = self.limit.enter(budget.deadline).await?;
        if let Some(rate) = &self.rate {
            rate.wait(budget.deadline).await?;
        }
        if budget.deadline.has_passed() {
            return Err(LlmError::Deadline);
        }
        let admission = self.breaker.admit().ok_or_else(refused)?;
        let ticket = Ticket { admission, _place: place, allowed: budget.take(another) };
        let started = Instant::now();
        let due = self.latencies.as_ref().filter(|_| *may_hedge).and_then(|times| times.percentile(hedge::SLOW));
        let result = match due {
            Some(due) => self.race(body, read, ticket, due, budget, may_hedge).await,
            None => self.send(body, read, ticket).await,
        };
        if let (Ok(_), Some(latencies)) = (&result, &self.latencies) {
            // After a race the whole time counts, not the winner's own: otherwise each slow attempt that is overtaken
            // would make the slow end look faster, and more would be hedged.
            latencies.add(started.elapsed());
        }
        Ok(result)
    }

    /// Sends one request and tells the breaker how it ended.
    async fn send(
        &self,
        body: &Map<String, Value>,
        read: &Read<'_>,
        ticket: Ticket<'_>,
    ) -> Result<Completion, AttemptError> {
        let Ticket { admission, _place, allowed } = ticket;
        let mut counted = Counted { endpoint: self.number, started: Instant::now(), result: "cancelled" };
        let result = match timeout(allowed.time, self.endpoint.chat(body)).await {
            Ok(Ok(value)) => read(&value).map_err(AttemptError::from),
            Ok(Err(error)) => Err(error.into()),
            Err(_) if allowed.ends_all => Err(AttemptError::Deadline),
            Err(_) => Err(AttemptError::Timeout(allowed.time)),
        };
        counted.result = result.as_ref().err().map_or("ok", AttemptError::label);
        match &result {
            Ok(_) => admission.succeeded(),
            // The caller was in a hurry; that says nothing about the endpoint.
            Err(AttemptError::Deadline | AttemptError::Timeout(_)) if !allowed.patient => drop(admission),
            Err(error) if error.is_about_the_request() => admission.succeeded(),
            Err(_) => admission.failed(),
        }
        result
    }

    /// Whether a request may be sent now.
    pub fn is_ready(&self) -> bool {
        !self.breaker.refuses()
    }

    /// Leaves these out from now on.
    fn withdraw(&self, refused: &BTreeSet<Parameter>) {
        let mut known = self.withdrawn.lock().unwrap_or_else(PoisonError::into_inner);
        for parameter in refused.iter().filter(|parameter| !known.contains(parameter)).collect::<Vec<_>>() {
            metrics::withdrawn(self.number, parameter.as_str());
            tracing::warn!(endpoint = %self.number, parameter = parameter.as_str(), "the LLM endpoint refuses a parameter; it is left out from now on");
            known.insert(*parameter);
        }
    }

    fn withdrawn(&self) -> BTreeSet<Parameter> {
        self.withdrawn.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
