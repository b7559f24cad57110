//! `pointsman import`: tools in somebody else's form, written as a native registry file.

mod live;

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use pointsman::registry::{self, ImportOptions, Kind, Registry};
use pointsman::tool::ToolCard;
use pointsman::types::ToolId;
use serde_json::{Value, json};

use super::failure::Failure;
use super::options::Format;
use super::terminal::plain;

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
                        pointsman import openapi shop.openapi.yaml -o shop.yaml\n  \
                        pointsman import mcp https://mcp.example/mcp --header Authorization=env:DESK_TOKEN -o desk.yaml\n  \
                        pointsman import mcp -o files.yaml --env PATH --env HOME -- npx -y some-mcp-server\n\n\
                        The file that is written says `imported: true`: what nobody stated yet has a default, and a tool \
                        without a class counts as destructive. State side_effect, permissions and timeout_ms, then \
                        remove that line to have every card checked as a native one.\n\n\
                        Exit codes: 0 done, 1 failed or, with --strict, a card was quarantined, 2 unusable input.")]
pub struct Args {
    /// Form of the source: auto, native, flat, openai, anthropic, mcp or openapi
    #[arg(value_name = "KIND", value_parser = kind)]
    kind: Chosen,
    /// File to read, JSON or YAML; `-` for standard input; http(s)://… for a live MCP server
    #[arg(required_unless_present = "command", conflicts_with = "command")]
    source: Option<PathBuf>,
    /// Program that is an MCP server on its standard streams, and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    command: Vec<String>,
    /// File to write, or `-` for standard output, which sends the report to standard error
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Overwrite the output
    #[arg(long)]
    force: bool,
    /// Write nothing and fail if any card is quarantined
    #[arg(long)]
    strict: bool,
    /// Name of the registry; default: the document's own, else that of its file, host or program
    #[arg(long)]
    name: Option<String>,
    /// Believe hints by which an MCP server lowers the class of its own tools (readOnlyHint and the like)
    #[arg(long)]
    trust_hints: bool,
    /// Have MCP tools run at this target of the configuration
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// Send this header to a live MCP server; VALUE is env:VARIABLE, file:PATH, or the text itself where it is no secret
    #[arg(long, value_name = "NAME=VALUE")]
    header: Vec<String>,
    /// Let the program have this environment variable; of all others it gets none, but for a plain PATH
    #[arg(long, value_name = "NAME", requires = "command")]
    env: Vec<String>,
    /// How long a live MCP server may take, in seconds
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=600))]
    timeout_s: u16,
    /// How to report
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Chosen(Option<Kind>);

fn kind(name: &str) -> Result<Chosen, String> {
    match Kind::parse(name) {
        Some(kind) => Ok(Chosen(Some(kind))),
        None if name == "auto" => Ok(Chosen(None)),
        None => Err(format!("expected auto or one of {}", Kind::NAMES.join(", "))),
    }
}

pub fn run(args: Args) -> Result<(), Failure> {
    let to_stdout = args.output == Path::new("-");
    if !to_stdout && !args.force && args.output.exists() {
        return Err(taken(&args.output));
    }
    let source = Source::of(&args)?;
    let registry = source.read(&args)?;
    let report = Report { args: &args, source: &source, registry: &registry };
    let refused = args.strict && !registry.quarantined.is_empty();
    let wrote = !refused && !registry.cards.is_empty();
    if wrote {
        let text = registry::to_yaml(&registry, &name_of(&args, &registry), &header(&args, &source, &registry));
        check(&args.output, &text, &registry)?;
        if to_stdout { print(&text)? } else { write_file(&args, &text)? }
    }
    let told = match args.format {
        Format::Text => report.text(wrote),
        Format::Json => format!("{:#}\n", report.json(wrote)),
    };
    if to_stdout {
        eprint!("{told}")
    } else {
        print(&told)?
    }
    if registry.cards.is_empty() {
        return Err(Failure::unusable(anyhow!("no tool of {} can be used", source.shown())));
    }
    if refused {
        let count = registry.quarantined.len();
        return Err(Failure::failed(anyhow!("{count} cards are quarantined; nothing is written")));
    }
    Ok(())
}

/// Where the tools come from.
enum Source {
    File(PathBuf),
    Input,
    Server(live::Server),
}

impl Source {
    fn of(args: &Args) -> Result<Self, Failure> {
        if let Some(server) = live::named(args)? {
            return match args.kind.0 {
                None | Some(Kind::Mcp) => Ok(Self::Server(server)),
                Some(kind) => {
                    let error =
                        anyhow!("only MCP servers are asked for their tools, and the kind is {}", kind.as_str());
                    Err(Failure::unusable(error)
                        .remedy("fetch the document first: `curl -fsS URL | pointsman import KIND - -o FILE`"))
                }
            };
        }
        if !args.header.is_empty() {
            return Err(Failure::unusable(anyhow!("--header belongs to a live MCP server, and the source is a file")));
        }
        let file = args.source.clone().unwrap_or_default();
        Ok(if file == Path::new("-") { Self::Input } else { Self::File(file) })
    }

    fn read(&self, args: &Args) -> Result<Registry, Failure> {
        let mut options =
            ImportOptions { name: args.name.clone(), trust_hints: args.trust_hints, target: args.target.clone() };
        let kind = args.kind.0;
        let read = match self {
            Self::File(path) => registry::import(kind, path, &options),
            Self::Input => {
                let shown = Path::new("stdin");
                registry::read_source(std::io::stdin().lock(), shown)
                    .and_then(|text| registry::import_text(kind, shown, &text, &options))
            }
            Self::Server(server) => {
                // A report in JSON may go to standard error, too, and stands there alone.
                if args.format == Format::Text {
                    eprintln!("{}", server.announcement());
                }
                options.name.get_or_insert_with(|| server.name.clone());
                registry::import_text(Some(Kind::Mcp), Path::new(&server.shown), &server.list()?, &options)
            }
        };
        read.map_err(Failure::unusable)
    }

