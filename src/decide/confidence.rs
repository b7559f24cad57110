//! How sure the local decider is of its first candidate.
//!
//! Owns: what the model looks at, the model, its defaults.
//! Does not know: where coefficients are kept or how they are fitted.
//!
//! A logistic model (Platt, 1999) over what the ranking shows, fitted for each encoder by `pointsman calibrate` on
//! utterances with and without a right tool. No similarity is compared with a fixed number: each is read against the
//! other tools' similarity to this utterance and against that of unrelated cards of the same catalog.

use std::collections::BTreeMap;

use crate::types::{Candidate, Confidence, Evidence, Signal};

/// What the model looks at. Every feature is finite and bounded.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Features {
    /// Best similarity, in deviations above that of unrelated cards of the catalog.
    pub related: f32,
    /// Mean similarity of all tools, in the same unit: whether the utterance is about what the catalog is about.
    pub in_domain: f32,
    /// Best similarity, in deviations above all tools' similarity to this utterance, minus what chance would give.
    pub stands_out: f32,
    /// How far the similarity is ahead of the best other tool's, in deviations; negative when it is behind.
    pub dense_lead: f32,
    /// As `stands_out`, by words.
    pub words_stand_out: f32,
    /// As `dense_lead`, by words.
    pub words_lead: f32,
    /// Share of the utterance's words, by rarity, that the tool's card holds.
    pub coverage: f32,
    /// Share of them that any card holds.
    pub known_words: f32,
    /// Total of the first minus that of the second candidate.
    pub margin: f32,
    /// Logarithm of the number of words.
    pub length: f32,
    /// Share of the ids and numbers in the utterance that the tool can take; 1 when there are none.
    pub fit: f32,
    /// An id of the utterance became an argument.
    pub takes_id: bool,
    /// All required arguments stand in the conversation.
    pub complete: bool,
    /// The tool requires no argument, so being complete says little.
    pub needs_nothing: bool,
    /// There were earlier turns.
    pub follows: bool,
    /// The utterance names the tool, or the conversation has just led to it. Too rare in labelled sets to be fitted:
    /// see `PINNED`.
    pub pinned: bool,
    /// Share of the utterance's content words that stand on one of the candidates' cards; 1 without any.
    pub known: f32,
    /// Concepts the utterance shares with the tool, each worth more the fewer candidates share it; from 0 up.
    pub agrees: f32,
    /// In `[-1, 1]`: below 0 the tool's own boundaries name the utterance, above 0 those of other candidates.
    pub border: f32,
    /// The utterance names the tool.
    pub named: bool,
    /// The utterance is in a language that is not supported. No feature of the model: see [`UNSUPPORTED_CAP`].
    pub unsupported: bool,
}

/// Largest margin that still says something.
const MARGIN_CAP: f32 = 4.0;
/// As many shared concepts of its own as still say something.
const AGREES_CAP: f32 = 4.0;
/// Deviations beyond which more says nothing more.
const DEVIATIONS_CAP: f32 = 6.0;
/// What it is worth to be pinned, in logarithmic odds: about twenty to one.
const PINNED: f64 = 3.0;
/// Most that is claimed of an utterance in a language nothing here was made for, unless it names a tool.
pub const UNSUPPORTED_CAP: f32 = 0.15;

impl Features {
    /// From the ranking; `words` is the number of tokens in the utterance.
    pub fn of_ranking(best: &Candidate, second: Option<&Candidate>, evidence: &Evidence, words: usize) -> Self {
        let signal = |kind| best.signals.get(&kind).copied();
        let capped = |value: f32| value.clamp(-DEVIATIONS_CAP, DEVIATIONS_CAP);
        // The highest of n values is expected that far above their mean, whatever they are about.
        let chance = (2.0 * (evidence.tools.max(1) as f32).ln()).sqrt();
        let against_others = |kind| {
            let (Some(value), Some(all)) = (signal(kind), evidence.signals.get(&kind)) else { return (0.0, 0.0) };
            let other = if value >= all.highest { all.second } else { all.highest };
            (capped(all.spread.standardise(value) - chance), capped(all.spread.in_deviations(value - other)))
        };
        let (stands_out, dense_lead) = against_others(Signal::DenseBest);
        let (words_stand_out, words_lead) = against_others(Signal::Lexical);
        let against_unrelated = |value: Option<f32>| match (value, &evidence.unrelated) {
            (Some(value), Some(unrelated)) => capped(unrelated.standardise(value)),
            (None, _) | (_, None) => 0.0,
        };
        let mean = evidence.signals.get(&Signal::DenseBest).map(|all| all.spread.mean);
        let margin = second.map_or(MARGIN_CAP, |second| best.score.get() - second.score.get());
        let named = signal(Signal::Named).is_some_and(|strength| strength > 0.0);
        Self {
            related: against_unrelated(signal(Signal::DenseBest)),
            in_domain: against_unrelated(mean),
            stands_out,
            dense_lead,
            words_stand_out,
            words_lead,
            coverage: evidence.coverage.get(&best.tool).copied().unwrap_or(0.0),
            known_words: evidence.known_words,
            margin: margin.clamp(0.0, MARGIN_CAP),
            length: (1.0 + words as f32).ln(),
            fit: 1.0,
            takes_id: false,
            complete: false,
            needs_nothing: false,
            follows: false,
            pinned: named || signal(Signal::History).is_some_and(|strength| strength >= 1.0),
            known: 1.0,
            agrees: 0.0,
            border: 0.0,
            named,
            unsupported: false,
        }
    }

