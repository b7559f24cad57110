//! `pointsman config`: what would be in force, and why.

use std::io::Write as _;

use clap::Subcommand;

use super::failure::Failure;
use super::options::{Format, Options};

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Report all problems of the configuration at once; exit code 2 if there are any
    Check {
        #[command(flatten)]
        options: Options,
    },
    /// Print every value with where it came from; secrets are masked
    Print {
        #[command(flatten)]
        options: Options,
        /// How to print
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
}

pub fn run(args: Args) -> Result<(), Failure> {
    let text = match args.action {
        Action::Check { options } => {
            options.load(Vec::new())?;
            "the configuration is usable\n".to_owned()
        }
        Action::Print { options, format } => {
            let loaded = options.load(Vec::new())?;
            match format {
                Format::Text => loaded.print_text(),
                Format::Json => loaded.print_json(),
            }
        }
    };
    let end = if text.ends_with('\n') { "" } else { "\n" };
    write!(std::io::stdout(), "{text}{end}")
        .map_err(|err| Failure::failed(err).context("cannot write to standard output"))
}
