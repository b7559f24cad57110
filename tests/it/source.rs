//! Reads the repository's own sources: files, and Rust text as tokens without comments and literals.

use std::path::{Path, PathBuf};

/// A word, `::`, or a single other character, with the 1-based line it stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

/// Folder of `Cargo.toml`.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files below `folder` with one of these endings, sorted; none when there is no such folder.
pub fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else { return found };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, endings));
        } else if path.extension().is_some_and(|ending| endings.iter().any(|wanted| ending == *wanted)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

pub fn tokens(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let (mut at, mut line, mut found) = (0, 1, Vec::new());
    while at < chars.len() {
        let end = skipped(&chars, at).unwrap_or_else(|| {
            let end = token_end(&chars, at);
            found.push(Token { text: chars[at..end].iter().collect(), line });
            end
        });
        line += chars[at..end].iter().filter(|char| **char == '\n').count();
        at = end;
    }
    found
}

/// End of the blank, comment or literal that begins at `at`.
fn skipped(chars: &[char], at: usize) -> Option<usize> {
    let starts = |text: &str| text.chars().enumerate().all(|(i, char)| chars.get(at + i) == Some(&char));
    if chars[at].is_whitespace() {
        return Some(at + 1);
    }
    if starts("//") {
        return Some(chars[at..].iter().position(|char| *char == '\n').map_or(chars.len(), |length| at + length));
    }
    if starts("/*") {
        return Some(block_comment_end(chars, at));
    }
    if chars[at] == '"' {
        return Some(quoted_end(chars, at + 1, '"'));
    }
    if chars[at] == '\'' {
        // `'a'` and `'\n'` are characters, `'a` is a lifetime.
        let is_char = chars.get(at + 1) == Some(&'\\') || chars.get(at + 2) == Some(&'\'');
        return Some(if is_char { quoted_end(chars, at + 1, '\'') } else { at + 1 });
    }
    raw_string_end(chars, at)
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let (mut depth, mut at) = (1, at + 2);
    while at < chars.len() && depth > 0 {
        let pair = (chars[at], chars.get(at + 1));
        (depth, at) = match pair {
            ('/', Some('*')) => (depth + 1, at + 2),
            ('*', Some('/')) => (depth - 1, at + 2),
            _ => (depth, at + 1),
        };
    }
    at
}

fn quoted_end(chars: &[char], mut at: usize, quote: char) -> usize {
    while at < chars.len() && chars[at] != quote {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

/// For `r"…"`, `r#"…"#`, `br#"…"#` and the like.
fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let prefix = chars[at..].iter().take(2).take_while(|char| matches!(char, 'b' | 'c' | 'r')).count();
    if prefix == 0 || chars[at + prefix - 1] != 'r' || at > 0 && is_word(chars[at - 1]) {
        return None;
    }
    let hashes = chars[at + prefix..].iter().take_while(|char| **char == '#').count();
    let open = at + prefix + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let closes =
        |end: &usize| chars[*end] == '"' && chars[end + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
    Some((open + 1..chars.len()).find(closes).map_or(chars.len(), |end| end + 1 + hashes))
}

fn token_end(chars: &[char], at: usize) -> usize {
    if is_word(chars[at]) {
        return at + chars[at..].iter().take_while(|char| is_word(**char)).count();
    }
    if chars[at] == ':' && chars.get(at + 1) == Some(&':') { at + 2 } else { at + 1 }
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

#[test]
fn comments_and_literals_are_no_tokens() {
    let source = r##"a::b /* x /* y */ */ "q\" z" 'c' '\'' &'life r#"r" s"# // t
        br"u" end"##;
    let text: Vec<_> = tokens(source).into_iter().map(|token| token.text).collect();
    assert_eq!(text, ["a", "::", "b", "&", "life", "end"]);
    assert_eq!(tokens(source).last().unwrap().line, 2);
}
