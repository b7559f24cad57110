//! The encoders in use and which of them reads a language.

use std::collections::BTreeSet;
use std::sync::Arc;

use ort::environment::Environment;

use super::encoder::{Encoder, Loader, Profile};
use super::{EmbedError, Settings, onnx, runtime};
use crate::store::Store;
use crate::text::{Language, Query};

/// The encoders in use, one per language; empty means words alone decide.
pub struct Encoders {
    /// In name order.
    encoders: Vec<Arc<Encoder>>,
}

impl Encoders {
    /// Loads ONNX Runtime and every encoder of the settings. Blocks for a second or so.
    ///
    /// A name with a slash in it is a model of a hub and needs the `hub` feature.
    ///
    /// # Errors
    /// [`EmbedError::NoRuntime`] or, naming the encoder and the file, [`EmbedError::Model`].
    pub fn load(settings: &Settings, store: Arc<Store>) -> Result<Self, EmbedError> {
        let names: BTreeSet<&str> = settings.encoders.iter().map(String::as_str).collect();
        if names.is_empty() {
            return Ok(Self::none());
        }
        let environment = runtime::environment(settings.onnxruntime.as_deref())?;
        let traffic = Arc::default();
        let start = |name| {
            let (profile, loader) = open(name, &environment, settings)?;
            Encoder::start(profile, loader, settings, Arc::clone(&store), Arc::clone(&traffic)).map(Arc::new)
        };
        let encoders = names.into_iter().map(start).collect::<Result<_, _>>()?;
        Ok(Self { encoders })
    }

    pub fn none() -> Self {
        Self { encoders: Vec::new() }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn of(mut encoders: Vec<Arc<Encoder>>) -> Self {
        encoders.sort_by(|a, b| a.name().cmp(b.name()));
        Self { encoders }
    }

    /// In name order.
    pub fn all(&self) -> &[Arc<Encoder>] {
        &self.encoders
    }

    /// Whether one of them declares one of these two-letter codes.
    pub fn declare(&self, codes: &[&str]) -> bool {
        self.encoders.iter().any(|encoder| encoder.declares(codes))
    }

    /// [`Encoders::for_language`], but a language that has no name there goes to an encoder that declares one of its
    /// two-letter codes, if there is one, and English across languages to one that reads both.
    pub fn for_query(&self, query: &Query) -> Option<&Arc<Encoder>> {
        match query.language {
            Language::Other => {
                let declaring = self.encoders.iter().filter(|encoder| encoder.declares(query.codes));
                most(declaring, |encoder| encoder.languages().len()).or_else(|| self.for_language(query.language))
            }
            Language::En if query.across => self.for_language(Language::Mixed),
            Language::Zh | Language::En | Language::Mixed => self.for_language(query.language),
        }
    }

    /// The encoder for a language, by what the manifests declare: for English the one with fewest languages besides,
    /// for the others the one with most. Where none declares the language, the one with most languages; `None` only
    /// when there is no encoder. Equals are decided by name.
    pub fn for_language(&self, language: Language) -> Option<&Arc<Encoder>> {
        let able = self.encoders.iter().filter(|encoder| encoder.supports(language));
        let count = |encoder: &&Arc<Encoder>| encoder.languages().len();
        let chosen = match language {
            Language::En => able.min_by_key(count),
            Language::Zh | Language::Mixed | Language::Other => most(able, count),
        };
        chosen.or_else(|| most(self.encoders.iter(), count))
    }
}

/// The first with the highest count.
fn most<'a>(
    encoders: impl Iterator<Item = &'a Arc<Encoder>>,
    count: impl Fn(&&'a Arc<Encoder>) -> usize,
) -> Option<&'a Arc<Encoder>> {
    encoders.min_by_key(|encoder| std::cmp::Reverse(count(encoder)))
}

fn open(name: &str, environment: &Environment, settings: &Settings) -> Result<(Profile, Loader), EmbedError> {
    if !name.contains('/') {
        return onnx::open(&settings.models_dir, name, environment, settings.threads);
    }
    #[cfg(feature = "hub")]
    return super::hub::open(name, environment, settings.threads);
    #[cfg(not(feature = "hub"))]
    Err(EmbedError::Model {
        name: name.to_owned(),
        message: "this program was built without the `hub` feature; name a folder of the models folder instead"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embed::testing::hashing_encoder;

    fn chosen(encoders: &[(&str, &[&str])], language: Language) -> Option<String> {
        let store = Arc::new(Store::in_memory().unwrap());
        let all = encoders.iter().map(|(name, languages)| hashing_encoder(name, languages, 8, Arc::clone(&store)));
        Encoders::of(all.collect()).for_language(language).map(|encoder| encoder.name().to_owned())
    }

    #[test]
    fn each_language_gets_the_encoder_made_for_it() {
        let both: &[(&str, &[&str])] = &[("wide", &["zh", "en"]), ("english", &["en"])];
        assert_eq!(chosen(both, Language::En).unwrap(), "english");
        assert_eq!(chosen(both, Language::Zh).unwrap(), "wide");
        assert_eq!(chosen(both, Language::Mixed).unwrap(), "wide");
        assert_eq!(chosen(both, Language::Other).unwrap(), "wide");
        let world: &[(&str, &[&str])] = &[("chinese", &["zh"]), ("english", &["en"]), ("world", &["zh", "en", "ru"])];
        assert_eq!(chosen(world, Language::Other).unwrap(), "world");
        assert_eq!(chosen(world, Language::Mixed).unwrap(), "world");
        assert_eq!(chosen(world, Language::En).unwrap(), "english");
    }

    #[test]
    fn a_declared_language_is_lifted_and_english_across_languages_is_read_widely() {
        let store = Arc::new(Store::in_memory().unwrap());
        let all = [("english", ["en", "en"]), ("slavic", ["ru", "uk"]), ("wide", ["en", "zh"])];
        let encoders = all.map(|(name, languages)| hashing_encoder(name, &languages, 8, Arc::clone(&store)));
        let encoders = Encoders::of(encoders.into_iter().collect());
        let name = |query: &Query| encoders.for_query(query).unwrap().name().to_owned();
        let russian = crate::text::normalise("где моя посылка").unwrap();
        assert!(encoders.declare(russian.codes) && !encoders.declare(&["ja"]));
        assert_eq!(name(&russian), "slavic");
        let mut english = crate::text::normalise("where is my parcel").unwrap();
        assert_eq!(name(&english), "english");
        english.across = true;
        assert_eq!(name(&english), "wide");
    }

    #[test]
    fn one_encoder_serves_all_and_none_serves_nobody() {
        for language in [Language::Zh, Language::En, Language::Mixed, Language::Other] {
            assert_eq!(chosen(&[("english", &["en"])], language).unwrap(), "english");
            assert_eq!(chosen(&[], language), None);
        }
        assert!(Encoders::none().all().is_empty());
    }

    #[test]
    fn equals_are_decided_by_name() {
        let twins: &[(&str, &[&str])] = &[("b", &["zh", "en"]), ("a", &["zh", "en"])];
        assert_eq!(chosen(twins, Language::En).unwrap(), "a");
        assert_eq!(chosen(twins, Language::Zh).unwrap(), "a");
    }
}
