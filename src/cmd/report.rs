//! `pointsman report`: scores every labelled set below a folder and writes the document about them.

use std::io::IsTerminal as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use indicatif::ProgressBar;
use pointsman::evaluate::{self, About, Progress, Published, Run, Suite, SuitePlan};
use pointsman::pipeline;
use pointsman::types::encoding::hex;
use sha2::{Digest, Sha256};

use super::block_on;
use super::failure::Failure;
use super::options::Options;
use super::progress::{rows_bar, show};

/// Score every labelled set below a folder and write a document with the figures.
///
/// Each set is scored with the registry in its folder. Figures are kept a file per set, so a run that was cut off goes
/// on where it stopped; they are scored anew when the program, its settings or the set have changed.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// Folder with a folder per set: registry.yaml or tools.jsonl, and queries.dev.jsonl or queries.jsonl.
    #[arg(long, value_name = "DIR")]
    sets: PathBuf,
    /// Score this set alone; may be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Markdown file to write.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Folder for figures and vectors that are done.
    #[arg(long, value_name = "DIR", default_value = "target/eval")]
    keep: PathBuf,
    /// What single sets get besides a ranking and a decision of every row (TOML).
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Figures of others to set ours beside (TOML).
    #[arg(long, value_name = "FILE")]
    published: Option<PathBuf>,
    /// Score N rows per run, drawn without replacement.
    #[arg(long, value_name = "N")]
    limit: Option<NonZeroUsize>,
    /// Seed of the draw.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// How the document is made, for its first line; default: this command without its folders.
    #[arg(long, value_name = "TEXT")]
    made_by: Option<String>,
}

/// Only the document is written; progress goes to standard error.
pub fn run(args: Args) -> Result<(), Failure> {
    let store = args.keep.join("vectors.db").display().to_string();
    let settings = args.options.load_for_rows(vec![("store.path".into(), store)])?;
    let plan: SuitePlan = read(args.plan.as_deref())?;
    let published: Published = read(args.published.as_deref())?;
    let suite = Suite {
        sets: args.sets,
        kept: args.keep,
        only: args.only,
        plan,
        limit: args.limit.map(NonZeroUsize::get),
        seed: args.seed,
        key: key(&settings.pipeline)?,
    };
    let watch = Watch::default();
    let result = block_on(async {
        let scored = evaluate::score_suite(&suite, &settings.pipeline, &|set, run, at| watch.show(set, run, at)).await;
        scored.map_err(failure)
    });
    watch.bar.finish_and_clear();
    let sets = result?;
    let about = About {
        command: args.made_by.unwrap_or_else(|| command(&suite)),
        version: env!("CARGO_PKG_VERSION").into(),
        limit: suite.limit,
        seed: suite.seed,
        machine: machine(),
    };
    evaluate::write_whole(&args.out, &evaluate::document(&about, &sets, &suite.plan, &published)).map_err(failure)
}

fn failure(error: evaluate::SuiteError) -> Failure {
    Failure::of(error.is_input(), error)
}

fn read<T: Default + for<'de> serde::Deserialize<'de>>(path: Option<&Path>) -> Result<T, Failure> {
    path.map_or_else(|| Ok(T::default()), |path| evaluate::read_toml(path).map_err(failure))
}

/// A bar where somebody watches, else a line per run.
struct Watch {
    bar: ProgressBar,
    watched: bool,
    told: Mutex<String>,
}

impl Default for Watch {
    fn default() -> Self {
        Self { bar: rows_bar(), watched: std::io::stderr().is_terminal(), told: Mutex::default() }
    }
}

impl Watch {
    fn show(&self, set: &str, run: Run, at: Progress) {
        let name = format!("{set} {}", run.as_str());
        if self.watched {
            show(&self.bar, at);
            self.bar.set_prefix(name);
        } else if let Ok(mut told) = self.told.lock()
            && *told != name
        {
            eprintln!("{name}");
            *told = name;
        }
    }
}

/// Stands for the program, its settings and its encoders' manifests: figures under another key are scored anew.
fn key(settings: &pipeline::Settings) -> Result<String, Failure> {
    let mut hash = Sha256::new();
    let program = std::env::current_exe().and_then(std::fs::read);
    hash.update(program.map_err(|err| Failure::failed(err).context("cannot read the program's own file"))?);
    // Secrets show as stars.
    hash.update(format!("{settings:?}"));
    for encoder in &settings.embed.encoders {
        // An encoder of a hub has none.
        hash.update(std::fs::read(settings.embed.models_dir.join(encoder).join("manifest.toml")).unwrap_or_default());
    }
    Ok(hex(&hash.finalize()))
}

/// Without folders: those are names on one machine.
fn command(suite: &Suite) -> String {
    let only: String = suite.only.iter().map(|name| format!(" --only {name}")).collect();
    let drawn = suite.limit.map(|limit| format!(" --limit {limit} --seed {}", suite.seed)).unwrap_or_default();
    format!("pointsman report --sets SETS{only}{drawn}")
}

/// `Processor name, N cores`.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let known = std::fs::read_to_string("/proc/cpuinfo").ok();
    let name = known.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("model name")));
    let name = name.map_or(std::env::consts::ARCH, |rest| rest.trim_start_matches([' ', '\t', ':']));
    format!("{name}, {cores} cores")
}
