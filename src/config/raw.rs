//! The names, types and defaults of all settings. Units stand in the names; numbers are checked later.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::decide::handoff::{ByLocale, Sentences};
use crate::registry::pin::Pins;
use crate::{decide, index, retrieve, rules};

/// Whose values are never shown.
pub(super) const SECRETS: [&str; 1] = ["llm.api_key"];

/// A list of tables. Messages about it show no values: people put keys where they do not belong.
pub(super) const ENDPOINTS: &str = "llm.endpoints";

/// Likewise: of what stands beside a name, headers above all.
pub(super) const LIVE: &str = "registry.live";

/// Whose relative values in a file start at that file's folder.
pub(super) const PATHS: [&str; 14] = [
    "identity.callers",
    "identity.jwt_keys",
    "tls.cert",
    "tls.key",
    "tls.client_ca",
    "audit.file",
    "registry.files",
    "store.path",
    "embed.models_dir",
    "embed.onnxruntime",
    "rules.file",
    "gate.policy",
    "llm.api_key_file",
    "log.decisions",
];

/// Values of path settings that are no paths.
pub(super) const NO_PATHS: [&str; 3] = [IN_MEMORY, STDERR, OFF];
pub(super) const IN_MEMORY: &str = ":memory:";
pub(super) const STDERR: &str = "stderr";
pub(super) const OFF: &str = "off";

macro_rules! section {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty = $default:expr),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name { $(pub $field: $type),* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default),* }
            }
        }
    };
}

section!(Raw {
    server: Server = Server::default(),
    identity: Identity = Identity::default(),
    tls: Tls = Tls::default(),
    audit: Audit = Audit::default(),
    registry: Registry = Registry::default(),
    store: Store = Store::default(),
    embed: Embed = Embed::default(),
    index: Index = Index::default(),
    rules: Rules = Rules::default(),
    prefilter: Prefilter = Prefilter::default(),
    local: Local = Local::default(),
    llm: Llm = Llm::default(),
    quota: Quota = Quota::default(),
    handoff: Handoff = Handoff::default(),
    cache: Cache = Cache::default(),
    route: Route = Route::default(),
    gate: Gate = Gate::default(),
    execute: Execute = Execute::default(),
    result: Result = Result::default(),
    log: Log = Log::default(),
});

section!(Server {
    listen: String = "127.0.0.1:50051".into(),
    http: String = "127.0.0.1:9090".into(),
    drain_ms: u64 = 10_000,
    max_message_mb: u64 = 64,
    scopes: Option<Vec<String>> = None,
});

section!(Identity {
    callers: Option<String> = None,
    header: Option<String> = None,
    jwt_keys: Option<String> = None,
    jwt_keys_url: Option<String> = None,
    jwt_issuer: Option<String> = None,
    jwt_audience: Vec<String> = Vec::new(),
    jwt_algorithms: Vec<String> = vec!["RS256".into(), "ES256".into(), "EdDSA".into()],
    jwt_tenant_claim: String = "tenant".into(),
    jwt_leeway_s: u64 = 60,
    jwt_refresh_s: u64 = 300,
    admin_scope: String = "pointsman:admin".into(),
    operator_scope: String = "pointsman:operator".into(),
});

section!(Tls {
    cert: Option<String> = None,
    key: Option<String> = None,
    client_ca: Option<String> = None,
    require_client_cert: bool = false,
});

section!(Audit { file: String = STDERR.into() });

section!(Registry {
    files: Vec<String> = Vec::new(),
    live: Vec<LiveSource> = Vec::new(),
    strict: bool = false,
    watch: bool = true,
    watch_interval_ms: u64 = 1_000,
    history: u64 = 20,
    pins: PinsName = PinsName::All,
});

/// An MCP server whose tools are served: at `url`, run by `command`, or one of the targets of `[execute]`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LiveSource {
    pub name: String,
    pub url: Option<String>,
    /// Name → `env:NAME`, `file:PATH`, or the value itself where it is no secret.
    pub headers: BTreeMap<String, String>,
    pub allow_private: bool,
    pub command: Vec<String>,
    /// Names of environment variables.
    pub env: Vec<String>,
    pub target: Option<String>,
    pub domain: Option<String>,
    pub permissions: Vec<String>,
    pub trust_hints: bool,
    pub timeout_ms: u64,
    pub refresh_s: u64,
    pub required: bool,
}

