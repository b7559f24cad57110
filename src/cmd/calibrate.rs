//! `pointsman calibrate`: fits the confidence to labelled sets, as docs/CALIBRATION.md describes.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use pointsman::evaluate::{self, CalibrateOptions, CalibrationSet};

use super::block_on;
use super::failure::Failure;
use super::options::{Options, with_registry};
use super::progress::{rows_bar, show};

/// Fit the confidence of each encoder to labelled sets, as docs/CALIBRATION.md describes.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// Labelled utterances for the registry of --registry, one JSON object a line.
    #[arg(long, value_name = "FILE")]
    pub queries: PathBuf,
    /// Labelled utterances of which those without a right tool are asked as well; may be given several times.
    #[arg(long, value_name = "FILE")]
    pub negatives: Vec<PathBuf>,
    /// A further set with a registry of its own; may be given several times.
    #[arg(long, num_args = 2, value_names = ["REGISTRY", "QUERIES"], action = clap::ArgAction::Append)]
    pub and: Vec<PathBuf>,
    /// Ask at most N rows of each file, drawn without replacement.
    #[arg(long, value_name = "N")]
    pub limit: Option<NonZeroUsize>,
    /// Seed of the draw.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Write features and outcome of each answer to a file, one JSON object a line.
    #[arg(long, value_name = "FILE")]
    pub rows: Option<PathBuf>,
    /// Store the coefficients in the manifests of the models folder.
    #[arg(long)]
    pub write: bool,
}

/// The tables go to standard output, everything else to standard error.
pub fn run(args: Args) -> Result<(), Failure> {
    let settings = args.options.load_for_rows(Vec::new())?;
    with_registry(&settings, "ask")?;
    let models_dir = settings.pipeline.embed.models_dir.clone();
    let first = CalibrationSet {
        registries: settings.pipeline.registries.clone(),
        queries: args.queries,
        negatives: args.negatives,
    };
    let further = args.and.chunks_exact(2).map(|pair| CalibrationSet {
        registries: vec![pair[0].clone()],
        queries: pair[1].clone(),
        negatives: Vec::new(),
    });
    let options = CalibrateOptions {
        sets: std::iter::once(first).chain(further).collect(),
        limit: args.limit.map(NonZeroUsize::get),
        seed: args.seed,
    };
    let bar = rows_bar();
    let result = block_on(async {
        let fitted = evaluate::calibrate(&options, settings.pipeline, &|progress| show(&bar, progress)).await;
        fitted.map_err(|error| Failure::of(error.is_input(), error))
    });
    bar.finish_and_clear();
    let calibrated = result?;
    print!("{}", calibrated.to_text());
    if let Some(path) = &args.rows {
        write_rows(path, calibrated.rows())
            .map_err(|error| Failure::failed(error).context(format!("cannot write {}", path.display())))?;
    }
    if args.write {
        for file in calibrated.write(&models_dir).map_err(Failure::failed)? {
            eprintln!("wrote {}", file.display());
        }
        eprintln!("put the thresholds above into [local] of the configuration");
    } else {
        eprintln!("nothing was written; --write stores each [confidence] with its encoder in {}", models_dir.display());
    }
    Ok(())
}

fn write_rows(path: &Path, rows: impl Iterator<Item = serde_json::Value>) -> std::io::Result<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for row in rows {
        writeln!(file, "{row}")?;
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;
    use crate::cmd::parse;

    #[test]
    fn further_sets_come_in_pairs() {
        let args =
            parse::<Args>("--registry a --queries q --and b c --and d e --negatives n --limit 3 --write").unwrap();
        assert_eq!(args.and, ["b", "c", "d", "e"].map(PathBuf::from));
        assert_eq!((args.negatives.len(), args.write, args.seed), (1, true, 0));
        assert_eq!(parse::<Args>("--registry a --queries q --and b").unwrap_err(), ErrorKind::WrongNumberOfValues);
        assert_eq!(parse::<Args>("--registry a").unwrap_err(), ErrorKind::MissingRequiredArgument);
    }
}
