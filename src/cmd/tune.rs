//! `pointsman tune`: finds the weights of each encoder's signals on labelled sets.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use pointsman::evaluate::Progress;
use pointsman::evaluate::tune::{self, TuneError};

use super::block_on;
use super::failure::Failure;
use super::options::{Format, Options};
use super::progress::{rows_bar, show};

/// Find the weights of each encoder's signals, as docs/TUNING.md describes.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// Folder with a folder per set: registry.yaml or tools.jsonl, and queries.dev.jsonl or queries.jsonl.
    #[arg(long, value_name = "DIR")]
    pub sets: PathBuf,
    /// Names of the sets to use; all without it.
    #[arg(long, value_name = "SET", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Use N rows of each set, drawn without replacement.
    #[arg(long, value_name = "N", default_value = "400")]
    pub limit: NonZeroUsize,
    /// Seed of the draw.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Write the weights into the encoders' manifests, below the folder of --models.
    #[arg(long)]
    pub write: bool,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Figures go to standard output, everything else to standard error.
pub fn run(args: Args) -> Result<(), Failure> {
    let settings = args.options.load_for_rows(Vec::new())?;
    let limit = args.limit.get();
    let options = tune::Options { sets: args.sets, only: args.only, limit, seed: args.seed };
    let bar = rows_bar();
    let show = |set: &str, at: Progress| {
        show(&bar, at);
        bar.set_prefix(set.to_owned());
    };
    let failure = |error: TuneError| Failure::of(error.is_input(), error);
    let result = block_on(async { tune::tune(&options, &settings.pipeline, &show).await.map_err(failure) });
    bar.finish_and_clear();
    let tuned = result?;
    match args.format {
        Format::Text => print!("{}", tuned.to_text()),
        Format::Json => println!("{}", tuned.to_json()),
    }
    if args.write {
        for file in tune::write(&tuned, &settings.pipeline.embed.models_dir).map_err(failure)? {
            eprintln!("written: {}", file.display());
        }
    }
    Ok(())
}
