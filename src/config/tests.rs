//! Layers, reports and what must never be shown.

use std::path::Path;

use super::*;
use crate::decide;
use crate::decision::log::Target;
use crate::execute::{McpTarget, Secret};

fn with_file(text: &str) -> (tempfile::TempDir, Sources) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pointsman.toml");
    std::fs::write(&file, text).unwrap();
    (folder, Sources { file: Some(file), ..Sources::default() })
}

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn flags(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[track_caller]
fn problems(sources: &Sources) -> Vec<Problem> {
    Loaded::load(sources).expect_err("the configuration should be refused").0
}

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/pointsman.toml")
}

#[test]
fn each_layer_wins_over_the_former() {
    let (_folder, mut sources) = with_file("[llm]\nmodel = \"file\"\n[server]\nlisten = \"127.0.0.1:1\"\n");
    let listen = |sources: &Sources| Loaded::load(sources).unwrap().settings.server.listen.port();
    assert_eq!(listen(&Sources::default()), 50051);
    assert_eq!(listen(&sources), 1);
    sources.env = env(&[("POINTSMAN_SERVER__LISTEN", "127.0.0.1:2"), ("PATH", "/bin")]);
    assert_eq!(listen(&sources), 2);
    sources.flags = flags(&[("server.listen", "127.0.0.1:3")]);
    assert_eq!(listen(&sources), 3);

    let printed = Loaded::load(&sources).unwrap().print_text();
    let line = |key: &str| printed.lines().find(|line| line.starts_with(key)).unwrap().to_owned();
    assert!(line("listen").ends_with("# flag for server.listen"), "{printed}");
    assert!(line("model ").ends_with("pointsman.toml:2"), "{printed}");
    assert!(line("http").ends_with("# default"), "{printed}");
    sources.flags.clear();
    let json: Value = serde_json::from_str(&Loaded::load(&sources).unwrap().print_json()).unwrap();
    assert_eq!(json["server"]["listen"]["origin"], "environment variable POINTSMAN_SERVER__LISTEN");
    assert_eq!(json["server"]["listen"]["value"], "127.0.0.1:2");
}

#[test]
fn what_is_printed_can_be_loaded_again() {
    let loaded = Loaded::load(&Sources { flags: flags(&[("llm.model", "通义 \"q\"")]), ..Sources::default() }).unwrap();
    let (_folder, sources) = with_file(&loaded.print_text());
    assert_eq!(Loaded::load(&sources).unwrap().values["llm"], loaded.values["llm"]);
}

#[test]
fn the_sample_states_every_setting_and_its_default() {
    let sample = Loaded::load(&Sources { file: Some(sample()), ..Sources::default() }).unwrap();
    let defaults = Loaded::load(&Sources::default()).unwrap();
    assert_eq!(sample.values, defaults.values);
    assert_eq!(sample.notices, Vec::<String>::new());
    let text = std::fs::read_to_string(self::sample()).unwrap();
    for (section, keys) in &defaults.values {
        assert!(text.contains(&format!("[{section}]")));
        for (key, value) in keys.as_object().unwrap() {
            let has_fixed_default = !value.is_null() && !["path", "models_dir"].contains(&key.as_str());
            assert_eq!(sample.origins[&format!("{section}.{key}")] != "default", has_fixed_default, "{section}.{key}");
            assert!(text.contains(&format!("\n{key} = ")) || text.contains(&format!("\n#{key} = ")), "{section}.{key}");
        }
    }
    // What is commented out is valid as well, apart from the key file that is not there and from one of two ways to say
    // the same: who may call, and where keys come from.
    let setting = |line: &str| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase()) => rest.to_owned(),
        Some(_) | None => line.to_owned(),
    };
    let (_folder, sources) = with_file(&text.lines().map(setting).collect::<Vec<_>>().join("\n"));
    let found = problems(&sources);
    let expected = ["llm.api_key_file", "server.scopes", "identity.jwt_keys_url"];
    assert!(found.iter().all(|problem| expected.contains(&problem.key.as_str())), "{found:?}");
}

