//! Logs go to standard error, so that standard output holds answers alone.

use pointsman::config::{LogFormat, Settings};
use tracing_subscriber::EnvFilter;

use super::failure::{Failure, colour};

/// Installs the process-wide subscriber.
pub fn init(settings: &Settings) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&settings.log_level)
        .map_err(|err| Failure::unusable(err).context(format!("log level `{}`", settings.log_level)))?
        // These clients log bodies and addresses, which hold what users said and where our tools are.
        .add_directive("async_openai=off".parse().expect("a target and a level make a directive"))
        .add_directive("rmcp=off".parse().expect("a target and a level make a directive"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colour());
    let installed = match settings.log_format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().with_ansi(false).try_init(),
    };
    installed.map_err(|err| Failure::failed(anyhow::Error::msg(err.to_string())).context("cannot start logging"))
}