    /// The numbers the model sees, under the names of [`NAMES`].
    pub fn values(&self) -> [f64; COUNT] {
        let yes = |yes: bool| f32::from(u8::from(yes));
        [
            self.related,
            self.in_domain,
            self.stands_out,
            self.dense_lead,
            self.words_stand_out,
            self.words_lead,
            self.coverage,
            self.known_words,
            self.margin,
            self.length,
            self.fit,
            yes(self.takes_id),
            yes(self.complete),
            yes(self.needs_nothing),
            yes(self.follows),
            self.known,
            self.agrees.clamp(0.0, AGREES_CAP),
            self.border,
        ]
        .map(f64::from)
    }
}

/// Features of the model, as a manifest names them; a new one goes here and into [`Features::values`].
pub const NAMES: [&str; COUNT] = [
    "related",
    "in_domain",
    "stands_out",
    "dense_lead",
    "words_stand_out",
    "words_lead",
    "coverage",
    "known_words",
    "margin",
    "length",
    "fit",
    "takes_id",
    "complete",
    "needs_nothing",
    "follows",
    "known",
    "agrees",
    "border",
];
const COUNT: usize = 18;

/// The name under which a manifest keeps the constant term.
pub const BIAS: &str = "bias";

/// Coefficients of one encoder's model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Model {
    pub bias: f64,
    /// In the order of [`NAMES`].
    pub weights: [f64; COUNT],
}

/// A coefficient that no feature has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is no feature; known are {BIAS}, {}", NAMES.join(", "))]
pub struct UnknownFeature {
    pub name: String,
}

impl Model {
    /// For an encoder that was never calibrated.
    pub const UNCALIBRATED: Self = Self {
        bias: -2.0,
        weights: [0.5, 0.0, 0.3, 0.3, 0.1, 0.2, 1.0, 0.5, 0.5, 0.0, 0.5, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0],
    };
    /// Without an encoder.
    pub const WORDS: Self = Self {
        bias: -3.0,
        weights: [0.0, 0.0, 0.0, 0.0, 0.2, 0.3, 2.0, 1.0, 0.6, 0.0, 0.8, 0.0, 0.6, 0.0, 0.0, 0.0, 0.0, 0.0],
    };

    /// From coefficients by name; a feature without one does not count.
    ///
    /// # Errors
    /// [`UnknownFeature`]: a misspelt name must not pass for a coefficient of 0.
    pub fn from_named(coefficients: &BTreeMap<String, f64>) -> Result<Self, UnknownFeature> {
        let mut model = Self { bias: 0.0, weights: [0.0; COUNT] };
        for (name, value) in coefficients {
            if name == BIAS {
                model.bias = *value;
            } else {
                let at = NAMES.iter().position(|known| known == name);
                model.weights[at.ok_or_else(|| UnknownFeature { name: name.clone() })?] = *value;
            }
        }
        Ok(model)
    }

    /// Constant term first, then the features in order.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, f64)> {
        std::iter::once((BIAS, self.bias)).chain(NAMES.into_iter().zip(self.weights))
    }

    /// Probability that the first candidate is right.
    pub fn probability(&self, features: &Features) -> Confidence {
        let products = self.weights.iter().zip(features.values()).map(|(weight, value)| weight * value);
        let start = self.bias + if features.pinned { PINNED } else { 0.0 };
        let sum = products.fold(start, |sum, product| sum + product);
        let probability = Confidence::new((1.0 / (1.0 + (-sum).exp())) as f32);
        if features.unsupported && !features.named { cap_unsupported(probability) } else { probability }
    }
}

/// Limits what is claimed of an utterance in a language that is not supported.
pub fn cap_unsupported(confidence: Confidence) -> Confidence {
    Confidence::new(confidence.get().min(UNSUPPORTED_CAP))
}

/// The models of one router.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Models {
    by_encoder: BTreeMap<String, Model>,
    words: Option<Model>,
}

impl Models {
    /// `words` stands in for a model of its own where no encoder was used.
    pub fn new(by_encoder: BTreeMap<String, Model>, words: Option<Model>) -> Self {
        Self { by_encoder, words }
    }