#[test]
fn all_problems_are_reported_together() {
    let (_folder, mut sources) = with_file(
        "listen = \"x\"\n[llm]\ntimeout_ms = \"abc\"\ntemprature = \"m\"\nbase_url = \"ftp://h\"\n[lmm]\n[index]\nmode = \
         \"fast\"\n[cache]\nmin_confidence = 1.5\n[prefilter]\nshortlist_min = 9\n[embed]\nthreads = 0\n[log]\nqueue = \
         2.5\n",
    );
    sources.env = env(&[
        ("POINTSMAN_ROUTE__DEADLINE_MS", "soon"),
        ("POINTSMAN_LLM_MODEL", "x"),
        ("POINTSMAN_LOG__LEVLE", "debug"),
        ("POINTSMAN_PORT_50051_TCP_ADDR", "10.0.0.1"),
        ("POINTSMAN_SERVICE_HOST", "10.0.0.1"),
        ("POINTSMAN_CACHE__TTL_S", ""),
        ("POINTSMAN_LOG__LEVEL", "inf"),
    ]);
    sources.flags = flags(&[("server.http", "localhost:1")]);
    let found = problems(&sources);
    let keys: Vec<&str> = found.iter().map(|problem| problem.key.as_str()).collect();
    let mut sorted = keys.clone();
    sorted.sort_unstable();
    assert_eq!(
        sorted,
        [
            "cache.min_confidence",
            "embed.threads",
            "index.mode",
            "listen",
            "llm.base_url",
            "llm.model",
            "llm.temprature",
            "llm.timeout_ms",
            "llm_model",
            "lmm",
            "log.level",
            "log.levle",
            "log.queue",
            "prefilter.shortlist_min",
            "route.deadline_ms",
            "server.http",
        ],
        "{found:#?}"
    );
    let count = keys.len();
    let text = Problems(found).to_string();
    assert_eq!(text.lines().count(), count);
    for part in [
        "pointsman.toml:3: `llm.timeout_ms`: invalid type: string \"abc\", expected a whole number, 0 or more",
        "pointsman.toml:1: `listen`: there is no such setting (did you mean `server.listen`?)",
        "`llm.temprature`: there is no such setting (did you mean `llm.temperature`?)",
        "`lmm`: there is no such section (did you mean `llm`?)",
        "environment variable POINTSMAN_LLM_MODEL: `llm_model`: there is no such setting (did you mean POINTSMAN_LLM__MODEL?)",
        "expected one of `auto`, `exact`, `hnsw`",
        "flag for server.http: `server.http`: expected an address with port",
    ] {
        assert!(text.contains(part), "{part}\nis not in\n{text}");
    }
}

#[test]
fn broken_toml_names_its_line_and_hides_nothing_else() {
    let (_folder, mut sources) = with_file("[llm]\nmodel = \nseed = \"x\"\n[server\n");
    sources.env = env(&[("POINTSMAN_LOG__QUEUE", "-1")]);
    let found = problems(&sources);
    assert!(found[0].origin.ends_with("pointsman.toml:2") && found[0].message.contains("not valid TOML"), "{found:#?}");
    assert!(found.iter().any(|problem| problem.key == "log.queue"));
    let missing = problems(&Sources { file: Some("absent/pointsman.toml".into()), ..Sources::default() });
    assert!(missing[0].message.contains("cannot read"));
}

#[test]
fn texts_become_what_the_setting_needs() {
    let sources = Sources {
        env: env(&[
            ("POINTSMAN_EMBED__ENCODERS", "a, b"),
            ("POINTSMAN_REGISTRY__STRICT", "true"),
            ("POINTSMAN_LLM__MODEL", "7"),
            ("POINTSMAN_LLM__BASE_URL", "http://127.0.0.1:8000/v1/"),
            ("POINTSMAN_LLM__TEMPERATURE", "1"),
            ("POINTSMAN_SERVER__SCOPES", "[\"orders:read\"]"),
            ("POINTSMAN_STORE__PATH", ":memory:"),
            ("POINTSMAN_LOG__DECISIONS", "off"),
        ]),
        flags: flags(&[
            ("registry.files", "a,b.yaml"),
            ("registry.files", "工具.jsonl"),
            ("embed.threads", "1"),
            ("embed.threads", "2"),
            ("log.level", "warn, pointsman=debug"),
        ]),
        file: None,
    };
    let settings = Loaded::load(&sources).unwrap().settings;
    assert_eq!(settings.pipeline.embed.encoders, ["a", "b"]);
    assert!(settings.pipeline.strict);
    let llm = settings.pipeline.llm.unwrap();
    assert_eq!(
        (llm.endpoints[0].model.as_str(), llm.endpoints[0].base_url.as_str(), llm.temperature),
        ("7", "http://127.0.0.1:8000/v1", Some(1.0))
    );
    assert_eq!(settings.server.identity.scopes, Some(vec![crate::types::Scope("orders:read".into())]));
    assert_eq!(settings.pipeline.store, None);
    assert_eq!(settings.pipeline.log.target, Target::Off);
    assert_eq!(settings.pipeline.registries, [PathBuf::from("a,b.yaml"), PathBuf::from("工具.jsonl")]);
    assert_eq!(settings.pipeline.embed.threads, 2);

    assert_eq!(settings.log_level, "warn,pointsman=debug");

    let one = Sources { flags: flags(&[("registry.files", "a,b.yaml")]), ..Sources::default() };
    assert_eq!(Loaded::load(&one).unwrap().settings.pipeline.registries, [PathBuf::from("a,b.yaml")]);
}

