//! One source of cards as a whole: unique names, references that lead somewhere, remarks put together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::card::{self, Entry};
use super::description;
use super::import::Format;
use super::place::Place;
use super::scopes::Scopes;
use super::{CardProblem, Quarantined, suggest};
use crate::tool::ToolCard;

/// Unknown names for which a similar one is looked for: comparing with every name of a large registry costs, and after a
/// few the pattern is clear.
pub(super) const HINTS: usize = 20;
/// How the problem of a card begins that names a tool nobody knows; the name and a backtick follow.
pub(super) const UNKNOWN_TOOL: &str = "there is no tool `";

/// An entry and the file it stands in.
#[derive(Debug)]
pub(super) struct Placed {
    pub entry: Entry,
    /// File, or `put`.
    pub file: String,
    pub format: Format,
}

impl Placed {
    fn place(&self) -> String {
        match self.entry.lines.line("/name") {
            Some(line) => format!("{}:{line}", self.file),
            None => format!("{} ({})", self.file, self.entry.position),
        }
    }

    /// Turns the card into a quarantined one, or adds to what is wrong with it.
    fn fail(&mut self, problems: impl IntoIterator<Item = (String, String)>) {
        let lines = &self.entry.lines;
        let located = problems.into_iter().map(|(pointer, message)| {
            let line = lines.line(&pointer);
            CardProblem { pointer, line, message }
        });
        let mut all: Vec<CardProblem> = located.collect();
        if let Err(earlier) = &mut self.entry.outcome {
            all.splice(0..0, earlier.drain(..));
        }
        self.entry.outcome = Err(all);
    }
}

/// Whether every tool that a card may point to is in this source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum References {
    Inside,
    /// Checked when the other sources are known.
    Later,
}

/// A source whose cards have been checked against each other.
#[derive(Debug, Default)]
pub(super) struct Settled {
    pub name: String,
    pub cards: Vec<(ToolCard, Place)>,
    /// Names of all its tools, the quarantined ones included.
    pub names: BTreeSet<String>,
    pub quarantined: Vec<Quarantined>,
    pub notices: Vec<String>,
    /// What its files say about scopes.
    pub scopes: Scopes,
    /// Some of its cards were exported by another system.
    pub imported: bool,
}

/// Checks the entries of one source against each other.
pub(super) fn settle(
    name: &str,
    mut entries: Vec<Placed>,
    domains: &BTreeSet<String>,
    references: References,
) -> Settled {
    let names: BTreeSet<String> = entries.iter().filter_map(|placed| placed.entry.name.clone()).collect();
    let mut notices = unknown_keys(&entries);
    notices.extend(left_open(&entries));
    notices.extend(entries.iter().flat_map(noted));
    notices.extend(entries.iter().flat_map(left_out));
    notices.extend(unify_names(&mut entries));
    if references == References::Inside {
        let mut hints = HINTS;
        for placed in &mut entries {
            if let Ok(card) = &mut placed.entry.outcome {
                description::divide(card, &|tool| names.contains(tool));
            }
            let unknown = match &placed.entry.outcome {
                Ok(card) => dangling(card, |tool| names.contains(tool), &names, &mut hints),
                Err(_) => continue,
            };
            match placed.format {
                Format::Native if !unknown.is_empty() => placed.fail(unknown),
                Format::Native => {}
                Format::Flat | Format::Imported => {
                    let place = placed.place();
                    notices
                        .extend(unknown.into_iter().map(|(pointer, message)| format!("{place}: {pointer}: {message}")));
                }
            }
        }
    }
    let mut settled = Settled { name: name.to_owned(), names, notices, ..Settled::default() };
    let mut cards = Vec::new();
    let mut places = Vec::new();
    let mut files: BTreeMap<String, Arc<str>> = BTreeMap::new();
    for placed in entries {
        let label = placed.entry.label().to_owned();
        match placed.entry.outcome {
            Ok(card) => {
                let file = files.entry(placed.file.clone()).or_insert_with(|| placed.file.as_str().into());
                places.push(Place::new(Arc::clone(file), placed.format == Format::Native, &placed.entry.lines));
                cards.push((placed.file, card));
            }
            Err(problems) => settled.quarantined.push(Quarantined { card: label, source: placed.file, problems }),
        }
    }
    settled.notices.extend(domain_remarks(&cards, domains));
    settled.notices.extend(broken_targets(&cards, &settled.quarantined));
    settled.cards = cards.into_iter().map(|(_, card)| *card).zip(places).collect();
    settled
}