impl Default for LiveSource {
    fn default() -> Self {
        Self {
            name: String::new(),
            url: None,
            headers: BTreeMap::new(),
            allow_private: false,
            command: Vec::new(),
            env: Vec::new(),
            target: None,
            domain: None,
            permissions: Vec::new(),
            trust_hints: false,
            timeout_ms: 10_000,
            refresh_s: 300,
            required: false,
        }
    }
}

section!(Store {
    path: Option<String> = None,
});

section!(Embed {
    models_dir: Option<String> = None,
    encoders: Vec<String> = vec!["minilm-l6-en".into(), "e5-small-zh-en".into()],
    onnxruntime: Option<String> = None,
    threads: u64 = 1,
    max_batch: u64 = 16,
    queue: u64 = 256,
    allow_lexical_only: bool = false,
});

section!(Index { mode: IndexMode = IndexMode::Auto, exact_up_to: u64 = 20_000, recall_sample: f64 = 0.01 });

section!(Rules {
    file: Option<String> = None,
    modes: BTreeMap<String, RuleMode> = BTreeMap::new(),
    default_mode: RuleMode = RuleMode::RulesFirst,
    shadow_wait_ms: u64 = 100,
});

section!(Prefilter {
    hand_on_all_up_to: u64 = 15,
    shortlist_min: u64 = 5,
    shortlist_max: u64 = 8,
    coverage: u64 = 99,
    signals: Signals = Signals::Fused,
    without: Vec<String> = Vec::new(),
    strategy: Strategy = Strategy::Auto,
});

section!(Local { min_confidence: f64 = 0.2, min_confidence_write: f64 = 0.5, no_tool_below: f64 = 0.2 });

section!(Llm {
    base_url: String = String::new(),
    model: String = String::new(),
    api_key: String = String::new(),
    api_key_file: Option<String> = None,
    endpoints: Vec<LlmEndpoint> = Vec::new(),
    mode: LlmMode = LlmMode::Functions,
    temperature: OrOff<f64> = OrOff::Value(0.0),
    seed: OrOff<i64> = OrOff::Value(7),
    timeout_ms: u64 = 20_000,
    max_attempts: u64 = 5,
    max_tokens: u64 = 0,
    max_repairs: u64 = 2,
    max_completion_tokens: u64 = 512,
    max_tools: u64 = 64,
    card_tokens: u64 = 6_000,
    prompt_form: PromptForm = PromptForm::Full,
    examples: Option<u64> = None,
    logprobs: bool = false,
    concurrency: u64 = 8,
    queue: u64 = 64,
    requests_per_minute: u64 = 0,
    hedge: bool = false,
    breaker_failures: u64 = 6,
    breaker_window_ms: u64 = 30_000,
});

/// A parameter that some endpoints refuse: `"off"` leaves it out of requests.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number or \"off\"")]
pub(super) enum OrOff<T> {
    Value(T),
    Off(Off),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Off {
    Off,
}

impl<T> OrOff<T> {
    pub fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Off(Off::Off) => None,
        }
    }
}

/// A further endpoint; what it leaves out is as in `[llm]`.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LlmEndpoint {
    pub base_url: Option<String>,
    pub model: Option<String>,
    pub api_key_file: Option<String>,
    /// Name of an environment variable.
    pub api_key_env: Option<String>,
    pub mode: Option<LlmMode>,
    pub max_tools: Option<u64>,
    pub logprobs: Option<bool>,
}

section!(Quota { calls_per_minute: u64 = 0, tokens_per_minute: u64 = 0, tenants: BTreeMap<String, TenantQuota> = BTreeMap::new() });

/// One tenant; what it leaves out is as in `[quota]`.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TenantQuota {
    pub calls_per_minute: Option<u64>,
    pub tokens_per_minute: Option<u64>,
}

section!(Handoff {
    fuse_blown: ByLocale = Sentences::default().fuse_blown,
    policy: ByLocale = Sentences::default().policy,
    budget: ByLocale = Sentences::default().budget,
});

