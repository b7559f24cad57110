//! Chinese spelled in Latin letters without tones: `tuikuan`, `wo de kuaidi dao na le`.

use std::ops::Range;

use super::Open;
use super::grams::Grams;
use super::words::Words;
use crate::text::language::is_han;
use crate::text::{Change, Misspelling, lexicon, pinyin};

/// Longest sequence of words, in letters, that is read as one.
const MAX_LETTERS: usize = 240;
/// Longest sound of three characters, in letters.
const MAX_SOUND: usize = 18;
/// Up to this rank a short word that could be a syllable is English.
const COMMON: u32 = 2_500;
/// Syllables of small Chinese words that English lists hold as names or as words of other languages.
const PARTICLES: &[&str] = &["de", "le", "ma", "ne", "ba", "wo", "ni", "ta", "na", "la", "li", "da", "yi", "shi"];

/// `tokens` are Latin words of `text`, none of them in a slot.
pub(super) fn read(grams: &Grams, words: &Words, text: &str, tokens: &[Range<usize>], open: Open<'_>) -> Vec<Change> {
    let small = |token: &Range<usize>| text[token.clone()].to_ascii_lowercase();
    // A capital inside a sentence marks a name.
    let spelled = |token: &Range<usize>| {
        (token.start == 0 || !text[token.clone()].starts_with(|c: char| c.is_ascii_uppercase()))
            && pinyin::is_pinyin(&small(token))
    };
    let english_around = !text.chars().any(is_han) && tokens.iter().any(|token| !pinyin::is_pinyin(&small(token)));
    let mut changes = Vec::new();
    for run in runs(text, tokens, spelled) {
        let run = trimmed(run, |token| is_english(&small(token), words, open));
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        let letters: Vec<String> = run.iter().map(small).collect();
        let english = letters.iter().filter(|word| is_english(word, words, open)).count();
        let sequence = Sequence { grams, open, words: &letters };
        if english * 2 <= letters.len()
            && let Some(to) = sequence.read(|word| is_english(word, words, open), english_around)
        {
            changes.push(Change { kind: Misspelling::Pinyin, span: first.start..last.end, to });
        }
    }
    changes
}

/// Longest sequences of words, a blank between each two, that are all `spelled` in syllables.
fn runs<'a>(
    text: &str,
    tokens: &'a [Range<usize>],
    spelled: impl Fn(&Range<usize>) -> bool,
) -> Vec<&'a [Range<usize>]> {
    let flags: Vec<bool> = tokens.iter().map(spelled).collect();
    let mut runs = Vec::new();
    let mut start = 0;
    for at in 0..tokens.len() {
        if !flags[at] {
            start = at + 1;
            continue;
        }
        let goes_on = at + 1 < tokens.len() && flags[at + 1] && &text[tokens[at].end..tokens[at + 1].start] == " ";
        if !goes_on {
            runs.push(&tokens[start..=at]);
            start = at + 1;
        }
    }
    runs
}

fn trimmed(mut run: &[Range<usize>], english: impl Fn(&Range<usize>) -> bool) -> &[Range<usize>] {
    while let Some((first, rest)) = run.split_first().filter(|(first, _)| english(first)) {
        let _ = first;
        run = rest;
    }
    while let Some((_, rest)) = run.split_last().filter(|(last, _)| english(last)) {
        run = rest;
    }
    run
}

/// Whether a word that could be pinyin is more likely English.
fn is_english(word: &str, words: &Words, open: Open<'_>) -> bool {
    if PARTICLES.contains(&word) {
        return false;
    }
    if pinyin::is_syllable(word) {
        return lexicon::english_rank(word).is_some_and(|rank| rank < COMMON);
    }
    lexicon::is_english(word) || words.knows(word, open)
}

/// A stretch of letters with what it is read as.
#[derive(Debug, Clone)]
struct Piece {
    from: usize,
    text: String,
    /// Two characters or more that belong together.
    is_word: bool,
    of_card: bool,
}

struct Sequence<'a> {
    grams: &'a Grams,
    open: Open<'a>,
    words: &'a [String],
}

