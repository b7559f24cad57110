//! Building one catalog: every card's texts embedded (stored vectors reused), every index made, nothing published.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::kept::{Kept, Prepared};
use super::names::NameIndex;
use super::rows::{DenseRows, dense_rows};
use super::tool::Tool;
use super::typed::Vocabulary;
use crate::args::SchemaError;
use crate::embed::{EmbedError, Embedded, Encoder, Encoders};
use crate::index::{CoverIndex, DenseIndex, IndexError, LexicalIndex, RecallWatch, Settings};
use crate::registry::{CardProblem, Quarantined, Registry};
use crate::types::encoding::hex;
use crate::types::{CatalogVersion, IndexKind, ToolId, Vector};

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("cannot embed the tool cards")]
    Embed(#[from] EmbedError),
    #[error("cannot build the index")]
    Index(#[from] IndexError),
    #[error("building the catalog was interrupted")]
    Interrupted(#[from] tokio::task::JoinError),
}

/// What building took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BuildReport {
    /// Texts that were embedded now; all others came from the store.
    pub embedded_texts: usize,
    /// Texts longer than an encoder reads; their end does not count.
    pub truncated_texts: usize,
}

/// Everything one request needs to know about the tools, at one version. Cheap to clone.
#[derive(Clone)]
pub struct Catalog {
    pub version: CatalogVersion,
    pub registry: Arc<Registry>,
    /// In id order; a tool's position is its index here.
    pub tools: Vec<Tool>,
    /// By encoder name; empty when words alone decide.
    pub dense: BTreeMap<String, DenseRows>,
    pub lexical: Arc<LexicalIndex>,
    /// Words of the names alone.
    pub name_words: Arc<CoverIndex>,
    /// Words of name and purpose.
    pub purpose_words: Arc<CoverIndex>,
    pub names: Arc<NameIndex>,
    /// What utterances typed wrong are read by.
    pub typed: Arc<Vocabulary>,
    /// Most cards are Chinese: an encoder for English alone finds nothing in them.
    pub chinese: bool,
    /// A fingerprint per tool for [`Catalog::fingerprint`].
    prints: Vec<[u128; 2]>,
}

impl Catalog {
    pub fn position(&self, id: &ToolId) -> Option<usize> {
        self.tools.binary_search_by(|tool| tool.id().cmp(id)).ok()
    }

    pub fn tool(&self, id: &ToolId) -> Option<&Tool> {
        self.position(id).map(|position| &self.tools[position])
    }

    /// Which index serves; `exact` when no encoder is loaded.
    pub fn index_kind(&self) -> IndexKind {
        self.dense
            .values()
            .map(|rows| rows.index.kind())
            .find(|kind| *kind == IndexKind::Hnsw)
            .unwrap_or(IndexKind::Exact)
    }

    /// Whether [`Catalog::with_graphs`] has something to do.
    pub(super) fn needs_graphs(&self, settings: &Settings) -> bool {
        self.dense.values().any(|rows| rows.index.needs_graph(settings))
    }

    /// The same cards with the graphs that are missing or worn; `None` as soon as `go_on` says no. Takes minutes for
    /// many thousand rows.
    pub(super) fn with_graphs(
        &self,
        settings: &Settings,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Self>, IndexError> {
        let mut next = self.clone();
        for rows in next.dense.values_mut().filter(|rows| rows.index.needs_graph(settings)) {
            let Some(index) = rows.index.with_graph(go_on)? else { return Ok(None) };
            rows.index = index;
        }
        Ok(Some(next))
    }

    /// The same cards with those graphs of `built` that hold most of the rows here.
    pub(super) fn adopting(&self, built: &Self, settings: &Settings) -> Self {
        let mut next = self.clone();
        for (name, rows) in &mut next.dense {
            if let Some(other) = built.dense.get(name) {
                rows.index = rows.index.adopting(&other.index, settings);
            }
        }
        next
    }

    /// Whether most rows are those of `other`, so that a graph of them serves this catalog as well.
    pub(super) fn shares_most_rows(&self, other: &Self) -> bool {
        let shared = |(name, rows): (&String, &DenseRows)| {
            other.dense.get(name).is_some_and(|other| rows.index.shares_most_rows(&other.index))
        };
        self.dense.iter().all(shared)
    }

    /// Order-independent digest of a set of tools with their card hashes: equal sets of equal cards give equal digests.
    pub fn fingerprint(&self, positions: impl Iterator<Item = usize>) -> [u128; 2] {
        positions.fold([0, 0], |[a, b], position| {
            let [x, y] = self.prints[position];
            [a.wrapping_add(x), b.wrapping_add(y)]
        })
    }
}

/// Makes catalogs. Holds what they have in common.
pub struct CatalogBuilder {
    encoders: Arc<Encoders>,
    index: Settings,
    /// One for all catalogs: which searches are repeated must not start over with each.
    watch: Option<Arc<RecallWatch>>,
    /// What need not be made again. A build takes it out and puts it back; one that finds nothing starts from scratch.
    kept: Mutex<Kept>,
}

impl CatalogBuilder {
    pub fn new(encoders: Arc<Encoders>, index: Settings) -> Self {
        let watch = RecallWatch::new(index.recall_sample).map(Arc::new);
        Self { encoders, index, watch, kept: Mutex::default() }
    }

    pub(super) fn index(&self) -> &Settings {
        &self.index
    }

    pub fn encoders(&self) -> &Arc<Encoders> {
        &self.encoders
    }

    /// Builds the catalog of `registry`. `progress` hears how many texts are embedded of how many.
    ///
    /// # Errors
    /// [`BuildError`]; nothing has changed then.
    pub async fn build(
        &self,
        registry: Registry,
        generation: u64,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<(Catalog, BuildReport), BuildError> {
        self.build_after(None, registry, generation, progress).await
    }

    /// As [`CatalogBuilder::build`]; graphs of the `earlier` catalog are used again where they fit.
    pub(super) async fn build_after(
        &self,
        earlier: Option<Arc<Catalog>>,
        mut registry: Registry,
        generation: u64,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<(Catalog, BuildReport), BuildError> {
        let mut kept = std::mem::take(&mut *self.kept());
        // While a catalog is served, requests need the other threads.
        let threads = if earlier.is_some() { 1 } else { std::thread::available_parallelism().map_or(1, usize::from) };
        // Compiling the schemas of thousands of cards takes seconds.
        let prepare = move || {
            let (cards, broken) = kept.prepare(&registry, threads);
            quarantine(&mut registry, broken);
            let texts = texts(&cards);
            (kept, registry, cards, texts)
        };
        let (mut kept, mut registry, cards, texts) = tokio::task::spawn_blocking(prepare).await?;
        let flat: Vec<Arc<str>> = texts.iter().flat_map(|of| of.own.iter().chain(&of.borders)).cloned().collect();
        let (embedded, report) = match self.embed(&flat, &mut kept.vectors, progress).await {
            Ok(embedded) => embedded,
            Err(error) => {
                *self.kept() = kept;
                return Err(error.into());
            }
        };
        if report.truncated_texts > 0 {
            registry.notices.push(format!(
                "{} texts are longer than an encoder reads; put name and purpose first, the end does not count",
                report.truncated_texts
            ));
        }
        let counts: Vec<(usize, usize)> = texts.iter().map(|of| (of.own.len(), of.borders.len())).collect();
        let (settings, watch) = (self.index.clone(), self.watch.clone());
        // Large graphs take minutes of CPU: never on the threads that serve requests.
        let assemble = move || {
            let dense = |name: &str, vectors: Vec<Vector>| {
                let earlier = earlier.as_ref().and_then(|catalog| catalog.dense.get(name));
                let index = |rows| DenseIndex::prepare(rows, &settings, earlier.map(|earlier| &earlier.index));
                dense_rows(vectors, &counts, earlier, |rows| Ok(index(rows)?.watched(watch.clone())))
            };
            let catalog = assemble(registry, &cards, &kept, embedded, &dense, generation);
            kept.used_terms = catalog.as_ref().map_or(0, |catalog| catalog.lexical.terms());
            (catalog, kept)
        };
        let (catalog, kept) = tokio::task::spawn_blocking(assemble).await?;
        *self.kept() = kept;
        Ok((catalog?, report))
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The vectors of `flat` by each encoder, those of `kept` used again; `kept` then holds these alone.
    async fn embed(
        &self,
        flat: &[Arc<str>],
        kept: &mut HashMap<String, HashMap<Arc<str>, Embedded>>,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<(Vec<(String, Vec<Vector>)>, BuildReport), EmbedError> {
        let encoders = self.encoders.all();
        let total = flat.len() * encoders.len();
        let mut report = BuildReport::default();
        let mut embedded = Vec::new();
        for (nth, encoder) in encoders.iter().enumerate() {
            let known = kept.entry(encoder.name().to_owned()).or_default();
            let heard = |done| progress(nth * flat.len() + done, total);
            report.embedded_texts += add_missing(encoder, flat, known, &heard).await?;
            let mut used = HashMap::with_capacity(known.len());
            let mut vectors = Vec::with_capacity(flat.len());
            for text in flat {
                let of_text = known.get(text).ok_or(EmbedError::Stopped)?;
                report.truncated_texts += usize::from(of_text.truncated);
                vectors.push(of_text.vector.clone());
                used.entry(Arc::clone(text)).or_insert_with(|| of_text.clone());
            }
            *known = used;
            embedded.push((encoder.name().to_owned(), vectors));
        }
        Ok((embedded, report))
    }
}

/// Adds the vectors of those texts that `known` lacks; how many were made now. `heard` learns how many texts are done.
async fn add_missing(
    encoder: &Encoder,
    flat: &[Arc<str>],
    known: &mut HashMap<Arc<str>, Embedded>,
    heard: &(dyn Fn(usize) + Sync),
) -> Result<usize, EmbedError> {
    let missing: Vec<&Arc<str>> = flat.iter().filter(|text| !known.contains_key(*text)).collect();
    let before = flat.len() - missing.len();
    let texts: Vec<String> = missing.iter().map(|text| text.as_ref().to_owned()).collect();
    let documents = encoder.embed_documents(&texts, &|done, _| heard(before + done)).await?;
    let made = documents.vectors.into_iter().zip(documents.is_truncated);
    let made = made.map(|(vector, truncated)| Embedded { vector, truncated });
    known.extend(missing.into_iter().cloned().zip(made));
    Ok(documents.embedded_now)
}

/// A card whose schema cannot be compiled is quarantined here if the registry let it pass.
fn quarantine(registry: &mut Registry, broken: Vec<(ToolId, SchemaError)>) {
    for (id, error) in broken {
        let Some(card) = registry.cards.remove(&id) else { continue };
        let problem =
            CardProblem { pointer: format!("/parameters{}", error.pointer), line: None, message: error.message };
        let source = card.source.clone();
        registry.quarantined.push(Quarantined { card: id.to_string(), source, problems: vec![problem] });
    }
}

/// The texts to embed for one tool.
struct Texts {
    own: Vec<Arc<str>>,
    /// What other cards say it is for.
    borders: Vec<Arc<str>>,
}

fn texts(cards: &[Arc<Prepared>]) -> Vec<Texts> {
    let mut borders: BTreeMap<&str, Vec<Arc<str>>> = BTreeMap::new();
    for (target, case) in cards.iter().flat_map(|card| &card.borders) {
        let cases = borders.entry(target).or_default();
        if !cases.contains(case) {
            cases.push(Arc::clone(case));
        }
    }
    let of = |card: &Arc<Prepared>| Texts {
        own: card.texts.clone(),
        borders: borders.remove(card.tool.id().as_str()).unwrap_or_default(),
    };
    cards.iter().map(of).collect()
}

/// Makes the rows of one encoder from the vectors of all texts.
type MakeRows<'a> = dyn Fn(&str, Vec<Vector>) -> Result<DenseRows, IndexError> + 'a;

fn assemble(
    registry: Registry,
    cards: &[Arc<Prepared>],
    kept: &Kept,
    embedded: Vec<(String, Vec<Vector>)>,
    rows: &MakeRows<'_>,
    generation: u64,
) -> Result<Catalog, BuildError> {
    let mut dense = BTreeMap::new();
    for (name, vectors) in embedded {
        let rows = rows(&name, vectors)?;
        dense.insert(name, rows);
    }
    let all = || cards.iter().map(|card| &**card);
    let mut digest = Sha256::new();
    all().for_each(|card| digest.update(card.line()));
    let digest: String = hex(&digest.finalize()[..6]);
    Ok(Catalog {
        version: CatalogVersion { generation, digest },
        names: Arc::new(NameIndex::of(all().map(|card| card.names.as_slice()))),
        typed: Arc::new(Vocabulary::of(all().map(|card| &card.said), &kept.tables)),
        lexical: Arc::new(LexicalIndex::of(all().map(|card| &card.lexical), &kept.terms)),
        name_words: Arc::new(CoverIndex::of(all().map(|card| &card.name_words), &kept.terms)),
        purpose_words: Arc::new(CoverIndex::of(all().map(|card| &card.purpose_words), &kept.terms)),
        chinese: 2 * all().filter(|card| card.is_chinese).count() > cards.len(),
        registry: Arc::new(registry),
        tools: all().map(|card| card.tool.clone()).collect(),
        dense,
        prints: all().map(|card| halves(&card.print)).collect(),
    })
}

fn halves(digest: &[u8]) -> [u128; 2] {
    let half =
        |from: usize| u128::from_be_bytes(digest[from..from + 16].try_into().expect("a SHA-256 digest has 32 bytes"));
    [half(0), half(16)]
}
