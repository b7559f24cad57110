//! TOML with lines.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::{Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::CardProblem;
use super::super::positions::{Lines, join};
use super::{Document, MAX_DEPTH, SyntaxError, line_at};

pub(super) fn parse(text: &str) -> Result<Document, SyntaxError> {
    if let Some(line) = nested_too_deeply(text) {
        return Err(SyntaxError::at(line, format!("nested deeper than {MAX_DEPTH} levels")));
    }
    let lines = LineTable::new(text);
    let table = DeTable::parse(text).map_err(|error| SyntaxError {
        line: error.span().map(|span| line_at(text.as_bytes(), span.start)),
        message: format!("not valid TOML: {}", error.message()),
    })?;
    let mut convert = Convert { lines, flaws: Vec::new() };
    let (value, lines) = convert.table(table.get_ref(), 1, "");
    Ok(Document { value, lines, flaws: convert.flaws })
}

/// The line of a dotted key with more parts than any real document has: the parser bounds brackets, not dots, and so
/// deep a table could not even be dropped safely.
pub(crate) fn nested_too_deeply(text: &str) -> Option<usize> {
    let mut dots = 0;
    let mut line = 1;
    let mut previous = 0;
    for byte in text.bytes() {
        match byte {
            b'.' if previous != b'.' => dots += 1,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'"' | b'\'' | b' ' | b'\t' => {}
            _ => dots = 0,
        }
        if dots > MAX_DEPTH {
            return Some(line);
        }
        line += usize::from(byte == b'\n');
        previous = byte;
    }
    None
}

/// Offsets at which lines begin.
struct LineTable(Vec<usize>);

impl LineTable {
    fn new(text: &str) -> Self {
        Self(std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect())
    }

    fn line(&self, span: &Range<usize>) -> usize {
        self.0.partition_point(|start| *start <= span.start)
    }
}

struct Convert {
    lines: LineTable,
    flaws: Vec<CardProblem>,
}

impl Convert {
    fn table(&mut self, table: &DeTable<'_>, at: usize, pointer: &str) -> (Value, Lines) {
        let mut map = serde_json::Map::new();
        let mut keys = BTreeMap::new();
        for (key, value) in table.iter() {
            let name = key.get_ref().to_string();
            let (value, lines) = self.value(value, &join(pointer, &name));
            map.insert(name.clone(), value);
            keys.insert(name, lines);
        }
        (Value::Object(map), Lines::keys(at, keys))
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, pointer: &str) -> (Value, Lines) {
        let line = self.lines.line(&value.span());
        let converted = match value.get_ref() {
            DeValue::String(text) => Some(Value::String(text.to_string())),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok().map(Value::from),
            DeValue::Float(number) => number.as_str().parse().ok().and_then(Number::from_f64).map(Value::Number),
            DeValue::Boolean(flag) => Some(Value::Bool(*flag)),
            DeValue::Datetime(time) => Some(Value::String(time.to_string())),
            DeValue::Array(items) => {
                let (values, lines) =
                    items.iter().enumerate().map(|(i, item)| self.value(item, &join(pointer, i))).unzip();
                return (Value::Array(values), Lines::items(line, lines));
            }
            DeValue::Table(table) => return self.table(table, line, pointer),
        };
        let converted = converted.unwrap_or_else(|| {
            let message = "a number that JSON cannot hold".into();
            self.flaws.push(CardProblem { pointer: pointer.into(), line: Some(line), message });
            Value::Null
        });
        (converted, Lines::leaf(line))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_and_lines() {
        let document = parse("registry = \"shop\"\n\n[[tools]]\nname = \"查订单\"\ntimeout_ms = 0x10\n[tools.parameters]\ntype = \"object\"\nbad = nan\n").unwrap();
        assert_eq!(document.value["tools"][0]["timeout_ms"], json!(16));
        assert_eq!(document.lines.line("/tools/0/name"), Some(4));
        assert_eq!(document.lines.line("/tools/0/parameters/type"), Some(7));
        assert_eq!(document.flaws[0].pointer, "/tools/0/parameters/bad");
    }

    #[test]
    fn broken_and_bottomless_texts_name_the_line() {
        assert_eq!(parse("a = 1\nb = \n").unwrap_err().line, Some(2));
        assert_eq!(parse("a = 1\na = 2\n").unwrap_err().line, Some(2));
        let dotted = vec!["a"; 50_000].join(".");
        assert!(parse(&format!("x = 1\n{dotted} = 1\n")).unwrap_err().message.contains("nested deeper"));
        assert!(parse(&format!("[{dotted}]\n")).is_err());
        assert!(parse(&format!("a = {}", "[".repeat(50_000))).is_err());
        assert!(parse("what = \"One. Two. 3.5 of it... and so on.\"").is_ok());
    }
}
