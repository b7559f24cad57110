//! YAML from parser events, so that nesting and alias expansion are bounded before anything is built.

use std::collections::BTreeMap;

use saphyr::Scalar;
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Tag};
use serde_json::{Map, Number, Value};

use super::super::CardProblem;
use super::super::positions::{Lines, join};
use super::{Document, MAX_DEPTH, SyntaxError};

/// Bytes that anchors and aliases may add to what stands in the file: enough for shared schema parts, far too little
/// for aliases that multiply each other.
const MAX_EXPANSION: usize = 8 * 1024 * 1024;
/// What one node costs besides its text.
const NODE_BYTES: usize = 64;

pub(super) fn parse(text: &str) -> Result<Document, SyntaxError> {
    let mut parser = Parser::new_from_str(text);
    let mut builder = Builder::new();
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| syntax(&error))?;
        builder.event(event, span.start.line())?;
    }
    builder.finish()
}

fn syntax(error: &ScanError) -> SyntaxError {
    SyntaxError::at(error.marker().line(), format!("not valid YAML: {}", error.info()))
}

/// A finished value with what is needed to copy it within bounds.
#[derive(Clone)]
struct Node {
    value: Value,
    lines: Lines,
    /// Bytes of a copy.
    cost: usize,
    /// Levels of nesting, 0 for a scalar.
    depth: usize,
}

enum Frame {
    List { items: Vec<Value>, lines: Vec<Lines> },
    Table { map: Map<String, Value>, lines: BTreeMap<String, Lines>, key: Option<(String, usize)> },
}

struct Open {
    frame: Frame,
    anchor: usize,
    line: usize,
    cost: usize,
    depth: usize,
}

struct Builder {
    open: Vec<Open>,
    anchors: BTreeMap<usize, Node>,
    /// Bytes that copies may still use.
    expansion_left: usize,
    documents: usize,
    root: Option<Node>,
    flaws: Vec<CardProblem>,
}

impl Builder {
    fn new() -> Self {
        Self {
            open: Vec::new(),
            anchors: BTreeMap::new(),
            expansion_left: MAX_EXPANSION,
            documents: 0,
            root: None,
            flaws: Vec::new(),
        }
    }

