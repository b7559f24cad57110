//! From raw values to the settings of each module; every problem of every section in one go.

mod endpoints;
mod identity;
mod live;
mod targets;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use super::layers::{DEFAULT, Layered};
use super::raw::{self, Raw};
use super::{Problems, ServerSettings, Settings};
use crate::decide::handoff::{ByLocale, Sentences};
use crate::registry::suggest;
use crate::types::Signal;
use crate::{cache, decide, decision, embed, index, pipeline, retrieve, rules};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// More tools than this in one prompt are remarked on.
const MANY_TOOLS: u64 = 15;

/// `None` only with a problem added.
pub(super) fn validate(
    layered: &Layered,
    env: &BTreeMap<String, String>,
    problems: &mut Problems,
    notices: &mut Vec<String>,
) -> Option<Settings> {
    let mut check = Check { origins: &layered.origins, env, problems };
    let raw = &layered.raw;
    // Each section is read before the first `?`, so that none hides the problems of another.
    let server = check.server(raw, notices);
    let embed = check.embed(&raw.embed);
    let index = check.index(&raw.index);
    let rules = check.rules(&raw.rules);
    let retrieve = check.prefilter(&raw.prefilter, notices);
    let local = check.local(&raw.local);
    let quota = check.quota(&raw.quota);
    let llm = check.llm(&raw.llm, quota, notices);
    let handoff = check.handoff(&raw.handoff);
    let cache = check.cache(&raw.cache);
    let gate = check.gate(&raw.gate);
    let policy = check.path("gate.policy", &raw.gate.policy);
    let execute = check.execute(&raw.execute);
    let live = check.live(&raw.registry.live, execute.as_ref().map(|execute| &execute.targets));
    let result = check.result(&raw.result);
    let log = check.log(&raw.log);
    let log_level = check.log_level(&raw.log.level);
    let deadline = check.duration("route.deadline_ms", raw.route.deadline_ms, 1, 1);
    let max_in_flight = check.count("route.max_in_flight", raw.route.max_in_flight, 1, 1_000_000);
    let registries = check.paths("registry.files", &raw.registry.files);
    let history = check.count("registry.history", raw.registry.history, 1, 1000);
    let store = check.store(raw);
    let pipeline = pipeline::Settings {
        registries: registries?,
        live: live?,
        strict: raw.registry.strict,
        store: store?,
        embed: embed?,
        allow_lexical_only: raw.embed.allow_lexical_only,
        index: index?,
        retrieve: retrieve?,
        rules: rules?,
        local: local?,
        llm: llm?,
        handoff: handoff?,
        cache: cache?,
        log: log?,
        deadline: deadline?,
        max_in_flight: max_in_flight?,
        gate: gate?,
        policy: policy?,
        execute: execute?,
        result: result?,
        log_bodies: raw.log.bodies,
        stored_cards: true,
        history: history?,
        pins: raw.registry.pins.into(),
        extra_examples: BTreeMap::new(),
    };
    Some(Settings { server: server?, pipeline, log_level: log_level?, log_format: raw.log.format.into() })
}

struct Check<'a> {
    origins: &'a BTreeMap<String, String>,
    env: &'a BTreeMap<String, String>,
    problems: &'a mut Problems,
}

