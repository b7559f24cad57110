//! What findings cost on a labelled set, for people and as JSON.

use std::fmt::Write as _;

use pointsman::evaluate::{Impact, Impacts, Misroute, Trial};
use pointsman::registry::lint::{Finding, Language};
use serde::Serialize;

use super::text::Paint;
use crate::cmd::terminal::plain;

/// Most findings in the text; JSON has all.
const MOST_SHOWN: usize = 30;

pub(super) fn text(out: &mut String, impacts: &Impacts, findings: &[Finding], language: Language, paint: &Paint) {
    let Paint { bold, dim, off, .. } = paint;
    let Impacts { rows, misrouted, unexplained, failed, untried, .. } = impacts;
    let head = match language {
        Language::English => format!(
            "misroutes: {misrouted} of {rows} queries rank a wrong tool first; no finding is about {unexplained} of them"
        ),
        Language::Chinese => {
            format!("误路由：{rows} 条查询中 {misrouted} 条把错误的工具排在第一；其中 {unexplained} 条与任何发现无关")
        }
    };
    let _ = writeln!(out, "{bold}{head}{off}");
    let costly = impacts.findings.iter().filter(|impact| impact.misroutes > 0 || worth_telling(impact));
    let (mut shown, mut more) = (0, 0);
    for impact in costly {
        if shown == MOST_SHOWN {
            more += 1;
            continue;
        }
        shown += 1;
        let Some(finding) = findings.get(impact.finding) else { continue };
        let other = finding.other.as_ref().map(|other| format!(" ↔ {}", plain(other))).unwrap_or_default();
        let _ = writeln!(out, "{:>5}  {}  {}{other}", impact.misroutes, finding.rule, plain(&finding.tool));
        for Misroute { id, query, wanted, first } in &impact.examples {
            let _ = writeln!(out, "         {dim}{}{off} {} ({wanted} ← {first})", plain(id), plain(query));
        }
        if let Some(trial) = &impact.trial {
            tried(out, trial, language, paint);
        }
    }
    let said = match language {
        Language::English => [
            (*untried, "boundaries were not tried: there are too many"),
            (*failed, "queries could not be ranked"),
            (more, "more findings cost something; --format json has them all"),
        ],
        Language::Chinese => [
            (*untried, "条边界太多未试"),
            (*failed, "条查询无法排序"),
            (more, "个发现也有代价；--format json 给出全部"),
        ],
    };
    for (count, words) in said.iter().filter(|(count, _)| *count > 0) {
        let _ = writeln!(out, "{count:>5}  {words}");
    }
    out.push('\n');
}

fn worth_telling(impact: &Impact) -> bool {
    impact.trial.as_ref().is_some_and(|trial| trial.gained + trial.lost > 0)
}

fn tried(out: &mut String, trial: &Trial, language: Language, paint: &Paint) {
    let Paint { green, red, off, .. } = paint;
    let Trial { tool, boundary, gained, lost, gained_examples, lost_examples } = trial;
    let (case, target) = (plain(&boundary.case), boundary.use_tool.as_deref().unwrap_or_default());
    let words = match language {
        Language::English => format!("with {{case: \"{case}\", use: {target}}} on {tool}"),
        Language::Chinese => format!("若给 {tool} 加上 {{case: \"{case}\", use: {target}}}"),
    };
    let _ = writeln!(out, "       {words}: {green}+{gained}{off} {red}-{lost}{off}");
    for (sign, queries) in [(format!("{green}+{off}"), gained_examples), (format!("{red}-{off}"), lost_examples)] {
        for query in queries {
            let _ = writeln!(out, "         {sign} {}", plain(query));
        }
    }
}

#[derive(Serialize)]
pub(super) struct JsonImpacts<'a> {
    rows: usize,
    misrouted: usize,
    unexplained: usize,
    failed: usize,
    untried: usize,
    findings: Vec<JsonImpact<'a>>,
}

