//! What one candidate is worth: its rank, what it can take of the utterance, what its card says about the case.

use serde_json::Value;

use super::borders::Shift;
use super::extract::{Extraction, extract};
use crate::args::{Checked, Origin, validate};
use crate::catalog::Tool;
use crate::decide::Request;
use crate::text::SlotKind;
use crate::tool::{ConfirmedBy, SideEffect};
use crate::types::{Candidate, FieldProblem};

/// What it is worth that a tool takes every id of the utterance, in fused score.
const FIT_WEIGHT: f32 = 1.2;
/// What it is worth that required arguments of a fixed form stand in the conversation. Where nothing is required, or
/// any sentence would do, it says nothing.
const COMPLETE_WEIGHT: f32 = 0.3;
/// What each value is worth that the card's own words or everyday words tie to the utterance.
const WORDED_WEIGHT: f32 = 0.3;
/// Of more such values the rest adds nothing.
const WORDED_CAP: usize = 2;
/// What a concept of what the tool does is worth that no other candidate shares.
const AGREES_WEIGHT: f32 = 0.35;
const AGREES_CAP: f32 = 2.0;
/// What it is worth to lie on the right side of a border.
const BORDER_WEIGHT: f32 = 1.0;
/// What it is worth to read the one thing that the utterance points at.
const POINTED_WEIGHT: f32 = 1.0;
/// What it is worth to continue the conversation when the utterance has no subject of its own.
const CONTINUE_WEIGHT: f32 = 4.0;

/// What is added to a candidate's fused score.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    pub fit: f32,
    pub complete: f32,
    /// Values, concepts and borders that the utterance speaks of.
    pub meaning: f32,
    pub continued: f32,
}

/// One candidate with what it could be called with.
pub(super) struct Weighed<'a> {
    pub tool: &'a Tool,
    pub candidate: &'a Candidate,
    pub extraction: Extraction,
    pub checked: Result<Checked, Vec<FieldProblem>>,
    /// Share of the utterance's ids that became an argument; 1 when it holds none.
    pub fit: f32,
    pub shift: Shift,
    /// How well it continues the conversation, in `[0, 1]`.
    pub continues: f32,
    /// The utterance does nothing but point at a thing, which this tool reads.
    pub reads_pointed: bool,
    /// Another candidate lives on its result.
    pub prepares: bool,
    pub total: f32,
}

impl<'a> Weighed<'a> {
    pub(super) fn new(tool: &'a Tool, candidate: &'a Candidate, request: &Request<'_>) -> Self {
        let extraction = extract(tool, request.query, request.history, request.session);
        let raw = Value::Object(extraction.arguments.clone());
        let mut checked = validate(&tool.schema, &raw).map_err(|problem| problem.fields);
        if let Ok(checked) = &mut checked {
            checked.notices.extend(extraction.notices.iter().cloned());
        }
        let fit = fit(&extraction, request);
        let total = candidate.score.get();
        Self {
            tool,
            candidate,
            extraction,
            checked,
            fit,
            shift: Shift::default(),
            continues: 0.0,
            reads_pointed: false,
            prepares: false,
            total,
        }
    }

    /// Adds up everything that is known by now.
    pub(super) fn add_up(&mut self) {
        let Parts { fit, complete, meaning, continued } = self.parts();
        self.total = self.candidate.score.get() + fit + complete + meaning + continued;
    }

    pub(super) fn parts(&self) -> Parts {
        let worded = self.extraction.origins.values().filter(|origin| **origin == Origin::EnumText).count();
        Parts {
            fit: FIT_WEIGHT * (self.fit - 1.0),
            complete: self.completeness(),
            meaning: WORDED_WEIGHT * worded.min(WORDED_CAP) as f32
                + AGREES_WEIGHT * self.shift.agrees.min(AGREES_CAP)
                + BORDER_WEIGHT * self.shift.border,
            continued: CONTINUE_WEIGHT * self.continues + if self.reads_pointed { POINTED_WEIGHT } else { 0.0 },
        }
    }

    /// Arguments of a fixed form that nobody gave.
    pub(super) fn open_ids(&self) -> impl Iterator<Item = &str> {
        let properties = self.tool.schema.views();
        let open = properties.filter(|property| property.pattern().is_some() && property.choices().is_empty());
        open.map(|property| property.name).filter(|name| !self.extraction.arguments.contains_key(*name))
    }

    /// Whether anything of the conversation became an argument.
    pub(super) fn takes_anything(&self) -> bool {
        self.extraction.origins.values().any(|origin| matches!(origin, Origin::Utterance { .. } | Origin::History))
    }

    /// Whether the utterance gives an id of a form that the tool's schema fixes.
    pub(super) fn takes_own_id(&self) -> bool {
        let is_id = |name: &str| self.tool.schema.property(name).is_some_and(|property| property.pattern().is_some());
        let mut origins = self.extraction.origins.iter();
        origins.any(|(name, origin)| matches!(origin, Origin::Utterance { .. }) && is_id(name))
    }

    /// Whether the tool reads the one thing whose required id an earlier turn gave, and prepares no other step.
    pub(super) fn reads_known_thing(&self) -> bool {
        let schema = &self.tool.schema;
        let known = |name: &&str| self.extraction.origins.get(*name) == Some(&Origin::History);
        self.checked.is_ok()
            && self.tool.card.side_effect == SideEffect::Read
            && schema.required().iter().any(known)
            && !self.prepares
    }

    fn completeness(&self) -> f32 {
        let required = self.tool.schema.required();
        let is_told = |name: &&str| {
            self.tool.schema.property(name).is_some_and(|property| {
                property.pattern().is_some() || property.is_numeric() || !property.choices().is_empty()
            }) && self.extraction.arguments.contains_key(*name)
        };
        if self.checked.is_ok() && required.iter().any(is_told) { COMPLETE_WEIGHT } else { 0.0 }
    }

    /// A tool that lives on another tool's token cannot be what is meant while there is no token for these arguments:
    /// its preview is.
    pub(super) fn lacks_token(&self) -> bool {
        lacks_token(self.tool, &self.extraction)
    }
}

/// See [`Weighed::lacks_token`].
pub(super) fn lacks_token(tool: &Tool, extraction: &Extraction) -> bool {
    let confirmation = tool.card.confirmation.as_ref();
    let token = confirmation.filter(|confirmation| confirmation.by == ConfirmedBy::PreviewTool);
    let name = token.and_then(|confirmation| confirmation.token_param.as_deref());
    name.is_some_and(|name| !extraction.arguments.contains_key(name))
}

fn fit(extraction: &Extraction, request: &Request<'_>) -> f32 {
    let ids: Vec<_> = request.query.slots.iter().filter(|slot| slot.kind == SlotKind::Id).collect();
    if ids.is_empty() {
        return 1.0;
    }
    let further = extraction.more.iter().flat_map(|(_, values)| values.iter().map(|(_, origin)| origin));
    let origins: Vec<&Origin> = extraction.origins.values().chain(further).collect();
    let taken = ids.iter().filter(|slot| {
        origins.iter().any(|origin| match origin {
            Origin::Utterance { start, end } => *start < slot.span.end && slot.span.start < *end,
            Origin::History
            | Origin::Session
            | Origin::Default
            | Origin::EnumText
            | Origin::Rule
            | Origin::Inferred => false,
        })
    });
    taken.count() as f32 / ids.len() as f32
}
