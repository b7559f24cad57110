//! Further endpoints with their keys, and what a tenant may take of them.

use std::io::Read;
use std::path::Path;

use super::super::layers::endpoint_entry;
use super::super::raw::{self, ENDPOINTS};
use super::Check;
use crate::decide::llm::quota::{self, Limits};
use crate::decide::llm::{ApiKey, EndpointSettings, MOST_ENDPOINTS};

const MAX_KEY_BYTES: u64 = 64 * 1024;

impl Check<'_> {
    /// The endpoint of `[llm]` and the further ones, in order.
    pub(super) fn endpoints(
        &mut self,
        raw: &[raw::LlmEndpoint],
        first: EndpointSettings,
    ) -> Option<Vec<EndpointSettings>> {
        if first.base_url.is_empty() && !raw.is_empty() {
            return self.fail(ENDPOINTS, "these are further endpoints: set llm.base_url and llm.model first");
        }
        if raw.len() >= MOST_ENDPOINTS {
            let most = MOST_ENDPOINTS - 1;
            return self.fail(ENDPOINTS, format!("expected at most {most} further endpoints, found {}", raw.len()));
        }
        let further: Vec<Option<EndpointSettings>> = raw
            .iter()
            .enumerate()
            .map(|(index, raw)| {
                let whole = self.endpoint(raw, &first);
                whole.map_or_else(|why| self.fail(ENDPOINTS, format!("{}: {why}", endpoint_entry(index))), Some)
            })
            .collect();
        let further: Option<Vec<EndpointSettings>> = further.into_iter().collect();
        Some(std::iter::once(first).chain(further?).collect())
    }

    fn endpoint(&self, raw: &raw::LlmEndpoint, first: &EndpointSettings) -> Result<EndpointSettings, String> {
        let base_url = match &raw.base_url {
            Some(text) => base_url(text).map_err(|why| format!("base_url: {why}"))?,
            None => first.base_url.clone(),
        };
        let model = raw.model.clone().unwrap_or_else(|| first.model.clone());
        if model.trim().is_empty() {
            return Err("model: is empty".into());
        }
        let max_tools = match raw.max_tools {
            Some(number) => usize::try_from(number).ok().filter(|number| (1..=10_000).contains(number)),
            None => Some(first.max_tools),
        };
        Ok(EndpointSettings {
            api_key: self.key_of(raw, &base_url, first)?,
            base_url,
            model,
            mode: raw.mode.map_or(first.mode, Into::into),
            max_tools: max_tools.ok_or("max_tools: expected 1 to 10000")?,
            logprobs: raw.logprobs.unwrap_or(first.logprobs),
        })
    }

    fn key_of(
        &self,
        raw: &raw::LlmEndpoint,
        base_url: &str,
        first: &EndpointSettings,
    ) -> Result<Option<ApiKey>, String> {
        match (&raw.api_key_file, &raw.api_key_env) {
            (Some(_), Some(_)) => Err("api_key_file and api_key_env are both set; keep one of them".into()),
            (Some(file), None) => key_in(Path::new(file)).map(Some).map_err(|why| format!("api_key_file: {why}")),
            (None, Some(name)) => self.key_named(name).map(Some).map_err(|why| format!("api_key_env: {why}")),
            // Whoever serves another host must not learn the key of this one.
            (None, None) => Ok(first.api_key.clone().filter(|_| same_host(base_url, &first.base_url))),
        }
    }

    /// Never shows what it was given: it may be the key itself.
    fn key_named(&self, name: &str) -> Result<ApiKey, String> {
        let is_name = !name.starts_with(|c: char| c.is_ascii_digit())
            && !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name {
            return Err("expected the name of an environment variable, not a key".into());
        }
        let key = self.env.get(name).map(|key| key.trim()).filter(|key| !key.is_empty());
        let key = key.ok_or("the environment variable it names is not set")?;
        if key.chars().any(char::is_control) { Err("holds control characters".into()) } else { Ok(ApiKey::new(key)) }
    }

    pub(super) fn quota(&mut self, raw: &raw::Quota) -> Option<quota::Settings> {
        const MOST: u32 = 1_000_000_000;
        let calls = self.small("quota.calls_per_minute", raw.calls_per_minute, 0, MOST);
        let tokens = self.small("quota.tokens_per_minute", raw.tokens_per_minute, 0, MOST);
        let default = Limits { calls: calls?, tokens: tokens? };
        let mut tenants = std::collections::BTreeMap::new();
        for (tenant, limits) in &raw.tenants {
            let given = |value: Option<u64>, default: u32| match value {
                Some(value) => u32::try_from(value).ok().filter(|value| *value <= MOST),
                None => Some(default),
            };
            let calls = given(limits.calls_per_minute, default.calls);
            let tokens = given(limits.tokens_per_minute, default.tokens);
            let (Some(calls), Some(tokens)) = (calls, tokens) else {
                return self.fail("quota.tenants", format!("`{tenant}`: expected 0 to {MOST}"));
            };
            tenants.insert(tenant.clone(), Limits { calls, tokens });
        }
        Some(quota::Settings { default, tenants })
    }
}

/// # Errors
/// What is wrong with it. Messages do not repeat the URL: people put keys into it.
pub(super) fn base_url(text: &str) -> Result<String, String> {
    let fault = match reqwest::Url::parse(text) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() => {
            "expected http:// or https:// with a host, such as https://api.openai.com/v1"
        }
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            "holds a user name or password; put the key into llm.api_key or llm.api_key_file"
        }
        Ok(url) if url.query().is_some() || url.fragment().is_some() => {
            "holds a query or a fragment; put the key into llm.api_key or llm.api_key_file"
        }
        Ok(_) => return Ok(text.trim_end_matches('/').to_owned()),
        Err(error) => return Err(format!("expected a URL such as https://api.openai.com/v1: {error}")),
    };
    Err(fault.into())
}

/// Scheme, host and port.
fn same_host(one: &str, other: &str) -> bool {
    match (reqwest::Url::parse(one), reqwest::Url::parse(other)) {
        (Ok(one), Ok(other)) => one.origin() == other.origin(),
        (Ok(_) | Err(_), _) => false,
    }
}

/// The key that a file holds.
///
/// # Errors
/// What is wrong with the file; never what it holds.
pub(super) fn key_in(path: &Path) -> Result<ApiKey, String> {
    let mut key = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MAX_KEY_BYTES + 1).read_to_string(&mut key));
    let key = key.trim();
    match read {
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
        Ok(_) if key.is_empty() => Err(format!("{} is empty", path.display())),
        Ok(_) if key.len() as u64 > MAX_KEY_BYTES || key.chars().any(char::is_control) => {
            Err(format!("{} does not hold a key on a line of its own", path.display()))
        }
        Ok(_) => Ok(ApiKey::new(key)),
    }
}
