//! Pairs and triples of Chinese characters in the cards, by themselves and by sound.

use std::collections::HashMap;
use std::sync::Arc;

use super::Open;
use super::owners::Owners;
use crate::text::language::is_han;
use crate::text::{lexicon, pinyin, simplify};

/// A tool counts once for a text however often it says it; more tools than this say no more.
const MANY: usize = 8;

/// How every gram sounds that some catalog had. What no tool uses any more has no owners and is never an answer.
#[derive(Debug, Default, Clone)]
pub(super) struct Sounds {
    texts: Vec<Arc<str>>,
    by_text: HashMap<Arc<str>, u32>,
    /// By sounds that are told apart, pairs and triples.
    by_sound: HashMap<Arc<str>, Vec<u32>>,
    /// By sounds that are mixed up, pairs only.
    by_loose_sound: HashMap<Arc<str>, Vec<u32>>,
}

impl Sounds {
    /// The number of a gram; a new one is added, to a copy where others hold `this`.
    pub fn number(this: &mut Arc<Self>, gram: &str) -> u32 {
        match this.by_text.get(gram) {
            Some(number) => *number,
            None => Arc::make_mut(this).add(gram),
        }
    }

    /// Looks up how it sounds, once for each text.
    fn add(&mut self, gram: &str) -> u32 {
        let number = u32::try_from(self.texts.len()).expect("there are fewer than 2^32 distinct grams in memory");
        let text: Arc<str> = gram.into();
        self.texts.push(Arc::clone(&text));
        self.by_text.insert(text, number);
        for sound in pinyin::sounds(gram) {
            self.by_sound.entry(sound.into()).or_default().push(number);
        }
        if let [first, second] = gram.chars().collect::<Vec<_>>()[..] {
            for sound in loose_sounds(first, second) {
                self.by_loose_sound.entry(sound.into()).or_default().push(number);
            }
        }
        number
    }

    pub fn len(&self) -> usize {
        self.texts.len()
    }
}

/// Pairs and triples of Han characters in `text`, traditional ones as simplified ones, repeated where they are.
pub(super) fn grams_in(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().map(simplify).collect();
    let runs = chars.split(|c| !is_han(*c));
    runs.flat_map(|run| run.windows(2).chain(run.windows(3))).map(|gram| gram.iter().collect()).collect()
}

#[derive(Debug, Default)]
pub(super) struct Grams {
    pub(super) sounds: Arc<Sounds>,
    /// By number of the gram.
    pub(super) owners: Owners,
}

impl Grams {
    pub fn knows(&self, text: &str, open: Open<'_>) -> bool {
        self.count(text, open) > 0
    }

    /// How many open tools use `text`, at most [`MANY`].
    pub fn count(&self, text: &str, open: Open<'_>) -> usize {
        self.sounds.by_text.get(text).map_or(0, |number| self.owners(*number, open))
    }

    /// Pairs of open tools that sound like `first` and `second`, exactly or loosely.
    pub fn pairs_like(&self, first: char, second: char, loosely: bool, open: Open<'_>) -> Vec<(&str, usize)> {
        let (table, sounds) = if loosely {
            (&self.sounds.by_loose_sound, loose_sounds(first, second))
        } else {
            (&self.sounds.by_sound, pinyin::sounds(&String::from_iter([first, second])))
        };
        let mut grams = self.known(sounds.iter().filter_map(|sound| table.get(sound.as_str())).flatten(), open);
        grams.retain(|(gram, _)| gram.chars().count() == 2);
        grams
    }

    /// The text of open tools that sounds so and says most: a word rather than a pair across two, then the most used.
    pub fn best_of_sound(&self, sound: &str, open: Open<'_>) -> Option<&str> {
        let known = self.known(self.sounds.by_sound.get(sound)?.iter(), open);
        let key = |(gram, count): &(&str, usize)| {
            (lexicon::chinese_rank(gram).is_none(), std::cmp::Reverse(*count), (*gram).to_owned())
        };
        known.into_iter().min_by_key(key).map(|(gram, _)| gram)
    }

    /// Those of `numbers` that open tools use, with how many do, at most [`MANY`].
    fn known<'a>(&self, numbers: impl Iterator<Item = &'a u32>, open: Open<'_>) -> Vec<(&str, usize)> {
        let counted = |number: &u32| (&*self.sounds.texts[*number as usize], self.owners(*number, open));
        numbers.map(counted).filter(|(_, count)| *count > 0).collect()
    }

    fn owners(&self, number: u32, open: Open<'_>) -> usize {
        self.owners.of(number).iter().filter(|position| open(**position as usize)).take(MANY).count()
    }
}

fn loose_sounds(first: char, second: char) -> Vec<String> {
    let loose = |c| pinyin::readings(c).map(pinyin::loose);
    let mut sounds: Vec<String> =
        loose(first).flat_map(|head| loose(second).map(move |tail| format!("{head} {tail}"))).collect();
    sounds.sort_unstable();
    sounds.dedup();
    sounds
}