    /// For messages and comments.
    fn shown(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Input => "standard input".into(),
            Self::Server(server) => server.shown.clone(),
        }
    }
}

/// What is written has to be read again, card for card: it may be larger than what it came from.
fn check(output: &Path, text: &str, registry: &Registry) -> Result<(), Failure> {
    let shown = || format!("{} is not written: it could not be read again", output.display());
    let again = registry::import_text(Some(Kind::Native), output, text, &ImportOptions::default());
    let again =
        again.map_err(|error| Failure::failed(error).context(shown()).remedy("import fewer tools into one file"))?;
    let same =
        |(id, card): (&ToolId, &Arc<ToolCard>)| again.cards.get(id).is_some_and(|read| read.hash() == card.hash());
    match registry.cards.iter().find(|entry| !same(*entry)) {
        None => Ok(()),
        Some((id, _)) => {
            Err(Failure::failed(anyhow!("`{id}` would be another card, which is a fault of this program"))
                .context(shown()))
        }
    }
}

fn name_of(args: &Args, registry: &Registry) -> String {
    let own = registry.cards.values().next().map(|card| card.source.clone());
    args.name.clone().or(own).unwrap_or_default()
}

fn header(args: &Args, source: &Source, registry: &Registry) -> String {
    let kind = args.kind.0.map_or("auto", Kind::as_str);
    let mut text = format!(
        "Imported from {} ({kind}): {} tools, {} quarantined and left out.\n\n\
         To fill in by whoever knows the tools: side_effect (read, write or destructive) where it is missing,\n\
         permissions (scopes a caller needs, [] for none), timeout_ms. Until then a tool without a class counts as\n\
         destructive. Remove `imported: true` to have every card checked as a native one.\n",
        source.shown(),
        registry.cards.len(),
        registry.quarantined.len(),
    );
    for card in registry.quarantined.iter().take(50) {
        let problem = card.problems.first().map(|problem| problem.message.as_str()).unwrap_or_default();
        let _ = writeln!(text, "Left out: {}: {}", plain(&card.card), plain(problem));
    }
    text
}

fn taken(output: &Path) -> Failure {
    Failure::unusable(anyhow!("{} exists", output.display())).remedy("overwrite it with --force")
}

/// Whole or not at all.
fn write_file(args: &Args, text: &str) -> Result<(), Failure> {
    let output = &args.output;
    let failed = |error: std::io::Error| Failure::failed(error).context(format!("cannot write {}", output.display()));
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".import-").tempfile_in(folder).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    readable(file.as_file()).map_err(failed)?;
    let kept = if args.force { file.persist(output) } else { file.persist_noclobber(output) };
    match kept {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Err(taken(output)),
        Err(error) => Err(failed(error.error)),
    }
}

/// Temporary files are their owner's alone; a registry is read by the server's account as well.
#[cfg(unix)]
fn readable(file: &File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn readable(_: &File) -> std::io::Result<()> {
    Ok(())
}

fn print(text: &str) -> Result<(), Failure> {
    let written = std::io::stdout().write_all(text.as_bytes());
    written.map_err(|error| Failure::failed(error).context("cannot write to standard output"))
}

struct Report<'a> {
    args: &'a Args,
    source: &'a Source,
    registry: &'a Registry,
}

impl Report<'_> {
    fn text(&self, wrote: bool) -> String {
        let Registry { cards, quarantined, notices, .. } = self.registry;
        let mut text = String::new();
        for card in quarantined {
            let lines = card.to_string();
            let lines: Vec<String> = lines.lines().map(plain).collect();
            let _ = writeln!(text, "quarantined: {}", lines.join("\n"));
        }
        for notice in notices {
            let _ = writeln!(text, "note: {}", plain(notice));
        }
        let read = cards.len() + quarantined.len();
        let _ = writeln!(text, "{read} tools read, {} usable, {} quarantined", cards.len(), quarantined.len());
        if wrote {
            let _ = writeln!(text, "written to {}", self.args.output.display());
        }
        text
    }

    fn json(&self, wrote: bool) -> Value {
        let Registry { cards, quarantined, notices, .. } = self.registry;
        let report = quarantined.iter().map(|card| {
            let problems = card
                .problems
                .iter()
                .map(|problem| json!({"pointer": problem.pointer, "line": problem.line, "message": problem.message}));
            json!({"card": card.card, "source": card.source, "problems": problems.collect::<Vec<_>>()})
        });
        json!({
            "source": self.source.shown(),
            "output": wrote.then(|| self.args.output.display().to_string()),
            "read": cards.len() + quarantined.len(),
            "usable": cards.len(),
            "undeclared_side_effect": cards.values().filter(|card| !card.side_effect_declared).count(),
            "quarantined": report.collect::<Vec<_>>(),
            "notices": notices,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named_or_left_to_the_content() {
        assert_eq!(kind("auto"), Ok(Chosen(None)));
        assert_eq!(kind("openapi"), Ok(Chosen(Some(Kind::OpenApi))));
        assert!(kind("swagger").unwrap_err().contains("auto or one of native, flat, openai"));
        let args: Args = crate::cmd::parse("mcp - -o out.yaml --trust-hints").unwrap_or_else(|_| panic!("usable"));
        assert!(args.trust_hints && !args.force && args.source.as_deref() == Some(Path::new("-")));
        assert!(crate::cmd::parse::<Args>("mcp tools.json").is_err(), "the output has to be named");
    }
}
