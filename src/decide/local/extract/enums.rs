//! Values of closed sets, by the words the description ties to them, by their own names, by everyday words for these.

use std::ops::Range;

use serde_json::Value;

use super::{Context, Extraction, Found, hints, lexicon, numbers, words};
use crate::args::{Origin, Property};

/// Share of a value's words (generic ones count little) that the text must hold.
const MIN_COVERAGE: f32 = 0.6;
const GENERIC_WEIGHT: f32 = 0.3;

/// How sure a mention is; higher wins. Within a class the longer wording wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// Some of its words, or a generic one.
    Related,
    /// Everyday words for all its words.
    Words,
    /// An everyday wording for the whole value.
    Wording,
    /// Its own name.
    Name,
    /// A wording of the description, said loosely.
    LooseHint,
    /// A wording of the description.
    Hint,
}

#[derive(Debug, Clone)]
pub(super) struct Mention {
    index: usize,
    class: Class,
    span: Range<usize>,
}

impl Mention {
    pub(super) fn is(&self, choices: &[&Value], value: &Value) -> bool {
        choices.get(self.index).is_some_and(|choice| *choice == value)
    }

    fn rank(&self) -> (bool, usize, Class) {
        // What the owner tied to the value, or its name, beats our own lexicon; then the longer wording.
        (self.class > Class::Related, self.span.len(), self.class)
    }
}

pub(super) fn read(context: &Context<'_>, out: &mut Extraction) {
    for property in context.schema.views() {
        if out.arguments.contains_key(property.name) {
            continue;
        }
        let choices = property.choices();
        let found = if let ([only], true) = (choices.as_slice(), property.required) {
            // The schema leaves no choice, so there is nothing to ask.
            out.put(property.name, Found { value: (*only).clone(), origin: Origin::Default });
            None
        } else if choices.len() > 1 && !property.is_kind("boolean") {
            one(context.lower, &property, &choices)
        } else if property.is_kind("array") {
            many(context.lower, &property)
        } else {
            None
        };
        if let Some(value) = found {
            out.put(property.name, Found { value, origin: Origin::EnumText });
        }
    }
}

fn one(lower: &str, property: &Property<'_>, choices: &[&Value]) -> Option<Value> {
    let mut mentions = mentions(lower, property.description(), choices);
    mentions.sort_by(|a, b| b.rank().cmp(&a.rank()).then(a.span.start.cmp(&b.span.start)));
    let best = mentions.first()?;
    let tie = mentions.iter().any(|other| other.index != best.index && other.rank() == best.rank());
    let tie = tie && best.class <= Class::Words;
    (!tie).then(|| choices[best.index].clone())
}

fn many(lower: &str, property: &Property<'_>) -> Option<Value> {
    let choices = property.item_choices();
    if choices.is_empty() {
        return None;
    }
    let mut mentions = mentions(lower, property.description(), &choices);
    mentions.retain(|mention| mention.class > Class::Related);
    // A wording inside a longer one belongs to the longer one.
    let covered = |mention: &Mention| {
        mentions.iter().any(|other| {
            other.index != mention.index
                && other.span.len() > mention.span.len()
                && other.span.start <= mention.span.start
                && mention.span.end <= other.span.end
        })
    };
    let mut kept: Vec<&Mention> = mentions.iter().filter(|mention| !covered(mention)).collect();
    kept.sort_by_key(|mention| (mention.span.start, mention.index));
    let mut values: Vec<Value> = Vec::new();
    for mention in kept {
        if !values.contains(choices[mention.index]) {
            values.push(choices[mention.index].clone());
        }
    }
    values.truncate(property.max_items().unwrap_or(usize::MAX));
    (!values.is_empty()).then_some(Value::Array(values))
}

/// The best mention of each value.
pub(super) fn mentions(lower: &str, description: &str, choices: &[&Value]) -> Vec<Mention> {
    let names: Vec<String> =
        choices.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect();
    let hints = hints::parse(description, &names);
    let mut found = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let best = mention(lower, name, &hints[index], &names);
        found.extend(best.map(|(class, span)| Mention { index, class, span }));
    }
    found
}