/// Every place in `card` that names another tool.
pub(super) fn references(card: &ToolCard) -> Vec<(String, &str)> {
    let mut found = Vec::new();
    for (index, boundary) in card.description.when_not_to_use.iter().enumerate() {
        if let Some(tool) = &boundary.use_tool {
            found.push((format!("/description/when_not_to_use/{index}/use"), tool.as_str()));
        }
    }
    if let Some(tool) = card.confirmation.as_ref().and_then(|confirmation| confirmation.tool.as_ref()) {
        found.push(("/confirmation/tool".to_owned(), tool));
    }
    for (key, tools) in [("requires", &card.requires), ("conflicts_with", &card.conflicts_with)] {
        found.extend(tools.iter().enumerate().map(|(index, tool)| (format!("/{key}/{index}"), tool.as_str())));
    }
    if let Some(tool) = &card.fallback {
        found.push(("/fallback".to_owned(), tool));
    }
    found
}

/// Replaces every tool that `card` names.
pub(super) fn rewrite(card: &mut ToolCard, rename: impl Fn(&str) -> String) {
    let boundaries = card.description.when_not_to_use.iter_mut().filter_map(|boundary| boundary.use_tool.as_mut());
    let confirmation = card.confirmation.iter_mut().filter_map(|confirmation| confirmation.tool.as_mut());
    let listed = card.requires.iter_mut().chain(&mut card.conflicts_with).chain(&mut card.fallback);
    for tool in boundaries.chain(confirmation).chain(listed) {
        *tool = rename(tool);
    }
}

/// Pointer and message for each tool that `card` names and nobody knows. `hints` are still to be given.
pub(super) fn dangling(
    card: &ToolCard,
    is_known: impl Fn(&str) -> bool,
    names: &BTreeSet<String>,
    hints: &mut usize,
) -> Vec<(String, String)> {
    references(card)
        .into_iter()
        .filter(|(_, tool)| !is_known(tool))
        .map(|(pointer, tool)| {
            let hint = hint(tool, names, hints);
            (pointer, format!("{UNKNOWN_TOOL}{}` in this registry{hint}", super::fields::shorten(tool)))
        })
        .collect()
}

fn hint(word: &str, names: &BTreeSet<String>, left: &mut usize) -> String {
    let Some(rest) = left.checked_sub(1) else { return String::new() };
    *left = rest;
    suggest(word, names.iter().map(String::as_str))
}

/// One card per name: the same content twice is one card, different content under one name is nobody's.
fn unify_names(entries: &mut Vec<Placed>) -> Vec<String> {
    let mut by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, placed) in entries.iter().enumerate() {
        if let Some(name) = &placed.entry.name {
            by_name.entry(name.clone()).or_default().push(index);
        }
    }
    let mut notices = Vec::new();
    let mut repeated = BTreeSet::new();
    for (name, indices) in by_name.into_iter().filter(|(_, indices)| indices.len() > 1) {
        let places: Vec<String> = indices.iter().take(10).map(|index| entries[*index].place()).collect();
        let places = places.join(", ");
        let same = |index: &usize| entries[*index].entry.outcome.as_ref().ok();
        let first = same(&indices[0]);
        if first.is_some() && indices.iter().all(|index| same(index) == first) {
            notices.push(format!("`{name}` stands {} times with the same content ({places})", indices.len()));
            repeated.extend(indices.into_iter().skip(1));
            continue;
        }
        for index in indices {
            let message = format!("the name `{name}` is used more than once ({places}); rename or remove all but one");
            entries[index].fail([("/name".to_owned(), message)]);
        }
    }
    let mut index = 0;
    entries.retain(|_| {
        index += 1;
        !repeated.contains(&(index - 1))
    });
    notices
}

