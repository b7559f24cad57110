//! `pointsman lint`: what is wrong with tool cards, before anybody is served with them.

mod impact;
mod sarif;
mod text;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::ValueEnum;
use pointsman::evaluate::{self, EvalError, Impacts, LintOptions, LintedFiles};
use pointsman::pipeline::{counts, severity_name};
use pointsman::registry::lint::{Finding, Language, Severity, rules};
use pointsman::registry::{CardProblem, Quarantined};
use serde::Serialize;

use super::failure::Failure;
use super::options::Options;
use super::progress::{rows_bar, show};
use super::{block_on, logging, progress};

#[derive(clap::Args)]
#[command(
    after_help = "Each finding says which rule it is of, where, why it matters and what to do; docs/LINT.md lists the rules. \
                  Which cards say nearly the same is measured with the encoders that would serve them; without encoders \
                  the report says that this was left out.\n\n\
                  Exit codes: 0 no errors, 1 errors (a card that would be quarantined is one), 2 unusable input.\n\n\
                  Examples:\n  \
                  pointsman lint examples/shop/registry.yaml\n  \
                  pointsman lint cards/*.yaml --lang zh --severity warning\n  \
                  pointsman lint tools.json --no-vectors --only identity-param,no-limit-cap --format json\n  \
                  pointsman lint registry.yaml --format sarif > lint.sarif\n  \
                  pointsman lint registry.yaml --measure queries.jsonl"
)]
pub struct Args {
    /// Registry files, all formats a registry may have; default: the registries of the configuration
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    options: Options,
    /// How to print the report
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Language of reasons and proposals
    #[arg(long, value_enum, default_value_t = Lang::En)]
    lang: Lang,
    /// Only findings of these rules, separated by commas
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    only: Vec<String>,
    /// Only findings that are at least this severe
    #[arg(long, value_enum, default_value_t = Least::Note)]
    severity: Least,
    /// Do not measure which cards say nearly the same; needs no encoder and takes no time
    #[arg(long)]
    no_vectors: bool,
    /// Labelled utterances, one JSON object a line: rank the findings by the misroutes they cause on these, and show what
    /// the boundaries they propose would change
    #[arg(long, value_name = "QUERIES")]
    measure: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Sarif,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Lang {
    En,
    Zh,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Least {
    Error,
    Warning,
    Note,
}

impl Least {
    fn severity(self) -> Severity {
        match self {
            Self::Error => Severity::Error,
            Self::Warning => Severity::Warning,
            Self::Note => Severity::Note,
        }
    }
}

/// What is printed.
struct Report {
    language: Language,
    findings: Vec<Finding>,
    cards: usize,
    quarantined: Vec<Quarantined>,
    /// What was not looked at.
    notices: Vec<String>,
    /// What the registry itself has to say, such as keys nobody reads.
    remarks: Vec<String>,
    impacts: Option<Impacts>,
}

impl Report {
    /// Errors (quarantined cards are some), warnings, notes.
    fn counts(&self) -> [usize; 3] {
        let [errors, warnings, notes] = counts(&self.findings);
        [errors + self.quarantined.len(), warnings, notes]
    }
}

/// The report goes to standard output, everything else to standard error.
pub fn run(args: Args) -> Result<(), Failure> {
    known_rules(&args.only)?;
    let format = args.format;
    let report = report(args)?;
    let text = match format {
        Format::Text => text::text(&report, super::why::colour()),
        Format::Json => {
            report.remarks.iter().for_each(|remark| eprintln!("note: {remark}"));
            json(&report)
        }
        Format::Sarif => sarif::sarif(&report),
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|err| Failure::failed(err).context("cannot write to standard output"))?;
    match report.counts()[0] {
        0 => Ok(()),
        1 => Err(Failure::failed(anyhow!("lint found 1 error"))),
        errors => Err(Failure::failed(anyhow!("lint found {errors} errors"))),
    }
}

fn known_rules(only: &[String]) -> Result<(), Failure> {
    let Some(unknown) = only.iter().find(|id| !rules().iter().any(|rule| rule.id == id.as_str())) else {
        return Ok(());
    };
    let near = rules().iter().map(|rule| (strsim::damerau_levenshtein(rule.id, unknown), rule.id)).min();
    let hint = near.filter(|(distance, _)| *distance <= 4).map(|(_, id)| format!("did you mean {id}? "));
    Err(Failure::unusable(anyhow!("there is no rule `{unknown}`"))
        .remedy(format!("{}docs/LINT.md lists the rules", hint.unwrap_or_default())))
}

fn report(args: Args) -> Result<Report, Failure> {
    let mut settings = args.options.load(vec![("log.decisions".into(), "off".into())])?.settings;
    // What is wrong with the cards stands in the report.
    settings.log_level = "error".into();
    logging::init(&settings)?;
    let files = if args.files.is_empty() { settings.pipeline.registries.clone() } else { args.files };
    if files.is_empty() {
        return Err(Failure::unusable(anyhow!("there is nothing to lint"))
            .remedy("name registry files: pointsman lint FILE..."));
    }
    let language = match args.lang {
        Lang::En => Language::English,
        Lang::Zh => Language::Chinese,
    };
    let options = LintOptions { files, vectors: !args.no_vectors, language };
    let failure = |error: EvalError| Failure::of(error.is_input(), error);
    let (only, least) = (args.only, args.severity.severity());
    block_on(async {
        let files = evaluate::lint_files(&options, settings.pipeline, &progress::embedding()).await.map_err(failure)?;
        let LintedFiles { router, linted, notices, remarks } = files;
        let wanted = |finding: &&Finding| {
            finding.severity >= least && (only.is_empty() || only.iter().any(|rule| rule == finding.rule))
        };
        let findings: Vec<Finding> = linted.findings.iter().filter(wanted).cloned().collect();
        let impacts = match &args.measure {
            None => None,
            Some(queries) => {
                let bar = rows_bar();
                let told = |at| show(&bar, at);
                let impacts = evaluate::lint_impact(&router, &linted, &findings, queries, &told).await;
                bar.finish_and_clear();
                Some(impacts.map_err(failure)?)
            }
        };
        router.shutdown().await;
        Ok(Report {
            language,
            findings,
            cards: linted.registry.cards.len(),
            quarantined: linted.registry.quarantined.clone(),
            notices,
            remarks,
            impacts,
        })
    })
}

/// Scripts rely on the keys: they are added, never renamed or removed.
#[derive(Serialize)]
struct JsonReport<'a> {
    findings: Vec<JsonFinding<'a>>,
    cards: usize,
    quarantined: Vec<JsonQuarantined<'a>>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    notices: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    impact: Option<impact::JsonImpacts<'a>>,
}

#[derive(Serialize)]
struct JsonFinding<'a> {
    rule: &'a str,
    severity: &'a str,
    tool: &'a str,
    file: &'a str,
    line: Option<usize>,
    reason: &'a str,
    proposal: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    other: Option<&'a str>,
}

