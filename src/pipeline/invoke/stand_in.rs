//! Which tool stands in for a reading tool that cannot answer, and with which arguments.

use serde_json::{Map, Value};

use super::prepare::Prepared;
use crate::args::{self, Property};
use crate::catalog::Tool;
use crate::execute::Executors;
use crate::gate::{Ask, Runner};
use crate::tool::Execution;
use crate::types::Caller;

/// The fallback of the card, if both only read, the caller may call it, it can be run here and its arguments are known.
pub(super) fn find(prepared: &Prepared, caller: &Caller, executors: &Executors) -> Option<Prepared> {
    let card = &prepared.tool.card;
    let name = card.fallback.as_deref().filter(|_| card.is_known_to_read())?;
    let mut named = prepared.registry.cards.values().filter(|other| other.name == name || other.id.as_str() == name);
    let own = named.clone().find(|other| other.source == card.source);
    let other = own.or_else(|| named.next())?;
    let open = other.scopes.iter().all(|scope| caller.holds(scope)) && caller.belongs_to(&other.tenants);
    let sound = other.is_known_to_read() && other.id != card.id && other.execution != Execution::ProposeOnly;
    if !open || !sound || executors.runs(other).is_err() {
        return None;
    }
    let tool = Tool::new(other.clone()).ok()?;
    let wanted = arguments(&prepared.tool, prepared.args.as_map(), &tool)?;
    let args = args::validate(&tool.schema, &Value::Object(wanted)).ok()?.args;
    Some(Prepared { timeout: executors.timeout(other), tool, args, ..prepared.clone() })
}

/// Arguments of the same name carry over where they fit; the one free text that is needed takes the one free text that is
/// left over (`product_name` for `keyword`). `None` when something needed stays open.
fn arguments(from: &Tool, given: &Map<String, Value>, to: &Tool) -> Option<Map<String, Value>> {
    let mut filled: Map<String, Value> = given
        .iter()
        .filter(|(name, value)| to.schema.property(name).is_some() && to.schema.fits(name, value))
        .map(|(n, v)| (n.clone(), v.clone()))
        .collect();
    let open: Vec<&str> = to.schema.required().into_iter().filter(|name| !filled.contains_key(*name)).collect();
    match open.as_slice() {
        [] => Some(filled),
        [name] if to.schema.property(name).is_some_and(|property| is_free_text(&property)) => {
            let spare = |(name, _): &(&String, &Value)| {
                !filled.contains_key(*name)
                    && from.schema.property(name).is_some_and(|property| is_free_text(&property))
            };
            let mut texts = given.iter().filter(spare);
            let (Some((_, text)), None) = (texts.next(), texts.next()) else { return None };
            let text = text.clone();
            filled.insert((*name).to_owned(), text);
            Some(filled)
        }
        _ => None,
    }
}

fn is_free_text(property: &Property<'_>) -> bool {
    property.is_kind("string") && property.pattern().is_none() && property.choices().is_empty()
}

/// The gate is asked as for any other call.
pub(super) fn ask(other: &Prepared, caller: &Caller) -> Ask {
    Ask {
        caller: caller.clone(),
        tool: other.tool.clone(),
        registry: other.registry.clone(),
        args: other.args.clone(),
        conversation: String::new(),
        turn: String::new(),
        key: None,
        token: None,
        runner: Runner::Gate,
        timeout: other.timeout,
    }
}
