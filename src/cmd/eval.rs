//! `pointsman eval`: scores a labelled set and prints the figures.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::ValueEnum;
use pointsman::evaluate::{self, Stage};

use super::block_on;
use super::failure::Failure;
use super::options::{Format, Options, with_registry};
use super::progress::{rows_bar, show};

/// Score a labelled set, as docs/SCORING.md describes.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// Labelled utterances, one JSON object a line.
    #[arg(long, value_name = "FILE")]
    pub queries: PathBuf,
    /// How far each request goes.
    #[arg(long, value_enum, default_value_t = StageArg::Route)]
    pub stage: StageArg,
    /// Ask each row against its own candidates instead of the whole registry.
    #[arg(long)]
    pub candidates: bool,
    /// Make the first N rows per tool of --examples-from example utterances.
    #[arg(long, value_name = "N", requires = "examples_from")]
    pub examples: Option<NonZeroUsize>,
    /// Labelled utterances to take the examples from; they are not scored.
    #[arg(long, value_name = "FILE", requires = "examples")]
    pub examples_from: Option<PathBuf>,
    /// Set plain BM25, dense alone and reciprocal-rank fusion beside the router's ranking.
    #[arg(long)]
    pub baselines: bool,
    /// Ask each row that has a right tool a second time without that tool; then none fits. At the stage `route`.
    #[arg(long)]
    pub hide_answers: bool,
    /// Score N rows, drawn without replacement.
    #[arg(long, value_name = "N")]
    pub limit: Option<NonZeroUsize>,
    /// Seed of the draw.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Leave signals out of the ranking, such as boundary,clause: what are they worth?
    #[arg(long, value_name = "SIGNAL", value_delimiter = ',')]
    pub without: Vec<String>,
    /// Add the wrong choices, grouped by the tool wanted and the tool chosen; at the stage `route`.
    #[arg(long)]
    pub confusions: bool,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StageArg {
    Prefilter,
    Route,
}

/// Figures go to standard output, everything else to standard error.
pub fn run(args: Args) -> Result<(), Failure> {
    if args.confusions && args.stage == StageArg::Prefilter {
        return Err(Failure::unusable(anyhow::anyhow!("the prefilter chooses no tool"))
            .remedy("--confusions goes with --stage route"));
    }
    if args.hide_answers && args.stage == StageArg::Prefilter {
        let error = anyhow::anyhow!("--hide-answers asks for whole answers, --stage prefilter for rankings");
        return Err(Failure::unusable(error).remedy("leave one of them out"));
    }
    let without = args.without.iter().map(|signal| ("prefilter.without".to_owned(), signal.clone()));
    let settings = args.options.load_for_rows(without.collect())?;
    with_registry(&settings, "score")?;
    let options = evaluate::Options {
        queries: args.queries,
        stage: match args.stage {
            StageArg::Prefilter => Stage::Prefilter,
            StageArg::Route => Stage::Route,
        },
        candidates: args.candidates,
        examples: args.examples.map(NonZeroUsize::get).zip(args.examples_from),
        baselines: args.baselines,
        hide_answers: args.hide_answers,
        limit: args.limit.map(NonZeroUsize::get),
        seed: args.seed,
        confusions: args.confusions,
    };
    let bar = rows_bar();
    let result = block_on(async {
        let scored = evaluate::evaluate(&options, settings.pipeline, &|progress| show(&bar, progress)).await;
        scored.map_err(|error| Failure::of(error.is_input(), error))
    });
    bar.finish_and_clear();
    let report = result?;
    match args.format {
        Format::Text => print!("{}", report.to_text()),
        Format::Json => println!("{}", report.to_json()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;
    use crate::cmd::parse;

    #[test]
    fn flags_have_the_documented_defaults() {
        let args = parse::<Args>("--registry a.yaml --queries q.jsonl").unwrap();
        assert_eq!((args.stage, args.format, args.seed), (StageArg::Route, Format::Text, 0));
        assert_eq!((args.limit, args.examples, args.candidates), (None, None, false));
        let args = parse::<Args>(
            "--registry a --registry b --queries q --stage prefilter --candidates --limit 5 --seed 9 --format json",
        );
        assert_eq!(args.map(|args| (args.stage, args.seed)), Ok((StageArg::Prefilter, 9)));
    }

    #[test]
    fn flags_that_need_each_other_are_asked_for() {
        let error = |flags: &str| parse::<Args>(flags).unwrap_err();
        assert_eq!(error("--registry a"), ErrorKind::MissingRequiredArgument);
        assert_eq!(error("--registry a --queries q --examples 3"), ErrorKind::MissingRequiredArgument);
        assert_eq!(error("--registry a --queries q --examples-from f"), ErrorKind::MissingRequiredArgument);
        assert_eq!(error("--registry a --queries q --limit 0"), ErrorKind::ValueValidation);
        assert!(parse::<Args>("--registry a --queries q --examples 3 --examples-from f").is_ok());
    }
}