impl Check<'_> {
    fn origin(&self, key: &str) -> &str {
        self.origins.get(key).map_or(DEFAULT, String::as_str)
    }

    fn fail<T>(&mut self, key: &str, message: impl Into<String>) -> Option<T> {
        let origin = self.origin(key).to_owned();
        self.problems.add(key, &origin, message);
        None
    }

    fn count(&mut self, key: &str, value: u64, min: u64, max: u64) -> Option<usize> {
        match usize::try_from(value) {
            Ok(count) if (min..=max).contains(&value) => Some(count),
            Ok(_) | Err(_) => self.fail(key, format!("expected {min} to {max}, found {value}")),
        }
    }

    fn small(&mut self, key: &str, value: u64, min: u64, max: u32) -> Option<u32> {
        self.count(key, value, min, max.into()).and_then(|count| u32::try_from(count).ok())
    }

    /// `unit_ms` milliseconds per unit; at most a day.
    fn duration(&mut self, key: &str, value: u64, unit_ms: u64, min: u64) -> Option<Duration> {
        self.count(key, value, min, DAY_MS / unit_ms).map(|_| Duration::from_millis(value * unit_ms))
    }

    fn ratio(&mut self, key: &str, value: f64) -> Option<f32> {
        if (0.0..=1.0).contains(&value) {
            Some(value as f32)
        } else {
            self.fail(key, format!("expected 0 to 1, found {value}"))
        }
    }

    fn address(&mut self, key: &str, text: &str) -> Option<std::net::SocketAddr> {
        match text.parse() {
            Ok(address) => Some(address),
            Err(_) => self.fail(key, format!("expected an address with port such as 127.0.0.1:50051, found `{text}`")),
        }
    }

    fn paths(&mut self, key: &str, paths: &[String]) -> Option<Vec<PathBuf>> {
        if paths.iter().any(|path| path.trim().is_empty()) {
            return self.fail(key, "a path is empty");
        }
        Some(paths.iter().map(PathBuf::from).collect())
    }

    fn path(&mut self, key: &str, path: &Option<String>) -> Option<Option<PathBuf>> {
        Some(self.paths(key, path.as_slice())?.pop())
    }

    fn server(&mut self, all: &Raw, notices: &mut Vec<String>) -> Option<ServerSettings> {
        let raw = &all.server;
        let identity = self.identity(&all.identity, &raw.scopes, notices);
        let tls = self.tls(&all.tls);
        let audit = self.audit(&all.audit);
        let listen = self.address("server.listen", &raw.listen);
        let http = self.address("server.http", &raw.http);
        let interval = self.duration("registry.watch_interval_ms", all.registry.watch_interval_ms, 1, 10);
        let drain = self.duration("server.drain_ms", raw.drain_ms, 1, 0);
        let megabytes = self.count("server.max_message_mb", raw.max_message_mb, 1, 1024);
        if let (Some(listen), Some(http)) = (listen, http)
            && listen == http
            && listen.port() != 0
        {
            return self.fail("server.http", format!("{http} is the address of server.listen; choose another port"));
        }
        Some(ServerSettings {
            listen: listen?,
            http: http?,
            drain: drain?,
            max_message_bytes: megabytes? * 1024 * 1024,
            identity: identity?,
            tls: tls?,
            audit: audit?,
            watch: Some(interval?).filter(|_| all.registry.watch),
        })
    }

    fn store(&mut self, raw: &Raw) -> Option<Option<PathBuf>> {
        match raw.store.path.as_deref() {
            Some(raw::IN_MEMORY) => Some(None),
            Some(_) | None => self.path("store.path", &raw.store.path),
        }
    }

    fn embed(&mut self, raw: &raw::Embed) -> Option<embed::Settings> {
        let models_dir = self.path("embed.models_dir", &raw.models_dir);
        let onnxruntime = self.path("embed.onnxruntime", &raw.onnxruntime);
        let threads = self.count("embed.threads", raw.threads, 1, 256);
        let max_batch = self.count("embed.max_batch", raw.max_batch, 1, 1024);
        let queue = self.count("embed.queue", raw.queue, 1, 1_000_000);
        let is_folder = |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\']);
        // With one slash it is a model of a hub, which the encoders know how to take or to refuse.
        let is_known = |name: &str| match name.split_once('/') {
            Some((owner, model)) => is_folder(owner) && is_folder(model),
            None => is_folder(name),
        };
        let encoders: Option<()> = if raw.encoders.is_empty() && !raw.allow_lexical_only {
            self.fail("embed.encoders", "name at least one encoder, or set embed.allow_lexical_only = true")
        } else if let Some(name) = raw.encoders.iter().find(|name| !is_known(name)) {
            self.fail(
                "embed.encoders",
                format!("expected names of folders in embed.models_dir, or owner/model of a hub, found `{name}`"),
            )
        } else {
            Some(())
        };
        encoders?;
        Some(embed::Settings {
            models_dir: models_dir?.unwrap_or_else(|| "models".into()),
            encoders: raw.encoders.clone(),
            onnxruntime: onnxruntime?,
            threads: threads?,
            max_batch: max_batch?,
            queue: queue?,
        })
    }

    fn index(&mut self, raw: &raw::Index) -> Option<index::Settings> {
        let exact_up_to = self.count("index.exact_up_to", raw.exact_up_to, 0, 10_000_000);
        let recall_sample = self.ratio("index.recall_sample", raw.recall_sample);
        Some(index::Settings { mode: raw.mode.into(), exact_up_to: exact_up_to?, recall_sample: recall_sample? })
    }

    fn rules(&mut self, raw: &raw::Rules) -> Option<rules::Settings> {
        let file = self.path("rules.file", &raw.file);
        let shadow_wait = self.duration("rules.shadow_wait_ms", raw.shadow_wait_ms, 1, 0);
        let by_domain = raw.modes.iter().map(|(domain, mode)| (domain.clone(), rules::Mode::from(*mode))).collect();
        let modes = rules::Modes { default: raw.default_mode.into(), by_domain };
        if raw.file.is_none() && modes.withhold() {
            return self.fail("rules.file", "name the rule file: a mode leaves tools to rules alone");
        }
        Some(rules::Settings { file: file?, modes, shadow_wait: shadow_wait? })
    }

    fn prefilter(&mut self, raw: &raw::Prefilter, notices: &mut Vec<String>) -> Option<retrieve::Settings> {
        const MOST: u64 = 1_000;
        for (key, value) in [("hand_on_all_up_to", raw.hand_on_all_up_to), ("shortlist_max", raw.shortlist_max)] {
            if value > MANY_TOOLS {
                notices.push(format!(
                    "prefilter.{key} = {value} puts more than {MANY_TOOLS} tools into one prompt; the more tools it holds, the \
                     more often a model takes a wrong one"
                ));
            }
        }
        let hand_on_all_up_to = self.count("prefilter.hand_on_all_up_to", raw.hand_on_all_up_to, 0, MOST);
        let shortlist_min = self.count("prefilter.shortlist_min", raw.shortlist_min, 1, MOST);
        let shortlist_max = self.count("prefilter.shortlist_max", raw.shortlist_max, 1, MOST);
        if raw.shortlist_min > raw.shortlist_max {
            let message = format!(
                "expected at most prefilter.shortlist_max ({}), found {}",
                raw.shortlist_max, raw.shortlist_min
            );
            return self.fail("prefilter.shortlist_min", message);
        }
        let Some(coverage) = u8::try_from(raw.coverage).ok().and_then(retrieve::Coverage::of_percent) else {
            let message = format!("expected one of {:?}, found {}", retrieve::Coverage::PERCENTS, raw.coverage);
            return self.fail("prefilter.coverage", message);
        };
        let without = self.signals("prefilter.without", &raw.without);
        Some(retrieve::Settings {
            hand_on_all_up_to: hand_on_all_up_to?,
            shortlist_min: shortlist_min?,
            shortlist_max: shortlist_max?,
            coverage,
            basis: raw.signals.into(),
            without: without?,
            strategy: raw.strategy.into(),
        })
    }

    fn signals(&mut self, key: &str, named: &[String]) -> Option<BTreeSet<Signal>> {
        let mut signals = BTreeSet::new();
        for name in named.iter().map(|name| name.trim()) {
            let Some(signal) = Signal::parse(name) else {
                let names = Signal::ALL.map(Signal::as_str);
                let hint = suggest(name, names);
                return self.fail(key, format!("expected some of {}, found `{name}`{hint}", names.join(", ")));
            };
            signals.insert(signal);
        }
        Some(signals)
    }

    fn local(&mut self, raw: &raw::Local) -> Option<decide::local::Settings> {
        let min_confidence = self.ratio("local.min_confidence", raw.min_confidence);
        let min_confidence_write = self.ratio("local.min_confidence_write", raw.min_confidence_write);
        let no_tool_below = self.ratio("local.no_tool_below", raw.no_tool_below);
        for (key, value) in [("min_confidence", raw.min_confidence), ("min_confidence_write", raw.min_confidence_write)]
        {
            if raw.no_tool_below > value {
                let message = format!("expected at most local.{key} ({value}), found {}", raw.no_tool_below);
                self.fail::<()>("local.no_tool_below", message);
            }
        }
        Some(decide::local::Settings {
            min_confidence: min_confidence?,
            min_confidence_write: min_confidence_write?,
            no_tool_below: no_tool_below?,
        })
    }

    /// `Some(None)` without an endpoint; its other settings are checked all the same.
    fn llm(
        &mut self,
        raw: &raw::Llm,
        quota: Option<decide::llm::quota::Settings>,
        notices: &mut Vec<String>,
    ) -> Option<Option<decide::llm::Settings>> {
        let base_url = self.base_url(&raw.base_url);
        let api_key = self.api_key(raw);
        let temperature = match raw.temperature.value() {
            Some(value) if !(0.0..=2.0).contains(&value) => {
                self.fail("llm.temperature", format!("expected 0 to 2, or \"off\", found {value}"))
            }
            temperature => Some(temperature.map(|value| value as f32)),
        };
        let timeout = self.duration("llm.timeout_ms", raw.timeout_ms, 1, 1);
        let max_attempts = self.small("llm.max_attempts", raw.max_attempts, 1, 100);
        let max_tokens = self.small("llm.max_tokens", raw.max_tokens, 0, 100_000_000);
        let max_repairs = self.small("llm.max_repairs", raw.max_repairs, 0, 100);
        let max_completion_tokens = self.small("llm.max_completion_tokens", raw.max_completion_tokens, 1, 1_000_000);
        let max_tools = self.count("llm.max_tools", raw.max_tools, 1, 10_000);
        let card_tokens = self.count("llm.card_tokens", raw.card_tokens, 0, 10_000_000);
        let examples = match raw.examples {
            Some(count) => self.count("llm.examples", count, 0, 100).map(Some),
            None => Some(None),
        };
        let concurrency = self.count("llm.concurrency", raw.concurrency, 1, 10_000);
        let queue = self.count("llm.queue", raw.queue, 0, 1_000_000);
        let requests_per_minute = self.small("llm.requests_per_minute", raw.requests_per_minute, 0, 1_000_000);
        let breaker_failures = self.small("llm.breaker_failures", raw.breaker_failures, 1, 1_000_000);
        let breaker_window = self.duration("llm.breaker_window_ms", raw.breaker_window_ms, 1, 1);
        if raw.base_url.is_empty() {
            if !raw.model.is_empty() || api_key.as_ref().is_some_and(Option::is_some) {
                notices.push("llm.model or a key is set, but llm.base_url is not: no LLM is used".into());
            }
        } else if raw.model.trim().is_empty() {
            self.fail::<()>("llm.model", "name the model, since llm.base_url is set");
        }
        let endpoint = decide::llm::EndpointSettings {
            base_url: base_url?,
            model: raw.model.clone(),
            api_key: api_key?,
            mode: raw.mode.into(),
            max_tools: max_tools?,
            logprobs: raw.logprobs,
        };
        let endpoints = self.endpoints(&raw.endpoints, endpoint);
        let settings = decide::llm::Settings {
            endpoints: endpoints?,
            temperature: temperature?,
            seed: raw.seed.value(),
            timeout: timeout?,
            max_attempts: max_attempts?,
            max_tokens: max_tokens?,
            max_repairs: max_repairs?,
            max_completion_tokens: max_completion_tokens?,
            card_tokens: card_tokens?,
            prompt_form: raw.prompt_form.into(),
            examples: examples?,
            concurrency: concurrency?,
            queue: queue?,
            breaker_failures: breaker_failures?,
            breaker_window: breaker_window?,
            requests_per_minute: requests_per_minute?,
            hedge: raw.hedge,
            quota: quota?,
        };
        Some((!raw.base_url.is_empty()).then_some(settings))
    }

    fn base_url(&mut self, text: &str) -> Option<String> {
        if text.is_empty() {
            return Some(String::new());
        }
        endpoints::base_url(text).map_or_else(|why| self.fail("llm.base_url", why), Some)
    }

    fn api_key(&mut self, raw: &raw::Llm) -> Option<Option<decide::llm::ApiKey>> {
        const FILE: &str = "llm.api_key_file";
        let direct = raw.api_key.trim();
        let Some(path) = self.path(FILE, &raw.api_key_file)? else {
            return Some((!direct.is_empty()).then(|| decide::llm::ApiKey::new(direct)));
        };
        if !direct.is_empty() {
            let other = self.origin("llm.api_key").to_owned();
            return self.fail(FILE, format!("llm.api_key is set as well ({other}); keep one of them"));
        }
        endpoints::key_in(&path).map_or_else(|why| self.fail(FILE, why), |key| Some(Some(key)))
    }

    fn handoff(&mut self, raw: &raw::Handoff) -> Option<Sentences> {
        let fuse_blown = self.sentences("handoff.fuse_blown", &raw.fuse_blown);
        let policy = self.sentences("handoff.policy", &raw.policy);
        let budget = self.sentences("handoff.budget", &raw.budget);
        Some(Sentences { fuse_blown: fuse_blown?, policy: policy?, budget: budget? })
    }

    fn sentences(&mut self, key: &str, by_locale: &ByLocale) -> Option<ByLocale> {
        const LONGEST: usize = 500;
        let is_tag = |tag: &str| (2..=3).contains(&tag.len()) && tag.bytes().all(|b| b.is_ascii_lowercase());
        for (tag, sentence) in by_locale {
            if !is_tag(tag) {
                return self
                    .fail(key, format!("expected locales of two or three small letters such as fr, found `{tag}`"));
            }
            let length = sentence.trim().chars().count();
            if length == 0 || length > LONGEST || sentence.chars().any(char::is_control) {
                return self.fail(key, format!("{tag}: expected one line of 1 to {LONGEST} characters"));
            }
        }
        Some(by_locale.iter().map(|(tag, sentence)| (tag.clone(), sentence.trim().to_owned())).collect())
    }

    fn cache(&mut self, raw: &raw::Cache) -> Option<cache::Settings> {
        let capacity = self.count("cache.capacity", raw.capacity, 1, 100_000_000);
        let ttl = self.duration("cache.ttl_s", raw.ttl_s, 1_000, 1);
        let min_confidence = self.ratio("cache.min_confidence", raw.min_confidence);
        capacity?;
        Some(cache::Settings {
            enabled: raw.enabled,
            capacity: raw.capacity,
            ttl: ttl?,
            min_confidence: min_confidence?,
            destructive: raw.destructive,
        })
    }

    fn log(&mut self, raw: &raw::Log) -> Option<decision::log::Settings> {
        let queue = self.count("log.queue", raw.queue, 1, 1_000_000);
        let target = match raw.decisions.as_str() {
            raw::OFF => decision::log::Target::Off,
            raw::STDERR => decision::log::Target::Stderr,
            path if path.trim().is_empty() => return self.fail("log.decisions", "expected stderr, off or a file"),
            path => decision::log::Target::File(path.into()),
        };
        Some(decision::log::Settings { target, queue: queue? })
    }
    /// `info`, or a list such as `warn,pointsman=debug`. The subscriber itself takes a misspelt level for a module.
    fn log_level(&mut self, text: &str) -> Option<String> {
        const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
        let is_level = |name: &str| LEVELS.contains(&name);
        let is_module =
            |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ':');
        let fits = text.split(',').all(|part| match part.trim().split_once('=') {
            Some((module, level)) => is_module(module) && is_level(level),
            None => is_level(part.trim()),
        });
        if fits {
            return Some(text.replace(' ', ""));
        }
        let hint = suggest(text, LEVELS);
        self.fail(
            "log.level",
            format!("expected one of {}, or pairs such as warn,pointsman=debug{hint}", LEVELS.join(", ")),
        )
    }
}
