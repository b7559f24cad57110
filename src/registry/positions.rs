//! Which line each part of a document stands on.

use crate::types::encoding::{escape_pointer, unescape_pointer};
use std::collections::BTreeMap;

/// A tree of the document's shape that holds 1-based line numbers. A missing branch means: on the line of its parent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lines {
    /// 0 when not known.
    at: usize,
    children: Children,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Children {
    #[default]
    None,
    Items(Vec<Lines>),
    Keys(BTreeMap<String, Lines>),
}

impl Lines {
    /// Nothing is known: the document did not come from a file.
    pub fn unknown() -> Self {
        Self::default()
    }

    pub fn leaf(at: usize) -> Self {
        Self { at, children: Children::None }
    }

    pub fn items(at: usize, items: Vec<Lines>) -> Self {
        Self { at, children: Children::Items(items) }
    }

    pub fn keys(at: usize, keys: BTreeMap<String, Lines>) -> Self {
        Self { at, children: Children::Keys(keys) }
    }

    /// The line of the deepest known part on the way to `pointer`.
    pub fn line(&self, pointer: &str) -> Option<usize> {
        let mut node = self;
        for token in pointer.split('/').skip(1) {
            match node.child(&unescape_pointer(token)) {
                Some(child) => node = child,
                None => break,
            }
        }
        (node.at > 0).then_some(node.at)
    }

    /// The part under one key or index; unknown lines if there is none.
    pub fn take(&mut self, token: &str) -> Self {
        match &mut self.children {
            Children::None => Self::leaf(self.at),
            Children::Items(items) => {
                let item = token.parse().ok().and_then(|index: usize| items.get_mut(index));
                item.map_or_else(|| Self::leaf(self.at), std::mem::take)
            }
            Children::Keys(keys) => keys.remove(token).unwrap_or_else(|| Self::leaf(self.at)),
        }
    }

    /// Its own line; 0 when not known.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Hands out every part below it with its key or index.
    pub fn each(&self, visit: &mut dyn FnMut(&str, &Self)) {
        match &self.children {
            Children::None => {}
            Children::Items(items) => items.iter().enumerate().for_each(|(nth, item)| visit(&nth.to_string(), item)),
            Children::Keys(keys) => keys.iter().for_each(|(key, item)| visit(key, item)),
        }
    }

    fn child(&self, token: &str) -> Option<&Self> {
        match &self.children {
            Children::None => None,
            Children::Items(items) => items.get(token.parse::<usize>().ok()?),
            Children::Keys(keys) => keys.get(token),
        }
    }
}

/// Appends one reference token to a JSON pointer.
pub(crate) fn join(pointer: &str, token: impl std::fmt::Display) -> String {
    let mut joined = pointer.to_owned();
    push(&mut joined, &token.to_string());
    joined
}

/// [`join`] in place.
pub(super) fn push(pointer: &mut String, token: &str) {
    pointer.push('/');
    pointer.push_str(&escape_pointer(token));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_known_line_answers() {
        let inner = Lines::keys(4, BTreeMap::from([("a/b~c".to_owned(), Lines::leaf(5))]));
        let lines = Lines::keys(1, BTreeMap::from([("tools".to_owned(), Lines::items(3, vec![inner]))]));
        assert_eq!(lines.line(""), Some(1));
        assert_eq!(lines.line(&join("/tools/0", "a/b~c")), Some(5));
        assert_eq!(lines.line("/tools/0/absent/deeper"), Some(4));
        assert_eq!(lines.line("/tools/9"), Some(3));
        assert_eq!(Lines::unknown().line("/tools"), None);
    }
}