#[derive(Serialize)]
struct JsonQuarantined<'a> {
    card: &'a str,
    file: &'a str,
    line: Option<usize>,
    problems: Vec<JsonProblem<'a>>,
}

#[derive(Serialize)]
struct JsonProblem<'a> {
    pointer: &'a str,
    line: Option<usize>,
    message: &'a str,
}

fn json(report: &Report) -> String {
    let view = JsonReport {
        findings: report.findings.iter().map(json_finding).collect(),
        cards: report.cards,
        quarantined: report.quarantined.iter().map(json_quarantined).collect(),
        notices: &report.notices,
        impact: report.impacts.as_ref().map(|impacts| impact::json(impacts, &report.findings)),
    };
    serde_json::to_string_pretty(&view).expect("strings and numbers are JSON") + "\n"
}

fn json_finding(finding: &Finding) -> JsonFinding<'_> {
    JsonFinding {
        rule: finding.rule,
        severity: severity_name(finding.severity),
        tool: &finding.tool,
        file: &finding.file,
        line: finding.line,
        reason: &finding.reason,
        proposal: &finding.proposal,
        other: finding.other.as_deref(),
    }
}

fn json_quarantined(card: &Quarantined) -> JsonQuarantined<'_> {
    JsonQuarantined {
        card: &card.card,
        file: &card.source,
        line: first_line(card),
        problems: card
            .problems
            .iter()
            .map(|CardProblem { pointer, line, message }| JsonProblem { pointer, line: *line, message })
            .collect(),
    }
}

fn first_line(card: &Quarantined) -> Option<usize> {
    card.problems.iter().find_map(|problem| problem.line)
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;
    use crate::cmd::parse;

    pub(super) fn sample() -> Report {
        let finding = |rule, severity, tool: &str, line, other: Option<&str>| Finding {
            rule,
            severity,
            tool: tool.into(),
            file: "cards/注册 表.yaml".into(),
            line,
            reason: "因为 \u{1b}[31mred".into(),
            proposal: "say more".into(),
            other: other.map(str::to_owned),
        };
        let problem = CardProblem { pointer: "/timeout_ms".into(), line: Some(7), message: "missing".into() };
        Report {
            language: Language::English,
            findings: vec![
                finding("a-rule", Severity::Error, "find_parcels", Some(3), None),
                finding("b-rule", Severity::Note, "find_parcels", None, Some("locate_packages")),
                finding("a-rule", Severity::Warning, "退款", Some(9), None),
            ],
            cards: 2,
            quarantined: vec![Quarantined { card: "broken".into(), source: "b.yaml".into(), problems: vec![problem] }],
            notices: Vec::new(),
            remarks: Vec::new(),
            impacts: None,
        }
    }

    #[test]
    fn json_has_exactly_the_promised_keys() {
        let mut report = sample();
        let text = json(&report);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&value), ["cards", "findings", "quarantined"]);
        let first = ["file", "line", "proposal", "reason", "rule", "severity", "tool"];
        assert_eq!(keys(&value["findings"][0]), first);
        assert_eq!(value["findings"][1]["other"], "locate_packages");
        assert_eq!(value["findings"][1]["line"], serde_json::Value::Null);
        assert_eq!(value["quarantined"][0]["problems"][0]["message"], "missing");
        assert_eq!(value["quarantined"][0]["line"], 7);
        report.notices.push("not measured".into());
        let value: serde_json::Value = serde_json::from_str(&json(&report)).unwrap();
        assert_eq!(value["notices"][0], "not measured");
    }

    #[test]
    fn flags_have_the_documented_defaults() {
        let args = parse::<Args>("a.yaml b.json").unwrap();
        assert_eq!((args.files.len(), args.format, args.lang), (2, Format::Text, Lang::En));
        assert_eq!((args.severity, args.no_vectors, args.only.len()), (Least::Note, false, 0));
        let args = parse::<Args>("a --only x,y --severity error --lang zh --format sarif --measure q").unwrap();
        assert_eq!((args.only.len(), args.severity), (2, Least::Error));
        assert_eq!(parse::<Args>("a --format xml").err(), Some(ErrorKind::InvalidValue));
    }

    #[test]
    fn a_rule_that_does_not_exist_is_no_filter() {
        assert!(known_rules(&[]).is_ok());
        assert!(known_rules(&["no-such-rule".into()]).is_err());
    }
}
