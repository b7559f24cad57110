//! Default, file, environment, flags: each layer as dotted keys with values and origins, then one over the other.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::raw::{ENDPOINTS, LIVE, LiveSource, LlmEndpoint, NO_PATHS, PATHS, Raw, SECRETS};
use super::{FILE_VARIABLE, PREFIX, Problems, Sources};
use crate::registry::{nested_too_deeply, suggest};

/// Origin of a value nobody set.
pub(super) const DEFAULT: &str = "default";
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The effective values with their origins.
pub(super) struct Layered {
    pub raw: Raw,
    /// Section → key → value.
    pub values: Map<String, Value>,
    /// Dotted key → origin.
    pub origins: BTreeMap<String, String>,
}

/// One value of one layer.
struct Leaf {
    key: String,
    value: Value,
    origin: String,
}

/// Puts the layers on each other. A value that does not fit is reported and left out, so that the layer below shows
/// through and everything else still gets checked.
pub(super) fn merge(sources: &Sources, problems: &mut Problems) -> Layered {
    let known = Known::new(&sources.env);
    let mut builder = config::Config::builder().add_source(Layer(known.defaults.clone()));
    let file = sources.file.clone().or_else(|| {
        let named = sources.env.get(FILE_VARIABLE).filter(|path| !path.is_empty());
        named.map(PathBuf::from)
    });
    let from_file = file.map(|path| file_leaves(&path, &known, problems)).unwrap_or_default();
    // Layers of a table are joined key by key, so the table itself remembers no origin.
    let mut tables: BTreeMap<String, String> = BTreeMap::new();
    for layer in [
        onnxruntime_leaf(&sources.env),
        from_file,
        env_leaves(&sources.env, &known, problems),
        flag_leaves(&sources.flags, &known, problems),
    ] {
        let is_table = layer.iter().filter(|leaf| leaf.value.is_object());
        tables.extend(is_table.map(|leaf| (leaf.key.clone(), leaf.origin.clone())));
        let values = layer.into_iter().map(|leaf| (leaf.key, to_config(&leaf.value, &leaf.origin))).collect();
        builder = builder.add_source(Layer(values));
    }
    let merged = builder.build().map(|config| config.cache).unwrap_or_default();
    let mut values = Map::new();
    let mut origins = BTreeMap::new();
    for (section, keys) in ordered(merged) {
        let mut inner = Map::new();
        for (key, value) in ordered(keys) {
            let dotted = format!("{section}.{key}");
            let origin = tables.remove(&dotted).unwrap_or_else(|| value.origin().unwrap_or(DEFAULT).to_owned());
            origins.insert(dotted, origin);
            inner.insert(key, to_json(&value));
        }
        values.insert(section, Value::Object(inner));
    }
    let raw = serde_json::from_value(Value::Object(values.clone())).expect("every value was checked on its own");
    Layered { raw, values, origins }
}

fn ordered(table: config::Value) -> BTreeMap<String, config::Value> {
    table.into_table().unwrap_or_default().into_iter().collect()
}

/// One layer for the config crate: dotted keys.
#[derive(Debug, Clone)]
struct Layer(config::Map<String, config::Value>);

impl config::Source for Layer {
    fn clone_into_box(&self) -> Box<dyn config::Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<config::Map<String, config::Value>, config::ConfigError> {
        Ok(self.0.clone())
    }
}

/// All settings there are, with their defaults.
struct Known {
    tree: Value,
    keys: Vec<String>,
    defaults: config::Map<String, config::Value>,
}

impl Known {
    fn new(env: &BTreeMap<String, String>) -> Self {
        let mut raw = Raw::default();
        raw.store.path = default_store(env);
        raw.embed.models_dir = Some(default_models_dir());
        let tree = serde_json::to_value(raw).expect("settings are plain data");
        let mut keys = Vec::new();
        let mut defaults = config::Map::new();
        for (section, inner) in tree.as_object().into_iter().flatten() {
            for (key, value) in inner.as_object().into_iter().flatten() {
                let key = format!("{section}.{key}");
                defaults.insert(key.clone(), to_config(value, DEFAULT));
                keys.push(key);
            }
        }
        Self { tree, keys, defaults }
    }

    fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known == key)
    }

    fn is_list(&self, key: &str) -> bool {
        self.check(key, &Value::Array(Vec::new())).is_ok()
    }

    fn sections(&self) -> impl Iterator<Item = &str> {
        self.tree.as_object().into_iter().flat_map(|sections| sections.keys().map(String::as_str))
    }

    /// ` (did you mean ...?)`, also for a key without or with the wrong section.
    fn hint(&self, key: &str) -> String {
        let last = key.rsplit('.').next().unwrap_or(key);
        match self.keys.iter().find(|known| known.rsplit('.').next() == Some(last)) {
            Some(known) if known != key => format!(" (did you mean `{known}`?)"),
            Some(_) | None => suggest(key, self.keys.iter().map(String::as_str)),
        }
    }

    /// Whether the settings accept `value` at `key`: everything else is default, so an error is about this value.
    fn check(&self, key: &str, value: &Value) -> Result<(), String> {
        let mut tree = self.tree.clone();
        if let Some((section, name)) = key.split_once('.') {
            tree[section][name] = value.clone();
        }
        match serde_json::from_value::<Raw>(tree) {
            Ok(_) => Ok(()),
            // The message would repeat the value.
            Err(_) if SECRETS.contains(&key) => Err("expected a text".into()),
            Err(_) if key == ENDPOINTS => Err(fault_of_endpoints(value)),
            Err(_) if key == LIVE => Err(fault_of_live(value)),
            Err(error) => Err(in_words(&error.to_string())),
        }
    }
}

/// What is wrong with a list of endpoints, without any value of it.
fn fault_of_endpoints(value: &Value) -> String {
    const FORM: &str = "expected a list of tables with base_url, model, api_key_file, api_key_env, mode, max_tools, \
                        logprobs, such as [{base_url = \"https://…/v1\", model = \"…\"}]";
    let entries = value.as_array().into_iter().flatten().enumerate();
    let fault = entries.into_iter().find_map(|(index, entry)| {
        let why = serde_json::from_value::<LlmEndpoint>(entry.clone()).err()?.to_string();
        let why = match why.split_once(", expected") {
            Some(("unknown field `api_key`", _)) => {
                "a key does not stand here: name a file (api_key_file) or a variable (api_key_env)".to_owned()
            }
            // The one message of serde's that shows a name instead of a value.
            Some((field, _)) if field.starts_with("unknown field") => format!("{field}; {FORM}"),
            Some(_) | None => format!("a value does not fit; {FORM}"),
        };
        Some(format!("{}: {why}", endpoint_entry(index)))
    });
    fault.unwrap_or_else(|| FORM.to_owned())
}

/// What is wrong with a list of live sources, without any value of it.
fn fault_of_live(value: &Value) -> String {
    const FORM: &str = "expected a list of tables with name, url, headers, allow_private, command, env, target, domain, \
                        permissions, trust_hints, timeout_ms, refresh_s, required, such as [{name = \"desk\", url = \
                        \"https://…/mcp\"}]";
    let entries = value.as_array().into_iter().flatten().enumerate();
    let fault = entries.into_iter().find_map(|(index, entry)| {
        let why = serde_json::from_value::<LiveSource>(entry.clone()).err()?.to_string();
        let why = match why.split_once(", expected") {
            Some((field, _)) if field.starts_with("unknown field") => field.to_owned(),
            Some(_) | None => "a value does not fit".to_owned(),
        };
        Some(format!("source {}: {why}; {FORM}", index + 1))
    });
    fault.unwrap_or_else(|| FORM.to_owned())
}

/// How an entry of `llm.endpoints` is called: the endpoint of `[llm]` itself is number 1.
pub(super) fn endpoint_entry(index: usize) -> String {
    format!("endpoint {} (entry {} of the list)", index + 2, index + 1)
}

