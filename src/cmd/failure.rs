//! How a command fails: exit code, chain of causes, remedy.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use pointsman::config::Problems;
use pointsman::embed::EmbedError;
use pointsman::pipeline::StartError;

/// What the shell sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exit {
    Failed,
    /// Configuration or input has to change first.
    Unusable,
}

/// Why a command did not do its work.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    error: anyhow::Error,
    remedy: Option<String>,
}

impl Failure {
    pub fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Failed, error: error.into(), remedy: None }
    }

    pub fn unusable(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Unusable, error: error.into(), remedy: None }
    }

    /// By whether the input or the configuration is at fault rather than the run.
    pub fn of(input: bool, error: impl Into<anyhow::Error>) -> Self {
        if input { Self::unusable(error) } else { Self::failed(error) }
    }

    /// What was being done; becomes the first line.
    pub fn context(mut self, doing: impl Into<String>) -> Self {
        self.error = self.error.context(doing.into());
        self
    }

    /// What the reader can do about it.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Prints to standard error.
    pub fn report(&self) -> ExitCode {
        eprint!("{}", self.render(colour()));
        ExitCode::from(match self.exit {
            Exit::Failed => 1,
            Exit::Unusable => 2,
        })
    }

    fn render(&self, colour: bool) -> String {
        let (red, green, off) = if colour { ("\x1b[1;31m", "\x1b[1;32m", "\x1b[0m") } else { ("", "", "") };
        let mut text = format!("{red}error{off}: {}\n", self.error);
        // A transparent layer repeats the text of its source.
        let mut last = self.error.to_string();
        for cause in self.error.chain().skip(1).map(ToString::to_string) {
            if cause != last {
                let _ = writeln!(text, "  caused by: {cause}");
            }
            last = cause;
        }
        if let Some(remedy) = &self.remedy {
            let _ = writeln!(text, "{green}help{off}: {remedy}");
        }
        text
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Self::unusable(problems)
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Registry(_)
            | StartError::Strict(_)
            | StartError::Rules(_)
            | StartError::Policy(_)
            | StartError::Execute(_)
            | StartError::Live(_)
            | StartError::Llm(_)
            | StartError::Fusion { .. }
            | StartError::Confidence { .. }
            | StartError::NotOwn { .. }
            | StartError::NoSuchVersion { .. }
            | StartError::NotHeld { .. }
            | StartError::Operators { .. }
            | StartError::Log(_) => Self::unusable(error),
            StartError::Embed(EmbedError::NoRuntime(_) | EmbedError::Model { .. }) => Self::unusable(error),
            StartError::Embed(EmbedError::Overloaded | EmbedError::Stopped | EmbedError::Deadline)
            | StartError::Store(_)
            | StartError::Unreadable { .. }
            | StartError::Build(_)
            | StartError::Interrupted(_) => Self::failed(error),
        }
    }
}

/// Whether standard error may be coloured.
#[allow(clippy::disallowed_methods, reason = "NO_COLOR belongs to the terminal, not to the configuration")]
pub fn colour() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_and_the_remedy_are_told_once() {
        let source = std::io::Error::other("address already in use");
        let failure = Failure::failed(source).context("cannot listen on 127.0.0.1:50051").remedy("use --listen");
        let expect =
            "error: cannot listen on 127.0.0.1:50051\n  caused by: address already in use\nhelp: use --listen\n";
        assert_eq!(failure.render(false), expect);
        assert!(failure.render(true).starts_with("\x1b[1;31merror\x1b[0m: "));
    }

    #[test]
    fn what_the_operator_has_to_mend_exits_with_2() {
        assert_eq!(Failure::from(StartError::Embed(EmbedError::NoRuntime("x".into()))).exit, Exit::Unusable);
        assert_eq!(Failure::from(StartError::Embed(EmbedError::Stopped)).exit, Exit::Failed);
        assert_eq!(Failure::from(StartError::Strict(Vec::new())).exit, Exit::Unusable);
    }
}
