//! The document about a folder of sets: Markdown from kept figures.
//!
//! Owns: which figures are shown side by side and in what words.
//! Does not know: how figures are made. Everything but the part on latency is the same on every machine.

use std::collections::BTreeSet;

use serde_json::Value;

use super::baselines::Method;
use super::published::{Published, PublishedResult};
use super::score_prefilter::CUTS;
use super::suite::{Plan, Run, SetFigures};

/// What the document says about the run as a whole.
#[derive(Debug, Clone)]
pub struct About {
    /// How to get the document again.
    pub command: String,
    pub version: String,
    /// Rows per run, where only some were drawn.
    pub limit: Option<usize>,
    pub seed: u64,
    /// Processor and number of cores; stands with the latencies.
    pub machine: String,
}

/// The whole document.
pub fn document(about: &About, sets: &[SetFigures], plan: &Plan, published: &Published) -> String {
    let sheets: Vec<Sheet<'_>> = sets.iter().flat_map(Sheet::of).collect();
    let parts = [
        head(about, &sheets),
        glance(&sheets),
        prefilter(&sheets),
        history(&sheets),
        groups(&sheets, "language", "## By language"),
        groups(&sheets, "kind", "## By kind of request"),
        shortlist(&sheets),
        decisions(&sheets),
        abstaining(&sheets),
        confidence(&sheets),
        others(sets, published),
        mind(&sheets, plan),
        latency(about, &sheets),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

/// One run of one set.
#[derive(Clone, Copy)]
struct Sheet<'a> {
    set: &'a str,
    run: &'a str,
    report: &'a Value,
}

/// A figure as it was kept.
struct Cell {
    value: f64,
    interval: Option<(f64, f64)>,
    rows: u64,
}

impl<'a> Sheet<'a> {
    fn of(figures: &'a SetFigures) -> impl Iterator<Item = Sheet<'a>> {
        let sheet = |(run, kept): (&'a String, &'a super::suite::KeptRun)| Sheet {
            set: &figures.set,
            run,
            report: &kept.report,
        };
        figures.runs.iter().map(sheet)
    }

    fn is(&self, run: Run) -> bool {
        self.run == run.as_str()
    }

    /// `None` where no row counts.
    fn figure(&self, path: &str) -> Option<Cell> {
        let at = |root: &Value| path.split('.').try_fold(root.clone(), |at, step| at.get(step).cloned());
        let interval = at(&self.report["intervals"]).and_then(|ends| serde_json::from_value(ends).ok());
        Some(Cell { value: at(self.report)?.as_f64()?, interval, rows: at(&self.report["rows"])?.as_u64()? })
    }

    fn rows(&self, path: &str) -> u64 {
        self.figure(path).map_or(0, |cell| cell.rows)
    }

    /// Percent.
    fn share(&self, path: &str) -> String {
        self.figure(path).map_or_else(|| "–".into(), |cell| percent(cell.value))
    }

    /// Percent with its interval.
    fn sure_share(&self, path: &str) -> String {
        let Some(cell) = self.figure(path) else { return "–".into() };
        let interval = cell.interval.map(|(low, high)| format!(" ({} to {})", percent(low), percent(high)));
        format!("{}{}", percent(cell.value), interval.unwrap_or_default())
    }

    fn number(&self, path: &str, digits: usize) -> String {
        self.figure(path).map_or_else(|| "–".into(), |cell| format!("{:.digits$}", cell.value))
    }

    /// Names of the groups of one way of grouping.
    fn groups(&self, way: &str) -> BTreeSet<&'a str> {
        let groups = self.report["by"][way].as_object();
        groups.into_iter().flat_map(|groups| groups.keys()).map(String::as_str).collect()
    }

    /// `zh, en`.
    fn languages(&self) -> String {
        let languages = self.report["languages"].as_object();
        let names: Vec<&str> = languages.into_iter().flat_map(|all| all.keys()).map(String::as_str).collect();
        names.join(", ")
    }

    fn count(&self, key: &str) -> String {
        self.report[key].as_u64().unwrap_or_default().to_string()
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// A part with one table; empty where the table has no row.
fn part(title: &str, text: &str, columns: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() { String::new() } else { format!("{title}\n\n{text}\n\n{}", table(columns, &rows)) }
}

fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let columns: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
    let rule = vec!["---".to_owned(); columns.len()];
    let escaped = |row: &Vec<String>| line(&row.iter().map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>());
    format!("{}{}{}", line(&columns), line(&rule), rows.iter().map(escaped).collect::<String>())
}

/// Heading of a baseline's column.
fn name(method: Method) -> &'static str {
    match method {
        Method::Bm25 => "BM25",
        Method::Dense => "dense",
        Method::Rrf => "RRF",
    }
}

fn head(about: &About, sheets: &[Sheet<'_>]) -> String {
    let sets: BTreeSet<&str> = sheets.iter().map(|sheet| sheet.set).collect();
    let drawn = about.limit.map(|limit| {
        format!("\n**A sample only**: at most {limit} rows of each run were drawn (seed {}).\n", about.seed)
    });
    format!(
        "# Evaluation\n\n\
         Written by `{}`, pointsman {}, over {} labelled sets; not edited by hand. How rows are scored stands in \
         `docs/SCORING.md`. Shares are in percent; a range in brackets is a 95 % bootstrap interval over rows. The \
         local decider decides, no LLM is asked.\n{}",
        about.command,
        about.version,
        sets.len(),
        drawn.unwrap_or_default(),
    )
}

fn glance(sheets: &[Sheet<'_>]) -> String {
    let mut rows = Vec::new();
    for sheet in sheets.iter().filter(|sheet| sheet.is(Run::Prefilter) || sheet.run == "examples") {
        let set = if sheet.is(Run::Prefilter) { sheet.set.to_owned() } else { format!("{}, with examples", sheet.set) };
        let mut row = vec![
            set,
            sheet.languages(),
            sheet.count("tools"),
            sheet.rows("recall.5").to_string(),
            format!("**{}**", sheet.sure_share("recall.5")),
        ];
        row.extend(Method::ALL.map(|method| sheet.share(&format!("baselines.{}.recall.5", method.as_str()))));
        row.push(sheet.number("mrr", 3));
        rows.push(row);
    }
    let text = "How often the right tool (for requests that need several: their share) is among the first five of the \
                whole registry. BM25 is plain: words of name, description and examples, no stems, no parameters. Dense \
                is the mean of the cosines to the tool's centroid and to its closest text. RRF is reciprocal-rank fusion \
                of these two (constant 60). All are computed in the same run over the same tools and vectors, and see \
                the utterance alone. \"With examples\" adds utterances from the set's own rows, which are then not scored.";
    let columns = ["set", "language", "tools", "rows", "pointsman @5", "BM25 @5", "dense @5", "RRF @5", "MRR"];
    part("## Finding the tool at a glance", text, &columns, rows)
}

fn prefilter(sheets: &[Sheet<'_>]) -> String {
    let mut rows = Vec::new();
    for sheet in sheets.iter().filter(|sheet| sheet.is(Run::Prefilter) || sheet.run == "examples") {
        let set = if sheet.is(Run::Prefilter) { sheet.set.to_owned() } else { format!("{}, with examples", sheet.set) };
        let methods = Method::ALL.map(|method| (name(method), format!("baselines.{}.", method.as_str())));
        for (method, prefix) in std::iter::once(("**pointsman**", String::new())).chain(methods) {
            let mut row = vec![set.clone(), method.to_owned()];
            row.extend(CUTS.map(|k| sheet.sure_share(&format!("{prefix}recall.{k}"))));
            row.push(sheet.number(&format!("{prefix}mrr"), 3));
            rows.push(row);
        }
    }
    let text = "Recall at k and mean reciprocal rank of the whole ranking, before any shortlist.";
    part("## Recall", text, &["set", "method", "@1", "@3", "@5", "@8", "@10", "MRR"], rows)
}

fn history(sheets: &[Sheet<'_>]) -> String {
    let mut rows = Vec::new();
    let has_both = |sheet: &&Sheet<'_>| sheet.rows("recall.5") > sheet.rows("recall_without_history.5");
    for sheet in sheets.iter().filter(|sheet| sheet.is(Run::Prefilter)).filter(has_both) {
        for (label, path) in [("all", "recall"), ("without those that have history", "recall_without_history")] {
            let mut row = vec![sheet.set.to_owned(), label.to_owned(), sheet.rows(&format!("{path}.5")).to_string()];
            row.extend([1, 5, 8].map(|k| sheet.sure_share(&format!("{path}.{k}"))));
            row.extend(Method::ALL.map(|method| sheet.share(&format!("baselines.{}.{path}.5", method.as_str()))));
            rows.push(row);
        }
    }
    let columns = ["set", "rows", "number", "@1", "@5", "@8", "BM25 @5", "dense @5", "RRF @5"];
    part(
        "## With and without earlier turns",
        "Rows with earlier turns are follow-ups that often name nothing.",
        &columns,
        rows,
    )
}

fn groups(sheets: &[Sheet<'_>], way: &str, title: &str) -> String {
    let mut rows = Vec::new();
    for sheet in sheets.iter().filter(|sheet| sheet.is(Run::Prefilter)) {
        let route = sheets.iter().find(|other| other.set == sheet.set && other.is(Run::Route)).unwrap_or(sheet);
        let names: BTreeSet<&str> = sheet.groups(way).into_iter().chain(route.groups(way)).collect();
        for group in names {
            let at = |path: &str| format!("by.{way}.{group}.{path}");
            let mut row = vec![
                sheet.set.to_owned(),
                group.to_owned(),
                sheet.rows(&at("recall.5")).to_string(),
                sheet.share(&at("recall.1")),
                sheet.sure_share(&at("recall.5")),
                sheet.share(&at("recall.8")),
            ];
            let baseline = |method: Method| sheet.share(&at(&format!("baselines.{}.recall.5", method.as_str())));
            row.extend(Method::ALL.map(baseline));
            row.push(sheet.number(&at("mrr"), 3));
            row.extend(["top1", "arguments_exact", "clarify.recall", "no_tool.recall"].map(|p| route.share(&at(p))));
            rows.push(row);
        }
    }
    let text = "Rows with a right tool, whether it is found, and what the local decider then makes of the request: the \
                right tool, the exact arguments, a question where one was called for, no tool where none fits.";
    let columns = [
        "set",
        way,
        "rows",
        "@1",
        "@5",
        "@8",
        "BM25 @5",
        "dense @5",
        "RRF @5",
        "MRR",
        "right tool",
        "arguments",
        "asked",
        "declined",
    ];
    part(title, text, &columns, rows)
}

fn shortlist(sheets: &[Sheet<'_>]) -> String {
    let row = |sheet: &Sheet<'_>| {
        vec![
            sheet.set.to_owned(),
            sheet.number("shortlist.mean_size", 2),
            sheet.sure_share("shortlist.hit_rate"),
            sheet.sure_share("recall.8"),
        ]
    };
    let rows = sheets.iter().filter(|sheet| sheet.is(Run::Prefilter)).map(row).collect();
    let text = "How many candidates are handed on, and how often the right tool is among them, against a fixed top 8.";
    part("## The shortlist", text, &["set", "mean size", "right tool on it", "right tool in the top 8"], rows)
}

fn decisions(sheets: &[Sheet<'_>]) -> String {
    let mut rows = Vec::new();
    for sheet in sheets.iter().filter(|sheet| sheet.is(Run::Route) || sheet.is(Run::Candidates)) {
        let against = if sheet.is(Run::Route) { "whole registry" } else { "own candidates" };
        let mut row = vec![sheet.set.to_owned(), against.to_owned(), sheet.count("queries")];
        row.extend(["top1", "arguments_exact", "args_by_tool.calls"].map(|path| sheet.sure_share(path)));
        row.extend(["clarify.precision", "clarify.recall"].map(|path| sheet.share(path)));
        rows.push(row);
    }
    let text = "Whole requests. \"Right tool\" is over rows with one right tool, \"arguments\" over those of them with known \
                arguments and a wrong tool counts as wrong arguments, \"calls\" over rows that want several calls while \
                one is asked for. Precision and recall of asking say how often a question was called for.";
    let columns =
        ["set", "asked against", "rows", "right tool", "arguments", "calls", "asking: precision", "asking: recall"];
    part("## The local decider", text, &columns, rows)
}

fn abstaining(sheets: &[Sheet<'_>]) -> String {
    let mut rows = Vec::new();
    for sheet in sheets {
        let what = match sheet.run {
            "route" => "as labelled",
            "candidates" => "own candidates",
            "hidden_answers" => "right tool taken away",
            _ => continue,
        };
        if sheet.figure("no_tool.recall").is_some() {
            let mut row = vec![sheet.set.to_owned(), what.to_owned(), sheet.rows("no_tool.recall").to_string()];
            row.extend(["no_tool.precision", "no_tool.recall"].map(|path| sheet.sure_share(path)));
            rows.push(row);
        }
    }
    let text = "Whether \"no tool\" is answered where no tool fits. In rows \"right tool taken away\" each row that has a \
                right tool is asked a second time without it; another tool may then do nearly as well.";
    part("## Declining", text, &["set", "rows", "number without a right tool", "precision", "recall"], rows)
}

fn confidence(sheets: &[Sheet<'_>]) -> String {
    let mut rows = Vec::new();
    for sheet in sheets.iter().filter(|sheet| sheet.is(Run::Route)) {
        let Some(error) = sheet.figure("calibration.ece") else { continue };
        let bins = sheet.report["calibration"]["bins"].as_array().map_or(&[][..], Vec::as_slice);
        let bin = |bin: &Value| {
            let of = |key: &str| bin[key].as_f64().unwrap_or_default();
            format!("{:.2}→{:.2}", of("confidence"), of("right"))
        };
        let interval = error.interval.map(|(low, high)| format!(" ({low:.3} to {high:.3})")).unwrap_or_default();
        let bins: Vec<String> = bins.iter().map(bin).collect();
        rows.push(vec![
            sheet.set.to_owned(),
            error.rows.to_string(),
            format!("{:.3}{interval}", error.value),
            bins.join(", "),
        ]);
    }
    let text = "Expected calibration error of the stated confidence against \"right tool\", and ten bins of equal mass: \
                mean confidence → share that was right.";
    part("## Confidence", text, &["set", "rows", "error", "reliability"], rows)
}

fn others(sets: &[SetFigures], published: &Published) -> String {
    let row = |result: &PublishedResult| {
        let set = sets.iter().find(|figures| figures.set == result.set)?;
        let ours = result.ours.as_ref().and_then(|ours| {
            let sheet = Sheet::of(set).find(|sheet| sheet.run == ours.run)?;
            sheet
                .figure(&ours.figure)
                .map(|cell| format!("**{}** ({} rows)", sheet.sure_share(&ours.figure), cell.rows))
        });
        let values: Vec<String> = result.values.iter().map(|(system, value)| format!("{system} {value}")).collect();
        Some(vec![
            result.set.clone(),
            result.metric.clone(),
            if values.is_empty() { "–".into() } else { values.join(", ") },
            ours.unwrap_or_else(|| "–".into()),
            format!("{}: {}", result.comparable.as_str(), result.why),
            result.source.clone(),
        ])
    };
    let rows = published.results.iter().filter_map(row).collect();
    let text = "Figures others have published on these sets, as published, and ours beside them where one can be set there. \
                Most were measured with an LLM that reads every candidate; ours are a router on a CPU without one.";
    part("## Public figures", text, &["set", "measure", "published", "ours", "comparable", "source"], rows)
}

fn mind(sheets: &[Sheet<'_>], plan: &Plan) -> String {
    let mut lines = Vec::new();
    let sets: BTreeSet<&str> = sheets.iter().map(|sheet| sheet.set).collect();
    for set in sets {
        if let Some(note) = plan.sets.get(set).and_then(|plan| plan.note.as_deref()) {
            lines.push(format!("- **{set}**: {note}"));
        }
        for sheet in sheets.iter().filter(|sheet| sheet.set == set) {
            let left_out = sheet.report["rows_left_out"].as_object();
            let counts: Vec<String> =
                left_out.into_iter().flatten().map(|(reason, count)| format!("{reason} {count}")).collect();
            let notices = sheet.report["notices"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let mut facts: Vec<String> = notices.map(str::to_owned).collect();
            if !counts.is_empty() {
                facts.push(format!("rows left out: {}", counts.join(", ")));
            }
            if !facts.is_empty() {
                lines.push(format!("- {set}, {}: {}", sheet.run.replace('_', " "), facts.join("; ")));
            }
        }
    }
    if lines.is_empty() { String::new() } else { format!("## What to bear in mind\n\n{}\n", lines.join("\n")) }
}

fn latency(about: &About, sheets: &[Sheet<'_>]) -> String {
    let row = |sheet: &Sheet<'_>| {
        let ms =
            |key: &str| sheet.report["latency_ms"][key].as_f64().map_or_else(|| "–".into(), |ms| format!("{ms:.1}"));
        let what = if sheet.is(Run::Prefilter) { "ranking" } else { "whole request" };
        vec![sheet.set.to_owned(), what.to_owned(), sheet.count("queries"), ms("p50"), ms("p95"), ms("p99")]
    };
    let rows = sheets.iter().filter(|sheet| sheet.is(Run::Prefilter) || sheet.is(Run::Route)).map(row).collect();
    let text = format!(
        "Milliseconds of one request at a time, in process, warm, decision cache off; on {}. This part alone differs \
         from run to run.",
        about.machine
    );
    part("## Latency", &text, &["set", "what", "rows", "p50", "p95", "p99"], rows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::published::{Comparable, Ours};
    use super::super::suite::{SetPlan, tests::kept};
    use super::*;

    fn prefilter_report() -> Value {
        let recall = json!({"1": 0.5, "3": 0.75, "5": 0.9, "8": 1.0, "10": 1.0});
        let figures = json!({"recall": recall, "recall_without_history": recall, "mrr": 0.7,
                             "baselines": {"bm25": {"recall": {"5": 0.4}, "mrr": 0.3}},
                             "by": {"language": {"zh": {"recall": {"5": 1.0}}, "en": {"recall": {"5": 0.8}}}}});
        let interval = json!({"recall": {"5": [0.85, 0.95]}});
        let rows = json!({"recall": {"1": 20, "3": 20, "5": 20, "8": 20, "10": 20},
                          "recall_without_history": {"1": 15, "3": 15, "5": 15, "8": 15, "10": 15}, "mrr": 20,
                          "baselines": {"bm25": {"recall": {"5": 20}, "mrr": 20}},
                          "by": {"language": {"zh": {"recall": {"5": 10}}, "en": {"recall": {"5": 10}}}}});
        let mut report = json!({"tools": 26, "queries": 20, "languages": {"en": 10, "zh": 10}, "intervals": interval,
                                "rows": rows, "rows_left_out": {"no_gold": 3}, "notices": ["a | b"],
                                "latency_ms": {"p50": 12.34, "p95": 20.0, "p99": null}});
        report.as_object_mut().unwrap().extend(figures.as_object().unwrap().clone());
        report
    }

    fn written(limit: Option<usize>) -> String {
        let about = About {
            command: "make eval".into(),
            version: "1.2.3".into(),
            limit,
            seed: 7,
            machine: "an abacus, 2 cores".into(),
        };
        let plan = Plan {
            sets: [("shop".to_owned(), SetPlan { note: Some("自造的。".into()), ..SetPlan::default() })].into(),
        };
        let result = |set: &str| PublishedResult {
            set: set.into(),
            metric: "recall at 5".into(),
            source: "a paper".into(),
            comparable: Comparable::Nearly,
            why: "other rows".into(),
            ours: Some(Ours { run: "prefilter".into(), figure: "recall.5".into() }),
            values: vec![("someone".into(), 81.5)],
        };
        let published = Published { results: vec![result("shop"), result("not scored")] };
        document(&about, &[kept("shop", "prefilter", prefilter_report())], &plan, &published)
    }

    #[test]
    fn every_figure_stands_in_its_row() {
        let text = written(None);
        for line in [
            "| shop | en, zh | 26 | 20 | **90.0 (85.0 to 95.0)** | 40.0 | – | – | 0.700 |",
            "| shop | **pointsman** | 50.0 | 75.0 | 90.0 (85.0 to 95.0) | 100.0 | 100.0 | 0.700 |",
            "| shop | BM25 | – | – | 40.0 | – | – | 0.300 |",
            "| shop | without those that have history | 15 | 50.0 | 90.0 | 100.0 | – | – | – |",
            "| shop | recall at 5 | someone 81.5 | **90.0 (85.0 to 95.0)** (20 rows) | nearly: other rows | a paper |",
            "- **shop**: 自造的。",
            "- shop, prefilter: a | b; rows left out: no_gold 3",
            "| shop | ranking | 20 | 12.3 | 20.0 | – |",
        ] {
            assert!(text.lines().any(|found| found == line), "no line `{line}` in\n{text}");
        }
        assert!(
            text.starts_with("# Evaluation\n\nWritten by `make eval`, pointsman 1.2.3, over 1 labelled sets"),
            "{text}"
        );
        // Nothing was decided, so nothing is said about decisions.
        assert!(!text.contains("## The local decider") && !text.contains("not scored |"), "{text}");
    }

    #[test]
    fn a_sample_says_so_and_only_the_last_part_knows_the_machine() {
        let text = written(Some(5));
        assert!(text.contains("**A sample only**: at most 5 rows of each run were drawn (seed 7)."), "{text}");
        let (before, _) = text.split_once("## Latency").unwrap();
        assert!(!before.contains("abacus") && !before.contains("12.3"), "{before}");
    }
}
