//! Lints registry files as a server would serve them, without serving them.
//!
//! Owns: which parts of the settings count then, and saying what could not be looked at.
//! Does not know: the rules, flags, formats of reports.

use std::path::PathBuf;
use std::sync::Arc;

use super::EvalError;
use crate::decision::log::Target;
use crate::pipeline::{Linted, Router, Settings, StartError};
use crate::registry::lint::Language;

/// What to lint.
#[derive(Debug, Clone)]
pub struct LintOptions {
    pub files: Vec<PathBuf>,
    /// Measure which cards say the same; needs an encoder.
    pub vectors: bool,
    pub language: Language,
}

/// A router over the files alone, and what is wrong with their cards.
pub struct LintedFiles {
    pub router: Arc<Router>,
    pub linted: Linted,
    /// What was not looked at, and why.
    pub notices: Vec<String>,
    /// What the files themselves gave reason to remark, such as keys nobody reads.
    pub remarks: Vec<String>,
}

/// Reads the files, measures which cards are close, and lints them all. Nothing but the files, the encoders and the
/// store of vectors counts of the settings; without encoders, or without the store, it goes on and says so.
///
/// # Errors
/// [`EvalError::Start`] when a file cannot be read at all, or a catalog cannot be built.
pub async fn lint_files(
    options: &LintOptions,
    settings: Settings,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<LintedFiles, EvalError> {
    let mut settings = Settings {
        registries: options.files.clone(),
        stored_cards: false,
        strict: false,
        llm: None,
        policy: None,
        allow_lexical_only: false,
        ..settings
    };
    settings.rules.file = None;
    settings.log.target = Target::Off;
    let mut notices = Vec::new();
    if !options.vectors {
        settings.embed.encoders.clear();
    }
    let router = loop {
        match Router::start(settings.clone(), progress).await {
            Ok(router) => break router,
            Err(StartError::Embed(error)) if !settings.embed.encoders.is_empty() => {
                notices.push(not_measured(&format!("no encoder can be loaded: {error}"), options.language));
                settings.embed.encoders.clear();
            }
            // Its vectors only save time.
            Err(StartError::Store(error)) if settings.store.is_some() => {
                tracing::warn!(%error, "the store cannot be used; all texts are embedded anew");
                settings.store = None;
            }
            Err(error) => return Err(error.into()),
        }
    };
    if notices.is_empty() && router.is_lexical_only() {
        let reason = if options.vectors { "no encoder is configured" } else { "vectors are switched off" };
        notices.push(not_measured(reason, options.language));
    }
    let linted = router.lint(options.language, None).await.map_err(StartError::Interrupted)?;
    let remarks = linted.registry.notices.clone();
    Ok(LintedFiles { router, linted, notices, remarks })
}

fn not_measured(reason: &str, language: Language) -> String {
    match language {
        Language::English => {
            format!("which cards say the same was not measured by meaning, only their words were compared ({reason})")
        }
        Language::Chinese => format!("没有按含义测量哪些卡片相近，只比较了字词（{reason}）"),
    }
}
