//! `[gate]`, `[execute]` and `[result]`.

use std::collections::BTreeMap;
use std::path::Path;

use super::Check;
use crate::config::raw;
use crate::execute::{HttpTarget, McpTarget, Secret, Target};
use crate::{execute, gate, result};

const KEY: &str = "execute.targets";
const MAX_SECRET_BYTES: u64 = 64 * 1024;

impl Check<'_> {
    pub(super) fn gate(&mut self, raw: &raw::Gate) -> Option<gate::Settings> {
        let token_ttl = self.duration("gate.token_ttl_s", raw.token_ttl_s, 1_000, 1);
        let idempotency_ttl = self.duration("gate.idempotency_ttl_s", raw.idempotency_ttl_s, 1_000, 1);
        let grace = self.duration("gate.grace_ms", raw.grace_ms, 1, 1);
        let key_rotation = self.duration("gate.key_rotation_s", raw.key_rotation_s, 1_000, 60);
        let max_calls = self.count("gate.max_calls", raw.max_calls, 100, 100_000_000);
        let max_steps = self.small("gate.max_steps", raw.max_steps, 1, 1_000);
        let turn_budget = self.duration("gate.turn_budget_ms", raw.turn_budget_ms, 1, 1);
        Some(gate::Settings {
            token_ttl: token_ttl?,
            idempotency_ttl: idempotency_ttl?,
            grace: grace?,
            key_rotation: key_rotation?,
            max_calls: max_calls?,
            max_steps: max_steps?,
            turn_budget: turn_budget?,
        })
    }

    pub(super) fn execute(&mut self, raw: &raw::Execute) -> Option<execute::Settings> {
        let default_timeout = self.duration("execute.timeout_ms", raw.timeout_ms, 1, 1);
        let retries = self.small("execute.retries", raw.retries, 0, 10);
        let kilobytes = self.count("execute.max_answer_kb", raw.max_answer_kb, 1, 64 * 1024);
        let breaker_failures = self.small("execute.breaker_failures", raw.breaker_failures, 1, 1_000);
        let breaker_window = self.duration("execute.breaker_window_ms", raw.breaker_window_ms, 1, 1);
        let targets: Vec<_> =
            raw.targets.iter().map(|(name, target)| (name.clone(), self.target(name, target))).collect();
        let targets: Option<BTreeMap<String, Target>> =
            targets.into_iter().map(|(name, target)| Some((name, target?))).collect();
        Some(execute::Settings {
            targets: targets?,
            default_timeout: default_timeout?,
            max_answer_bytes: kilobytes? * 1024,
            retries: retries?,
            breaker_failures: breaker_failures?,
            breaker_window: breaker_window?,
        })
    }

    pub(super) fn result(&mut self, raw: &raw::Result) -> Option<result::Settings> {
        let max_chars = self.count("result.max_chars", raw.max_chars, 200, 1_000_000);
        let max_rows = self.count("result.max_rows", raw.max_rows, 1, 10_000);
        Some(result::Settings { max_chars: max_chars?, max_rows: max_rows? })
    }

    /// Messages name the target and never a value of its headers.
    fn target(&mut self, name: &str, raw: &raw::ExecuteTarget) -> Option<Target> {
        let headers = self.headers(name, &raw.headers)?;
        let http = |base_url: &String| HttpTarget {
            base_url: base_url.clone(),
            headers: headers.clone(),
            allow_private: raw.allow_private,
        };
        match (&raw.base_url, &raw.mcp, raw.command.split_first()) {
            (Some(url), None, None) => Some(Target::Http(http(url))),
            (None, Some(url), None) => Some(Target::Mcp(McpTarget::Url(http(url)))),
            (None, None, Some((program, args))) => {
                let env =
                    self.passed_on(&raw.env).map_or_else(|why| self.fail(KEY, format!("`{name}`: {why}")), Some)?;
                Some(Target::Mcp(McpTarget::Command { program: program.clone(), args: args.to_vec(), env }))
            }
            _ => self.fail(KEY, format!("`{name}` needs one of base_url (HTTP), mcp (an URL) or command (a list)")),
        }
    }

    fn headers(&mut self, target: &str, raw: &BTreeMap<String, String>) -> Option<Vec<(String, Secret)>> {
        let mut headers = Vec::with_capacity(raw.len());
        for (name, value) in raw {
            match private_value(self.env, value) {
                Ok(value) => headers.push((name.clone(), value)),
                Err(why) => return self.fail(KEY, format!("`{target}`, header {name}: {why}")),
            }
        }
        Some(headers)
    }

    /// The variables that a program gets of our environment, by name.
    pub(super) fn passed_on(&self, names: &[String]) -> Result<Vec<(String, Secret)>, String> {
        let variable = |name: &String| {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            // Perhaps it is not a name but NAME=value: then it is not repeated.
            if name.is_empty() || !name.chars().all(is_name) {
                return Err("env: expected names of environment variables, without values".to_owned());
            }
            let value = self.env.get(name).ok_or_else(|| format!("env: the variable {name} is not set"))?;
            Ok((name.clone(), Secret(value.clone())))
        };
        names.iter().map(variable).collect()
    }
}

/// What `env:NAME`, `file:PATH` or a plain value stands for. Messages show no value.
pub(super) fn private_value(env: &BTreeMap<String, String>, text: &str) -> Result<Secret, String> {
    let value = match text.split_once(':') {
        Some(("env", variable)) => {
            let value = env.get(variable).ok_or_else(|| format!("the variable {variable} is not set"))?;
            value.trim().to_owned()
        }
        Some(("file", path)) => read(Path::new(path)).map_err(|error| format!("cannot read {path}: {error}"))?,
        _ => text.to_owned(),
    };
    Ok(Secret(value))
}

fn read(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_SECRET_BYTES).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}
