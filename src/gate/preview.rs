//! What is shown before consent, and its digest.
//!
//! Owns: the preview made of the real arguments.
//! Does not know: whether consent is needed.

use serde_json::{Map, Value};

use super::{Preview, key};
use crate::tool::{SideEffect, ToolCard, canonical_json};
use crate::types::Scope;

impl Preview {
    pub(super) fn of(card: &ToolCard, arguments: &Map<String, Value>, second_person: Option<&Scope>) -> Self {
        Self {
            tool: card.id.clone(),
            what: card.description.as_given().to_owned(),
            arguments: arguments.clone(),
            reversible: class(card) != SideEffect::Destructive,
            second_person: second_person.map(|scope| scope.0.clone()),
        }
    }

    /// Digest of what was shown, with the arguments in their canonical form: 30 and 30.0 are one preview.
    pub(super) fn digest(&self, canonical: &Map<String, Value>) -> String {
        let shown = Value::Object(canonical.clone());
        let person = self.second_person.as_deref().unwrap_or("");
        let reversible = if self.reversible { "reversible" } else { "final" };
        key::digest(&["preview", self.tool.as_str(), &self.what, &canonical_json(&shown), reversible, person])
    }
}

/// What the tool counts as here: an undeclared class is the worst.
pub(super) fn class(card: &ToolCard) -> SideEffect {
    if card.side_effect_declared { card.side_effect } else { SideEffect::Destructive }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_preview_holds_every_word_and_its_digest_all_of_it() {
        let mut card = ToolCard::reading("send_message", json!({"type": "object"}));
        card.description.what = "Passes a message on".into();
        let content = "放门口就行，".repeat(40);
        let args = json!({"order_id": "SO-20260418000736", "recipient": "courier", "content": content});
        let args = args.as_object().unwrap();
        let shown = Preview::of(&card, args, None);
        assert_eq!((&shown.arguments, shown.what.as_str(), shown.reversible), (args, "Passes a message on", true));
        let digest = shown.digest(args);
        let mut other = args.clone();
        other["content"] = json!(format!("{content}!"));
        assert_ne!(Preview::of(&card, &other, None).digest(&other), digest);
        assert_ne!(Preview::of(&card, args, Some(&Scope("refunds:approve".into()))).digest(args), digest);
        card.side_effect_declared = false;
        assert!(!Preview::of(&card, args, None).reversible, "an undeclared class is the worst");
        assert_ne!(Preview::of(&card, args, None).digest(args), digest);
    }
}