/// Rust's type names mean nothing to an operator.
fn in_words(message: &str) -> String {
    let words = [
        ("expected u64", "expected a whole number, 0 or more"),
        ("expected i64", "expected a whole number"),
        ("expected f64", "expected a number"),
        ("expected a sequence", "expected a list"),
        ("expected a string", "expected a text"),
        ("expected a boolean", "expected true or false"),
    ];
    words.iter().fold(message.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Embeddings are worth keeping from the first start on.
fn default_store(env: &BTreeMap<String, String>) -> Option<String> {
    let absolute = |name: &str| env.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // Not the cache folder: tools that were put must not go with a clean-up.
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("pointsman").join("pointsman.db").display().to_string())
}

/// Beside the executable, as installed; otherwise in the working directory, as in a checkout.
fn default_models_dir() -> String {
    let executable = std::env::current_exe().ok();
    let beside = executable.as_deref().and_then(Path::parent).map(|folder| folder.join("models"));
    beside.filter(|path| path.is_dir()).unwrap_or_else(|| "models".into()).display().to_string()
}

/// The variable that the ONNX Runtime binding itself knows: weaker than any setting of ours.
fn onnxruntime_leaf(env: &BTreeMap<String, String>) -> Vec<Leaf> {
    const NAME: &str = "ORT_DYLIB_PATH";
    let path = env.get(NAME).filter(|path| !path.is_empty());
    path.map(|path| Leaf { key: "embed.onnxruntime".into(), value: path.as_str().into(), origin: variable(NAME) })
        .into_iter()
        .collect()
}

fn variable(name: &str) -> String {
    format!("environment variable {name}")
}

fn file_leaves(path: &Path, known: &Known, problems: &mut Problems) -> Vec<Leaf> {
    let shown = path.display().to_string();
    let text = match read(path) {
        Ok(text) => text,
        Err(message) => {
            problems.add("", &shown, message);
            return Vec::new();
        }
    };
    let at = |offset: usize| {
        let line = 1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count();
        format!("{shown}:{line}")
    };
    if let Some(line) = nested_too_deeply(&text) {
        problems.add("", &format!("{shown}:{line}"), "nested too deeply");
        return Vec::new();
    }
    let (table, mut errors) = DeTable::parse_recoverable(&text);
    errors.sort_by_key(|error| error.span().map(|span| span.start));
    for error in &errors {
        let origin = error.span().map_or_else(|| shown.clone(), |span| at(span.start));
        problems.add("", &origin, format!("not valid TOML: {}", error.message()));
    }
    let mut leaves = Vec::new();
    for (section, value) in table.get_ref().iter() {
        let name: &str = section.get_ref();
        let origin = at(section.span().start);
        match value.get_ref() {
            DeValue::Table(keys) if known.sections().any(|known| known == name) => {
                for (key, value) in keys.iter() {
                    let dotted = format!("{name}.{}", key.get_ref());
                    file_leaf(dotted, value, &at(key.span().start), path, known, problems, &mut leaves);
                }
            }
            DeValue::Table(_) => {
                problems.add(name, &origin, format!("there is no such section{}", suggest(name, known.sections())));
            }
            _ if known.sections().any(|known| known == name) => {
                problems.add(name, &origin, format!("this is a section; write [{name}] and its settings below"));
            }
            _ => problems.add(name, &origin, format!("there is no such setting{}", known.hint(name))),
        }
    }
    leaves
}

fn read(path: &Path) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot read this configuration file: {error}");
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(cannot)?;
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(cannot)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err("larger than 1 MiB, which no configuration is".into());
    }
    Ok(text)
}

fn file_leaf(
    key: String,
    value: &Spanned<DeValue<'_>>,
    origin: &str,
    path: &Path,
    known: &Known,
    problems: &mut Problems,
    leaves: &mut Vec<Leaf>,
) {
    if !known.has(&key) {
        problems.add(&key, origin, format!("there is no such setting{}", known.hint(&key)));
        return;
    }
    let checked = toml_value(value.get_ref())
        .ok_or_else(|| "a number out of range".to_owned())
        .and_then(|value| known.check(&key, &value).map(|()| value));
    match checked {
        Ok(value) => {
            let value = match key.as_str() {
                ENDPOINTS => key_files_beside(value, path),
                key if PATHS.contains(&key) => beside_file(value, path),
                _ => value,
            };
            leaves.push(Leaf { key, value, origin: origin.to_owned() });
        }
        Err(message) => problems.add(&key, origin, message),
    }
}

/// Relative paths in a file mean: from that file.
fn beside_file(value: Value, file: &Path) -> Value {
    let folder = file.parent().unwrap_or(Path::new(""));
    match value {
        Value::String(path) if !path.is_empty() && !NO_PATHS.contains(&path.as_str()) => {
            folder.join(path).display().to_string().into()
        }
        Value::Array(paths) => paths.into_iter().map(|path| beside_file(path, file)).collect(),
        other => other,
    }
}

/// The same for the key file of each endpoint.
fn key_files_beside(mut endpoints: Value, file: &Path) -> Value {
    for key_file in endpoints.as_array_mut().into_iter().flatten().filter_map(|entry| entry.get_mut("api_key_file")) {
        *key_file = beside_file(key_file.take(), file);
    }
    endpoints
}

fn env_leaves(env: &BTreeMap<String, String>, known: &Known, problems: &mut Problems) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    for (name, text) in env {
        let Some(rest) = name.strip_prefix(PREFIX).filter(|_| name != FILE_VARIABLE) else { continue };
        let key = rest.to_ascii_lowercase().replacen("__", ".", 1);
        if known.has(&key) {
            let candidates = candidates(text, text.split(',').map(str::trim));
            // `NAME=` is how compose files and shells say "not set", unless the setting can be an empty text.
            let unset = text.is_empty() && (PATHS.contains(&key.as_str()) || known.check(&key, &"".into()).is_err());
            if !unset {
                leaves.extend(fitting(&key, candidates, &variable(name), known, problems));
            }
        } else if !is_service_link(rest) {
            let meant = known.keys.iter().find(|known| known.replace('.', "_") == key);
            let hint = match meant {
                Some(meant) => format!(" (did you mean {PREFIX}{}?)", meant.to_ascii_uppercase().replace('.', "__")),
                None => known.hint(&key),
            };
            problems.add(&key, &variable(name), format!("there is no such setting{hint}"));
        }
    }
    leaves
}

