//! From what was found out to the settings to use, or to what has to be mended first.

use std::fmt::Write as _;
use std::time::Duration;

use super::super::line::ExchangeError;
use super::super::{AnswerMode, EndpointSettings};
use super::ask::Trouble;
use super::{Logprobs, Probe};

/// Tokens of a prompt with a full shortlist.
const FULL_PROMPT: f64 = 2_500.0;
const LEAST_TIMEOUT: Duration = Duration::from_secs(5);
const MOST_TIMEOUT: Duration = Duration::from_secs(120);
/// A decision is a first answer and perhaps a second one, within what a request has.
const ATTEMPTS: u32 = 2;

/// Settings for one endpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    pub mode: AnswerMode,
    /// Probabilities stand in the answers of that mode.
    pub logprobs: bool,
    /// `None` where the endpoint refuses it.
    pub temperature: Option<f32>,
    pub seed: Option<i64>,
    pub max_tools: usize,
    pub max_completion_tokens: u32,
    pub timeout: Duration,
    /// Where a request would have less time than two attempts.
    pub deadline: Option<Duration>,
}

/// Why an endpoint cannot serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub reason: String,
    pub remedy: String,
}

impl Advice {
    pub(super) fn from(probe: &Probe<'_>) -> Option<Self> {
        let mode = probe.facts.mode?;
        let (settings, facts) = (probe.settings, &probe.facts);
        let timeout = timeout(facts.latency.unwrap_or_default(), &probe.ask.samples);
        let wanted = timeout.saturating_mul(ATTEMPTS);
        Some(Self {
            mode,
            logprobs: has_logprobs(mode, facts.logprobs),
            temperature: settings.temperature.filter(|_| !facts.temperature_refused),
            seed: settings.seed.filter(|_| !facts.seed_refused),
            max_tools: match facts.functions {
                Some((most, true)) if most > 0 => most.min(probe.endpoint.max_tools),
                Some(_) | None => probe.endpoint.max_tools,
            },
            max_completion_tokens: settings.max_completion_tokens,
            timeout,
            deadline: (wanted > probe.options.deadline).then_some(wanted),
        })
    }

    /// The settings as a piece of a configuration file: those of `[llm]` at `place` 0, else those by which a further
    /// endpoint may differ.
    pub fn to_toml(&self, base_url: &str, model: &str, place: usize) -> String {
        let text = |text: &str| toml::Value::from(text).to_string();
        if place > 0 {
            return format!(
                "[[llm.endpoints]]\nbase_url = {}\nmodel = {}\nmode = {}\nmax_tools = {}\nlogprobs = {}\n# In [llm], \
                 timeout_ms should be at least {}.\n",
                text(base_url),
                text(model),
                text(self.mode.as_str()),
                self.max_tools,
                self.logprobs,
                self.timeout.as_millis()
            );
        }
        let mut lines = vec![
            ("base_url", text(base_url)),
            ("model", text(model)),
            ("mode", text(self.mode.as_str())),
            ("logprobs", self.logprobs.to_string()),
        ];
        let off = || text("off");
        lines.push(("temperature", self.temperature.map_or_else(off, |temperature| format!("{temperature:?}"))));
        lines.push(("seed", self.seed.map_or_else(off, |seed| seed.to_string())));
        lines.push(("max_tools", self.max_tools.to_string()));
        lines.push(("max_completion_tokens", self.max_completion_tokens.to_string()));
        lines.push(("timeout_ms", self.timeout.as_millis().to_string()));
        let mut toml = String::from("[llm]\n");
        for (key, value) in lines {
            let _ = writeln!(toml, "{key} = {value}");
        }
        if let Some(deadline) = self.deadline {
            let _ = write!(toml, "\n[route]\ndeadline_ms = {}\n", deadline.as_millis());
        }
        toml
    }
}

pub(super) fn has_logprobs(mode: AnswerMode, found: Logprobs) -> bool {
    match mode {
        AnswerMode::Functions => found.functions,
        AnswerMode::JsonSchema | AnswerMode::ChooseThenFill => found.json,
    }
}

