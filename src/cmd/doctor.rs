//! `pointsman doctor`: what the configured endpoints can do, and how to configure them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use anyhow::anyhow;
use pointsman::decide::llm::probe::{self, Finding, Report};
use serde_json::{Value, json};

use super::failure::Failure;
use super::options::{Format, Options};
use super::{block_on, progress};

#[derive(clap::Args)]
#[command(
    after_help = "Sends some twenty short requests to each endpoint, one at a time. Exit codes: 0 every endpoint can serve, \
                        1 one cannot, 2 unusable configuration.\n\n\
                        Examples:\n  \
                        pointsman doctor --set llm.base_url=http://127.0.0.1:8080/v1 --set llm.model=some-model\n  \
                        POINTSMAN_LLM__API_KEY=… pointsman doctor --config pointsman.toml --format json"
)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// How to print the report
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Leave out how many tools are accepted, the check with the longest prompts
    #[arg(long)]
    quick: bool,
    /// Longest one check may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    patience: u64,
}

pub fn run(args: Args) -> Result<(), Failure> {
    // Without logs: what the probes meet stands in the report.
    let settings = args.options.load(Vec::new())?.settings.pipeline;
    let Some(llm) = settings.llm else {
        return Err(Failure::unusable(anyhow!("there is no LLM to examine: llm.base_url is not set")).remedy(
            "set llm.base_url and llm.model, in the file given with --config or with --set llm.base_url=http://…/v1 \
             --set llm.model=NAME, and the key in POINTSMAN_LLM__API_KEY",
        ));
    };
    let options =
        probe::Options { patience: Duration::from_secs(args.patience), quick: args.quick, deadline: settings.deadline };
    let reports = block_on(async {
        let mut reports = Vec::new();
        for endpoint in &llm.endpoints {
            let line = progress::line();
            let started = |check: probe::Check| line.set_message(format!("{}: {}", endpoint.base_url, check.as_str()));
            let report = probe::examine(&llm, endpoint, &options, &started).await;
            line.finish_and_clear();
            reports.push(report.map_err(|message| Failure::unusable(anyhow!(message)))?);
        }
        Ok(reports)
    })?;
    let text = match args.format {
        Format::Text => reports.iter().enumerate().map(text).collect::<Vec<_>>().join("\n"),
        Format::Json => format!("{}\n", json!({"endpoints": reports.iter().enumerate().map(json).collect::<Vec<_>>()})),
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|err| Failure::failed(err).context("cannot write to standard output"))?;
    verdict(&reports)
}

/// The first endpoint that cannot serve is told; the report holds the others.
fn verdict(reports: &[Report]) -> Result<(), Failure> {
    for report in reports {
        if let Err(refusal) = &report.result {
            let error = anyhow!("{} cannot serve: {}", report.base_url, refusal.reason);
            return Err(Failure::failed(error).remedy(refusal.remedy.clone()));
        }
    }
    Ok(())
}

fn text((place, report): (usize, &Report)) -> String {
    let mut text = format!("{} with model {}\n\n", report.base_url, report.model);
    let mut row = |check: &str, result: &str, time: &str, remark: &str| {
        let _ = writeln!(text, "{}", format!("{check:<22} {result:<8} {time:>8}  {remark}").trim_end());
    };
    row("check", "result", "time", "remark");
    for Finding { check, grade, remark, took } in &report.findings {
        let time = took.map_or(String::new(), |took| format!("{:.2} s", took.as_secs_f64()));
        row(check.as_str(), grade.as_str(), &time, remark);
    }
    match &report.result {
        Ok(advice) => {
            let toml = advice.to_toml(&report.base_url, &report.model, place);
            let _ = write!(text, "\nIt can serve. Settings to use:\n\n{toml}");
        }
        Err(refusal) => {
            let _ = writeln!(text, "\nIt cannot serve: {}.\nWhat to do: {}.", refusal.reason, refusal.remedy);
        }
    }
    text
}

/// Every key is always there.
fn json((place, report): (usize, &Report)) -> Value {
    let checks = report.findings.iter().map(|Finding { check, grade, remark, took }| {
        json!({"check": check.as_str(), "result": grade.as_str(), "remark": remark,
               "took_ms": took.map(|took| took.as_millis() as u64)})
    });
    let (advice, refusal) = (report.result.as_ref().ok(), report.result.as_ref().err());
    let settings = advice.map(|advice| {
        json!({
            "mode": advice.mode.as_str(),
            "logprobs": advice.logprobs,
            "temperature": advice.temperature,
            "seed": advice.seed,
            "max_tools": advice.max_tools,
            "max_completion_tokens": advice.max_completion_tokens,
            "timeout_ms": advice.timeout.as_millis() as u64,
            "deadline_ms": advice.deadline.map(|deadline| deadline.as_millis() as u64),
        })
    });
    json!({
        "base_url": report.base_url,
        "model": report.model,
        "serves": advice.is_some(),
        "reason": refusal.map(|refusal| &refusal.reason),
        "remedy": refusal.map(|refusal| &refusal.remedy),
        "checks": checks.collect::<Vec<_>>(),
        "settings": settings,
        "toml": advice.map(|advice| advice.to_toml(&report.base_url, &report.model, place)),
    })
}
