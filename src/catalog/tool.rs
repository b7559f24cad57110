//! A card made ready to use.

use std::sync::Arc;

use crate::args::{ArgumentSchema, SchemaError};
use crate::tool::{ToolCard, alias};
use crate::types::{CardHash, ToolId};

/// One served tool: its card, compiled schema, hash and alias. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tool {
    pub card: Arc<ToolCard>,
    pub hash: CardHash,
    /// The name an LLM sees.
    pub alias: String,
    pub schema: ArgumentSchema,
}

impl Tool {
    /// # Errors
    /// [`SchemaError`] if the card's schema cannot be compiled; the registry quarantines such cards beforehand.
    pub fn new(card: Arc<ToolCard>) -> Result<Self, SchemaError> {
        let schema = ArgumentSchema::compile(&card.parameters)?;
        Ok(Self { hash: card.hash(), alias: alias(&card.id), schema, card })
    }

    pub fn id(&self) -> &ToolId {
        &self.card.id
    }

    /// Whether `name` means this tool: callers and cards use its own name or the one it has in the catalog.
    pub fn is_called(&self, name: &str) -> bool {
        self.card.name == name || self.id().as_str() == name
    }
}
