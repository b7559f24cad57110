//! From scores to figures, as JSON and as a table.
//!
//! Owns: which rows enter which figure and the shape of the output. Every figure carries its interval and its rows;
//! the path of a figure (`recall.5`) is its place in the JSON, its place under `intervals` and its line in the table.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::Stage;
use super::calibration::{Bin, calibration};
use super::interval::Figure;
use super::latency::Latency;
use super::plan::{LeftOut, LeftOutCounts};
use super::run::{RowScore, Scored};
use super::score_prefilter::{CUTS, PrefilterScore};
use super::score_route::{RouteScore, Verdict};

/// The result of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub stage: Stage,
    /// Rows scored.
    pub queries: usize,
    /// Tools served from the registry.
    pub tools: usize,
    /// By path, in the order of the table.
    pub figures: Vec<(String, Figure)>,
    pub latency: Latency,
    /// Reliability table; empty at the prefilter stage.
    pub reliability: Vec<Bin>,
    pub rows_left_out: BTreeMap<&'static str, usize>,
    pub failed_requests: usize,
    pub decided_by: BTreeMap<&'static str, usize>,
    pub degraded: BTreeMap<&'static str, usize>,
    /// What a reader of the figures should know.
    pub notices: Vec<String>,
}

impl Report {
    pub(super) fn new(
        stage: Stage,
        tools: usize,
        mut left_out: LeftOutCounts,
        scored: Scored,
        mut notices: Vec<String>,
    ) -> Self {
        if scored.variant_missing > 0 {
            *left_out.entry(LeftOut::VariantNotServed).or_default() += scored.variant_missing;
        }
        notices.extend(happened(&scored));
        let mut figures = prefilter_figures(&scored.rows);
        let mut reliability = Vec::new();
        if stage == Stage::Route {
            reliability = route_figures(&scored.rows, &mut figures);
        }
        Self {
            stage,
            queries: scored.rows.len(),
            tools,
            figures,
            latency: Latency::of(scored.latencies),
            reliability,
            rows_left_out: left_out.into_iter().map(|(reason, rows)| (reason.as_str(), rows)).collect(),
            failed_requests: scored.failed_requests,
            decided_by: scored.decided_by,
            degraded: scored.degraded,
            notices,
        }
    }

    /// One object; a figure that no row counts for is null.
    pub fn to_json(&self) -> Value {
        let mut root = json!({
            "stage": self.stage.as_str(),
            "queries": self.queries,
            "tools": self.tools,
            "latency_ms": self.latency,
            "rows_left_out": self.rows_left_out,
            "failed_requests": self.failed_requests,
            "notices": self.notices,
        });
        let (mut intervals, mut rows) = (json!({}), json!({}));
        for (path, figure) in &self.figures {
            place(&mut root, path, json!(figure.value));
            place(&mut intervals, path, json!(figure.interval));
            place(&mut rows, path, json!(figure.rows));
        }
        place(&mut root, "intervals", intervals);
        place(&mut root, "rows", rows);
        if self.stage == Stage::Route {
            place(&mut root, "calibration.bins", json!(self.reliability));
            place(&mut root, "decided_by", json!(self.decided_by));
            place(&mut root, "degraded", json!(self.degraded));
        }
        root
    }

    pub fn to_text(&self) -> String {
        let mut out = String::new();
        self.write_text(&mut out).expect("writing to a string cannot fail");
        out
    }

    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "stage {}   queries {}   tools {}\n", self.stage.as_str(), self.queries, self.tools)?;
        writeln!(out, "{:<28}{:>8}  {:>16}{:>8}", "figure", "value", "95 % interval", "rows")?;
        for (path, figure) in &self.figures {
            let show = |value: f64| shown(path, value);
            let value = figure.value.map_or_else(|| "-".into(), show);
            let interval =
                figure.interval.map_or_else(|| "-".into(), |(low, high)| format!("{} to {}", show(low), show(high)));
            writeln!(out, "{:<28}{value:>8}  {interval:>16}{:>8}", path.replace('.', " "), figure.rows)?;
        }
        let ms = |time: Option<f64>| time.map_or_else(|| "-".into(), |ms| format!("{ms:.1}"));
        let Latency { p50, p95, p99 } = self.latency;
        writeln!(out, "\nlatency ms   p50 {}   p95 {}   p99 {}", ms(p50), ms(p95), ms(p99))?;
        self.write_reliability(out)?;
        for (title, counts) in
            [("decided by", &self.decided_by), ("degraded", &self.degraded), ("rows left out", &self.rows_left_out)]
        {
            if !counts.is_empty() {
                let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
                writeln!(out, "{title}: {}", counts.join(", "))?;
            }
        }
        for notice in &self.notices {
            writeln!(out, "note: {notice}")?;
        }
        Ok(())
    }

    fn write_reliability(&self, out: &mut String) -> std::fmt::Result {
        if self.reliability.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n{:>10}{:>12}{:>10}", "rows", "confidence", "right")?;
        for bin in &self.reliability {
            writeln!(out, "{:>10.1}{:>12.3}{:>10.3}", bin.rows, bin.confidence, bin.right)?;
        }
        writeln!(out)
    }
}

/// Shares in percent; the two figures that are no shares as they are.
fn shown(path: &str, value: f64) -> String {
    match path {
        "mrr" | "calibration.ece" => format!("{value:.3}"),
        "shortlist.mean_size" => format!("{value:.1}"),
        _ => format!("{:.1}", value * 100.0),
    }
}