#[test]
fn paths_in_a_file_start_at_the_file() {
    let (folder, mut sources) = with_file(
        "[registry]\nfiles = [\"shop/registry.yaml\", \"/abs.yaml\"]\n[log]\ndecisions = \"d.jsonl\"\n[store]\npath = \
         \":memory:\"\n",
    );
    let pipeline = Loaded::load(&sources).unwrap().settings.pipeline;
    assert_eq!(pipeline.registries, [folder.path().join("shop/registry.yaml"), PathBuf::from("/abs.yaml")]);
    assert_eq!(pipeline.log.target, Target::File(folder.path().join("d.jsonl")));
    assert_eq!(pipeline.store, None);
    // The variable names the file when no flag does.
    let file = sources.file.take().unwrap();
    sources.env = env(&[("POINTSMAN_CONFIG", file.to_str().unwrap())]);
    assert_eq!(Loaded::load(&sources).unwrap().settings.pipeline.registries.len(), 2);
}

#[test]
fn places_outside_the_settings_give_only_defaults() {
    let mut sources = Sources {
        env: env(&[("HOME", "/home/u"), ("XDG_STATE_HOME", "relative"), ("ORT_DYLIB_PATH", "/lib/ort.so")]),
        ..Sources::default()
    };
    let loaded = Loaded::load(&sources).unwrap();
    assert_eq!(loaded.settings.pipeline.store, Some("/home/u/.local/state/pointsman/pointsman.db".into()));
    assert_eq!(loaded.settings.pipeline.embed.onnxruntime, Some("/lib/ort.so".into()));
    assert_eq!(loaded.origins["embed.onnxruntime"], "environment variable ORT_DYLIB_PATH");
    sources.env.insert("POINTSMAN_EMBED__ONNXRUNTIME".into(), "/mine.so".into());
    sources.env.insert("XDG_STATE_HOME".into(), "/state".into());
    let pipeline = Loaded::load(&sources).unwrap().settings.pipeline;
    assert_eq!(pipeline.embed.onnxruntime, Some("/mine.so".into()));
    assert_eq!(pipeline.store, Some("/state/pointsman/pointsman.db".into()));
    assert_eq!(Loaded::load(&Sources::default()).unwrap().settings.pipeline.store, None);
}

#[test]
fn secrets_are_never_shown() {
    const SECRET: &str = "sk-geheim-密钥";
    let (folder, mut sources) = with_file("[llm]\nbase_url = \"https://llm.example/v1\"\nmodel = \"m\"\n");
    sources.env = env(&[("POINTSMAN_LLM__API_KEY", SECRET)]);
    let loaded = Loaded::load(&sources).unwrap();
    assert_eq!(loaded.settings.pipeline.llm.as_ref().unwrap().endpoints[0].api_key.as_ref().unwrap().expose(), SECRET);
    for shown in [format!("{loaded:?}"), loaded.print_text(), loaded.print_json()] {
        assert!(!shown.contains(SECRET) && shown.contains("***"), "{shown}");
    }

    let key = folder.path().join("key");
    std::fs::write(&key, format!("{SECRET}\n")).unwrap();
    sources.flags = flags(&[("llm.api_key_file", key.to_str().unwrap())]);
    let both = Problems(problems(&sources)).to_string();
    assert!(both.contains("POINTSMAN_LLM__API_KEY") && !both.contains(SECRET));
    sources.env.clear();
    let loaded = Loaded::load(&sources).unwrap();
    assert_eq!(loaded.settings.pipeline.llm.as_ref().unwrap().endpoints[0].api_key.as_ref().unwrap().expose(), SECRET);
    assert!(!format!("{loaded:?}{}", loaded.print_text()).contains(SECRET));

    for text in [
        "[llm]\napi_key = 123454321\n",
        "[llm]\nbase_url = \"https://u:123454321@h/v1\"\nmodel = \"m\"\n",
        "[llm]\napi_keys = \"123454321\"\n",
        "[llm]\napi_key = \"123454321\n",
    ] {
        let (_folder, sources) = with_file(text);
        let shown = Problems(problems(&sources)).to_string();
        assert!(!shown.contains("123454321"), "{shown}");
    }
}

