//! Latin words of the cards.

use std::collections::HashMap;
use std::sync::Arc;

use super::Open;
use super::owners::Owners;
use crate::text::{lexicon, tokenise};

/// Shortest word a slip can be told in.
pub(super) const SHORTEST: usize = 4;

/// Every word that some catalog had. What no tool uses any more has no owners and is never an answer.
#[derive(Debug, Default, Clone)]
pub(super) struct Spellings {
    /// By number, with the letters a word holds, for a quick first look.
    words: Vec<(Arc<str>, u32)>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Spellings {
    /// The number of a word; a new one is added, to a copy where others hold `this`.
    pub fn number(this: &mut Arc<Self>, word: &str) -> u32 {
        if let Some(number) = this.numbers.get(word) {
            return *number;
        }
        let this = Arc::make_mut(this);
        let number = u32::try_from(this.words.len()).expect("there are fewer than 2^32 distinct words in memory");
        let text: Arc<str> = word.into();
        this.words.push((Arc::clone(&text), letters(word)));
        this.numbers.insert(text, number);
        number
    }

    pub fn len(&self) -> usize {
        self.words.len()
    }
}

/// Words of `text` in small letters that a slip can be told in, repeated where they are.
pub(super) fn words_in(text: &str) -> Vec<String> {
    let mut words = tokenise(text);
    words.retain(|word| word.len() >= SHORTEST && word.bytes().all(|byte| byte.is_ascii_lowercase()));
    words
}

/// Words with the positions of the tools that use them.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub(super) spellings: Arc<Spellings>,
    /// By number of the word.
    pub(super) owners: Owners,
}

impl Words {
    /// Whether an open tool uses the word.
    pub fn knows(&self, word: &str, open: Open<'_>) -> bool {
        self.spellings.numbers.get(word).is_some_and(|number| self.is_open(*number, open))
    }

    fn is_open(&self, number: u32, open: Open<'_>) -> bool {
        self.owners.of(number).iter().any(|position| open(*position as usize))
    }

    /// Words of open tools and common ones that can be `word` with at most `slips` slips: the word, the number of slips,
    /// and whether it is a tool's.
    pub fn near(&self, word: &str, slips: usize, open: Open<'_>) -> Vec<(&str, usize, bool)> {
        let own = letters(word);
        let may_be = |other: &str, others: u32| {
            let close = other.len().abs_diff(word.len()) <= slips && (own ^ others).count_ones() as usize <= 2 * slips;
            close.then(|| strsim::osa_distance(word, other)).filter(|distance| *distance <= slips)
        };
        let cards = (0..).zip(&self.spellings.words).filter_map(|(number, (other, others))| {
            let distance = may_be(other, *others)?;
            self.is_open(number, open).then_some((&**other, distance, true))
        });
        let common =
            lexicon::common_english().iter().filter_map(|other| Some((*other, may_be(other, letters(other))?, false)));
        cards.chain(common).collect()
    }
}

/// One bit for each letter in the word.
fn letters(word: &str) -> u32 {
    word.bytes().filter(u8::is_ascii_lowercase).fold(0, |set, byte| set | 1 << (byte - b'a'))
}
