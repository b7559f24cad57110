//! Latin words of the cards.

use std::collections::BTreeMap;

use super::Open;
use crate::text::{lexicon, tokenise};

/// Shortest word a slip can be told in.
pub(super) const SHORTEST: usize = 4;

/// Words in small letters with the positions of the tools that use them, ascending.
#[derive(Debug, Default)]
pub(super) struct Words {
    owners: BTreeMap<String, Vec<u32>>,
    /// The words again with the letters they hold, for a quick first look.
    spelled: Vec<(String, u32)>,
}

impl Words {
    pub fn add(&mut self, text: &str, position: usize) {
        let Ok(position) = u32::try_from(position) else { return };
        for word in tokenise(text) {
            if word.len() >= SHORTEST && word.bytes().all(|byte| byte.is_ascii_lowercase()) {
                let owners = self.owners.entry(word).or_default();
                if owners.last() != Some(&position) {
                    owners.push(position);
                }
            }
        }
    }

    pub fn finish(&mut self) {
        self.spelled = self.owners.keys().map(|word| (word.clone(), letters(word))).collect();
    }

    /// Whether an open tool uses the word.
    pub fn knows(&self, word: &str, open: Open<'_>) -> bool {
        self.owners.get(word).is_some_and(|owners| owners.iter().any(|position| open(*position as usize)))
    }

    /// Words of open tools and common ones that can be `word` with at most `slips` slips: the word, the number of slips,
    /// and whether it is a tool's.
    pub fn near(&self, word: &str, slips: usize, open: Open<'_>) -> Vec<(&str, usize, bool)> {
        let own = letters(word);
        let may_be = |other: &str, others: u32| {
            let close = other.len().abs_diff(word.len()) <= slips && (own ^ others).count_ones() as usize <= 2 * slips;
            close.then(|| strsim::osa_distance(word, other)).filter(|distance| *distance <= slips)
        };
        let cards = self.spelled.iter().filter_map(|(other, others)| {
            let distance = may_be(other, *others)?;
            self.knows(other, open).then_some((other.as_str(), distance, true))
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