#[test]
fn a_model_without_endpoint_is_remarked() {
    let sources = Sources { env: env(&[("POINTSMAN_LLM__MODEL", "m")]), ..Sources::default() };
    let loaded = Loaded::load(&sources).unwrap();
    assert!(loaded.settings.pipeline.llm.is_none());
    assert!(loaded.notices[0].contains("llm.base_url"));
}

#[test]
fn many_tools_in_one_prompt_are_remarked() {
    let with = |value: &str| {
        let flags = vec![("prefilter.hand_on_all_up_to".to_owned(), value.to_owned())];
        Loaded::load(&Sources { flags, ..Sources::default() }).unwrap().notices
    };
    assert_eq!(with("15"), Vec::<String>::new());
    assert!(with("26")[0].contains("prefilter.hand_on_all_up_to = 26"));
}

#[test]
fn signals_are_left_out_by_name() {
    use crate::types::Signal;
    let with = |names: &[&str]| {
        let flags = names.iter().map(|name| ("prefilter.without".to_owned(), (*name).to_owned())).collect();
        Loaded::load(&Sources { flags, ..Sources::default() })
    };
    let left_out = |names: &[&str]| with(names).unwrap().settings.pipeline.retrieve.without;
    assert_eq!(left_out(&[]), [].into());
    assert_eq!(left_out(&["clause", "boundary"]), [Signal::Boundary, Signal::Clause].into());
    let refused = with(&["boundary", "bondary"]).unwrap_err().to_string();
    assert!(refused.contains("prefilter.without") && refused.contains("did you mean `boundary`?"), "{refused}");
    assert!(Signal::ALL.iter().all(|signal| Signal::parse(signal.as_str()) == Some(*signal)));
}

#[test]
fn a_model_of_a_hub_is_owner_and_name() {
    let load = |encoder: &str| {
        let flags = vec![("embed.encoders".to_owned(), encoder.to_owned())];
        Loaded::load(&Sources { flags, ..Sources::default() }).is_ok()
    };
    assert!(load("intfloat/multilingual-e5-small") && load("minilm-l6-en"));
    for bad in ["../x", "a/../b", "/a", "a/", "a/b/c", ".."] {
        assert!(!load(bad), "{bad}");
    }
}

#[test]
fn a_key_in_the_query_of_the_url_is_refused_and_not_shown() {
    let flags = [("llm.base_url", "https://h/v1?key=123454321"), ("llm.model", "m")];
    let flags = flags.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let problems = Loaded::load(&Sources { flags, ..Sources::default() }).unwrap_err();
    assert_eq!(problems.0.len(), 1);
    assert!(!problems.to_string().contains("123454321"), "{problems}");
}

#[test]
fn modes_of_domains_are_joined_key_by_key() {
    let (folder, mut sources) =
        with_file("[rules]\nfile = \"r.yaml\"\n[rules.modes]\norders = \"rules\"\n\"退款\" = \"shadow\"\n");
    sources.flags = flags(&[("rules.modes", "{orders = \"dynamic\"}")]);
    let loaded = Loaded::load(&sources).unwrap();
    let rules = &loaded.settings.pipeline.rules;
    assert_eq!(rules.file, Some(folder.path().join("r.yaml")));
    let mode = |domain| rules.modes.of(Some(domain)).as_str();
    assert_eq!((mode("orders"), mode("退款"), mode("other")), ("dynamic", "shadow", "rules_first"));
    let (_again, sources) = with_file(&loaded.print_text());
    assert_eq!(Loaded::load(&sources).unwrap().settings.pipeline.rules.modes, rules.modes);

    let refused = |pairs: &[(&str, &str)]| problems(&Sources { flags: flags(pairs), ..Sources::default() })[0].clone();
    assert_eq!(refused(&[("rules.default_mode", "rules")]).key, "rules.file");
    assert_eq!(refused(&[("rules.modes", "{a = \"sometimes\"}")]).key, "rules.modes");
}

const FIRST: &str = "[llm]\nbase_url = \"https://one.example/v1\"\nmodel = \"m\"\n";