/// Three times what an answer to a full prompt would take, going by how the longest prompt compares with a short one.
fn timeout(short: Duration, samples: &[(u32, Duration)]) -> Duration {
    let least = samples.iter().map(|(prompt, _)| *prompt).filter(|prompt| *prompt > 0).min().unwrap_or_default();
    let longest = samples.iter().max_by_key(|(prompt, took)| (*prompt, *took));
    let per_token = longest
        .filter(|(prompt, _)| *prompt > least)
        .map_or(0.0, |(prompt, took)| took.saturating_sub(short).as_secs_f64() / f64::from(prompt - least));
    let slowest = samples.iter().map(|(_, took)| *took).max().unwrap_or_default();
    let full = short.as_secs_f64() + per_token * FULL_PROMPT;
    let seconds = (3.0 * full.max(slowest.as_secs_f64()) / 5.0).ceil() * 5.0;
    Duration::try_from_secs_f64(seconds).unwrap_or(MOST_TIMEOUT).clamp(LEAST_TIMEOUT, MOST_TIMEOUT)
}

impl Refusal {
    /// Nothing could be asked at all.
    pub(super) fn of(trouble: &Trouble, endpoint: &EndpointSettings) -> Self {
        let key = endpoint.api_key.is_some();
        let remedy = match trouble {
            Trouble::Exchange(ExchangeError::Connect) => {
                "check llm.base_url (host, port, https), and that the endpoint is running and reachable from here"
            }
            Trouble::Exchange(ExchangeError::NotJson | ExchangeError::TooLong) | Trouble::NoMessage => {
                "what answers is no OpenAI-compatible API: llm.base_url usually ends in /v1"
            }
            Trouble::Exchange(ExchangeError::Broken) => {
                "the connection breaks off: look at the endpoint's log, or at a proxy between"
            }
            Trouble::Exchange(ExchangeError::Request) => {
                "the request could not be built: check llm.base_url and llm.model"
            }
            Trouble::Timeout(_) => {
                "the endpoint accepts and does not answer: is its model loaded? --patience waits longer"
            }
            Trouble::Exchange(ExchangeError::Status { .. }) | Trouble::ErrorBody { .. } => match trouble.status() {
                Some(401 | 403) if key => "the key is not accepted: check llm.api_key or llm.api_key_file",
                Some(401 | 403) => "a key is wanted: set POINTSMAN_LLM__API_KEY or llm.api_key_file",
                Some(300..400) => {
                    "redirects are not followed, so that no key reaches another host: set llm.base_url to the final address"
                }
                Some(404 | 405) => {
                    "nothing is served at this address, or no such model: llm.base_url usually ends in /v1; check llm.model"
                }
                Some(400 | 422) => "the simplest request is refused: check llm.model",
                Some(402 | 429) => {
                    "the endpoint limits requests or the quota is used up: wait, or raise the limit at the provider"
                }
                Some(_) | None => "the endpoint fails by itself: look at its log",
            },
        };
        Self { reason: trouble.to_string(), remedy: remedy.into() }
    }

    /// It answers, and nothing of use.
    pub(super) fn no_mode() -> Self {
        Self {
            reason: "no answer mode gives a decision".into(),
            remedy: "take a model that calls functions or keeps to a JSON schema; a local server may need its tool \
                     template switched on (llama.cpp: --jinja)"
                .into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_follow_the_longest_prompt() {
        let ms = Duration::from_millis;
        let check = |short, samples: &[(u32, Duration)], seconds| {
            assert_eq!(timeout(ms(short), samples), Duration::from_secs(seconds));
        };
        check(400, &[(20, ms(400)), (2_300, ms(1_200))], 5);
        check(600, &[(20, ms(600)), (560, ms(4_000))], 50);
        check(600, &[(20, ms(600)), (560, ms(40_000))], 120);
        check(3_000, &[(0, ms(3_000)), (0, ms(7_000))], 25);
        check(0, &[], 5);
    }
}
