//! A description that was given as one text, split into its parts where the wording allows it.
//!
//! Owns: the wordings by which authors say what a tool is not for, which other tool serves that case, when to use the
//! tool and what it returns, in Chinese and English.
//! Does not know: files, ids, or which tools exist; the caller says whether a name is one of them.
//!
//! Nothing is lost: every character goes to exactly one piece. What no wording claims stays `what`, so a text that is
//! not understood is served as before.

mod wording;

use std::ops::Range;

use crate::tool::{Description, ToolCard};
use wording::{Found, Kind, Section};

/// Cases, or wordings, taken from one text; what is beyond stays `what`.
const MAX_ITEMS: usize = 32;

/// Where a piece of the text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    What,
    /// One wording that leads to the tool, by number.
    When(usize),
    Returns,
    /// The case of one boundary, by number.
    Case(usize),
    /// The tool that serves this case.
    Target(usize),
    /// The words that only mark a part, such as "do not use this for".
    Frame,
}

/// One stretch of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    part: Part,
    at: Range<usize>,
}

/// Splits the description of a card if it was given as one text. `is_tool` knows the names it may point to.
pub(super) fn divide(card: &mut ToolCard, is_tool: &dyn Fn(&str) -> bool) {
    if let Some(text) = card.description.plain.take()
        && let Some(parts) = split(&card.name, &text, is_tool)
    {
        card.description = parts;
    }
}

/// Splits the description of the tool `own`; `None` when all of it is `what`. `is_tool` knows the names of its source.
///
/// The first sentence says what the tool does, whatever its wording, unless it is a boundary.
fn split(own: &str, text: &str, is_tool: &dyn Fn(&str) -> bool) -> Option<Description> {
    let is_other = |name: &str| name != own && is_tool(name);
    let pieces = pieces(text, &is_other);
    if pieces.iter().all(|piece| piece.part == Part::What) {
        return None;
    }
    let mut parts = Description { plain: Some(text.to_owned()), ..Description::default() };
    let mut returns = String::new();
    for Piece { part, at } in pieces {
        let piece = &text[at];
        match part {
            Part::What => parts.what.push_str(piece),
            Part::Returns => returns.push_str(piece),
            Part::When(nth) => append(slot(&mut parts.when_to_use, nth), piece),
            Part::Case(nth) => append(&mut slot(&mut parts.when_not_to_use, nth).case, piece),
            Part::Target(nth) => slot(&mut parts.when_not_to_use, nth).use_tool = wording::tool(piece, &is_other),
            Part::Frame => {}
        }
    }
    parts.what = parts.what.trim().to_owned();
    parts.returns = Some(returns.trim().to_owned()).filter(|returns| !returns.is_empty());
    Some(parts)
}

/// The entry `nth`, which is at most one beyond the last.
fn slot<T: Default>(list: &mut Vec<T>, nth: usize) -> &mut T {
    if list.len() <= nth {
        list.resize_with(nth + 1, T::default);
    }
    &mut list[nth]
}

fn append(text: &mut String, piece: &str) {
    let piece = piece.trim();
    if !text.is_empty() && !piece.is_empty() {
        text.push(' ');
    }
    text.push_str(piece);
}

/// The whole text in pieces, in order and without gaps.
fn pieces(text: &str, is_other: &dyn Fn(&str) -> bool) -> Vec<Piece> {
    let mut cutter = Cutter { text, is_other, pieces: Vec::new(), whens: 0, cases: 0, has_what: false, open: None };
    let mut section = None;
    for segment in wording::segments(text) {
        if wording::ends_section(text, &segment) {
            section = None;
        }
        let first = !cutter.has_what;
        match wording::heading(&text[segment.clone()]) {
            Some(found) if !first => {
                section = Some(found);
                cutter.open = None;
                cutter.push(Part::Frame, segment);
            }
            Some(_) | None => cutter.take(segment, first, section),
        }
    }
    cutter.pieces
}

struct Cutter<'a> {
    text: &'a str,
    is_other: &'a dyn Fn(&str) -> bool,
    pieces: Vec<Piece>,
    whens: usize,
    cases: usize,
    /// Whether a statement already says what the tool does.
    has_what: bool,
    /// The boundary of the segment before, while it has no tool.
    open: Option<usize>,
}

impl Cutter<'_> {
    fn push(&mut self, part: Part, at: Range<usize>) {
        if at.is_empty() {
            return;
        }
        match self.pieces.last_mut() {
            Some(last) if last.part == part && last.at.end == at.start => last.at.end = at.end,
            Some(_) | None => self.pieces.push(Piece { part, at }),
        }
    }

    /// `first`: nothing says yet what the tool does.
    fn take(&mut self, segment: Range<usize>, first: bool, section: Option<Section>) {
        let said = &self.text[segment.clone()];
        // Marks and blanks between two sentences neither close nor open anything.
        if !said.contains(char::is_alphanumeric) {
            let part = if self.open.is_some() { Part::Frame } else { Part::What };
            return self.push(part, segment);
        }
        let found = wording::find(said, self.is_other).or_else(|| section.map(|section| section.whole(said)));
        let open = self.open.take();
        match found {
            Some(Found { kind: Kind::Pointer, tool: Some(tool), .. }) if open.is_some() => {
                self.cut(segment, [(open.map_or(Part::Frame, Part::Target), tool)]);
            }
            Some(Found { kind: Kind::Boundary, cases, tool }) if self.cases < MAX_ITEMS => {
                let nth = self.cases;
                self.cases += 1;
                self.open = tool.is_none().then_some(nth);
                let cases = cases.into_iter().map(|case| (Part::Case(nth), case));
                let mut marked: Vec<(Part, Range<usize>)> = cases.collect();
                marked.extend(tool.map(|tool| (Part::Target(nth), tool)));
                marked.sort_by_key(|(_, at)| at.start);
                self.cut(segment, marked);
            }
            Some(Found { kind: Kind::When, cases, .. }) if !first && self.whens < MAX_ITEMS => {
                let nth = self.whens;
                self.whens += 1;
                self.cut(segment, cases.into_iter().map(|case| (Part::When(nth), case)));
            }
            Some(Found { kind: Kind::Returns, .. }) if !first => self.push(Part::Returns, segment),
            Some(_) | None if open.is_some() && self.goes_on(&segment) => {
                self.push(open.map_or(Part::What, Part::Case), segment);
            }
            Some(_) | None => {
                self.has_what = true;
                self.push(Part::What, segment);
            }
        }
    }

    /// Whether `segment` names the tool for the boundary before it, though nobody knows a tool of that name.
    fn goes_on(&self, segment: &Range<usize>) -> bool {
        let same_sentence = self.text[..segment.start].trim_end().ends_with([';', '；', ',', '，', '-', '–', '—']);
        wording::points_elsewhere(&self.text[segment.clone()], same_sentence)
    }

    /// Cuts a segment at the `marked` places, given from its start on and in order; the rest is frame.
    fn cut(&mut self, segment: Range<usize>, marked: impl IntoIterator<Item = (Part, Range<usize>)>) {
        let mut from = segment.start;
        for (part, at) in marked {
            let at = segment.start + at.start..segment.start + at.end;
            self.push(Part::Frame, from..at.start);
            from = at.end;
            self.push(part, at);
        }
        self.push(Part::Frame, from..segment.end);
    }
}

#[cfg(test)]
mod tests;