#[test]
fn further_endpoints_inherit_everything_but_the_key_of_another_host() {
    let (folder, mut sources) = with_file(&format!(
        "{FIRST}api_key = \"sk-eins\"\nmode = \"json_schema\"\nmax_tools = 9\n\
         [[llm.endpoints]]\nmodel = \"另一个\"\n\
         [[llm.endpoints]]\nbase_url = \"https://two.example/v1/\"\n\
         [[llm.endpoints]]\nbase_url = \"http://one.example/v1\"\nmode = \"functions\"\nmax_tools = 20\n\
         [[llm.endpoints]]\nbase_url = \"https://three.example/v1\"\napi_key_file = \"three.key\"\n\
         [[llm.endpoints]]\nbase_url = \"https://four.example/v1\"\napi_key_env = \"FOUR_KEY\"\n"
    ));
    std::fs::write(folder.path().join("three.key"), "sk-drei\n").unwrap();
    sources.env = env(&[("FOUR_KEY", " sk-vier ")]);
    let loaded = Loaded::load(&sources).unwrap();
    let endpoints = &loaded.settings.pipeline.llm.as_ref().unwrap().endpoints;
    let seen: Vec<_> = endpoints
        .iter()
        .map(|endpoint| {
            let key = endpoint.api_key.as_ref().map_or("", decide::llm::ApiKey::expose);
            (endpoint.base_url.as_str(), endpoint.model.as_str(), key, endpoint.mode, endpoint.max_tools)
        })
        .collect();
    let (json, functions) = (decide::llm::AnswerMode::JsonSchema, decide::llm::AnswerMode::Functions);
    assert_eq!(
        seen,
        [
            ("https://one.example/v1", "m", "sk-eins", json, 9),
            ("https://one.example/v1", "另一个", "sk-eins", json, 9),
            ("https://two.example/v1", "m", "", json, 9),
            // Another scheme is another place: a key is not sent in the open.
            ("http://one.example/v1", "m", "", functions, 20),
            ("https://three.example/v1", "m", "sk-drei", json, 9),
            ("https://four.example/v1", "m", "sk-vier", json, 9),
        ]
    );
    for shown in [format!("{loaded:?}"), loaded.print_text(), loaded.print_json()] {
        assert!(!shown.contains("sk-") && shown.contains("FOUR_KEY"), "{shown}");
    }
    let (_again, mut again) = with_file(&loaded.print_text().replace("api_key = \"***\"", "api_key = \"sk-eins\""));
    again.env = sources.env.clone();
    assert_eq!(Loaded::load(&again).unwrap().settings.pipeline.llm, loaded.settings.pipeline.llm);

    sources.file = None;
    sources.env = env(&[
        ("POINTSMAN_LLM__BASE_URL", "http://h/v1"),
        ("POINTSMAN_LLM__MODEL", "m"),
        ("POINTSMAN_LLM__ENDPOINTS", "[{model = \"n\"}]"),
    ]);
    assert_eq!(Loaded::load(&sources).unwrap().settings.pipeline.llm.unwrap().endpoints[1].model, "n");
}

#[test]
fn faults_of_further_endpoints_name_the_entry_and_show_no_value() {
    const SECRET: &str = "sk-123454321";
    for (entries, expected) in [
        ("[{}, {base_url = \"ftp://h\"}]", "endpoint 3 (entry 2 of the list): base_url: expected http://"),
        (
            "[{base_url = \"https://u:sk-123454321@h/v1\"}]",
            "endpoint 2 (entry 1 of the list): base_url: holds a user name",
        ),
        ("[{api_key = \"sk-123454321\"}]", "endpoint 2 (entry 1 of the list): a key does not stand here: name a file"),
        ("[{api_key_env = \"sk-123454321\"}]", "api_key_env: expected the name of an environment variable, not a key"),
        ("[{api_key_env = \"ABSENT\"}]", "api_key_env: the environment variable it names is not set"),
        ("[{api_key_env = \"A\", api_key_file = \"b\"}]", "keep one of them"),
        ("[{api_key_file = \"absent.key\"}]", "api_key_file: cannot read"),
        ("[{max_tools = 0}]", "max_tools: expected 1 to 10000"),
        ("[{model = \" \"}]", "model: is empty"),
        ("[{modell = \"x\"}]", "unknown field `modell`; expected a list of tables"),
        ("[{mode = \"sk-123454321\"}]", "endpoint 2 (entry 1 of the list): a value does not fit"),
        ("\"https://u:sk-123454321@h\"", "expected a list of tables"),
        ("[{}, {}, {}, {}, {}, {}, {}, {}]", "at most 7 further endpoints"),
    ] {
        let (_folder, sources) = with_file(&format!("{FIRST}endpoints = {entries}\n"));
        let found = Problems(problems(&sources)).to_string();
        assert!(found.contains("`llm.endpoints`") && found.contains(expected), "{entries}: {found}");
        assert!(!found.contains(SECRET), "{found}");
    }
    let (_folder, sources) = with_file("[llm]\nendpoints = [{model = \"m\"}]\n");
    assert!(Problems(problems(&sources)).to_string().contains("set llm.base_url and llm.model first"));
}

