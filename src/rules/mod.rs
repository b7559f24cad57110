//! The rules skeleton: what is certain is decided before anything is searched.
//!
//! Owns: the rule file, when a rule applies, the states of a conversation, the modes of domains, the check of every
//! rule's utterances against all rules.
//! Does not know: how a pinned tool's arguments are completed, who may use a tool, or what is chosen where no rule fires.

mod condition;
mod file;
mod read;

mod bind;
mod check;

mod apply;
mod state;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use apply::{Action, Ruling, Situation, States};
pub use bind::Rules;
pub use file::RuleFile;
pub use read::read;

/// Who may choose the tools of a domain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Rules alone: where none fires, no tool of the domain is chosen.
    Rules,
    /// As [`Mode::Rules`]; the dynamic choice is made as well, compared and logged, and not served.
    Shadow,
    /// The dynamic choice alone: rules of the domain rest.
    Dynamic,
    /// Rules first; what they leave open is chosen dynamically.
    #[default]
    RulesFirst,
}

impl Mode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rules => "rules",
            Self::Shadow => "shadow",
            Self::Dynamic => "dynamic",
            Self::RulesFirst => "rules_first",
        }
    }
}

/// Rules alone, everywhere.
pub static RULES_ALONE: Modes = Modes { default: Mode::Rules, by_domain: BTreeMap::new() };

/// The mode of each domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Modes {
    /// Of domains that are not listed, and of tools without a domain.
    pub default: Mode,
    pub by_domain: BTreeMap<String, Mode>,
}

impl Modes {
    pub fn of(&self, domain: Option<&str>) -> Mode {
        domain.and_then(|domain| self.by_domain.get(domain)).copied().unwrap_or(self.default)
    }

    /// Whether some tools are chosen by rules alone.
    pub fn withhold(&self) -> bool {
        let withholds = |mode: &Mode| matches!(mode, Mode::Rules | Mode::Shadow);
        withholds(&self.default) || self.by_domain.values().any(withholds)
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Without a file no rule fires.
    pub file: Option<PathBuf>,
    pub modes: Modes,
    /// How long an answer may wait for the dynamic choice it is compared with.
    pub shadow_wait: Duration,
}

/// One thing that is wrong with a rule file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleProblem {
    /// 1-based line in the file.
    pub line: Option<usize>,
    pub message: String,
}

/// Why a rule file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    #[error("cannot read the rule file {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// Never empty; all of them.
    #[error("the rule file cannot be used:{}", Listed(.path, .problems))]
    Problems { path: PathBuf, problems: Vec<RuleProblem> },
}

struct Listed<'a>(&'a PathBuf, &'a Vec<RuleProblem>);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in self.1 {
            let line = problem.line.map(|line| format!(":{line}")).unwrap_or_default();
            write!(f, "\n  {}{line}: {}", self.0.display(), problem.message)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
