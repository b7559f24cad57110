//! One document in somebody else's form, read into a registry of its own.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::description;
use super::import::{self, Kind, Reading};
use super::merge;
use super::{Registry, RegistryError};
use crate::tool::{Description, ToolCard};

/// How a document is imported.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// Name of the registry; without one the document's own, else its file's.
    pub name: Option<String>,
    /// Hints by which an MCP server lowers the class of its tools are believed.
    pub trust_hints: bool,
    /// The target of the operator's settings that runs MCP tools.
    pub target: Option<String>,
}

/// Reads one document into cards. Without `kind` its content tells which it is.
///
/// # Errors
/// [`RegistryError`] when the document cannot be used at all; a bad card is quarantined instead.
pub fn import(kind: Option<Kind>, path: &Path, options: &ImportOptions) -> Result<Registry, RegistryError> {
    let file = File::open(path).map_err(|source| RegistryError::Read { path: path.into(), source })?;
    import_text(kind, path, &read_source(file, path)?, options)
}

/// Reads the text of a document to its end, within the size a registry may have; `shown` is what messages call it.
///
/// # Errors
/// [`RegistryError`] for what cannot be read, is too large, or is no UTF-8.
pub fn read_source(from: impl std::io::Read, shown: &Path) -> Result<String, RegistryError> {
    import::read_bounded(from, shown)
}

/// [`import`] for a text that was read already.
///
/// # Errors
/// As [`import`].
pub fn import_text(
    kind: Option<Kind>,
    shown: &Path,
    text: &str,
    options: &ImportOptions,
) -> Result<Registry, RegistryError> {
    if let Some(name) = options.name.as_ref().filter(|name| !import::is_source_name(name)) {
        let message = format!("`{}` cannot name a registry: expected {}", super::shorten(name), import::SOURCE_NAME);
        return Err(RegistryError::Syntax { path: shown.into(), line: None, message });
    }
    let reading = Reading { trust_hints: options.trust_hints, target: options.target.clone(), ..Reading::default() };
    let mut file = import::read_as(kind, shown, text, &reading)?;
    if options.name.is_some() {
        file.declared.clone_from(&options.name);
    }
    // A source is named as it is when the file is loaded.
    let real = shown.canonicalize().unwrap_or_else(|_| shown.into());
    let mut registry = merge::combine(vec![(real, file)], &[])?;
    if !registry.quarantined.is_empty() {
        divide_again(&mut registry);
    }
    Ok(registry)
}

/// Splits descriptions as if the quarantined cards had not been there: they will not stand in the file that is written,
/// and what it holds has to mean the same.
fn divide_again(registry: &mut Registry) {
    let names: std::collections::BTreeSet<String> = registry.cards.values().map(|card| card.name.clone()).collect();
    for card in registry.cards.values_mut() {
        let Some(plain) = card.description.plain.clone() else { continue };
        let card: &mut ToolCard = Arc::make_mut(card);
        card.description = Description { what: plain.clone(), plain: Some(plain), ..Description::default() };
        description::divide(card, &|tool| names.contains(tool));
    }
}