fn mention(lower: &str, name: &str, hints: &[String], names: &[String]) -> Option<(Class, Range<usize>)> {
    let name = name.to_ascii_lowercase();
    let hinted = hints.iter().filter_map(|hint| Some((Class::Hint, find_hint(lower, hint)?)));
    let loose = hints.iter().filter_map(|hint| Some((Class::LooseHint, words::find_loosely(lower, hint)?)));
    let spoken = own_name(lower, &name).map(|span| (Class::Name, span));
    let wording = lexicon::for_value(&name.replace(['-', ' '], "_")).iter();
    let wording = wording.filter_map(|phrase| Some((Class::Wording, words::find_meant(lower, phrase)?)));
    let numbered = numbered(lower, &name, names).map(|span| (Class::Hint, span));
    let strong = hinted.chain(loose).chain(spoken).chain(wording).chain(numbered);
    let best = strong.max_by_key(|(class, span)| (span.len(), *class));
    best.or_else(|| by_words(lower, &name))
}

fn find_hint(lower: &str, hint: &str) -> Option<Range<usize>> {
    let core = hint.trim_end_matches(['了', '吗', '呢', '吧']);
    let core = if core.is_empty() { hint } else { core };
    words::find_meant(lower, core).or_else(|| {
        // Latin hints of several words may stand apart: `login trouble`.
        let parts: Vec<&str> = core.split_whitespace().collect();
        let all =
            parts.len() > 1 && core.is_ascii() && parts.iter().all(|part| words::find_stem(lower, part).is_some());
        if all { words::find_stem(lower, parts[0]) } else { None }
    })
}

fn own_name(lower: &str, name: &str) -> Option<Range<usize>> {
    let plain = name.replace(['_', '-'], " ");
    let spellings = [name.to_owned(), plain.clone(), plain.replace(' ', "-"), plain.replace(' ', "")];
    // One letter or digit stands everywhere.
    spellings.iter().filter(|text| text.chars().count() > 1).find_map(|text| words::find_meant(lower, text))
}

/// `apology_10` for "10块": values that differ in a number are meant by that number, said with a unit or as a count.
fn numbered(lower: &str, name: &str, names: &[String]) -> Option<Range<usize>> {
    let (stem, number) = name.rsplit_once(['_', '-'])?;
    let number: u64 = number.parse().ok()?;
    let is_family = |other: &&String| {
        other.to_ascii_lowercase().rsplit_once(['_', '-']).is_some_and(|(s, n)| s == stem && n.parse::<u64>().is_ok())
    };
    if names.iter().filter(is_family).count() < 2 {
        return None;
    }
    let said = numbers::mentions(lower, &[]);
    said.into_iter().find(|said| said.value == number as f64 && said.is_money()).map(|said| said.span)
}

/// Coverage of the value's words by stems and everyday words.
fn by_words(lower: &str, name: &str) -> Option<(Class, Range<usize>)> {
    let parts = words::parts(name);
    let (mut total, mut held, mut span) = (0.0f32, 0.0f32, None::<Range<usize>>);
    let mut only_generic = true;
    for part in &parts {
        let generic = lexicon::is_generic(part);
        let weight = if generic && parts.len() > 1 { GENERIC_WEIGHT } else { 1.0 };
        total += weight;
        let everyday = lexicon::for_word(part).iter().filter_map(|phrase| words::find_meant(lower, phrase));
        let stem = Some(part)
            .filter(|part| if part.is_ascii() { part.len() > 2 } else { part.chars().count() > 1 })
            .and_then(|part| words::find_stem(lower, part));
        if let Some(found) = everyday.chain(stem).max_by_key(|span| span.len()) {
            held += weight;
            only_generic &= generic;
            if !generic || span.is_none() {
                span = Some(found);
            }
        }
    }
    let class = if only_generic { Class::Related } else { Class::Words };
    (held >= MIN_COVERAGE * total).then_some(())?;
    span.map(|span| (class, span))
}
