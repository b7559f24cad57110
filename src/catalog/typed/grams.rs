//! Pairs and triples of Chinese characters in the cards, by themselves and by sound.

use std::collections::HashMap;

use super::Open;
use crate::text::language::is_han;
use crate::text::{lexicon, pinyin, simplify};

/// A tool counts once for a text however often it says it; more tools than this say no more.
const MANY: usize = 8;

#[derive(Debug)]
struct Gram {
    text: String,
    /// Positions of tools, ascending.
    owners: Vec<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Grams {
    grams: Vec<Gram>,
    by_text: HashMap<String, u32>,
    /// By sounds that are told apart, pairs and triples.
    by_sound: HashMap<String, Vec<u32>>,
    /// By sounds that are mixed up, pairs only.
    by_loose_sound: HashMap<String, Vec<u32>>,
}

impl Grams {
    pub fn add(&mut self, text: &str, position: usize) {
        let Ok(position) = u32::try_from(position) else { return };
        let chars: Vec<char> = text.chars().map(simplify).collect();
        for run in chars.split(|c| !is_han(*c)) {
            for gram in run.windows(2).chain(run.windows(3)) {
                let text: String = gram.iter().collect();
                let next = self.grams.len() as u32;
                let id = *self.by_text.entry(text.clone()).or_insert(next);
                if id == next {
                    self.grams.push(Gram { text, owners: Vec::new() });
                }
                let owners = &mut self.grams[id as usize].owners;
                if owners.last() != Some(&position) {
                    owners.push(position);
                }
            }
        }
    }

    /// Looks up how everything sounds, once for each text.
    pub fn finish(&mut self) {
        for (id, gram) in (0..).zip(&self.grams) {
            for sound in pinyin::sounds(&gram.text) {
                self.by_sound.entry(sound).or_default().push(id);
            }
            if let [first, second] = gram.text.chars().collect::<Vec<_>>()[..] {
                for sound in loose_sounds(first, second) {
                    self.by_loose_sound.entry(sound).or_default().push(id);
                }
            }
        }
    }

    pub fn knows(&self, text: &str, open: Open<'_>) -> bool {
        self.count(text, open) > 0
    }

    /// How many open tools use `text`, at most [`MANY`].
    pub fn count(&self, text: &str, open: Open<'_>) -> usize {
        let gram = self.by_text.get(text).map(|id| &self.grams[*id as usize]);
        gram.map_or(0, |gram| owners(gram, open))
    }

    /// Pairs of open tools that sound like `first` and `second`, exactly or loosely.
    pub fn pairs_like(&self, first: char, second: char, loosely: bool, open: Open<'_>) -> Vec<(&str, usize)> {
        let (table, sounds) = if loosely {
            (&self.by_loose_sound, loose_sounds(first, second))
        } else {
            (&self.by_sound, pinyin::sounds(&String::from_iter([first, second])))
        };
        let ids = sounds.iter().filter_map(|sound| table.get(sound)).flatten();
        let grams = ids.map(|id| &self.grams[*id as usize]).filter(|gram| gram.text.chars().count() == 2);
        grams.map(|gram| (gram.text.as_str(), owners(gram, open))).filter(|(_, count)| *count > 0).collect()
    }

    /// The text of open tools that sounds so and says most: a word rather than a pair across two, then the most used.
    pub fn best_of_sound(&self, sound: &str, open: Open<'_>) -> Option<&str> {
        let ids = self.by_sound.get(sound)?.iter();
        let grams = ids.map(|id| &self.grams[*id as usize]).map(|gram| (gram, owners(gram, open)));
        let known = grams.filter(|(_, count)| *count > 0);
        let key = |gram: &Gram, count| (lexicon::chinese_rank(&gram.text).is_none(), std::cmp::Reverse(count));
        known.min_by_key(|(gram, count)| (key(gram, *count), gram.text.clone())).map(|(gram, _)| gram.text.as_str())
    }
}

fn owners(gram: &Gram, open: Open<'_>) -> usize {
    gram.owners.iter().filter(|position| open(**position as usize)).take(MANY).count()
}

fn loose_sounds(first: char, second: char) -> Vec<String> {
    let loose = |c| pinyin::readings(c).map(pinyin::loose);
    let mut sounds: Vec<String> =
        loose(first).flat_map(|head| loose(second).map(move |tail| format!("{head} {tail}"))).collect();
    sounds.sort_unstable();
    sounds.dedup();
    sounds
}
