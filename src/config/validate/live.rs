//! `registry.live`: servers whose tools are served.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Check;
use super::targets::private_value;
use crate::config::raw::{self, LIVE};
use crate::execute::mcp::ToolServer;
use crate::execute::{HttpTarget, McpTarget, Target};
use crate::pipeline::LiveSource;

const MOST_SOURCES: usize = 64;
const MAX_NAME_BYTES: usize = 64;
/// Parts of the names of headers whose values are not for a file that is passed around.
const TELLTALE: [&str; 6] = ["auth", "key", "token", "secret", "cookie", "password"];

impl Check<'_> {
    /// `targets`: those of `[execute]`, where they could be read.
    pub(super) fn live(
        &mut self,
        raw: &[raw::LiveSource],
        targets: Option<&BTreeMap<String, Target>>,
    ) -> Option<Vec<LiveSource>> {
        if raw.len() > MOST_SOURCES {
            return self.fail(LIVE, format!("expected at most {MOST_SOURCES} sources, found {}", raw.len()));
        }
        let mut names = BTreeSet::new();
        let mut sources = Vec::with_capacity(raw.len());
        for (index, raw) in raw.iter().enumerate() {
            let source = match self.source(raw, targets) {
                Ok(_) if !names.insert(&raw.name) => Err("another source has this name".to_owned()),
                source => source,
            };
            sources.push(source.map_or_else(|why| self.fail(LIVE, format!("{}: {why}", entry(index, raw))), Some));
        }
        sources.into_iter().collect()
    }

    fn source(&self, raw: &raw::LiveSource, targets: Option<&BTreeMap<String, Target>>) -> Result<LiveSource, String> {
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        if raw.name.is_empty() || raw.name.len() > MAX_NAME_BYTES || !raw.name.chars().all(is_name) {
            return Err(format!("name: expected up to {MAX_NAME_BYTES} bytes of letters, digits and _ - ."));
        }
        let timeout = within("timeout_ms", raw.timeout_ms, 1, 600_000).map(Duration::from_millis)?;
        let refresh = within("refresh_s", raw.refresh_s, 0, 86_400).map(Duration::from_secs)?;
        if raw.permissions.iter().any(|scope| scope.trim().is_empty()) {
            return Err("permissions: a scope is empty".into());
        }
        Ok(LiveSource {
            name: raw.name.clone(),
            server: ToolServer { place: self.place(raw, targets)?, timeout },
            target: raw.target.clone(),
            domain: raw.domain.clone().filter(|domain| !domain.trim().is_empty()),
            permissions: raw.permissions.clone(),
            trust_hints: raw.trust_hints,
            required: raw.required,
            refresh,
        })
    }

    fn place(&self, raw: &raw::LiveSource, targets: Option<&BTreeMap<String, Target>>) -> Result<McpTarget, String> {
        let stray = |given: bool, key: &str, with: &str| {
            if given { Err(format!("{key} belongs to a source with {with}")) } else { Ok(()) }
        };
        let place = match (&raw.url, raw.command.split_first(), &raw.target) {
            (Some(url), None, None) => {
                let headers = raw.headers.iter().map(|(name, value)| {
                    let value = self.live_header(name, value).map_err(|why| format!("header {name}: {why}"))?;
                    Ok((name.clone(), value))
                });
                let headers = headers.collect::<Result<_, String>>()?;
                McpTarget::Url(HttpTarget { base_url: url.clone(), headers, allow_private: raw.allow_private })
            }
            (None, Some((program, args)), None) => {
                let env = self.passed_on(&raw.env)?;
                McpTarget::Command { program: program.clone(), args: args.to_vec(), env }
            }
            (None, None, Some(name)) => match targets.map(|targets| targets.get(name)) {
                Some(Some(Target::Mcp(place))) => place.clone(),
                Some(Some(Target::Http(_))) => {
                    return Err(format!("target: `{name}` of execute.targets is no MCP server"));
                }
                Some(None) => return Err(format!("target: execute.targets has no `{name}`")),
                // What is wrong with the targets is reported there; this only has to be something.
                None => McpTarget::Command { program: name.clone(), args: Vec::new(), env: Vec::new() },
            },
            _ => return Err("needs one of url, command (a list) or target (an MCP target of [execute])".into()),
        };
        stray(!raw.headers.is_empty() && raw.url.is_none(), "headers", "url")?;
        stray(raw.allow_private && raw.url.is_none(), "allow_private", "url")?;
        stray(!raw.env.is_empty() && raw.command.is_empty(), "env", "command")?;
        Ok(place)
    }

    fn live_header(&self, name: &str, value: &str) -> Result<crate::execute::Secret, String> {
        let lower = name.to_ascii_lowercase();
        let is_private = value.starts_with("env:") || value.starts_with("file:");
        if !is_private && TELLTALE.iter().any(|part| lower.contains(part)) {
            return Err("name a variable (env:NAME) or a file (file:PATH); the value itself does not stand here".into());
        }
        private_value(self.env, value)
    }
}

fn within(key: &str, value: u64, min: u64, max: u64) -> Result<u64, String> {
    if (min..=max).contains(&value) { Ok(value) } else { Err(format!("{key}: expected {min} to {max}, found {value}")) }
}

/// How an entry is called in messages.
fn entry(index: usize, raw: &raw::LiveSource) -> String {
    let name = crate::registry::shorten(&raw.name);
    if name.is_empty() { format!("source {}", index + 1) } else { format!("source {} (`{name}`)", index + 1) }
}