#[derive(Serialize)]
struct JsonImpact<'a> {
    rule: &'a str,
    tool: &'a str,
    other: Option<&'a str>,
    misroutes: usize,
    examples: Vec<JsonMisroute<'a>>,
    trial: Option<JsonTrial<'a>>,
}

#[derive(Serialize)]
struct JsonMisroute<'a> {
    id: &'a str,
    query: &'a str,
    wanted: &'a str,
    first: &'a str,
}

#[derive(Serialize)]
struct JsonTrial<'a> {
    tool: &'a str,
    case: &'a str,
    #[serde(rename = "use")]
    use_tool: Option<&'a str>,
    gained: usize,
    lost: usize,
    gained_examples: &'a [String],
    lost_examples: &'a [String],
}

pub(super) fn json<'a>(impacts: &'a Impacts, findings: &'a [Finding]) -> JsonImpacts<'a> {
    let misroute = |Misroute { id, query, wanted, first }: &'a Misroute| JsonMisroute { id, query, wanted, first };
    let trial = |trial: &'a Trial| JsonTrial {
        tool: &trial.tool,
        case: &trial.boundary.case,
        use_tool: trial.boundary.use_tool.as_deref(),
        gained: trial.gained,
        lost: trial.lost,
        gained_examples: &trial.gained_examples,
        lost_examples: &trial.lost_examples,
    };
    let impact = |impact: &'a Impact| {
        let finding = findings.get(impact.finding)?;
        Some(JsonImpact {
            rule: finding.rule,
            tool: &finding.tool,
            other: finding.other.as_deref(),
            misroutes: impact.misroutes,
            examples: impact.examples.iter().map(misroute).collect(),
            trial: impact.trial.as_ref().map(trial),
        })
    };
    JsonImpacts {
        rows: impacts.rows,
        misrouted: impacts.misrouted,
        unexplained: impacts.unexplained,
        failed: impacts.failed,
        untried: impacts.untried,
        findings: impacts.findings.iter().filter_map(impact).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    fn impacts() -> Impacts {
        let misroute = Misroute {
            id: "d-1".into(),
            query: "包裹在哪".into(),
            wanted: "find_parcels".into(),
            first: "locate_packages".into(),
        };
        let boundary = pointsman::tool::Boundary { case: "单个".into(), use_tool: Some("locate_packages".into()) };
        let trial = Trial {
            tool: "find_parcels".into(),
            boundary,
            gained: 1,
            lost: 0,
            gained_examples: vec!["包裹在哪".into()],
            lost_examples: Vec::new(),
        };
        let costly = Impact { finding: 1, misroutes: 1, examples: vec![misroute], trial: Some(trial) };
        let free = Impact { finding: 0, misroutes: 0, examples: Vec::new(), trial: None };
        Impacts { rows: 9, misrouted: 2, unexplained: 1, findings: vec![costly, free], ..Impacts::default() }
    }

    #[test]
    fn costly_findings_come_with_queries_and_the_boundary_that_was_tried() {
        let (impacts, report) = (impacts(), sample());
        let mut out = String::new();
        text(&mut out, &impacts, &report.findings, Language::English, &Paint::new(false));
        let expect = "misroutes: 2 of 9 queries rank a wrong tool first; no finding is about 1 of them\n    \
                      1  b-rule  find_parcels ↔ locate_packages\n         \
                      d-1 包裹在哪 (find_parcels ← locate_packages)\n       \
                      with {case: \"单个\", use: locate_packages} on find_parcels: +1 -0\n         + 包裹在哪\n\n";
        assert_eq!(out, expect);
        let value = serde_json::to_value(json(&impacts, &report.findings)).unwrap();
        assert_eq!(value["findings"][0]["trial"]["use"], "locate_packages");
        assert_eq!((&value["misrouted"], value["findings"].as_array().unwrap().len()), (&2.into(), 2));
    }
}
