//! JSON with lines: serde_json parses, a second pass over the valid text counts.

use std::collections::BTreeMap;

use super::super::CardProblem;
use super::super::positions::{Lines, join};
use super::{Document, SyntaxError};

pub(super) fn parse(text: &str) -> Result<Document, SyntaxError> {
    if text.trim().is_empty() {
        return Err(SyntaxError { line: None, message: "the file is empty".into() });
    }
    let value = serde_json::from_str(text)
        .map_err(|error| SyntaxError::at(error.line(), format!("not valid JSON: {error}")))?;
    let mut scan = Scan { bytes: text.as_bytes(), at: 0, line: 1, flaws: Vec::new() };
    let lines = scan.value("");
    Ok(Document { value, lines, flaws: scan.flaws })
}

/// Walks text that serde_json has accepted, so its nesting is bounded and its tokens are well formed.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    line: usize,
    flaws: Vec<CardProblem>,
}

impl Scan<'_> {
    fn value(&mut self, pointer: &str) -> Lines {
        let first = self.next();
        let line = self.line;
        match first {
            Some(b'{') => Lines::keys(line, self.object(pointer)),
            Some(b'[') => Lines::items(line, self.array(pointer)),
            Some(b'"') => {
                self.string();
                Lines::leaf(line)
            }
            _ => {
                while self
                    .bytes
                    .get(self.at)
                    .is_some_and(|b| !matches!(b, b',' | b']' | b'}') && !b.is_ascii_whitespace())
                {
                    self.at += 1;
                }
                Lines::leaf(line)
            }
        }
    }

    fn object(&mut self, pointer: &str) -> BTreeMap<String, Lines> {
        let mut keys = BTreeMap::new();
        self.at += 1;
        while self.next() == Some(b'"') {
            let line = self.line;
            let key = self.string();
            self.skip(b':');
            let inner = join(pointer, &key);
            let lines = self.value(&inner);
            if let Some(first) = keys.insert(key.clone(), lines) {
                let first = first.line("").unwrap_or_default();
                let message = format!("the key `{key}` stands here and on line {first}; remove one");
                self.flaws.push(CardProblem { pointer: inner, line: Some(line), message });
            }
            self.skip(b',');
        }
        self.skip(b'}');
        keys
    }

    fn array(&mut self, pointer: &str) -> Vec<Lines> {
        let mut items = Vec::new();
        self.at += 1;
        while self.next().is_some_and(|byte| byte != b']') {
            items.push(self.value(&join(pointer, items.len())));
            self.skip(b',');
        }
        self.skip(b']');
        items
    }

    /// Reads the string that begins here.
    fn string(&mut self) -> String {
        let start = self.at;
        self.at += 1;
        while let Some(byte) = self.bytes.get(self.at) {
            self.at += if *byte == b'\\' { 2 } else { 1 };
            if *byte == b'"' {
                break;
            }
        }
        serde_json::from_slice(&self.bytes[start..self.at.min(self.bytes.len())]).unwrap_or_default()
    }

    /// The next byte that is no white space, without consuming it.
    fn next(&mut self) -> Option<u8> {
        while let Some(byte) = self.bytes.get(self.at).filter(|b| b.is_ascii_whitespace()) {
            self.line += usize::from(*byte == b'\n');
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn skip(&mut self, wanted: u8) {
        if self.next() == Some(wanted) {
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_follow_the_text() {
        let text = "{\n \"tools\": [\n  {\"name\": \"a \\\"b\\\" {\", \"n\": -1.5e3},\n  {\n   \"名称\": null\n  }\n ],\n \"z\": {}\n}";
        let document = parse(text).unwrap();
        assert_eq!(document.lines.line("/tools/0/n"), Some(3));
        assert_eq!(document.lines.line("/tools/1"), Some(4));
        assert_eq!(document.lines.line("/tools/1/名称"), Some(5));
        assert_eq!(document.lines.line("/z"), Some(8));
        assert!(document.flaws.is_empty());
    }

    #[test]
    fn repeated_keys_and_broken_text_name_the_line() {
        let document = parse("{\"tools\": [{\"name\": 1,\n \"name\": 2}]}").unwrap();
        assert_eq!(document.flaws[0].pointer, "/tools/0/name");
        assert_eq!(document.flaws[0].line, Some(2));
        assert_eq!(parse("{\n\"a\": }").unwrap_err().line, Some(2));
        assert!(parse(&"[".repeat(100_000)).is_err());
    }
}
