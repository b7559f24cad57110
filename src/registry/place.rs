//! Where a card and its parts stand in the file they came from.
//!
//! Owns: a compact form of the lines of one card, small enough to be kept for every card that is served.
//! Does not know: the card.

use std::sync::Arc;

use super::positions::Lines;
use crate::types::encoding::unescape_pointer;

/// Parts of one card whose lines are kept; what is beyond answers with the line of the part around it.
const MAX_PARTS: usize = 2_000;
/// Start and factor of the hash FNV-1a.
const BASIS: u32 = 0x811c_9dc5;
const PRIME: u32 = 0x0100_0193;

/// File and lines of one card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// File, or `put`.
    pub file: Arc<str>,
    /// Whether the card was written for this server, so that its owner could have said everything.
    pub native: bool,
    /// Hash of a pointer and the line of that part, where it differs from the line of the part around it; sorted. Eight
    /// bytes a part instead of a tree with keys: two parts of one card hardly ever share a hash, and then only a line
    /// number is off.
    parts: Box<[(u32, u32)]>,
}

impl Place {
    pub(super) fn new(file: Arc<str>, native: bool, lines: &Lines) -> Self {
        let mut parts = Vec::new();
        gather(lines, BASIS, 0, &mut parts);
        parts.sort_unstable();
        Self { file, native, parts: parts.into_boxed_slice() }
    }

    /// 1-based line of the deepest known part on the way to `pointer`.
    pub fn line(&self, pointer: &str) -> Option<usize> {
        let mut hash = BASIS;
        let mut line = self.at(hash);
        for token in pointer.split('/').skip(1) {
            hash = step(hash, &unescape_pointer(token));
            line = self.at(hash).or(line);
        }
        line
    }

    fn at(&self, hash: u32) -> Option<usize> {
        let index = self.parts.binary_search_by_key(&hash, |(hash, _)| *hash).ok()?;
        Some(self.parts[index].1 as usize)
    }
}

fn gather(lines: &Lines, hash: u32, around: usize, parts: &mut Vec<(u32, u32)>) {
    let at = lines.at();
    if at > 0 && at != around && parts.len() < MAX_PARTS {
        parts.push((hash, u32::try_from(at).unwrap_or(u32::MAX)));
    }
    lines.each(&mut |token, child| gather(child, step(hash, token), at, parts));
}

fn step(hash: u32, token: &str) -> u32 {
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(PRIME);
    std::iter::once(b'/').chain(token.bytes()).fold(hash, mix)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_compact_form_answers_as_the_tree_does() {
        let inner = Lines::keys(
            4,
            BTreeMap::from([
                ("a/b~c".to_owned(), Lines::leaf(5)),
                ("same".to_owned(), Lines::leaf(4)),
                ("list".to_owned(), Lines::items(6, vec![Lines::leaf(6), Lines::leaf(7)])),
            ]),
        );
        let lines = Lines::keys(1, BTreeMap::from([("tools".to_owned(), Lines::items(3, vec![inner]))]));
        let place = Place::new("r.yaml".into(), true, &lines);
        for pointer in ["", "/tools", "/tools/0", "/tools/0/a~1b~0c", "/tools/0/same", "/tools/0/list/1/x", "/tools/9"]
        {
            assert_eq!(place.line(pointer), lines.line(pointer), "{pointer}");
        }
        assert_eq!(place.parts.len(), 6);
        assert_eq!(Place::new("put".into(), true, &Lines::unknown()).line("/name"), None);
    }
}
