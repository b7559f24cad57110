//! What `pointsman calibrate` prints.

use std::fmt::{Result, Write};

use super::super::calibration::{Reliability, reliability};
use super::{Abstaining, Calibrated, Fitted, Judged, Origin};

impl Calibrated {
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        self.write_text(&mut out).expect("writing to a string cannot fail");
        out
    }

    fn write_text(&self, out: &mut String) -> Result {
        for fitted in &self.models {
            fitted.write_text(&self.sets, self.thresholds.no_tool_below, out)?;
        }
        let all: Vec<&Judged> =
            self.models.iter().filter(|fitted| fitted.encoder.is_some()).flat_map(|fitted| &fitted.samples).collect();
        if !all.is_empty() {
            writeln!(out, "abstaining with encoders, first set as it is, out of sample")?;
            let rows: Vec<&Judged> =
                all.iter().copied().filter(|j| j.sample.set == 0 && j.sample.origin == Origin::Row).collect();
            writeln!(out, "{:>10}{:>12}{:>10}{:>8}", "threshold", "precision", "recall", "f1")?;
            let chosen = self.thresholds.no_tool_below;
            for threshold in (1..=16).map(|step| f64::from(step) / 20.0).filter(|t| *t != chosen).chain([chosen]) {
                let at = Abstaining::at(threshold, &rows);
                let mark = if threshold == chosen { "  chosen" } else { "" };
                let (precision, recall) = (percent(at.precision()), percent(at.recall()));
                writeln!(out, "{threshold:>10.2}{precision:>12}{recall:>10}{:>8.3}{mark}", at.f1())?;
            }
        }
        writeln!(out, "\n[local]")?;
        writeln!(out, "no_tool_below = {:.2}", self.thresholds.no_tool_below)?;
        writeln!(out, "min_confidence = {:.2}", self.thresholds.min_confidence)?;
        writeln!(out, "min_confidence_write = {:.2}", self.thresholds.min_confidence_write)
    }
}

impl Fitted {
    fn write_text(&self, sets: &[String], threshold: f64, out: &mut String) -> Result {
        let count = |origin| self.samples.iter().filter(|judged| judged.sample.origin == origin).count();
        writeln!(
            out,
            "{}: {} rows, {} twins, {} negatives",
            self.encoder.as_deref().unwrap_or("words alone"),
            count(Origin::Row),
            count(Origin::Twin),
            count(Origin::Negative)
        )?;
        let pairs = |confidence: fn(&Judged) -> f64, keep: fn(&Judged) -> bool| {
            let kept = self.samples.iter().filter(|judged| judged.sample.features.is_some() && keep(judged));
            reliability(kept.map(|judged| (confidence(judged), judged.sample.right)).collect())
        };
        let is_real = |judged: &Judged| judged.sample.origin != Origin::Twin;
        let before = pairs(|judged| judged.sample.before, is_real);
        let after = pairs(|judged| judged.after, is_real);
        let with_twins = pairs(|judged| judged.after, |_| true);
        writeln!(
            out,
            "expected calibration error: before {}, after {} (out of sample); with twins {}",
            error(&before),
            error(&after),
            error(&with_twins)
        )?;
        writeln!(out, "{:>10}{:>12}{:>10}", "rows", "confidence", "right")?;
        for bin in &after.bins {
            writeln!(out, "{:>10.1}{:>12.3}{:>10.3}", bin.rows, bin.confidence, bin.right)?;
        }
        writeln!(out, "no tool below {threshold:.2}, out of sample:")?;
        for (at, set) in sets.iter().enumerate() {
            let of = |keep: &dyn Fn(Origin) -> bool| {
                let kept = self.samples.iter().filter(|judged| judged.sample.set == at && keep(judged.sample.origin));
                Abstaining::at(threshold, &kept.collect::<Vec<_>>())
            };
            let (rows, twins, negatives) =
                (of(&|o| o == Origin::Row), of(&|o| o == Origin::Twin), of(&|o| o == Origin::Negative));
            let with_twins = of(&|_| true);
            writeln!(
                out,
                "  {set}: rows {} precision, {} recall; twins {} recall; negatives {} recall; all {} precision, {} recall",
                percent(rows.precision()),
                percent(rows.recall()),
                percent(twins.recall()),
                percent(negatives.recall()),
                percent(with_twins.precision()),
                percent(with_twins.recall())
            )?;
        }
        writeln!(out, "\n[confidence]\n{}\n", self.table())
    }
}

fn error(reliability: &Reliability) -> String {
    reliability.error.map_or_else(|| "-".to_owned(), |error| format!("{error:.3}"))
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1}", share * 100.0))
}
