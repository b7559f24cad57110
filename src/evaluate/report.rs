//! From scores to figures, as JSON and as a table.
//!
//! Owns: which rows enter which figure and the shape of the output. Every figure carries its interval and its rows;
//! the path of a figure (`recall.5`) is its place in the JSON, its place under `intervals` and its line in the table.
//! A group of rows has the same figures under `by.language.zh`, a baseline those of a ranking under `baselines.bm25`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::Stage;
use super::baselines::Method;
use super::calibration::{Bin, calibration};
use super::confusions::Confusions;
use super::interval::Figure;
use super::latency::Latency;
use super::plan::{LeftOut, LeftOutCounts};
use super::rows::Groups;
use super::run::{RowScore, Scored};
use super::score_prefilter::{CUTS, PrefilterScore};
use super::score_route::{RouteScore, Verdict};

/// Figures by path, in the order of the table.
pub type Figures = Vec<(String, Figure)>;

/// Groups of one kind beyond which none is reported: a field that is different in every row groups nothing.
const MAX_GROUPS: usize = 40;

/// The result of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub stage: Stage,
    /// Rows scored.
    pub queries: usize,
    /// Rows scored, by language.
    pub languages: BTreeMap<String, usize>,
    /// Tools served from the registry.
    pub tools: usize,
    /// By path, in the order of the table.
    pub figures: Figures,
    /// By path, such as `by.kind.typo`; ways of grouping that put all rows into one group are left out.
    pub groups: Vec<(String, Figures)>,
    pub latency: Latency,
    /// Reliability table; empty at the prefilter stage.
    pub reliability: Vec<Bin>,
    pub rows_left_out: BTreeMap<&'static str, usize>,
    pub failed_requests: usize,
    pub decided_by: BTreeMap<&'static str, usize>,
    pub degraded: BTreeMap<&'static str, usize>,
    /// Wrong choices by pair, where asked for.
    pub confusions: Option<Confusions>,
    /// What a reader of the figures should know.
    pub notices: Vec<String>,
}

impl Report {
    pub(super) fn new(
        stage: Stage,
        tools: usize,
        mut left_out: LeftOutCounts,
        mut scored: Scored,
        mut notices: Vec<String>,
    ) -> Self {
        if scored.variant_missing > 0 {
            *left_out.entry(LeftOut::VariantNotServed).or_default() += scored.variant_missing;
        }
        notices.extend(happened(&scored));
        let (figures, reliability) = figures(stage, &scored.rows.iter().collect::<Vec<_>>());
        let groups = groups(stage, &scored.rows);
        let mut languages = BTreeMap::new();
        for row in &scored.rows {
            *languages.entry(row.groups.language.clone()).or_default() += 1;
        }
        let judged = scored.rows.iter().filter(|row| row.route.is_some()).count();
        let wrong = std::mem::take(&mut scored.wrong);
        Self {
            stage,
            queries: scored.rows.len(),
            languages,
            tools,
            figures,
            groups,
            latency: Latency::of(scored.latencies),
            reliability,
            rows_left_out: left_out.into_iter().map(|(reason, rows)| (reason.as_str(), rows)).collect(),
            failed_requests: scored.failed_requests,
            decided_by: scored.decided_by,
            degraded: scored.degraded,
            confusions: (stage == Stage::Route).then(|| Confusions::of(wrong, judged)),
            notices,
        }
    }

    /// One object; a figure that no row counts for is null.
    pub fn to_json(&self) -> Value {
        let mut root = json!({
            "stage": self.stage.as_str(),
            "queries": self.queries,
            "languages": self.languages,
            "tools": self.tools,
            "latency_ms": self.latency,
            "rows_left_out": self.rows_left_out,
            "failed_requests": self.failed_requests,
            "notices": self.notices,
        });
        let (mut intervals, mut rows) = (json!({}), json!({}));
        let grouped = self
            .groups
            .iter()
            .flat_map(|(group, figures)| figures.iter().map(move |(path, figure)| (format!("{group}.{path}"), figure)));
        for (path, figure) in self.figures.iter().map(|(path, figure)| (path.clone(), figure)).chain(grouped) {
            place(&mut root, &path, json!(figure.value));
            place(&mut intervals, &path, json!(figure.interval));
            place(&mut rows, &path, json!(figure.rows));
        }
        place(&mut root, "intervals", intervals);
        place(&mut root, "rows", rows);
        if self.stage == Stage::Route {
            place(&mut root, "calibration.bins", json!(self.reliability));
            place(&mut root, "decided_by", json!(self.decided_by));
            place(&mut root, "degraded", json!(self.degraded));
        }
        if let Some(confusions) = &self.confusions {
            place(&mut root, "confusions", json!(confusions));
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
        let methods: Vec<&str> = self.methods().map(Method::as_str).collect();
        let columns: String = methods.iter().map(|method| format!("{method:>8}")).collect();
        writeln!(out, "{:<28}{:>8}  {:>16}{:>8}{columns}", "figure", "value", "95 % interval", "rows")?;
        for (path, figure) in self.figures.iter().filter(|(path, _)| !path.starts_with(BASELINES)) {
            let show = |value: f64| shown(path, value);
            let value = figure.value.map_or_else(|| "-".into(), show);
            let interval =
                figure.interval.map_or_else(|| "-".into(), |(low, high)| format!("{} to {}", show(low), show(high)));
            let others: String = methods.iter().map(|method| self.baseline(method, path)).collect();
            writeln!(out, "{:<28}{value:>8}  {interval:>16}{:>8}{others}", path.replace('.', " "), figure.rows)?;
        }
        self.write_groups(out)?;
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
        if let Some(confusions) = &self.confusions {
            confusions.write_text(out)?;
        }
        for notice in &self.notices {
            writeln!(out, "note: {notice}")?;
        }
        Ok(())
    }

    /// Baselines that were asked for.
    fn methods(&self) -> impl Iterator<Item = Method> + '_ {
        let is_there = |method: &Method| {
            let prefix = format!("{BASELINES}{}.", method.as_str());
            self.figures.iter().any(|(path, _)| path.starts_with(&prefix))
        };
        Method::ALL.into_iter().filter(is_there)
    }