#[test]
fn quotas_of_tenants_override_the_default_one_by_one() {
    use crate::decide::llm::quota::Limits;
    let (_folder, sources) = with_file(&format!(
        "{FIRST}[quota]\ncalls_per_minute = 60\ntokens_per_minute = 5000\n[quota.tenants.\"Acme.Corp\"]\n\
         calls_per_minute = 0\n[quota.tenants]\n\"大客户\" = {{tokens_per_minute = 9}}\n"
    ));
    let quota = Loaded::load(&sources).unwrap().settings.pipeline.llm.unwrap().quota;
    assert_eq!(quota.default, Limits { calls: 60, tokens: 5_000 });
    assert_eq!(quota.tenants["Acme.Corp"], Limits { calls: 0, tokens: 5_000 });
    assert_eq!(quota.tenants["大客户"], Limits { calls: 60, tokens: 9 });
    for bad in ["[quota]\ntenants = {a = {calls = 1}}\n", "[quota]\ntenants = {a = {calls_per_minute = 9999999999}}\n"]
    {
        let (_folder, sources) = with_file(bad);
        assert_eq!(problems(&sources)[0].key, "quota.tenants");
    }
}

#[test]
fn how_the_llm_is_asked_can_be_set() {
    let endpoint = [("llm.base_url", "http://127.0.0.1:8000/v1"), ("llm.model", "m")];
    let load = |pairs: &[(&str, &str)]| {
        let sources = Sources { flags: flags(&[&endpoint, pairs].concat()), ..Sources::default() };
        Loaded::load(&sources).map(|loaded| loaded.settings.pipeline.llm.unwrap())
    };
    let usual = load(&[]).unwrap();
    assert_eq!((usual.card_tokens, usual.examples, usual.endpoints[0].logprobs), (6_000, None, false));
    let set =
        [("llm.mode", "choose_then_fill"), ("llm.card_tokens", "0"), ("llm.examples", "0"), ("llm.logprobs", "true")];
    let set = load(&set).unwrap();
    assert_eq!((set.card_tokens, set.examples, set.endpoints[0].logprobs), (0, Some(0), true));
    assert_eq!(set.endpoints[0].mode, crate::decide::llm::AnswerMode::ChooseThenFill);
    let off = load(&[("llm.seed", "off"), ("llm.temperature", "\"off\"")]).unwrap();
    assert_eq!((off.seed, off.temperature), (None, None));
    assert_eq!(load(&[("llm.seed", "never")]).unwrap_err().0[0].message, "expected a number or \"off\"");
    assert_eq!(load(&[("llm.examples", "1000")]).unwrap_err().0[0].key, "llm.examples");
    assert_eq!(load(&[("llm.mode", "choose")]).unwrap_err().0[0].key, "llm.mode");
}

#[test]
fn sentences_are_joined_by_locale() {
    let (_folder, mut sources) = with_file("[handoff]\npolicy = {fr = \"Un collègue prend le relais.\"}\n");
    sources.flags = flags(&[("handoff.policy", "{zh = \"转人工。\"}")]);
    let loaded = Loaded::load(&sources).unwrap();
    let policy = &loaded.settings.pipeline.handoff.policy;
    assert_eq!((policy["fr"].as_str(), policy["zh"].as_str()), ("Un collègue prend le relais.", "转人工。"));
    assert!(policy["en"].contains("colleague"));

    let refused = |pairs: &[(&str, &str)]| problems(&Sources { flags: flags(pairs), ..Sources::default() })[0].clone();
    for (value, says) in [
        ("{zh-CN = \"x\"}", "found `zh-CN`"),
        ("{en = \" \"}", "en: expected one line"),
        ("{en = \"a\\nb\"}", "en: expected one line"),
    ] {
        let problem = refused(&[("handoff.budget", value)]);
        assert_eq!(problem.key, "handoff.budget");
        assert!(problem.message.contains(says), "{}", problem.message);
    }
}

