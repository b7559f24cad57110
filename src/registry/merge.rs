//! From files, and from cards that came in calls, to one [`Registry`] with ids that are unique across sources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::card;
use super::description;
use super::import::{self, Format, RawCard, SourceFile};
use super::listed::{self, Listed};
use super::positions::Lines;
use super::scopes::{self, Scopes};
use super::source::{HINTS, Placed, References, Settled, dangling, rewrite, settle};
use super::{CardProblem, Quarantined, Registry, RegistryError};
use crate::tool::ToolCard;
use crate::types::ToolId;

/// Most tools in one registry.
const MAX_TOOLS: usize = 100_000;
/// Source of cards that came in calls.
pub(crate) const PUT: &str = "put";

/// Reads registry files, native (`.yaml`, `.yml`, `.toml`, `.json`), flat (`.jsonl`) or of another [kind](super::Kind)
/// (`.yaml`, `.yml`, `.json`), and adds what live sources listed. The result does not depend on the order of `paths` and
/// `listed`; a file named twice is read once.
///
/// Files that state the same `registry` name form one source, any other file is a source of its own, and so is what was
/// listed under one name. A name that several sources use is served as `source/name` for each of them, whether or not
/// each of these cards is sound, so that an id does not move when another card breaks. Names by which a card points to
/// others are replaced by their ids.
///
/// # Errors
/// [`RegistryError`] when a file cannot be read or parsed at all; a bad card is quarantined instead.
pub fn load(paths: &[PathBuf], listed: &[Listed]) -> Result<Registry, RegistryError> {
    let mut distinct: BTreeMap<PathBuf, &Path> = BTreeMap::new();
    for path in paths {
        let real = path.canonicalize().map_err(|source| RegistryError::Read { path: path.clone(), source })?;
        let shown = distinct.entry(real).or_insert(path);
        *shown = (*shown).min(path);
    }
    let mut files = Vec::with_capacity(distinct.len());
    for (real, shown) in distinct {
        files.push((real, import::read(shown)?));
    }
    combine(files, listed)
}

/// Files and what was listed together, within the most tools there may be.
pub(super) fn combine(files: Vec<(PathBuf, SourceFile)>, listed: &[Listed]) -> Result<Registry, RegistryError> {
    let in_files: usize = files.iter().map(|(_, file)| file.cards.len()).sum();
    let found = in_files + listed.iter().map(|listed| listed.tools.len()).sum::<usize>();
    if found > MAX_TOOLS {
        return Err(RegistryError::TooMany { found, limit: MAX_TOOLS });
    }
    Ok(join(group(files, listed::files(listed))))
}

/// Reads native cards that came in a call, each as one entry of `tools` in a registry file. Their source is `put`.
///
/// Such a card may point to tools of the registry files, so what it points to is checked by [`merge`] and
/// [`overlay`].
pub fn from_values(cards: &[Value]) -> Registry {
    let entries = cards.iter().take(MAX_TOOLS).enumerate().map(|(index, value)| {
        let position = format!("tools/{index}");
        let raw = RawCard::new(whole_numbers(value), Lines::unknown(), position);
        Placed { entry: card::read(raw, Format::Native, PUT), file: PUT.into(), format: Format::Native }
    });
    let mut settled = settle(PUT, entries.collect(), &BTreeSet::new(), References::Later);
    if cards.len() > MAX_TOOLS {
        let message = format!("{} cards; at most {MAX_TOOLS} are served", cards.len());
        let problem = CardProblem { pointer: String::new(), line: None, message };
        settled.quarantined.push(Quarantined {
            card: format!("tools/{MAX_TOOLS}"),
            source: PUT.into(),
            problems: vec![problem],
        });
    }
    join(vec![settled])
}

/// `files` and `put` together; files win on the same name, with a notice. Cards of `put` that point to a tool neither
/// of them holds are quarantined.
pub fn merge(files: Registry, mut put: Registry) -> Registry {
    let names: BTreeSet<&str> = files.cards.values().map(|card| card.name.as_str()).collect();
    let (shadowed, own) = std::mem::take(&mut put.cards)
        .into_iter()
        .partition(|(id, card)| files.cards.contains_key(id) || names.contains(card.name.as_str()));
    put.cards = own;
    let shadowed: BTreeMap<ToolId, Arc<ToolCard>> = shadowed;
    let remark = |id: &ToolId| format!("`{id}` from {PUT} is not served: a registry file holds a tool of that name");
    put.notices.extend(shadowed.keys().map(remark));
    attach(files, put)
}