impl Sequence<'_> {
    /// The Chinese text, if these letters are one: known words make up half of it and at least one whole word that is
    /// not English, and the words of the cards hold one of them where the text around is English.
    fn read(&self, is_english: impl Fn(&str) -> bool, by_cards: bool) -> Option<String> {
        let letters = self.words.concat();
        if letters.len() > MAX_LETTERS {
            return None;
        }
        let mut ends = Vec::with_capacity(self.words.len());
        for word in self.words {
            ends.push(ends.last().copied().unwrap_or(0) + word.len());
        }
        let pieces = self.best(&letters, &ends)?;
        let mut held = vec![false; letters.len()];
        let mut from_cards = false;
        let mut text = String::new();
        let piece_ends = pieces.iter().skip(1).map(|piece| piece.from).chain([letters.len()]);
        for (piece, end) in pieces.iter().zip(piece_ends) {
            held[piece.from..end].fill(piece.is_word);
            from_cards |= piece.is_word && piece.of_card;
            text.push_str(&piece.text);
        }
        let mut start = 0;
        let mut whole = false;
        for (word, end) in self.words.iter().zip(&ends) {
            whole |= held[start..*end].iter().all(|held| *held) && !is_english(word);
            start = *end;
        }
        let mostly = held.iter().filter(|held| **held).count() * 2 >= letters.len();
        (whole && mostly && (from_cards || !by_cards)).then_some(text)
    }

    /// The best way to cover all letters.
    fn best(&self, letters: &str, ends: &[usize]) -> Option<Vec<Piece>> {
        let mut best: Vec<Option<(i64, Piece)>> = vec![None; letters.len() + 1];
        for from in 0..letters.len() {
            let reached = if from == 0 { Some(0) } else { best[from].as_ref().map(|(value, _)| *value) };
            let Some(reached) = reached else { continue };
            for end in from + 1..=letters.len().min(from + MAX_SOUND) {
                let blank_inside = ends.iter().any(|blank| from < *blank && *blank < end);
                let Some((value, piece)) = self.piece(from, &letters[from..end], blank_inside) else { continue };
                let total = reached + value;
                if best[end].as_ref().is_none_or(|(known, _)| total > *known) {
                    best[end] = Some((total, piece));
                }
            }
        }
        let mut pieces = Vec::new();
        let mut end = letters.len();
        while end > 0 {
            let (_, piece) = best[end].take()?;
            end = piece.from;
            pieces.push(piece);
        }
        pieces.reverse();
        Some(pieces)
    }

    /// What one stretch of letters is read as, with its worth.
    fn piece(&self, from: usize, sound: &str, blank_inside: bool) -> Option<(i64, Piece)> {
        let of_card = self.grams.best_of_sound(sound, self.open);
        let common = lexicon::chinese_of_sound(sound).first().copied();
        // One word for both, if the cards' own is a word at all.
        let text = match (of_card, common) {
            (Some(own), _) if lexicon::chinese_rank(own).is_some() || common.is_none() => own,
            (Some(own), Some(common)) if own.chars().count() > common.chars().count() => own,
            (_, Some(common)) => common,
            (Some(own), None) => own,
            (None, None) => return None,
        };
        let length = text.chars().count() as i64;
        if length == 1 && blank_inside {
            return None;
        }
        let rank = lexicon::chinese_rank(text);
        let is_own = of_card == Some(text);
        // Squares make long words win, the price of each syllable keeps words whole (dan is not da-n); a thousandth part
        // of the worth orders equals by how common they are.
        let commonness = rank.map_or(0, |rank| 300 - i64::from(rank / 150).min(300));
        let own = 3 * i64::from(is_own && length > 1);
        let word = 2 * i64::from(rank.is_some() && length > 1);
        let value = 1000 * (length * length + own + word) - 1500 * length + commonness;
        let is_word = length > 1 && (rank.is_some() || is_own);
        Some((value, Piece { from, text: text.to_owned(), is_word, of_card: is_own }))
    }
}
