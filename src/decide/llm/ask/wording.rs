//! Texts of the prompt, one file per language and version.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::text::Language;

/// Names the files under `prompts/`; part of every decision and of the cache key.
pub const PROMPT_VERSION: &str = "route-2";

/// Everything the model is told that does not come from cards or callers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wording {
    pub role_route: String,
    pub role_choose: String,
    pub role_fill: String,
    pub choose: String,
    pub choose_only: String,
    pub fill: String,
    pub given: String,
    pub answer: String,
    pub one_call: String,
    pub many_calls: String,
    pub form_functions: String,
    pub form_json_one: String,
    pub form_json_many: String,
    pub form_choose: String,
    pub form_fill: String,
    pub none_description: String,
    pub none_reason: String,
    pub ask_description: String,
    pub ask_choose: String,
    pub ask_tool: String,
    pub ask_missing: String,
    pub ask_arguments: String,
    pub ask_question: String,
    pub use_for: String,
    pub not_for: String,
    pub instead: String,
    pub needs: String,
    pub needs_first: String,
    pub irreversible: String,
    pub separator: String,
    pub full_stop: String,
    pub reask: String,
    pub reask_end: String,
    /// Asked when it is not even clear what to ask for.
    pub unclear: String,
}

static EN: LazyLock<Wording> = LazyLock::new(|| parse(include_str!("prompts/route-2.en.toml")));
static ZH: LazyLock<Wording> = LazyLock::new(|| parse(include_str!("prompts/route-2.zh.toml")));

fn parse(text: &str) -> Wording {
    toml::from_str(text).expect("prompt files are compiled in and tested")
}

impl Wording {
    pub fn of(language: Language) -> &'static Self {
        if language.prefers_chinese() { &ZH } else { &EN }
    }
}