/// `current` with the cards of `put` added or put in place of those with the same id. Of what was reported before only
/// the quarantined cards of files stay; the notices speak of `put` alone.
///
/// A card of `put` that cannot be served changes nothing: what it was to replace stays.
pub fn overlay(mut current: Registry, put: Registry) -> Registry {
    let (replaced, kept): (BTreeMap<ToolId, Arc<ToolCard>>, _) =
        std::mem::take(&mut current.cards).into_iter().partition(|(id, _)| put.cards.contains_key(id));
    current.cards = kept;
    current.quarantined.retain(|card| card.source != PUT);
    current.notices.clear();
    let mut next = attach(current, put);
    for (id, card) in replaced {
        next.cards.entry(id).or_insert(card);
    }
    next
}

/// Adds cards whose names are free. What they point to may be in either set.
fn attach(base: Registry, put: Registry) -> Registry {
    let mut ids_by_name: BTreeMap<&str, Vec<&ToolId>> = BTreeMap::new();
    for (id, card) in &base.cards {
        ids_by_name.entry(&card.name).or_default().push(id);
    }
    let broken: BTreeSet<&str> = [&base, &put].iter().flat_map(|r| &r.quarantined).map(|q| q.card.as_str()).collect();
    let names: BTreeSet<String> = (ids_by_name.keys().map(|name| (*name).to_owned()))
        .chain(put.cards.values().map(|card| card.name.clone()))
        .collect();
    let resolve = |tool: &str| -> Option<String> {
        if put.cards.contains_key(tool) || base.cards.contains_key(tool) {
            return Some(tool.to_owned());
        }
        match ids_by_name.get(tool).map(Vec::as_slice) {
            Some([only]) => Some(only.as_str().to_owned()),
            // Several sources use the name: the card has to say which one, as `source/name`.
            Some(_) | None => broken.contains(tool).then(|| tool.to_owned()),
        }
    };
    let mut hints = HINTS;
    let mut cards = base.cards.clone();
    let mut places = base.places.clone();
    let mut quarantined: Vec<Quarantined> = base.quarantined.iter().chain(&put.quarantined).cloned().collect();
    for (id, card) in &put.cards {
        let mut card = ToolCard::clone(card);
        description::divide(&mut card, &|tool| resolve(tool).is_some());
        let unknown = dangling(&card, |tool| resolve(tool).is_some(), &names, &mut hints);
        if unknown.is_empty() {
            rewrite(&mut card, |tool| resolve(tool).unwrap_or_else(|| tool.to_owned()));
            cards.insert(id.clone(), Arc::new(card));
            places.extend(put.places.get(id).map(|place| (id.clone(), place.clone())));
        } else {
            let problem = |(pointer, message)| CardProblem { pointer, line: None, message };
            let problems = unknown.into_iter().map(problem).collect();
            quarantined.push(Quarantined { card: card.name.clone(), source: PUT.into(), problems });
        }
    }
    let mut notices: Vec<String> = base.notices.iter().chain(&put.notices).cloned().collect();
    let mut known = base.scopes;
    scopes::adopt(&mut known, put.scopes, PUT, &mut notices);
    Registry { cards, quarantined, notices, scopes: known, places, ..base }
}

/// Puts files into sources and checks each source. A live source never shares one with files, even of its name: both are
/// kept.
fn group(files: Vec<(PathBuf, SourceFile)>, live: BTreeMap<String, Vec<SourceFile>>) -> Vec<Settled> {
    let mut taken: BTreeSet<String> = files.iter().filter_map(|(_, file)| file.declared.clone()).collect();
    let mut sources: BTreeMap<String, Vec<SourceFile>> = BTreeMap::new();
    for (name, mut listed) in live {
        let free = free_name(&name, &taken);
        if free != name {
            let notice = format!("a registry file has the name `{name}` as well; this source is called `{free}`");
            listed.iter_mut().take(1).for_each(|file| file.notices.push(notice.clone()));
        }
        taken.insert(free.clone());
        sources.insert(free, listed);
    }
    for (real, file) in files {
        let name = file.declared.clone().unwrap_or_else(|| {
            let name = free_name(&derived_name(&real), &taken);
            taken.insert(name.clone());
            name
        });
        sources.entry(name).or_default().push(file);
    }
    sources
        .into_iter()
        .map(|(name, files)| {
            let mut entries = Vec::new();
            let mut domains = BTreeSet::new();
            let mut notices = Vec::new();
            let mut known = Scopes::new();
            let imported = files.iter().any(|file| file.format != Format::Native);
            for file in files {
                let shown = file.path.display().to_string();
                scopes::adopt(&mut known, file.scopes, &shown, &mut notices);
                domains.extend(file.domains);
                notices.extend(file.notices.iter().map(|notice| format!("{shown}: {notice}")));
                entries.extend(file.cards.into_iter().map(|raw| Placed {
                    entry: card::read(raw, file.format, &name),
                    file: shown.clone(),
                    format: file.format,
                }));
            }
            let mut settled = settle(&name, entries, &domains, References::Inside);
            settled.notices.splice(0..0, notices);
            settled.scopes = known;
            settled.imported = imported;
            settled
        })
        .collect()
}