/// Kubernetes describes a service called `pointsman` in variables of this form; nobody wrote them as settings.
fn is_service_link(rest: &str) -> bool {
    rest.starts_with("SERVICE_HOST") || rest.starts_with("SERVICE_PORT") || rest == "PORT" || rest.starts_with("PORT_")
}

fn flag_leaves(flags: &[(String, String)], known: &Known, problems: &mut Problems) -> Vec<Leaf> {
    let mut by_key: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (key, text) in flags {
        by_key.entry(key).or_default().push(text);
    }
    let mut leaves = Vec::new();
    for (key, texts) in by_key {
        let origin = format!("flag for {key}");
        if !known.has(key) {
            problems.add(key, &origin, format!("there is no such setting{}", known.hint(key)));
            continue;
        }
        // File names may hold commas, names of scopes and encoders do not.
        let split = |text: &'_ str| -> Vec<String> {
            if PATHS.contains(&key) {
                vec![text.to_owned()]
            } else {
                text.split(',').map(|p| p.trim().to_owned()).collect()
            }
        };
        let candidates = match texts.as_slice() {
            [_, _, ..] if known.is_list(key) => {
                vec![texts.iter().flat_map(|text| split(text)).map(Value::from).collect()]
            }
            // Like everywhere on a command line, the last one counts.
            [.., last] => candidates(last, split(last).iter().map(String::as_str)),
            [] => continue,
        };
        leaves.extend(fitting(key, candidates, &origin, known, problems));
    }
    leaves
}

/// What a text may mean: a TOML value, the text itself, or a list of `parts`.
fn candidates<'a>(text: &str, parts: impl IntoIterator<Item = &'a str>) -> Vec<Value> {
    let literal = (nested_too_deeply(text).is_none())
        .then(|| DeValue::parse(text).ok().and_then(|value| toml_value(value.get_ref())))
        .flatten();
    let list = parts.into_iter().filter(|part| !part.is_empty()).map(Value::from).collect();
    literal.into_iter().chain([Value::from(text), list]).collect()
}

/// The first candidate that fits the setting.
fn fitting(key: &str, candidates: Vec<Value>, origin: &str, known: &Known, problems: &mut Problems) -> Option<Leaf> {
    let mut first_error = None;
    for value in candidates {
        match known.check(key, &value) {
            Ok(()) => return Some(Leaf { key: key.to_owned(), value, origin: origin.to_owned() }),
            Err(message) => drop(first_error.get_or_insert(message)),
        }
    }
    problems.add(key, origin, first_error.unwrap_or_default());
    None
}

/// `None` for numbers that JSON cannot hold.
fn toml_value(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::String(text) => text.to_string().into(),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok()?.into(),
        DeValue::Float(number) => serde_json::Number::from_f64(number.as_str().parse().ok()?)?.into(),
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Array(items) => Value::Array(items.iter().map(|i| toml_value(i.get_ref())).collect::<Option<_>>()?),
        DeValue::Table(table) => {
            let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                let key: &toml::de::DeString<'_> = key.get_ref();
                Some((key.to_string(), toml_value(value.get_ref())?))
            };
            Value::Object(table.iter().map(entry).collect::<Option<_>>()?)
        }
    })
}

fn to_config(value: &Value, origin: &str) -> config::Value {
    let kind = match value {
        Value::Null => config::ValueKind::Nil,
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.into(),
            (None, Some(number)) => number.into(),
            (None, None) => number.as_f64().unwrap_or_default().into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(|item| to_config(item, origin)).collect::<Vec<_>>().into(),
        Value::Object(map) => {
            let entries = map.iter().map(|(key, item)| (key.clone(), to_config(item, origin)));
            entries.collect::<config::Map<String, config::Value>>().into()
        }
    };
    config::Value::new(Some(&origin.to_owned()), kind)
}

fn to_json(value: &config::Value) -> Value {
    use config::ValueKind;
    match &value.kind {
        ValueKind::Nil => Value::Null,
        ValueKind::Boolean(flag) => (*flag).into(),
        ValueKind::I64(number) => (*number).into(),
        ValueKind::U64(number) => (*number).into(),
        ValueKind::I128(number) => i64::try_from(*number).unwrap_or_default().into(),
        ValueKind::U128(number) => u64::try_from(*number).unwrap_or_default().into(),
        ValueKind::Float(number) => (*number).into(),
        ValueKind::String(text) => text.as_str().into(),
        ValueKind::Array(items) => items.iter().map(to_json).collect(),
        ValueKind::Table(table) => {
            Value::Object(table.iter().map(|(key, item)| (key.clone(), to_json(item))).collect())
        }
    }
}
