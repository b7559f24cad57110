//! The report for people: by tool, place first, one line that sums up.

use std::fmt::Write as _;

use pointsman::pipeline::severity_name;
use pointsman::registry::Quarantined;
use pointsman::registry::lint::{Finding, Language, Severity};

use super::{Report, impact};
use crate::cmd::terminal::plain;

/// Colours of a terminal, or nothing.
pub(super) struct Paint {
    pub bold: &'static str,
    pub dim: &'static str,
    pub red: &'static str,
    pub yellow: &'static str,
    pub blue: &'static str,
    pub green: &'static str,
    pub off: &'static str,
}

impl Paint {
    pub(super) fn new(colour: bool) -> Self {
        let code = |code: &'static str| if colour { code } else { "" };
        Self {
            bold: code("\x1b[1m"),
            dim: code("\x1b[2m"),
            red: code("\x1b[1;31m"),
            yellow: code("\x1b[1;33m"),
            blue: code("\x1b[1;34m"),
            green: code("\x1b[32m"),
            off: code("\x1b[0m"),
        }
    }

    fn of(&self, severity: Severity) -> &'static str {
        match severity {
            Severity::Error => self.red,
            Severity::Warning => self.yellow,
            Severity::Note => self.blue,
        }
    }
}

pub(super) fn text(report: &Report, colour: bool) -> String {
    let paint = Paint::new(colour);
    let mut out = String::new();
    for card in &report.quarantined {
        quarantined(&mut out, card, report.language, &paint);
    }
    for group in report.findings.chunk_by(|a, b| a.tool == b.tool) {
        let _ = writeln!(out, "{}{}{}", paint.bold, plain(&group[0].tool), paint.off);
        group.iter().for_each(|finding| entry(&mut out, finding, &paint));
        out.push('\n');
    }
    if let Some(impacts) = &report.impacts {
        impact::text(&mut out, impacts, &report.findings, report.language, &paint);
    }
    for notice in report.notices.iter().chain(&report.remarks) {
        let _ = writeln!(out, "{}note{}: {}", paint.blue, paint.off, plain(notice));
    }
    out + &summary(report) + "\n"
}

fn entry(out: &mut String, finding: &Finding, paint: &Paint) {
    let severity = severity_name(finding.severity);
    let other = finding.other.as_ref().map(|other| format!("  ↔ {}", plain(other))).unwrap_or_default();
    let place = place(&finding.file, finding.line);
    let _ = writeln!(out, "  {place}{}{severity}{}  {}{other}", paint.of(finding.severity), paint.off, finding.rule);
    let _ = writeln!(out, "      {}", plain(&finding.reason));
    if !finding.proposal.is_empty() {
        let _ = writeln!(out, "      {}→{} {}", paint.green, paint.off, plain(&finding.proposal));
    }
}

fn quarantined(out: &mut String, card: &Quarantined, language: Language, paint: &Paint) {
    let Paint { bold, red, off, .. } = paint;
    let words = match language {
        Language::English => "quarantined: it would not be served",
        Language::Chinese => "已隔离：不会上线",
    };
    let _ = writeln!(out, "{bold}{}{off}", plain(&card.card));
    for problem in &card.problems {
        let _ = writeln!(out, "  {}{red}error{off}  {words}", place(&card.source, problem.line));
        let pointer = if problem.pointer.is_empty() { String::new() } else { format!("{}: ", plain(&problem.pointer)) };
        let _ = writeln!(out, "      {pointer}{}", plain(&problem.message));
    }
    out.push('\n');
}

fn place(file: &str, line: Option<usize>) -> String {
    match (file, line) {
        ("", _) => String::new(),
        (file, Some(line)) => format!("{}:{line}  ", plain(file)),
        (file, None) => format!("{}  ", plain(file)),
    }
}

fn summary(report: &Report) -> String {
    let (cards, quarantined, [errors, warnings, notes]) = (report.cards, report.quarantined.len(), report.counts());
    let some = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    match report.language {
        Language::English => format!(
            "{} linted, {quarantined} quarantined: {}, {}, {}",
            some(cards, "card"),
            some(errors, "error"),
            some(warnings, "warning"),
            some(notes, "note"),
        ),
        Language::Chinese => {
            format!("检查了 {cards} 张卡片，隔离 {quarantined} 张：{errors} 个错误，{warnings} 个警告，{notes} 个提示")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn findings_stand_by_tool_with_their_place_and_a_last_line_sums_up() {
        let text = text(&sample(), false);
        let expect = "broken\n  b.yaml:7  error  quarantined: it would not be served\n      /timeout_ms: missing\n\n\
                      find_parcels\n  cards/注册 表.yaml:3  error  a-rule\n      因为 \\u{1b}[31mred\n      → say more\n";
        assert!(text.starts_with(expect), "{text}");
        assert!(text.contains("\n  cards/注册 表.yaml  note  b-rule  ↔ locate_packages\n"), "{text}");
        assert!(text.ends_with("\n\n2 cards linted, 1 quarantined: 2 errors, 1 warning, 1 note\n"), "{text}");
    }

    #[test]
    fn the_report_speaks_chinese_and_colours_are_for_terminals() {
        let report = Report { language: Language::Chinese, ..sample() };
        let chinese = text(&report, false);
        assert!(chinese.contains("已隔离：不会上线") && !chinese.contains('\u{1b}'), "{chinese}");
        assert!(chinese.ends_with("检查了 2 张卡片，隔离 1 张：2 个错误，1 个警告，1 个提示\n"), "{chinese}");
        assert!(text(&report, true).contains("\x1b[1;31merror\x1b[0m"));
    }
}