section!(Cache {
    enabled: bool = true,
    capacity: u64 = 10_000,
    ttl_s: u64 = 3_600,
    min_confidence: f64 = 0.8,
    destructive: bool = false,
});

section!(Route { deadline_ms: u64 = 30_000, max_in_flight: u64 = 256 });

section!(Gate {
    policy: Option<String> = None,
    token_ttl_s: u64 = 600,
    idempotency_ttl_s: u64 = 86_400,
    grace_ms: u64 = 10_000,
    key_rotation_s: u64 = 86_400,
    max_calls: u64 = 1_000_000,
    max_steps: u64 = 8,
    turn_budget_ms: u64 = 60_000,
});

section!(Execute {
    targets: BTreeMap<String, ExecuteTarget> = BTreeMap::new(),
    timeout_ms: u64 = 10_000,
    retries: u64 = 1,
    max_answer_kb: u64 = 1_024,
    breaker_failures: u64 = 6,
    breaker_window_ms: u64 = 30_000,
});

/// Where tools are run: `base_url` is HTTP, `mcp` a streamable MCP endpoint, `command` an MCP program.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ExecuteTarget {
    pub base_url: Option<String>,
    pub mcp: Option<String>,
    pub command: Vec<String>,
    /// Names of environment variables that the program gets.
    pub env: Vec<String>,
    /// Name → `env:NAME`, `file:PATH` or the value itself.
    pub headers: BTreeMap<String, String>,
    pub allow_private: bool,
}

section!(Result { max_chars: u64 = 4_000, max_rows: u64 = 20 });

section!(Log {
    decisions: String = STDERR.into(),
    bodies: bool = false,
    queue: u64 = 1_024,
    level: String = "info".into(),
    format: LogFormat = LogFormat::Text,
});

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum IndexMode {
    Auto,
    Exact,
    Hnsw,
}

impl From<IndexMode> for index::Mode {
    fn from(mode: IndexMode) -> Self {
        match mode {
            IndexMode::Auto => Self::Auto,
            IndexMode::Exact => Self::Exact,
            IndexMode::Hnsw => Self::Hnsw,
        }
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PinsName {
    All,
    Imported,
    Off,
}

impl From<PinsName> for Pins {
    fn from(name: PinsName) -> Self {
        match name {
            PinsName::All => Self::All,
            PinsName::Imported => Self::Imported,
            PinsName::Off => Self::Off,
        }
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RuleMode {
    Rules,
    Shadow,
    Dynamic,
    RulesFirst,
}

impl From<RuleMode> for rules::Mode {
    fn from(mode: RuleMode) -> Self {
        match mode {
            RuleMode::Rules => Self::Rules,
            RuleMode::Shadow => Self::Shadow,
            RuleMode::Dynamic => Self::Dynamic,
            RuleMode::RulesFirst => Self::RulesFirst,
        }
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Signals {
    Fused,
    Dense,
    Lexical,
}

impl From<Signals> for retrieve::Basis {
    fn from(signals: Signals) -> Self {
        match signals {
            Signals::Fused => Self::Fused,
            Signals::Dense => Self::Dense,
            Signals::Lexical => Self::Lexical,
        }
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Strategy {
    Auto,
    Layered,
}

impl From<Strategy> for retrieve::Strategy {
    fn from(strategy: Strategy) -> Self {
        match strategy {
            Strategy::Auto => Self::Auto,
            Strategy::Layered => Self::Layered,
        }
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LlmMode {
    Functions,
    JsonSchema,
    ChooseThenFill,
}

impl From<LlmMode> for decide::llm::AnswerMode {
    fn from(mode: LlmMode) -> Self {
        match mode {
            LlmMode::Functions => Self::Functions,
            LlmMode::JsonSchema => Self::JsonSchema,
            LlmMode::ChooseThenFill => Self::ChooseThenFill,
        }
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PromptForm {
    Full,
    Compact,
}

impl From<PromptForm> for decide::llm::PromptForm {
    fn from(form: PromptForm) -> Self {
        match form {
            PromptForm::Full => Self::Full,
            PromptForm::Compact => Self::Compact,
        }
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LogFormat {
    Text,
    Json,
}

impl From<LogFormat> for super::LogFormat {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}