/// Puts `value` at a dotted path, making the objects on the way.
fn place(root: &mut Value, path: &str, value: Value) {
    let mut at = root;
    for step in path.split('.') {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[step];
    }
    *at = value;
}

fn happened(scored: &Scored) -> Vec<String> {
    let mut notices = Vec::new();
    if let Some(first) = &scored.first_failure {
        notices.push(format!("{} requests failed and count as wrong; the first: {first}", scored.failed_requests));
    }
    if scored.words_alone > 0 {
        notices.push(format!("{} rankings were made by words alone, without vectors", scored.words_alone));
    }
    if scored.nothing_eligible > 0 {
        notices.push(format!(
            "{} rows have no eligible tool; they count as answered with no tool, without asking the router",
            scored.nothing_eligible
        ));
    }
    notices
}

fn prefilter_figures(rows: &[RowScore]) -> Vec<(String, Figure)> {
    let all: Vec<&PrefilterScore> = rows.iter().filter_map(|row| row.prefilter.as_ref()).collect();
    let first_turns: Vec<&PrefilterScore> = all.iter().copied().filter(|score| !score.has_history).collect();
    let mut figures = Vec::new();
    for (name, scores) in [("recall", &all), ("recall_without_history", &first_turns)] {
        for (at, k) in CUTS.iter().enumerate() {
            figures.push((format!("{name}.{k}"), Figure::mean(scores.iter().map(|score| score.recall[at]))));
        }
    }
    let mean = |of: fn(&PrefilterScore) -> f64| Figure::mean(all.iter().map(|score| of(score)));
    figures.push(("mrr".into(), mean(|score| score.reciprocal_rank)));
    figures.push(("shortlist.mean_size".into(), mean(|score| score.shortlist_size as f64)));
    figures.push(("shortlist.hit_rate".into(), mean(|score| score.shortlist_hit)));
    figures
}

/// Adds the figures of whole answers and returns the reliability table.
fn route_figures(rows: &[RowScore], figures: &mut Vec<(String, Figure)>) -> Vec<Bin> {
    let scores: Vec<&RouteScore> = rows.iter().filter_map(|row| row.route.as_ref()).collect();
    let share = |of: fn(&RouteScore) -> Option<bool>| {
        Figure::mean(scores.iter().filter_map(|score| of(score)).map(|right| f64::from(u8::from(right))))
    };
    figures.push(("top1".into(), share(|score| score.top1)));
    figures.push(("arguments_exact".into(), share(|score| score.arguments)));
    for (name, verdict) in
        [("no_tool", (|score| Some(score.no_tool)) as fn(&RouteScore) -> _), ("clarify", |score| score.clarify)]
    {
        let verdicts: Vec<Verdict> = scores.iter().filter_map(|score| verdict(score)).collect();
        figures.push((format!("{name}.precision"), share_of(&verdicts, |verdict| verdict.done)));
        figures.push((format!("{name}.recall"), share_of(&verdicts, |verdict| verdict.wanted)));
    }
    let twins: Vec<Verdict> =
        rows.iter().filter_map(|row| row.twin).map(|done| Verdict { wanted: true, done }).collect();
    if !twins.is_empty() {
        let hidden = share_of(&twins, |verdict| verdict.wanted);
        let all: Vec<Verdict> = scores.iter().map(|score| score.no_tool).chain(twins).collect();
        figures.push(("abstain.precision".into(), share_of(&all, |verdict| verdict.done)));
        figures.push(("abstain.recall".into(), share_of(&all, |verdict| verdict.wanted)));
        figures.push(("abstain.hidden_answer_recall".into(), hidden));
    }
    let found = || scores.iter().filter_map(|score| score.by_tool);
    let calls = found().map(|found| (found.right as f64, found.wanted as f64)).collect();
    figures.push(("args_by_tool.calls".into(), Figure::ratio(calls)));
    let complete = Figure::mean(found().map(|found| f64::from(u8::from(found.complete))));
    figures.push(("args_by_tool.complete".into(), complete));
    let sure = scores.iter().filter_map(|score| Some((score.confidence, score.top1?))).collect();
    let calibration = calibration(sure);
    figures.push(("calibration.ece".into(), calibration.ece));
    calibration.bins
}

/// Of the rows `below` holds for, the share that was both wanted and done.
fn share_of(verdicts: &[Verdict], below: fn(&Verdict) -> bool) -> Figure {
    let count = |yes: bool| f64::from(u8::from(yes));
    Figure::ratio(
        verdicts.iter().map(|verdict| (count(verdict.wanted && verdict.done), count(below(verdict)))).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precision_and_recall_have_their_own_rows() {
        let verdicts: Vec<Verdict> = [(true, true), (true, false), (false, true), (false, false), (true, true)]
            .map(|(wanted, done)| Verdict { wanted, done })
            .to_vec();
        let precision = share_of(&verdicts, |verdict| verdict.done);
        let recall = share_of(&verdicts, |verdict| verdict.wanted);
        assert_eq!((precision.value, precision.rows), (Some(2.0 / 3.0), 3));
        assert_eq!((recall.value, recall.rows), (Some(2.0 / 3.0), 3));
        assert_eq!(share_of(&verdicts[3..4], |verdict| verdict.done).value, None);
    }

    #[test]
    fn values_are_placed_by_path() {
        let mut root = json!({"a": 1});
        place(&mut root, "b.c", json!(2));
        place(&mut root, "b.d", json!(null));
        assert_eq!(root, json!({"a": 1, "b": {"c": 2, "d": null}}));
    }
}