/// One remark per file and key, however many cards hold it.
fn unknown_keys(entries: &[Placed]) -> Vec<String> {
    let mut found: BTreeMap<(&str, &str), (usize, String)> = BTreeMap::new();
    for placed in entries {
        for key in &placed.entry.remarks.unknown {
            found.entry((&placed.file, key)).or_insert_with(|| (0, placed.place())).0 += 1;
        }
    }
    found
        .into_iter()
        .map(|((file, key), (count, place))| {
            let hint = suggest(key, card::KEYS);
            let cards = if count == 1 { "card" } else { "cards" };
            format!("{file}: unknown key `{key}` in {count} {cards} is ignored{hint}, first at {place}")
        })
        .collect()
}

/// One remark per file of imported cards: what its owner should fill in.
fn left_open(entries: &[Placed]) -> Vec<String> {
    let mut found: BTreeMap<&str, (usize, BTreeMap<&str, usize>)> = BTreeMap::new();
    for placed in entries.iter().filter(|placed| placed.format == Format::Imported && placed.entry.outcome.is_ok()) {
        let (cards, keys) = found.entry(&placed.file).or_default();
        *cards += 1;
        for key in &placed.entry.remarks.unstated {
            *keys.entry(key).or_default() += 1;
        }
    }
    let told = |(file, (cards, keys)): (&str, (usize, BTreeMap<&str, usize>))| {
        let counts: Vec<String> = keys.iter().map(|(key, count)| format!("{count} state no {key}")).collect();
        let meaning =
            if keys.contains_key("side_effect") { "; a missing side_effect counts as destructive" } else { "" };
        (!counts.is_empty()).then(|| format!("{file}: of {cards} imported cards {}{meaning}", counts.join(", ")))
    };
    found.into_iter().filter_map(told).collect()
}

fn noted(placed: &Placed) -> impl Iterator<Item = String> + '_ {
    let describe = |(pointer, message): &(String, String)| {
        let (place, label) = (placed.place(), placed.entry.label());
        format!("{place}: `{label}` at {pointer}: {message}")
    };
    placed.entry.remarks.notes.iter().map(describe)
}

fn left_out(placed: &Placed) -> impl Iterator<Item = String> + '_ {
    let describe = |(pointer, reason): &(String, String)| {
        let (place, label) = (placed.place(), placed.entry.label());
        format!("{place}: {pointer} of `{label}` cannot be applied and is left out: {reason}")
    };
    placed.entry.remarks.relaxed.iter().map(describe)
}

/// One remark per file and domain.
fn domain_remarks(cards: &[(String, Box<ToolCard>)], domains: &BTreeSet<String>) -> Vec<String> {
    if domains.is_empty() {
        return Vec::new();
    }
    let mut found: BTreeMap<(&str, &str), (usize, &str)> = BTreeMap::new();
    for (file, card) in cards {
        if let Some(domain) = card.domain.as_ref().filter(|domain| !domains.contains(*domain)) {
            found.entry((file, domain)).or_insert((0, &card.name)).0 += 1;
        }
    }
    let mut hints = HINTS;
    let told = |((file, domain), (count, first)): ((&str, &str), (usize, &str))| {
        let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        let hint = hint(domain, domains, &mut hints);
        format!("{file}: the domain `{domain}` of `{first}`{more} is not listed under `domains`{hint}")
    };
    found.into_iter().map(told).collect()
}

fn broken_targets(cards: &[(String, Box<ToolCard>)], quarantined: &[Quarantined]) -> Vec<String> {
    let broken: BTreeSet<&str> = quarantined.iter().map(|card| card.card.as_str()).collect();
    cards
        .iter()
        .flat_map(|(file, card)| references(card).into_iter().map(move |(pointer, tool)| (file, card, pointer, tool)))
        .filter(|(_, _, _, tool)| broken.contains(tool))
        .map(|(file, card, pointer, tool)| {
            format!("{file}: `{}` points to `{tool}` at {pointer}, which is quarantined", card.name)
        })
        .collect()
}
