//! Definitions that a row's own candidates use instead of the registry's.
//!
//! Owns: reading `tools.variants.jsonl` beside a registry, and the registry file the variants are served from.
//! Each variant becomes a tool of its own under its variant name (`name#k`), so a row can be narrowed to exactly the
//! definitions it was labelled with while every other stage stays as it is in service.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::EvalError;
use super::rows::{Row, at_line, for_each_line};

const FILE: &str = "tools.variants.jsonl";

/// Variants in a registry file that lives as long as this value.
#[derive(Debug, Default)]
pub struct Variants {
    /// Variant name → name of the tool it defines.
    pub names: BTreeMap<String, String>,
    served_from: Option<tempfile::TempDir>,
}

impl Variants {
    /// Collects what `rows` name. A name found in no file is not an error here: its rows are left out and counted.
    ///
    /// # Errors
    /// [`EvalError`] if a file is there and cannot be read, or the registry file cannot be written.
    pub fn collect(registries: &[PathBuf], rows: &[Row]) -> Result<Self, EvalError> {
        let wanted: BTreeSet<&str> =
            rows.iter().flat_map(|row| row.candidate_defs.values()).map(String::as_str).collect();
        let mut found = BTreeMap::new();
        let folders: BTreeSet<&Path> = registries.iter().filter_map(|file| file.parent()).collect();
        for file in folders.into_iter().map(|folder| folder.join(FILE)) {
            if !wanted.is_empty() && file.exists() {
                read(&file, &wanted, &mut found)?;
            }
        }
        if found.is_empty() { Ok(Self::default()) } else { Self::write(found) }
    }

    /// The file to load beside the registry.
    pub fn registry(&self) -> Option<PathBuf> {
        self.served_from.as_ref().map(|folder| folder.path().join("variants.jsonl"))
    }

    fn write(found: BTreeMap<String, Map<String, Value>>) -> Result<Self, EvalError> {
        let failed = |source| EvalError::Temporary { source };
        let folder = tempfile::Builder::new().prefix("pointsman-eval-").tempdir().map_err(failed)?;
        let variants = Self { names: BTreeMap::new(), served_from: Some(folder) };
        let Some(path) = variants.registry() else { return Ok(variants) };
        let mut file = std::io::BufWriter::new(std::fs::File::create(path).map_err(failed)?);
        let mut names = BTreeMap::new();
        for (variant, mut card) in found {
            if let Some(Value::String(name)) = card.insert("name".into(), variant.clone().into()) {
                names.insert(variant, name);
            }
            card.remove("variant");
            writeln!(file, "{}", Value::Object(card)).map_err(failed)?;
        }
        file.flush().map_err(failed)?;
        Ok(Self { names, ..variants })
    }
}

fn read(
    path: &Path,
    wanted: &BTreeSet<&str>,
    found: &mut BTreeMap<String, Map<String, Value>>,
) -> Result<(), EvalError> {
    for_each_line(path, |line, text| {
        let card: Map<String, Value> = serde_json::from_str(text).map_err(|err| at_line(path, line, &err))?;
        let missing = |field: &str| EvalError::Row {
            path: path.to_owned(),
            line,
            message: format!("`{field}` is missing or no string"),
        };
        let variant = card.get("variant").and_then(Value::as_str).ok_or_else(|| missing("variant"))?;
        card.get("name").and_then(Value::as_str).ok_or_else(|| missing("name"))?;
        if wanted.contains(variant) {
            found.entry(variant.to_owned()).or_insert(card);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::rows::row;
    use super::*;

    fn collect(lines: &str) -> Result<Variants, EvalError> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), lines).unwrap();
        let rows = [row(
            json!({"query": "q", "gold": ["area"], "candidates": ["area"], "candidate_defs": {"area": "area#2"}}),
        )];
        Variants::collect(&[folder.path().join("tools.jsonl")], &rows)
    }

    #[test]
    fn named_variants_become_tools_of_their_own() {
        let variants = collect(
            "{\"variant\":\"area#2\",\"name\":\"area\",\"description\":\"面积\",\"parameters\":{}}\n{\"variant\":\"area#3\",\"name\":\"area\"}",
        )
        .unwrap();
        assert_eq!(variants.names, [("area#2".to_owned(), "area".to_owned())].into());
        let text = std::fs::read_to_string(variants.registry().unwrap()).unwrap();
        let card: Value = serde_json::from_str(text.trim()).unwrap();
        assert_eq!(card, json!({"name": "area#2", "description": "面积", "parameters": {}}));
    }

    #[test]
    fn a_broken_line_is_named_and_no_variant_is_no_file() {
        let message = collect("{\"name\":\"area\"}").unwrap_err().to_string();
        assert!(message.ends_with("tools.variants.jsonl:1: `variant` is missing or no string"), "{message}");
        assert!(Variants::collect(&[PathBuf::from("nowhere/tools.jsonl")], &[]).unwrap().registry().is_none());
    }
}