#[test]
fn callers_are_identified_wholly_or_not_at_all() {
    let keys = |text: &str| {
        let (_folder, sources) = with_file(text);
        problems(&sources).into_iter().map(|problem| problem.key).collect::<Vec<_>>()
    };
    let check = |text: &str, expected: &[&str]| assert_eq!(keys(text), expected, "{text}");
    let jwt = "[identity]\njwt_keys = \"k.json\"\njwt_issuer = \"i\"\njwt_audience = [\"a\"]\n";
    check("[identity]\njwt_issuer = \"i\"\n", &["identity.jwt_keys"]);
    check("[identity]\njwt_keys = \"k\"\n", &["identity.jwt_issuer", "identity.jwt_audience"]);
    check(&format!("{jwt}jwt_keys_url = \"https://h/k\"\n"), &["identity.jwt_keys_url"]);
    check(&format!("{jwt}jwt_algorithms = [\"RS256\", \"HS256\"]\n"), &["identity.jwt_algorithms"]);
    check(&format!("{jwt}jwt_algorithms = [\"none\"]\n"), &["identity.jwt_algorithms"]);
    check(&format!("{jwt}jwt_algorithms = []\n"), &["identity.jwt_algorithms"]);
    check(&format!("{jwt}jwt_leeway_s = 9999\n"), &["identity.jwt_leeway_s"]);
    check(&format!("{jwt}[server]\nscopes = [\"a\"]\n"), &["server.scopes"]);
    check("[identity]\nheader = \"Authorization\"\n", &["identity.header"]);
    check("[identity]\nheader = \"grpc-caller\"\n", &["identity.header"]);
    check("[identity]\nheader = \"来电\"\n", &["identity.header"]);
    check("[identity]\nadmin_scope = \"x\"\noperator_scope = \"x\"\n", &["identity.operator_scope"]);
    check("[identity]\nadmin_scope = \"a b\"\n", &["identity.admin_scope"]);
    check("[tls]\ncert = \"c\"\n", &["tls.key"]);
    check("[tls]\nkey = \"k\"\n", &["tls.cert"]);
    check("[tls]\nclient_ca = \"k\"\n", &["tls.cert"]);
    check("[tls]\ncert = \"c\"\nkey = \"k\"\nrequire_client_cert = true\n", &["tls.client_ca"]);
    check("[audit]\nfile = \"\"\n", &["audit.file"]);
}

#[test]
fn identity_tls_and_audit_reach_the_server_with_paths_from_the_file() {
    let text = "[identity]\nheader = \"X-Caller\"\njwt_keys_url = \"http://id.example/k\"\njwt_issuer = \"i\"\n\
                jwt_audience = [\"a\"]\njwt_tenant_claim = \"\"\n[tls]\ncert = \"c\"\nkey = \"k\"\n[audit]\nfile = \"off\"\n";
    let (folder, sources) = with_file(text);
    let loaded = Loaded::load(&sources).unwrap();
    let server = &loaded.settings.server;
    let jwt = server.identity.jwt.as_ref().unwrap();
    assert_eq!(server.identity.header.as_deref(), Some("x-caller"));
    assert_eq!((jwt.tenant_claim.as_ref(), jwt.algorithms.len()), (None, 3));
    assert!(loaded.notices.iter().any(|notice| notice.contains("not https")), "{:?}", loaded.notices);
    assert_eq!(server.tls.as_ref().unwrap().cert, folder.path().join("c"));
    assert_eq!(server.audit, AuditTarget::Off);
}

#[test]
fn live_sources_name_a_server_and_no_secret() {
    let (folder, mut sources) = with_file(
        "[execute]\ntargets = {shelf = {command = [\"shelf\"], env = [\"SHELF_TOKEN\"]}}\n\
         [[registry.live]]\nname = \"客服\"\nurl = \"https://mcp.example/mcp\"\nheaders = {Authorization = \"env:DESK\", X-Set = \"repos\"}\n\
         domain = \"desk\"\npermissions = [\"desk:use\"]\ntrust_hints = true\nrequired = true\nrefresh_s = 0\n\
         [[registry.live]]\nname = \"files\"\ncommand = [\"npx\", \"-y\", \"some-server\"]\nenv = [\"PLACE\"]\ntimeout_ms = 500\n\
         [[registry.live]]\nname = \"shelf\"\ntarget = \"shelf\"\n",
    );
    sources.env = env(&[("DESK", "Bearer s3cret"), ("PLACE", "/home/s3cret"), ("SHELF_TOKEN", "s3cret")]);
    let loaded = Loaded::load(&sources).unwrap();
    let live = &loaded.settings.pipeline.live;
    let McpTarget::Url(desk) = &live[0].server.place else { panic!() };
    assert_eq!(desk.base_url, "https://mcp.example/mcp");
    let header = |name: &str, value: &str| (name.to_owned(), Secret(value.to_owned()));
    assert_eq!(desk.headers, [header("Authorization", "Bearer s3cret"), header("X-Set", "repos")]);
    assert_eq!(
        (live[0].domain.as_deref(), live[0].permissions.as_slice()),
        (Some("desk"), &["desk:use".to_owned()][..])
    );
    assert!(live[0].trust_hints && live[0].required && live[0].refresh.is_zero());
    let McpTarget::Command { program, args, env } = &live[1].server.place else { panic!() };
    assert_eq!((program.as_str(), args.len(), env.as_slice()), ("npx", 2, &[header("PLACE", "/home/s3cret")][..]));
    assert_eq!((live[1].server.timeout.as_millis(), live[1].refresh.as_secs()), (500, 300));
    assert!(!live[1].trust_hints && !live[1].required);
    assert_eq!(live[2].target.as_deref(), Some("shelf"));
    let McpTarget::Command { program, env, .. } = &live[2].server.place else { panic!() };
    assert_eq!((program.as_str(), env.as_slice()), ("shelf", &[header("SHELF_TOKEN", "s3cret")][..]));
    for shown in [format!("{loaded:?}"), loaded.print_text(), loaded.print_json()] {
        assert!(!shown.contains("s3cret"), "{shown}");
    }
    let (_again, mut again) = with_file(&loaded.print_text());
    again.env = sources.env.clone();
    assert_eq!(Loaded::load(&again).unwrap().settings.pipeline.live.len(), 3);
    drop(folder);
}