/// What a file without a `registry` name is called: its own name, or its folder's where its own says nothing.
fn derived_name(path: &Path) -> String {
    const GENERIC: [&str; 4] = ["tools", "registry", "cards", "index"];
    let text = |part: Option<&std::ffi::OsStr>| part.map(|name| name.to_string_lossy().into_owned());
    let stem = text(path.file_stem()).unwrap_or_default();
    let name = match text(path.parent().and_then(Path::file_name)) {
        Some(folder) if GENERIC.contains(&stem.as_str()) => folder,
        Some(_) | None => stem,
    };
    let name: String = name.chars().map(|c| if c.is_control() { '_' } else { c }).collect();
    // As long as a file may state one.
    name[..name.floor_char_boundary(import::MAX_SOURCE_NAME_BYTES)].to_owned()
}

fn free_name(wanted: &str, taken: &BTreeSet<String>) -> String {
    let numbered = (2..).map(|number| format!("{wanted}-{number}"));
    std::iter::once(wanted.to_owned())
        .chain(numbered)
        .find(|name| !taken.contains(name))
        .expect("there are more numbers than files")
}

/// Gives ids to the cards of all sources and collects the reports.
fn join(sources: Vec<Settled>) -> Registry {
    let prefixed = names_to_prefix(&sources);
    let mut registry = Registry::default();
    for (source, prefixed) in sources.into_iter().zip(prefixed) {
        let id_of = |tool: &str| {
            if prefixed.contains(tool) { format!("{}/{tool}", source.name) } else { tool.to_owned() }
        };
        for (mut card, place) in source.cards {
            card.id = ToolId::new(id_of(&card.name));
            rewrite(&mut card, id_of);
            registry.places.insert(card.id.clone(), place);
            registry.cards.insert(card.id.clone(), Arc::new(card));
        }
        if source.imported {
            registry.imported.insert(source.name.clone());
        }
        registry.quarantined.extend(source.quarantined);
        registry.notices.extend(source.notices);
        scopes::adopt(&mut registry.scopes, source.scopes, &source.name, &mut registry.notices);
    }
    registry
}

/// For each source the names that need the source in front: those another source uses as well, and those that read
/// like such an id.
fn names_to_prefix(sources: &[Settled]) -> Vec<BTreeSet<String>> {
    let mut holders: BTreeMap<&str, usize> = BTreeMap::new();
    for name in sources.iter().flat_map(|source| &source.names) {
        *holders.entry(name).or_default() += 1;
    }
    let shared = |source: &Settled| source.names.iter().filter(|name| holders[name.as_str()] > 1).cloned().collect();
    let mut prefixed: Vec<BTreeSet<String>> = sources.iter().map(shared).collect();
    loop {
        let ids: BTreeSet<String> = sources
            .iter()
            .zip(&prefixed)
            .flat_map(|(source, names)| names.iter().map(|name| format!("{}/{name}", source.name)))
            .collect();
        let mut grew = false;
        for (source, prefixed) in sources.iter().zip(&mut prefixed) {
            for name in source.names.iter().filter(|name| ids.contains(*name)) {
                grew |= prefixed.insert(name.clone());
            }
        }
        if !grew {
            return prefixed;
        }
    }
}

/// Numbers that came as floating-point ones although they are whole, as they do from calls, in their usual form.
fn whole_numbers(value: &Value) -> Value {
    /// Beyond this a floating-point number does not tell whole numbers apart.
    const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < MAX_EXACT => (float as i64).into(),
            Some(_) | None => value.clone(),
        },
        Value::Array(items) => items.iter().map(whole_numbers).collect(),
        Value::Object(map) => map.iter().map(|(key, item)| (key.clone(), whole_numbers(item))).collect(),
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
