//! What an utterance is read as where it was typed wrong or in another script; its own text stays as it is.

use std::ops::Range;

use super::language::is_han;

/// Why a stretch of text is read as something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Misspelling {
    /// Traditional characters.
    Traditional,
    /// A Chinese character that sounds like the right one.
    Homophone,
    /// Chinese spelled in Latin letters.
    Pinyin,
    /// A slip in a Latin word.
    Slip,
}

/// One stretch of the utterance that is read as something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub kind: Misspelling,
    /// Byte range in the normalised text.
    pub span: Range<usize>,
    pub to: String,
}

/// All such stretches, in order of position, not overlapping each other or any slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    changes: Vec<Change>,
}

impl Reading {
    /// Keeps what is in order and does not overlap what comes before it.
    pub fn new(mut changes: Vec<Change>) -> Self {
        changes.sort_by_key(|change| (change.span.start, change.span.end));
        let mut end = 0;
        changes.retain(|change| {
            let keep = change.span.start >= end && change.span.start < change.span.end;
            end = if keep { change.span.end } else { end };
            keep
        });
        Self { changes }
    }

    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// `range` of `text` as it is read. A change that reaches beyond the range does not count.
    pub fn of_range(&self, text: &str, range: Range<usize>) -> String {
        let mut out = String::new();
        let mut from = range.start;
        let inside = |change: &&Change| range.start <= change.span.start && change.span.end <= range.end;
        for change in self.changes.iter().filter(inside) {
            out.push_str(&text[from..change.span.start]);
            out.push_str(&change.to);
            from = change.span.end;
        }
        out.push_str(&text[from..range.end]);
        out
    }

    /// The changes of one kind alone.
    pub fn only(&self, kind: Misspelling) -> Self {
        Self { changes: self.changes.iter().filter(|change| change.kind == kind).cloned().collect() }
    }

    /// One line per change, each once, for whoever wonders. A Chinese character is shown with a neighbour.
    pub fn notes(&self, text: &str) -> Vec<String> {
        let mut windows: Vec<Range<usize>> = Vec::new();
        for window in self.changes.iter().map(|change| shown(text, change)) {
            match windows.last_mut() {
                Some(last) if window.start < last.end => last.end = last.end.max(window.end),
                _ => windows.push(window),
            }
        }
        let mut notes: Vec<String> = Vec::new();
        for window in windows {
            let note = format!("read {} as {}", &text[window.clone()], self.of_range(text, window));
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        notes
    }
}

/// The stretch that makes a change understood.
fn shown(text: &str, change: &Change) -> Range<usize> {
    let span = change.span.clone();
    let is_single = |range: &Range<usize>| text[range.clone()].chars().count() == 1;
    let by_character = match change.kind {
        Misspelling::Traditional | Misspelling::Homophone => is_single(&span),
        Misspelling::Pinyin | Misspelling::Slip => false,
    };
    if !by_character {
        return span;
    }
    let before = text[..span.start].chars().next_back().filter(|c| is_han(*c));
    let after = text[span.end..].chars().next().filter(|c| is_han(*c));
    match (before, after) {
        (Some(before), _) => span.start - before.len_utf8()..span.end,
        (None, Some(after)) => span.start..span.end + after.len_utf8(),
        (None, None) => span,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(span: Range<usize>, to: &str) -> Change {
        Change { kind: Misspelling::Homophone, span, to: to.to_owned() }
    }

    #[test]
    fn ranges_are_read_and_overlaps_left_out() {
        let text = "我的快弟到那了";
        let reading = Reading::new(vec![change(15..18, "哪"), change(9..12, "递"), change(9..15, "x")]);
        assert_eq!(reading.of_range(text, 0..text.len()), "我的快递到哪了");
        assert_eq!(reading.of_range(text, 6..15), "快递到");
        assert_eq!(reading.notes(text), ["read 快弟 as 快递", "read 到那 as 到哪"]);
        assert_eq!(Reading::new(vec![change(0..3, "您")]).notes("我 ok"), ["read 我 as 您"]);
        assert!(reading.only(Misspelling::Slip).is_empty());
        assert!(Reading::new(vec![change(3..3, "")]).is_empty());
    }
}