    /// The model for utterances embedded by `encoder`; `None` means by words alone.
    pub fn of(&self, encoder: Option<&str>) -> Model {
        match encoder {
            Some(encoder) => self.by_encoder.get(encoder).copied().unwrap_or(Model::UNCALIBRATED),
            None => self.words.unwrap_or(Model::WORDS),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::types::{Distribution, Score, Spread, ToolId};

    fn candidate(dense: f32, lexical: f32) -> Candidate {
        let signals = [(Signal::DenseBest, dense), (Signal::Lexical, lexical)].into();
        Candidate { tool: ToolId::new("refund"), score: Score::new(1.0), signals }
    }

    fn evidence(scale: f32, shift: f32) -> Evidence {
        let spread = |mean: f32, deviation: f32| Spread { mean: mean * scale + shift, deviation: deviation * scale };
        let dense =
            Distribution { spread: spread(0.2, 0.1), highest: 0.6 * scale + shift, second: 0.5 * scale + shift };
        Evidence {
            encoder: None,
            tools: 20,
            signals: [(Signal::DenseBest, dense)].into(),
            unrelated: Some(spread(0.3, 0.1)),
            known_words: 0.5,
            coverage: [(ToolId::new("refund"), 0.25)].into(),
        }
    }

    #[test]
    fn the_scale_of_an_encoder_does_not_matter() {
        let narrow = Features::of_ranking(&candidate(0.6 * 0.1 + 0.8, 0.0), None, &evidence(0.1, 0.8), 5);
        let wide = Features::of_ranking(&candidate(0.6, 0.0), None, &evidence(1.0, 0.0), 5);
        for (a, b) in narrow.values().iter().zip(wide.values()) {
            assert!((a - b).abs() < 1e-3, "{narrow:?} {wide:?}");
        }
        assert!((wide.related - 3.0).abs() < 1e-3 && (wide.dense_lead - 1.0).abs() < 1e-3, "{wide:?}");
        assert_eq!((wide.coverage, wide.known_words), (0.25, 0.5));
        let behind = Features::of_ranking(&candidate(0.5, 0.0), None, &evidence(1.0, 0.0), 5);
        assert!((behind.dense_lead + 1.0).abs() < 1e-3);
    }

    #[test]
    fn coefficients_go_by_name() {
        let named: BTreeMap<String, f64> = Model::WORDS.named().map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!(Model::from_named(&named), Ok(Model::WORDS));
        let partly = Model::from_named(&[("margin".to_owned(), 2.0)].into()).unwrap();
        assert_eq!(partly.named().filter(|(_, value)| *value != 0.0).collect::<Vec<_>>(), [("margin", 2.0)]);
        let error = Model::from_named(&[("margn".to_owned(), 2.0)].into()).unwrap_err();
        assert!(error.to_string().starts_with("`margn` is no feature; known are bias, related"), "{error}");
    }

    #[test]
    fn each_encoder_has_its_model_and_the_rest_the_defaults() {
        let own = Model { bias: 1.0, ..Model::WORDS };
        let models = Models::new([("e5".to_owned(), own)].into(), None);
        assert_eq!(
            [models.of(Some("e5")), models.of(Some("x")), models.of(None)],
            [own, Model::UNCALIBRATED, Model::WORDS]
        );
    }

    #[test]
    fn an_unsupported_language_is_never_a_confident_choice() {
        let sure = Features { margin: 4.0, coverage: 1.0, complete: true, pinned: true, ..Features::default() };
        assert!(Model::WORDS.probability(&sure).get() > 0.9);
        let foreign = Features { unsupported: true, ..sure };
        assert_eq!(Model::WORDS.probability(&foreign).get(), UNSUPPORTED_CAP);
        // A name is the same in every language.
        let named = Features { named: true, ..foreign };
        assert!(Model::WORDS.probability(&named).get() > 0.9);
    }

    proptest! {
        #[test]
        fn any_evidence_gives_a_probability(dense in any::<f32>(), words in any::<f32>(), tools in any::<usize>(), mean in any::<f32>(), deviation in any::<f32>()) {
            let spread = Spread { mean, deviation };
            let distribution = Distribution { spread, highest: dense, second: mean };
            let evidence = Evidence {
                tools,
                signals: [(Signal::DenseBest, distribution), (Signal::Lexical, distribution)].into(),
                unrelated: Some(spread),
                ..Evidence::default()
            };
            let features = Features::of_ranking(&candidate(dense, words), None, &evidence, tools);
            prop_assert!(features.values().iter().all(|value| value.is_finite()), "{features:?}");
            let sure = Model::UNCALIBRATED.probability(&features).get();
            prop_assert!((0.0..=1.0).contains(&sure));
        }
    }
}
