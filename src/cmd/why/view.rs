//! An explanation as text and as JSON.

use std::fmt::Write as _;

use pointsman::decide::local::Weight;
use pointsman::pipeline::{Arguments, Barrier, Decided, Dropped, Place, Ranked, Why};
use pointsman::retrieve::Part;
use serde_json::{Value, json};

/// Keys are always present, `null` where the tool never came to the stage. Scripts rely on it: keys are added, never
/// renamed or removed.
pub fn json(why: &Why) -> String {
    let decider = why.decider.as_ref().map(|decided| {
        json!({
            "decided_by": decided.by.as_str(),
            "outcome": decided.outcome,
            "tool": decided.tool,
            "reason": decided.reason,
            "confidence": rounded(decided.confidence.get()),
            "own": decided.own.as_ref().map(weight_json),
            "chosen": decided.chosen.as_ref().map(weight_json),
        })
    });
    let arguments = why.arguments.as_ref().map(|arguments| {
        let invalid = arguments.invalid.iter().map(|field| json!({"path": field.path, "expected": field.expected}));
        let invalid: Vec<Value> = invalid.collect();
        json!({"known": arguments.known, "missing": arguments.missing, "invalid": invalid})
    });
    let obstacles: Vec<Value> =
        why.obstacles.iter().map(|barrier| json!({"kind": barrier.kind, "value": barrier.value})).collect();
    let all = json!({
        "tool": why.tool,
        "stage": why.dropped.map_or("chosen", Dropped::as_str),
        "summary": summary(why),
        "obstacles": obstacles,
        "rank": why.rank.as_ref().map(rank_json),
        "decider": decider,
        "arguments": arguments,
    });
    format!("{all}\n")
}

fn rank_json(rank: &Ranked) -> Value {
    json!({
        "eligible": rank.eligible,
        "shortlist": rank.shortlist,
        "longest": rank.longest,
        "missed_by": rounded(rank.missed_by),
        "own": place_json(&rank.own),
        "last": place_json(&rank.last),
        "first": place_json(&rank.first),
    })
}

fn place_json(place: &Place) -> Value {
    let signals: Vec<Value> = place
        .parts
        .iter()
        .map(|part| {
            json!({
                "signal": part.signal.as_str(),
                "raw": rounded(part.raw),
                "standardised": part.standardised.map(rounded),
                "contribution": rounded(part.contribution),
            })
        })
        .collect();
    json!({"tool": place.tool, "place": place.place, "score": rounded(place.score.get()), "signals": signals})
}

fn weight_json(weight: &Weight) -> Value {
    json!({
        "tool": weight.tool,
        "score": rounded(weight.score),
        "fit": rounded(weight.fit),
        "complete": rounded(weight.complete),
        "meaning": rounded(weight.meaning),
        "continued": rounded(weight.continued),
        "total": rounded(weight.total),
        "lacks_token": weight.lacks_token,
    })
}

/// Four decimals: what follows is noise of the encoder.
fn rounded(value: f32) -> f64 {
    (f64::from(value) * 10_000.0).round() / 10_000.0
}

/// One sentence.
fn summary(why: &Why) -> String {
    let tool = &why.tool;
    let Some(dropped) = why.dropped else { return format!("{tool} was chosen") };
    let told = match dropped {
        Dropped::Eligibility => {
            let barriers: Vec<String> = why.obstacles.iter().map(barrier).collect();
            format!("it is not open to this request: {}", barriers.join("; "))
        }
        Dropped::Rule => "a rule decided for something else".to_owned(),
        Dropped::Rank | Dropped::Order => why.rank.as_ref().map(missed).unwrap_or_default(),
        Dropped::Decider => {
            why.decider.as_ref().map(|decided| preferred(decided, why.rank.as_ref())).unwrap_or_default()
        }
        Dropped::Arguments => why.arguments.as_ref().map(lacking).unwrap_or_default(),
    };
    format!("{tool} dropped out at the stage {}: {told}", dropped.as_str())
}

fn barrier(barrier: &Barrier) -> String {
    let value = &barrier.value;
    match barrier.kind {
        "tenant" => format!("it is open to callers of {value} alone"),
        "scope" => format!("the caller lacks the scope {value}"),
        "domain" if value.is_empty() => "it has no domain, and the request names some".to_owned(),
        "domain" => format!("its domain {value} is not among those of the request"),
        "tag" if value.is_empty() => "it has no tags, and the request names some".to_owned(),
        "tag" => format!("none of its tags ({value}) is among those of the request"),
        "only" => "the request names other tools".to_owned(),
        "disabled" => format!("disabled: {value}"),
        "preview" => format!("its preview {value} has no result in the conversation"),
        other => format!("{other} {value}"),
    }
}

fn missed(rank: &Ranked) -> String {
    let Ranked { own, last, eligible, shortlist, missed_by, .. } = rank;
    format!(
        "place {} of {eligible}, the shortlist ends at place {shortlist} with {}, {missed_by:.2} ahead",
        own.place, last.tool
    )
}

fn preferred(decided: &Decided, rank: Option<&Ranked>) -> String {
    let sure = format!("confidence {}", decided.confidence);
    if decided.own.as_ref().is_some_and(|own| own.lacks_token) {
        return format!("it needs a token of its preview for these arguments, and the conversation holds none; {sure}");
    }
    match (&decided.tool, &decided.own, &decided.chosen) {
        (None, ..) => format!("{}, {} ({sure})", decided.outcome, decided.reason.unwrap_or("no tool named")),
        (Some(tool), Some(own), Some(chosen)) if *tool != own.tool => {
            let ahead = chosen.total - own.total;
            format!("{tool} weighed {:.2}, this {:.2}: {ahead:.2} behind ({sure})", chosen.total, own.total)
        }
        (Some(tool), None, Some(_)) => {
            let place = rank.map_or(0, |rank| rank.own.place);
            format!("{tool} was chosen; place {place} is too far down to be weighed ({sure})")
        }
        (Some(tool), Some(own), _) if *tool == own.tool => {
            format!("it is the best, but a question was asked instead of a call ({sure})")
        }
        (Some(tool), ..) => format!("{tool} was chosen by {} ({sure})", decided.by.as_str()),
    }
}

