//! The found weights as a table of a manifest, as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Recall, ShortlistFigures, Tuning};

/// What `tune` found.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned {
    pub limit: usize,
    pub seed: u64,
    /// By name.
    pub encoders: Vec<Tuning>,
    /// What was left out, and why.
    pub notices: Vec<String>,
}

/// Sets named on one line of a table's comment.
const SETS_A_LINE: usize = 5;

impl Tuned {
    /// The body of an encoder's `[fusion]` table, with the command and the rows it comes from.
    pub fn table(&self, tuning: &Tuning) -> String {
        let Self { limit, seed, .. } = self;
        let mut out =
            format!("# Found by `pointsman tune --limit {limit} --seed {seed}` (docs/TUNING.md) on rows of\n");
        let sets: Vec<String> = tuning.sets.iter().map(|set| format!("{} {}", set.set, set.rows)).collect();
        for line in sets.chunks(SETS_A_LINE) {
            let _ = writeln!(out, "#   {}", line.join(", "));
        }
        let (fitted, measured) = (tuning.fitted_rows, tuning.gap_rows);
        let _ = writeln!(out, "# {fitted} of them for the weights, the other {measured} for the gaps.");
        for (name, value) in tuning.fusion.named() {
            let _ = writeln!(out, "{name} = {}", decimals(value));
        }
        out
    }

    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for tuning in &self.encoders {
            let _ = writeln!(out, "{}\n\n[fusion]\n{}", tuning.encoder, self.table(tuning));
            let _ =
                writeln!(out, "{:<20}{:>6}{:>18}{:>18}{:>18}", "recall 5 / 8", "rows", "untuned", "held out", "tuned");
            for set in &tuning.sets {
                let held_out = set.held_out.as_ref().map_or_else(|| "-".to_owned(), pair);
                let (untuned, tuned) = (pair(&set.untuned), pair(&set.tuned));
                let _ = writeln!(out, "{:<20}{:>6}{untuned:>18}{held_out:>18}{tuned:>18}", set.set, set.rows);
            }
            let rows = tuning.fitted_rows + tuning.gap_rows;
            let (untuned, tuned) =
                (pair(&tuning.mean(|set| Some(set.untuned))), pair(&tuning.mean(|set| Some(set.tuned))));
            let held_out = pair(&tuning.mean(|set| set.held_out));
            let _ = writeln!(out, "{:<20}{rows:>6}{untuned:>18}{held_out:>18}{tuned:>18}\n", "mean of sets");
            let _ = writeln!(
                out,
                "{:<20}{:>9}{:>9}{:>18}{:>9}",
                "shortlist", "length", "covers", "held out: length", "covers"
            );
            for (nth, list) in tuning.shortlists.iter().enumerate() {
                let name = list.name();
                let _ = write!(out, "{name:<20}{:>9.2}{:>9.2}", list.mean_length, 100.0 * list.covered);
                if let Some(list) = tuning.held_out_shortlists.get(nth) {
                    let _ = write!(out, "{:>18.2}{:>9.2}", list.mean_length, 100.0 * list.covered);
                }
                out.push('\n');
            }
            out.push('\n');
        }
        self.notices.iter().for_each(|notice| out.push_str(&format!("note: {notice}\n")));
        out
    }

    pub fn to_json(&self) -> Value {
        let encoder = |tuning: &Tuning| {
            let fusion: serde_json::Map<String, Value> =
                tuning.fusion.named().into_iter().map(|(name, value)| (name.to_owned(), number(value))).collect();
            let sets: Vec<Value> = tuning
                .sets
                .iter()
                .map(|set| {
                    json!({
                        "set": set.set, "rows": set.rows, "untuned": recall(&set.untuned),
                        "held_out": set.held_out.as_ref().map(recall), "tuned": recall(&set.tuned),
                    })
                })
                .collect();
            let lists = |lists: &[ShortlistFigures]| lists.iter().map(|list| list.to_json()).collect::<Vec<_>>();
            json!({
                "encoder": tuning.encoder, "fusion": fusion, "fitted_rows": tuning.fitted_rows,
                "gap_rows": tuning.gap_rows, "sets": sets, "shortlists": lists(&tuning.shortlists),
                "held_out_shortlists": lists(&tuning.held_out_shortlists),
            })
        };
        let encoders: Vec<Value> = self.encoders.iter().map(encoder).collect();
        json!({"limit": self.limit, "seed": self.seed, "encoders": encoders, "notices": self.notices})
    }
}

impl Tuning {
    /// Mean over the sets that have the figure.
    fn mean(&self, of: impl Fn(&super::SetFigures) -> Option<Recall>) -> Recall {
        let all: Vec<Recall> = self.sets.iter().filter_map(of).collect();
        let sets = all.len().max(1) as f64;
        Recall {
            at_5: all.iter().map(|recall| recall.at_5).sum::<f64>() / sets,
            at_8: all.iter().map(|recall| recall.at_8).sum::<f64>() / sets,
        }
    }
}

impl ShortlistFigures {
    fn name(&self) -> String {
        match self.coverage {
            None => format!("fixed {}", self.longest),
            Some(coverage) => format!("{} %, at most {}", coverage.percent(), self.longest),
        }
    }

    fn to_json(self) -> Value {
        json!({
            "coverage": self.coverage.map(|coverage| coverage.percent()), "longest": self.longest,
            "mean_length": self.mean_length, "covered": self.covered,
        })
    }
}

fn pair(recall: &Recall) -> String {
    format!("{:.1} / {:.1}", 100.0 * recall.at_5, 100.0 * recall.at_8)
}

fn recall(recall: &Recall) -> Value {
    json!({"5": recall.at_5, "8": recall.at_8})
}

/// Weights have three decimals; none is `-0`.
fn decimals(value: f32) -> String {
    let text = format!("{value:.3}");
    if text == "-0.000" { "0.000".into() } else { text }
}

fn number(value: f32) -> Value {
    decimals(value).parse::<f64>().map_or(Value::Null, Value::from)
}
