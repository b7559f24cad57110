//! Asking an MCP server for its tools, once.
//!
//! Owns: which arguments name a server, what it is called.
//! Does not know: what makes a card of a tool.
//!
//! A server is described as in the configuration, so that headers and variables obey the same rules.

use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use pointsman::config::{Loaded, PREFIX, Sources};
use pointsman::execute::mcp::{ListError, ToolServer, list_once};
use serde_json::json;
use toml::{Table, Value};

use super::Args;
use crate::cmd::block_on;
use crate::cmd::failure::Failure;
use crate::cmd::options::environment;

/// A server as the command line names it.
pub(super) struct Server {
    /// For messages: without query and user information, which may hold keys.
    pub shown: String,
    /// What its registry is called unless `--name` says otherwise.
    pub name: String,
    entry: Table,
    timeout: Duration,
}

/// The server that `args` mean; `None` for a file.
pub(super) fn named(args: &Args) -> Result<Option<Server>, Failure> {
    let mut entry = Table::new();
    let url = args.source.as_deref().and_then(Path::to_str).filter(|source| is_url(source));
    let (shown, name) = match (url, args.command.split_first()) {
        (Some(url), _) => {
            let bare = without_secrets(url);
            let host = bare.split("://").nth(1).unwrap_or_default().split('/').next().unwrap_or_default();
            entry.insert("url".into(), url.into());
            // Whoever types an address means it, wherever it is.
            entry.insert("allow_private".into(), true.into());
            entry.insert("headers".into(), Value::Table(headers(&args.header)?));
            let name = host.strip_prefix('[').map_or_else(|| host.split(':').next(), |rest| rest.split(']').next());
            (bare.clone(), name.unwrap_or_default().to_owned())
        }
        (None, Some((program, _))) => {
            entry.insert("command".into(), args.command.clone().into());
            entry.insert("env".into(), args.env.clone().into());
            let stem = Path::new(program).file_stem().map(|stem| stem.to_string_lossy().into_owned());
            (format!("`{program}`"), stem.unwrap_or_default())
        }
        (None, None) => return Ok(None),
    };
    entry.insert("name".into(), "server".into());
    entry.insert("timeout_ms".into(), (i64::from(args.timeout_s) * 1_000).into());
    Ok(Some(Server { shown, name, entry, timeout: Duration::from_secs(args.timeout_s.into()) }))
}

impl Server {
    /// What is said before the wait.
    pub fn announcement(&self) -> String {
        format!("asking {} for its tools, for up to {} s", self.shown, self.timeout.as_secs())
    }

    /// The listing, in the form of an answer to `tools/list`.
    pub fn list(&self) -> Result<String, Failure> {
        let server = self.checked()?;
        let context = || format!("{} gives no list of its tools", self.shown);
        let tools = block_on(async {
            list_once(&server).await.map_err(|error| {
                let settings = matches!(error, ListError::Settings(_) | ListError::Start(_));
                Failure::of(settings, error).context(context())
            })
        })?;
        Ok(json!({"tools": tools}).to_string())
    }

    fn checked(&self) -> Result<ToolServer, Failure> {
        let list = Value::Array(vec![Value::Table(self.entry.clone())]).to_string();
        // The configuration of a server that may run here is another matter.
        let mut env = environment();
        env.retain(|key, _| !key.starts_with(PREFIX));
        let flags = vec![("registry.live".to_owned(), list)];
        let mut live = Loaded::load(&Sources { env, flags, file: None })?.settings.pipeline.live;
        live.pop().map(|source| source.server).ok_or_else(|| Failure::failed(anyhow!("the server was not understood")))
    }
}

fn is_url(source: &str) -> bool {
    source.starts_with("http://") || source.starts_with("https://")
}

fn without_secrets(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = authority.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{path}")
        }
        None => url.to_owned(),
    }
}

fn headers(given: &[String]) -> Result<Table, Failure> {
    let pair = |text: &String| {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            // Perhaps it is a value without its name, which is not repeated.
            Failure::unusable(anyhow!("--header: expected NAME=VALUE, such as Authorization=env:DESK_TOKEN"))
        })?;
        Ok((name.trim().to_owned(), Value::from(value.trim())))
    };
    given.iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(flags: &str) -> Args {
        crate::cmd::parse(flags).unwrap_or_else(|kind| panic!("{flags}: {kind}"))
    }

    #[test]
    fn an_address_or_a_program_is_a_server_and_all_else_a_file() {
        assert!(named(&args("mcp tools.json -o x")).is_ok_and(|server| server.is_none()));
        let server = |flags: &str| named(&args(flags)).ok().flatten().unwrap();
        let url = server("mcp https://me:secret@desk.example:8443/mcp?key=1 -o x --header Authorization=env:T");
        assert_eq!((url.shown.as_str(), url.name.as_str()), ("https://desk.example:8443/mcp", "desk.example"));
        assert_eq!(url.entry["headers"]["Authorization"].as_str(), Some("env:T"));
        assert_eq!(server("mcp http://[::1]:80/mcp -o x").name, "::1");
        let program = server("mcp -o x --env HOME --timeout-s 5 -- /opt/服务/desk.py --stdio");
        assert_eq!((program.shown.as_str(), program.name.as_str()), ("`/opt/服务/desk.py`", "desk"));
        assert_eq!(program.entry["command"].as_array().map(Vec::len), Some(2));
        assert_eq!(program.timeout, Duration::from_secs(5));
    }

    #[test]
    fn a_header_without_a_name_is_not_repeated() {
        let message = format!("{:?}", named(&args("mcp http://a/mcp -o x --header hunter2")).err().unwrap());
        assert!(message.contains("NAME=VALUE") && !message.contains("hunter2"), "{message}");
    }
}