    /// A cell of the table; empty where the baseline has no such figure.
    fn baseline(&self, method: &str, path: &str) -> String {
        let wanted = format!("{BASELINES}{method}.{path}");
        let found = self.figures.iter().find(|(path, _)| *path == wanted).and_then(|(_, figure)| figure.value);
        format!("{:>8}", found.map(|value| shown(path, value)).unwrap_or_default())
    }

    fn write_groups(&self, out: &mut String) -> std::fmt::Result {
        const COLUMNS: [&str; 5] = ["recall.1", "recall.5", "mrr", "top1", "arguments_exact"];
        for (at, (group, figures)) in self.groups.iter().enumerate() {
            if at == 0 {
                let columns: String = COLUMNS.iter().map(|path| format!("{:>17}", path.replace('.', " "))).collect();
                writeln!(out, "\n{:<28}{columns}", "group")?;
            }
            let cell = |wanted: &&str| {
                let figure = figures.iter().find(|(path, _)| path == wanted).map(|(_, figure)| figure);
                let value = figure.and_then(|figure| Some((figure.value?, figure.rows)));
                let text =
                    value.map_or_else(|| "-".into(), |(value, rows)| format!("{} ({rows})", shown(wanted, value)));
                format!("{text:>17}")
            };
            let cells: String = COLUMNS.iter().map(cell).collect();
            writeln!(out, "{:<28}{cells}", group.trim_start_matches("by.").replace('.', " "))?;
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

/// Where the figures of baselines stand.
const BASELINES: &str = "baselines.";

/// Every figure of some rows, and the reliability table.
fn figures(stage: Stage, rows: &[&RowScore]) -> (Figures, Vec<Bin>) {
    let ours: Vec<&PrefilterScore> = rows.iter().filter_map(|row| row.prefilter.as_ref()).collect();
    let mut figures = recall_figures(&ours);
    let mean = |of: fn(&PrefilterScore) -> f64| Figure::mean(ours.iter().map(|score| of(score)));
    figures.push(("shortlist.mean_size".into(), mean(|score| score.shortlist_size as f64)));
    figures.push(("shortlist.hit_rate".into(), mean(|score| score.shortlist_hit)));
    let bins = if stage == Stage::Route { route_figures(rows, &mut figures) } else { Vec::new() };
    for (at, method) in Method::ALL.into_iter().enumerate() {
        let scores: Vec<&PrefilterScore> = rows.iter().filter_map(|row| row.baselines.get(at)).collect();
        if !scores.is_empty() {
            let named = |(path, figure)| (format!("{BASELINES}{}.{path}", method.as_str()), figure);
            figures.extend(recall_figures(&scores).into_iter().map(named));
        }
    }
    (figures, bins)
}

/// The figures of a ranking.
fn recall_figures(all: &[&PrefilterScore]) -> Figures {
    let first_turns: Vec<&PrefilterScore> = all.iter().copied().filter(|score| !score.has_history).collect();
    let mut figures = Vec::new();
    for (name, scores) in [("recall", all), ("recall_without_history", &first_turns)] {
        for (at, k) in CUTS.iter().enumerate() {
            figures.push((format!("{name}.{k}"), Figure::mean(scores.iter().map(|score| score.recall[at]))));
        }
    }
    figures.push(("mrr".into(), Figure::mean(all.iter().map(|score| score.reciprocal_rank))));
    figures
}

/// The figures of each language, kind and subset.
fn groups(stage: Stage, rows: &[RowScore]) -> Vec<(String, Figures)> {
    type Of = fn(&Groups) -> Option<&str>;
    let ways: [(&str, Of); 3] = [
        ("language", |groups| Some(&groups.language)),
        ("kind", |groups| Some(&groups.kind)),
        ("subset", |groups| groups.subset.as_deref()),
    ];
    let mut found = Vec::new();
    for (way, of) in ways {
        let names: BTreeSet<&str> = rows.iter().filter_map(|row| of(&row.groups)).collect();
        if (2..=MAX_GROUPS).contains(&names.len()) {
            for name in names {
                let members: Vec<&RowScore> = rows.iter().filter(|row| of(&row.groups) == Some(name)).collect();
                // A dot would be a step of the path.
                found.push((format!("by.{way}.{}", name.replace('.', "_")), figures(stage, &members).0));
            }
        }
    }
    found
}

/// Adds the figures of whole answers and returns the reliability table.
fn route_figures(rows: &[&RowScore], figures: &mut Figures) -> Vec<Bin> {
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
        rows.iter().filter(|row| row.twin).filter_map(|row| row.route.as_ref()).map(|score| score.no_tool).collect();
    if !twins.is_empty() {
        let all: Vec<Verdict> = scores.iter().map(|score| score.no_tool).collect();
        figures.push(("abstain.precision".into(), share_of(&all, |verdict| verdict.done)));
        figures.push(("abstain.recall".into(), share_of(&all, |verdict| verdict.wanted)));
        figures.push(("abstain.hidden_answer_recall".into(), share_of(&twins, |verdict| verdict.wanted)));
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
