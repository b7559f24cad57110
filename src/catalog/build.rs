//! Building one catalog: every card's texts embedded (stored vectors reused), every index made, nothing published.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::centre::Centre;
use super::names::NameIndex;
use super::texts::{border_texts, dense_texts, is_chinese, lexical_terms, name_terms, purpose_terms};
use super::tool::Tool;
use super::typed::Vocabulary;
use crate::embed::{EmbedError, Encoders};
use crate::index::{CoverIndex, DenseIndex, IndexError, LexicalIndex, RecallWatch, Settings};
use crate::registry::{CardProblem, Quarantined, Registry};
use crate::text::simplify_text;
use crate::tool::ToolCard;
use crate::types::encoding::hex;
use crate::types::{CatalogVersion, IndexKind, Spread, ToolId, Vector, vector};

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("cannot embed the tool cards")]
    Embed(#[from] EmbedError),
    #[error("cannot build the index")]
    Index(#[from] IndexError),
    #[error("building the catalog was interrupted")]
    Interrupted(#[from] tokio::task::JoinError),
}

/// The dense rows of one encoder. Each tool owns a range of text rows and one centroid row.
#[derive(Clone)]
pub struct DenseRows {
    pub index: DenseIndex,
    /// Rows of single texts, by tool position.
    pub texts: Vec<Range<usize>>,
    /// Row of the centroid, by tool position; the text row itself where there is only one.
    pub centroid: Vec<usize>,
    /// Rows of what other cards say the tool is for ("for X use it"), by tool position; often empty.
    pub borders: Vec<Range<usize>>,
    /// Tool position, by row.
    pub owner: Vec<usize>,
    /// Turns dot products into similarities.
    pub centre: Arc<Centre>,
    /// Similarity between cards that have nothing to do with each other: what "not similar" means in this space.
    pub unrelated: Spread,
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
}

impl CatalogBuilder {
    pub fn new(encoders: Arc<Encoders>, index: Settings) -> Self {
        let watch = RecallWatch::new(index.recall_sample).map(Arc::new);
        Self { encoders, index, watch }
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
        // Compiling the schemas of thousands of cards takes seconds.
        let prepare = move || {
            let tools = usable_tools(&mut registry);
            let texts = texts(&tools);
            let flat: Vec<String> = texts.iter().flat_map(|of| of.own.iter().chain(&of.borders)).cloned().collect();
            (registry, tools, texts, flat)
        };
        let (mut registry, tools, texts, flat) = tokio::task::spawn_blocking(prepare).await?;
        let encoders = self.encoders.all();
        let total = flat.len() * encoders.len();
        let mut report = BuildReport::default();
        let mut embedded: Vec<(String, Vec<Vector>)> = Vec::new();
        for (nth, encoder) in encoders.iter().enumerate() {
            let before = nth * flat.len();
            let documents = encoder.embed_documents(&flat, &|done, _| progress(before + done, total)).await?;
            report.embedded_texts += documents.embedded_now;
            report.truncated_texts += documents.truncated;
            embedded.push((encoder.name().to_owned(), documents.vectors));
        }
        if report.truncated_texts > 0 {
            registry.notices.push(format!(
                "{} texts are longer than an encoder reads; put name and purpose first, the end does not count",
                report.truncated_texts
            ));
        }
        let counts: Vec<(usize, usize)> = texts.iter().map(|of| (of.own.len(), of.borders.len())).collect();
        let (settings, watch) = (self.index.clone(), self.watch.clone());
        let dense = move |name: &str, rows: Vec<Vector>| {
            let earlier = earlier.as_ref().and_then(|catalog| catalog.dense.get(name)).map(|rows| &rows.index);
            Ok(DenseIndex::prepare(rows, &settings, earlier)?.watched(watch.clone()))
        };
        // Large graphs take minutes of CPU: never on the threads that serve requests.
        let catalog =
            tokio::task::spawn_blocking(move || assemble(registry, tools, &counts, embedded, &dense, generation))
                .await??;
        Ok((catalog, report))
    }
}

/// Tools in id order. A card whose schema cannot be compiled is quarantined here if the registry let it pass.
fn usable_tools(registry: &mut Registry) -> Vec<Tool> {
    let mut tools = Vec::with_capacity(registry.cards.len());
    let mut broken = Vec::new();
    for card in registry.cards.values() {
        match Tool::new(Arc::clone(card)) {
            Ok(tool) => tools.push(tool),
            Err(error) => broken.push((card.id.clone(), card.source.clone(), error)),
        }
    }
    for (id, source, error) in broken {
        registry.cards.remove(&id);
        let problem =
            CardProblem { pointer: format!("/parameters{}", error.pointer), line: None, message: error.message };
        registry.quarantined.push(Quarantined { card: id.to_string(), source, problems: vec![problem] });
    }
    tools
}

/// The texts to embed for one tool.
struct Texts {
    own: Vec<String>,
    /// What other cards say it is for.
    borders: Vec<String>,
}

fn texts(tools: &[Tool]) -> Vec<Texts> {
    let mut borders: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for tool in tools {
        for (target, case) in border_texts(&tool.card) {
            let cases = borders.entry(target).or_default();
            let case = simplify_text(case);
            if !cases.contains(&case) {
                cases.push(case);
            }
        }
    }
    let of = |tool: &Tool| Texts {
        own: dense_texts(&tool.card),
        borders: borders.remove(tool.id().as_str()).unwrap_or_default(),
    };
    tools.iter().map(of).collect()
}

/// Makes the index of one encoder's rows.
type MakeIndex<'a> = dyn Fn(&str, Vec<Vector>) -> Result<DenseIndex, IndexError> + 'a;

/// `counts` holds how many texts of its own and how many border texts each tool has.
fn assemble(
    registry: Registry,
    tools: Vec<Tool>,
    counts: &[(usize, usize)],
    embedded: Vec<(String, Vec<Vector>)>,
    index: &MakeIndex<'_>,
    generation: u64,
) -> Result<Catalog, BuildError> {
    let mut dense = BTreeMap::new();
    for (name, vectors) in embedded {
        let rows = dense_rows(vectors, counts, |rows| index(&name, rows))?;
        dense.insert(name, rows);
    }
    let documents =
        |terms: fn(&ToolCard) -> Vec<String>| tools.iter().map(|tool| terms(&tool.card)).collect::<Vec<_>>();
    let mut digest = Sha256::new();
    let mut prints = Vec::with_capacity(tools.len());
    for tool in &tools {
        let line = format!("{}\u{0}{}\n", tool.id(), tool.hash.0);
        digest.update(line.as_bytes());
        prints.push(halves(&Sha256::digest(line.as_bytes())));
    }
    let digest: String = hex(&digest.finalize()[..6]);
    Ok(Catalog {
        version: CatalogVersion { generation, digest },
        names: Arc::new(NameIndex::build(tools.iter().map(Tool::id))),
        typed: Arc::new(Vocabulary::build(tools.iter().map(|tool| tool.card.as_ref()))),
        lexical: Arc::new(LexicalIndex::build(&documents(lexical_terms))),
        name_words: Arc::new(CoverIndex::build(&documents(name_terms))),
        purpose_words: Arc::new(CoverIndex::build(&documents(purpose_terms))),
        chinese: 2 * tools.iter().filter(|tool| is_chinese(&tool.card)).count() > tools.len(),
        registry: Arc::new(registry),
        tools,
        dense,
        prints,
    })
}

fn dense_rows(
    vectors: Vec<Vector>,
    counts: &[(usize, usize)],
    index: impl FnOnce(Vec<Vector>) -> Result<DenseIndex, IndexError>,
) -> Result<DenseRows, IndexError> {
    let mut rows = Vec::with_capacity(vectors.len() + counts.len());
    let mut owner = Vec::with_capacity(rows.capacity());
    let mut texts = Vec::with_capacity(counts.len());
    let mut borders = Vec::with_capacity(counts.len());
    let mut centroid = Vec::with_capacity(counts.len());
    let mut vectors = vectors.into_iter();
    for (tool, (own, bordering)) in counts.iter().enumerate() {
        let first = rows.len();
        rows.extend(vectors.by_ref().take(*own));
        let span = first..rows.len();
        // Texts that cancel out have no centroid; the first text, name and purpose, then stands for the tool.
        let mean = (span.len() > 1).then(|| Vector::centroid(&rows[span.clone()])).flatten();
        match mean {
            Some(mean) => {
                centroid.push(rows.len());
                rows.push(mean);
            }
            None => centroid.push(first),
        }
        let first = rows.len();
        rows.extend(vectors.by_ref().take(*bordering));
        borders.push(first..rows.len());
        owner.resize(rows.len(), tool);
        texts.push(span);
    }
    let centre = Arc::new(Centre::of(&rows, &centroid));
    let unrelated = unrelated(&rows, &texts, &centre);
    Ok(DenseRows { index: index(rows)?, texts, centroid, borders, owner, centre, unrelated })
}

/// Tools whose cards are compared with each other: enough for a mean and a deviation.
const COMPARED: usize = 48;

/// How close the first text of one tool, taken as an utterance, comes to the texts of another. Most pairs of tools are
/// unrelated.
fn unrelated(rows: &[Vector], texts: &[Range<usize>], centre: &Centre) -> Spread {
    let step = texts.len().div_ceil(COMPARED).max(1);
    let drawn: Vec<&Range<usize>> = texts.iter().step_by(step).filter(|span| !span.is_empty()).collect();
    let mut similarities = Vec::with_capacity(drawn.len() * drawn.len());
    for (at, one) in drawn.iter().enumerate() {
        let first = &rows[one.start];
        let along = centre.query_along(first);
        let similarity =
            |row: usize| centre.similarity(row, vector::dot(first.as_slice(), rows[row].as_slice()), along);
        for (_, other) in drawn.iter().enumerate().filter(|(other, _)| *other != at) {
            similarities.push((*other).clone().map(similarity).fold(f32::MIN, f32::max));
        }
    }
    Spread::of(&similarities)
}

fn halves(digest: &[u8]) -> [u128; 2] {
    let half =
        |from: usize| u128::from_be_bytes(digest[from..from + 16].try_into().expect("a SHA-256 digest has 32 bytes"));
    [half(0), half(16)]
}