    fn event(&mut self, event: Event<'_>, line: usize) -> Result<(), SyntaxError> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(SyntaxError::at(line, "a second document begins; keep one document per file"));
                }
                Ok(())
            }
            Event::SequenceStart(anchor, _) => {
                self.begin(Frame::List { items: Vec::new(), lines: Vec::new() }, anchor, line)
            }
            Event::MappingStart(anchor, _) => {
                self.begin(Frame::Table { map: Map::new(), lines: BTreeMap::new(), key: None }, anchor, line)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(id) => self.alias(id, line),
            Event::Scalar(text, style, anchor, tag) => self.scalar(&text, style, anchor, tag.as_deref(), line),
        }
    }

    fn begin(&mut self, frame: Frame, anchor: usize, line: usize) -> Result<(), SyntaxError> {
        if self.expects_key() {
            return Err(SyntaxError::at(line, "a key must be plain text, not a list or a mapping"));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(SyntaxError::at(line, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.open.push(Open { frame, anchor, line, cost: NODE_BYTES, depth: 1 });
        Ok(())
    }

    fn end(&mut self) -> Result<(), SyntaxError> {
        let open = self.open.pop().expect("the parser closes only what it opened");
        let (value, lines) = match open.frame {
            Frame::List { items, lines } => (Value::Array(items), Lines::items(open.line, lines)),
            Frame::Table { map, lines, .. } => (Value::Object(map), Lines::keys(open.line, lines)),
        };
        self.add(Node { value, lines, cost: open.cost, depth: open.depth }, open.anchor, open.line)
    }

    fn alias(&mut self, id: usize, line: usize) -> Result<(), SyntaxError> {
        let Some(node) = self.anchors.get(&id) else {
            return Err(SyntaxError::at(line, "an alias stands inside the part it names"));
        };
        self.expansion_left = self.expansion_left.checked_sub(node.cost).ok_or_else(|| too_large(line))?;
        // Whoever looks for the line wants the place of use, not the anchor far away.
        let node = Node { lines: Lines::leaf(line), ..node.clone() };
        if self.open.len() + node.depth > MAX_DEPTH {
            return Err(SyntaxError::at(line, format!("nested deeper than {MAX_DEPTH} levels through an alias")));
        }
        if self.expects_key() {
            let Value::String(key) = node.value else {
                return Err(SyntaxError::at(line, "a key must be plain text"));
            };
            self.key(key, line);
            return Ok(());
        }
        self.add(node, 0, line)
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        line: usize,
    ) -> Result<(), SyntaxError> {
        if self.expects_key() {
            // Backend codes are often written as bare numbers: as a key they are text.
            if anchor > 0 {
                self.keep(anchor, Node { value: text.into(), lines: Lines::leaf(line), cost: cost(text), depth: 0 })?;
            }
            self.key(text.to_owned(), line);
            return Ok(());
        }
        let value = match scalar_value(text, style, tag) {
            Ok(value) => value,
            Err(message) => {
                let pointer = self.pointer();
                self.flaws.push(CardProblem { pointer, line: Some(line), message });
                Value::Null
            }
        };
        self.add(Node { value, lines: Lines::leaf(line), cost: cost(text), depth: 0 }, anchor, line)
    }

    fn add(&mut self, node: Node, anchor: usize, line: usize) -> Result<(), SyntaxError> {
        if anchor > 0 {
            self.keep(anchor, node.clone())?;
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        parent.cost += node.cost;
        parent.depth = parent.depth.max(node.depth + 1);
        match &mut parent.frame {
            Frame::List { items, lines } => {
                items.push(node.value);
                lines.push(node.lines);
            }
            Frame::Table { map, lines, key } => {
                let (key, _) = key.take().expect("a value follows its key");
                if map.contains_key(&key) {
                    // Which of the two is meant cannot be known; the first stays so that the rest can be checked.
                    let first = lines.get(&key).and_then(|l| l.line("")).unwrap_or_default();
                    let pointer = join(&self.pointer(), &key);
                    let message = format!("the key `{key}` stands here and on line {first}; remove one");
                    self.flaws.push(CardProblem { pointer, line: Some(line), message });
                } else {
                    map.insert(key.clone(), node.value);
                    lines.insert(key, node.lines);
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, anchor: usize, node: Node) -> Result<(), SyntaxError> {
        let line = node.lines.line("").unwrap_or_default();
        self.expansion_left = self.expansion_left.checked_sub(node.cost).ok_or_else(|| too_large(line))?;
        self.anchors.insert(anchor, node);
        Ok(())
    }

    fn key(&mut self, name: String, line: usize) {
        if name == "<<" {
            let pointer = join(&self.pointer(), "<<");
            let message = "merge keys (`<<`) are not supported; write the fields out".into();
            self.flaws.push(CardProblem { pointer, line: Some(line), message });
        }
        if let Some(Open { frame: Frame::Table { key, .. }, cost, .. }) = self.open.last_mut() {
            *cost += name.len() + NODE_BYTES;
            *key = Some((name, line));
        }
    }

    fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { frame: Frame::Table { key: None, .. }, .. }))
    }

    /// JSON pointer of the value being read.
    fn pointer(&self) -> String {
        self.open.iter().fold(String::new(), |pointer, open| match &open.frame {
            Frame::List { items, .. } => join(&pointer, items.len()),
            Frame::Table { key: Some((key, _)), .. } => join(&pointer, key),
            Frame::Table { key: None, .. } => pointer,
        })
    }

    fn finish(self) -> Result<Document, SyntaxError> {
        let root = self.root.ok_or_else(|| SyntaxError { line: None, message: "the file is empty".into() })?;
        Ok(Document { value: root.value, lines: root.lines, flaws: self.flaws })
    }
}

fn cost(text: &str) -> usize {
    text.len() + NODE_BYTES
}

fn too_large(line: usize) -> SyntaxError {
    let limit = MAX_EXPANSION / (1024 * 1024);
    SyntaxError::at(line, format!("anchors and aliases expand to more than {limit} MiB; write the parts out"))
}

fn scalar_value(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let tag_of = tag.map(std::borrow::Cow::Borrowed);
    let scalar = Scalar::parse_from_cow_and_metadata(text.into(), style, tag_of.as_ref())
        .ok_or_else(|| format!("`{}` does not fit its tag", shorten(text)))?;
    match scalar {
        Scalar::Null => Ok(Value::Null),
        Scalar::Boolean(flag) => Ok(flag.into()),
        Scalar::Integer(number) => Ok(number.into()),
        Scalar::FloatingPoint(number) => match (text.parse::<u64>(), Number::from_f64(number.into_inner())) {
            (Ok(large), _) => Ok(large.into()),
            (Err(_), Some(number)) => Ok(number.into()),
            (Err(_), None) => Err(format!("`{}` is no number JSON can hold", shorten(text))),
        },
        Scalar::String(text) => Ok(Value::String(text.into_owned())),
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_and_lines() {
        let document =
            parse("a: [1, 2.5, ~, true]\nb:\n  10: \"待付款\"\n  c: |\n    two\n    lines\nd: 0x1F\n").unwrap();
        assert_eq!(
            document.value,
            json!({"a": [1, 2.5, null, true], "b": {"10": "待付款", "c": "two\nlines\n"}, "d": 31})
        );
        assert_eq!(document.lines.line("/b/10"), Some(3));
        assert_eq!(document.lines.line("/a/3"), Some(1));
        assert!(document.flaws.is_empty());
    }

    #[test]
    fn aliases_are_copied_within_bounds() {
        let document = parse("x: &part {type: string}\ny: *part\nz: [*part, *part]\n").unwrap();
        assert_eq!(document.value["z"][1], json!({"type": "string"}));
        assert_eq!(document.lines.line("/z/1/type"), Some(3));
        assert!(parse("x: &me [*me]\n").unwrap_err().message.contains("inside the part"));
        assert!(parse("x: *nobody\n").is_err());
    }

    #[test]
    fn a_billion_laughs_are_refused_at_once() {
        let mut text = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
        for level in 1..12 {
            let parts = vec![format!("*a{}", level - 1); 9].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{parts}]\n"));
        }
        assert!(parse(&text).unwrap_err().message.contains("expand to more than"));

        let long = format!("a: &a \"{}\"\nb: [{}]\n", "x".repeat(1_000_000), vec!["*a"; 1000].join(", "));
        assert!(parse(&long).unwrap_err().message.contains("expand to more than"));
    }

    #[test]
    fn depth_is_bounded_also_through_aliases() {
        let flow = "[".repeat(5000);
        assert!(parse(&flow).is_err());
        let block: String = (0..200).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
        assert!(parse(&block).unwrap_err().message.contains("nested deeper"));
        let mut chain = String::from("a0: &a0 [x]\n");
        for level in 1..300 {
            chain.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
        }
        assert!(parse(&chain).unwrap_err().message.contains("nested deeper"));
    }

    #[test]
    fn one_flaw_leaves_the_rest_usable() {
        let document = parse("tools:\n  - name: a\n    name: b\n  - {n: .nan, <<: {x: 1}}\n  - name: c\n").unwrap();
        assert_eq!(document.value["tools"][2], json!({"name": "c"}));
        let found: Vec<_> = document.flaws.iter().map(|f| (f.pointer.as_str(), f.line)).collect();
        assert_eq!(found, [("/tools/0/name", Some(3)), ("/tools/1/n", Some(4)), ("/tools/1/<<", Some(4))]);
        assert!(document.flaws[0].message.contains("line 2"));
    }

    #[test]
    fn what_is_no_single_document_is_refused_with_its_line() {
        assert_eq!(parse("a: 1\n---\nb: 2\n").unwrap_err().line, Some(2));
        assert_eq!(parse("a: [1\nb: 2\n").unwrap_err().line.map(|l| l >= 1), Some(true));
        assert!(parse("? [a]\n: 1\n").unwrap_err().message.contains("key must be plain text"));
        assert!(parse("").unwrap_err().message.contains("empty"));
    }
}