fn lacking(arguments: &Arguments) -> String {
    let named = |field: &pointsman::types::FieldProblem| format!("{} should be {}", field.path, field.expected);
    let missing = arguments.missing.join(", ");
    let is_missing = |path: &str| arguments.missing.iter().any(|name| path == format!("/{name}"));
    let invalid: Vec<String> = arguments.invalid.iter().filter(|field| !is_missing(&field.path)).map(named).collect();
    let missing = (!missing.is_empty()).then(|| format!("{missing} missing"));
    let all: Vec<String> = missing.into_iter().chain(invalid).collect();
    if all.is_empty() { "a question was asked about them".to_owned() } else { all.join("; ") }
}

const WIDTH: usize = 12;

/// For people. `colour`: with the escapes of a terminal.
pub fn text(why: &Why, colour: bool) -> String {
    let (paint, off) = match (colour, why.dropped) {
        (false, _) => ("", ""),
        (true, None) => ("\x1b[1;32m", "\x1b[0m"),
        (true, Some(_)) => ("\x1b[1;31m", "\x1b[0m"),
    };
    let mut out = format!("{paint}{}{off}\n\n", summary(why));
    let mut line = |stage: &str, told: &str| {
        let mark = if why.dropped.is_some_and(|dropped| dropped.as_str() == stage) { paint } else { "" };
        let end = if mark.is_empty() { "" } else { off };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{mark}{stage:<WIDTH$}{end} {told}");
    };
    if why.obstacles.is_empty() {
        line("eligibility", "open to this request");
    }
    for found in &why.obstacles {
        line("eligibility", &barrier(found));
    }
    let Some(rank) = &why.rank else { return out };
    if why.dropped == Some(Dropped::Rule) {
        line("rule", "a rule decided for something else");
    }
    line("rank", &format!("place {} of {}, score {:.2}", rank.own.place, rank.eligible, rank.own.score.get()));
    let on_list = if why.decider.is_some() { "on it" } else { "not on it" };
    line("order", &format!("shortlist of {}, at most {}: {on_list}", rank.shortlist, rank.longest));
    if let Some(decided) = &why.decider {
        let tool = decided.tool.as_ref().map_or_else(|| decided.reason.unwrap_or("-").to_owned(), ToString::to_string);
        let by = decided.by.as_str();
        line("decider", &format!("{} {tool}, confidence {}, decided by {by}", decided.outcome, decided.confidence));
    }
    if let Some(arguments) = &why.arguments {
        let known = Value::Object(arguments.known.clone());
        let rest = if arguments.missing.is_empty() && arguments.invalid.is_empty() {
            String::new()
        } else {
            format!("; {}", lacking(arguments))
        };
        line("arguments", &format!("{known}{rest}"));
    }
    out.push('\n');
    signals(rank, &mut out);
    if let Some(decided) = &why.decider {
        weights(decided, &mut out);
    }
    out
}

/// The parts of the score of the tool, of the last one on the shortlist and of the first one.
fn signals(rank: &Ranked, out: &mut String) {
    let mut shown = vec![&rank.own];
    for other in [&rank.last, &rank.first] {
        if shown.iter().all(|place| place.tool != other.tool) {
            shown.push(other);
        }
    }
    let label = |place: &&Place| format!("{}. {}", place.place, place.tool);
    let widths: Vec<usize> = shown.iter().map(|place| label(place).chars().count().max(23)).collect();
    let mut row = |head: &str, cells: Vec<String>| {
        let cells: String = cells.iter().zip(&widths).map(|(cell, width)| format!("  {cell:>width$}")).collect();
        let _ = writeln!(out, "{head:<15}{cells}");
    };
    row("", shown.iter().map(label).collect());
    let columns = format!("{:>7} {:>7} {:>7}", "raw", "std", "adds");
    row("signal", vec![columns; shown.len()]);
    for part in &rank.own.parts {
        let cell = |place: &&Place| place.parts.iter().find(|other| other.signal == part.signal).map(cell);
        row(part.signal.as_str(), shown.iter().map(|place| cell(place).unwrap_or_default()).collect());
    }
    row("score", shown.iter().map(|place| format!("{:>7.2}", place.score.get())).collect());
}

fn cell(part: &Part) -> String {
    let standard = part.standardised.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    format!("{:>7.2} {standard:>7} {:>7.2}", part.raw, part.contribution)
}

/// What the local decider weighed.
fn weights(decided: &Decided, out: &mut String) {
    let mut shown: Vec<&Weight> = decided.own.iter().collect();
    shown.extend(decided.chosen.iter().filter(|chosen| decided.own.as_ref() != Some(*chosen)));
    if shown.is_empty() {
        return;
    }
    let width = shown.iter().map(|weight| weight.tool.as_str().chars().count()).max().unwrap_or(0).max(15);
    let _ = writeln!(
        out,
        "\n{:<width$} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8}",
        "weighed", "score", "fit", "complete", "meaning", "continued", "total"
    );
    for Weight { tool, score, fit, complete, meaning, continued, total, .. } in shown {
        let _ = writeln!(
            out,
            "{:<width$} {score:>8.2} {fit:>8.2} {complete:>8.2} {meaning:>8.2} {continued:>9.2} {total:>8.2}",
            tool.as_str()
        );
    }
}