#[test]
fn faults_of_live_sources_name_the_entry_and_show_no_value() {
    let desk = |more: &str| format!("[{{name = \"desk\", url = \"https://h/mcp\"{more}}}]");
    for (entries, expected) in [
        ("[{}]".to_owned(), "source 1: name: expected up to 64 bytes"),
        ("[{name = \"a b\", url = \"https://h\"}]".to_owned(), "source 1 (`a b`): name: expected"),
        ("[{name = \"desk\"}]".to_owned(), "needs one of url, command (a list) or target"),
        (desk(", command = [\"x\"]"), "needs one of url, command (a list) or target"),
        (desk(", headers = {Authorization = \"Bearer s3cret\"}"), "header Authorization: name a variable (env:NAME)"),
        (desk(", headers = {X-Api-Key = \"s3cret\"}"), "header X-Api-Key: name a variable (env:NAME)"),
        (desk(", headers = {X-Api-Key = \"env:ABSENT\"}"), "header X-Api-Key: the variable ABSENT is not set"),
        (desk(", headers = \"s3cret\""), "source 1: a value does not fit; expected a list of tables"),
        (desk(", token = \"s3cret\""), "source 1: unknown field `token`; expected a list of tables"),
        (desk(", timeout_ms = 0"), "timeout_ms: expected 1 to 600000, found 0"),
        (desk(", refresh_s = 86401"), "refresh_s: expected 0 to 86400, found 86401"),
        (desk(", permissions = [\" \"]"), "permissions: a scope is empty"),
        (desk(", env = [\"HOME\"]"), "env belongs to a source with command"),
        (
            "[{name = \"a\", command = [\"x\"], allow_private = true}]".to_owned(),
            "allow_private belongs to a source with url",
        ),
        (
            "[{name = \"a\", command = [\"x\"], headers = {X = \"y\"}}]".to_owned(),
            "headers belongs to a source with url",
        ),
        (
            "[{name = \"a\", command = [\"x\"], env = [\"TOKEN=s3cret\"]}]".to_owned(),
            "env: expected names of environment",
        ),
        ("[{name = \"a\", command = [\"x\"], env = [\"ABSENT\"]}]".to_owned(), "env: the variable ABSENT is not set"),
        ("[{name = \"a\", target = \"none\"}]".to_owned(), "target: execute.targets has no `none`"),
        ("[{name = \"a\", target = \"shop\"}]".to_owned(), "target: `shop` of execute.targets is no MCP server"),
        (
            "[{name = \"a\", command = [\"x\"]}, {name = \"a\", command = [\"y\"]}]".to_owned(),
            "source 2 (`a`): another source has this name",
        ),
        ("\"https://u:s3cret@h\"".to_owned(), "expected a list of tables"),
    ] {
        let text = format!(
            "[registry]\nlive = {entries}\n[execute]\ntargets = {{shop = {{base_url = \"http://shop.example\"}}}}\n"
        );
        let (_folder, sources) = with_file(&text);
        let found = Problems(problems(&sources)).to_string();
        assert!(found.contains("`registry.live`") && found.contains(expected), "{entries}: {found}");
        assert!(!found.contains("s3cret"), "{found}");
    }
}
