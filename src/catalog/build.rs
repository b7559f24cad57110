//! Building one catalog: every card's texts embedded (stored vectors reused), every index made, nothing published.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::names::NameIndex;
use super::texts::{dense_texts, is_chinese, lexical_terms};
use super::tool::Tool;
use super::typed::Vocabulary;
use crate::embed::{EmbedError, Encoders};
use crate::index::{DenseIndex, IndexError, LexicalIndex, Settings};
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

/// The dense rows of one encoder. Each tool owns a range of text rows and one centroid row.
pub struct DenseRows {
    pub index: DenseIndex,
    /// Rows of single texts, by tool position.
    pub texts: Vec<Range<usize>>,
    /// Row of the centroid, by tool position; the text row itself where there is only one.
    pub centroid: Vec<usize>,
    /// Tool position, by row.
    pub owner: Vec<usize>,
}

/// What building took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BuildReport {
    /// Texts that were embedded now; all others came from the store.
    pub embedded_texts: usize,
    /// Texts longer than an encoder reads; their end does not count.
    pub truncated_texts: usize,
}

/// Everything one request needs to know about the tools, at one version.
pub struct Catalog {
    pub version: CatalogVersion,
    pub registry: Arc<Registry>,
    /// In id order; a tool's position is its index here.
    pub tools: Vec<Tool>,
    /// By encoder name; empty when words alone decide.
    pub dense: BTreeMap<String, DenseRows>,
    pub lexical: LexicalIndex,
    pub names: NameIndex,
    /// What utterances typed wrong are read by.
    pub typed: Vocabulary,
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
}

impl CatalogBuilder {
    pub fn new(encoders: Arc<Encoders>, index: Settings) -> Self {
        Self { encoders, index }
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
        mut registry: Registry,
        generation: u64,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<(Catalog, BuildReport), BuildError> {
        // Compiling the schemas of thousands of cards takes seconds.
        let prepare = move || {
            let tools = usable_tools(&mut registry);
            let texts: Vec<Vec<String>> = tools.iter().map(|tool| dense_texts(&tool.card)).collect();
            let flat: Vec<String> = texts.iter().flatten().cloned().collect();
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
        let counts: Vec<usize> = texts.iter().map(Vec::len).collect();
        let index = self.index.clone();
        // Large graphs take minutes of CPU: never on the threads that serve requests.
        let catalog =
            tokio::task::spawn_blocking(move || assemble(registry, tools, &counts, embedded, &index, generation))
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

fn assemble(
    registry: Registry,
    tools: Vec<Tool>,
    counts: &[usize],
    embedded: Vec<(String, Vec<Vector>)>,
    settings: &Settings,
    generation: u64,
) -> Result<Catalog, BuildError> {
    let mut dense = BTreeMap::new();
    for (name, vectors) in embedded {
        dense.insert(name, dense_rows(vectors, counts, settings)?);
    }
    let documents: Vec<Vec<String>> = tools.iter().map(|tool| lexical_terms(&tool.card)).collect();
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
        names: NameIndex::build(tools.iter().map(Tool::id)),
        typed: Vocabulary::build(tools.iter().map(|tool| tool.card.as_ref())),
        lexical: LexicalIndex::build(&documents),
        chinese: 2 * tools.iter().filter(|tool| is_chinese(&tool.card)).count() > tools.len(),
        registry: Arc::new(registry),
        tools,
        dense,
        prints,
    })
}

fn dense_rows(vectors: Vec<Vector>, counts: &[usize], settings: &Settings) -> Result<DenseRows, IndexError> {
    let mut rows = Vec::with_capacity(vectors.len() + counts.len());
    let mut owner = Vec::with_capacity(rows.capacity());
    let mut texts = Vec::with_capacity(counts.len());
    let mut centroid = Vec::with_capacity(counts.len());
    let mut vectors = vectors.into_iter();
    for (tool, count) in counts.iter().enumerate() {
        let first = rows.len();
        rows.extend(vectors.by_ref().take(*count));
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
        owner.resize(rows.len(), tool);
        texts.push(span);
    }
    Ok(DenseRows { index: DenseIndex::build(rows, settings)?, texts, centroid, owner })
}

fn halves(digest: &[u8]) -> [u128; 2] {
    let half =
        |from: usize| u128::from_be_bytes(digest[from..from + 16].try_into().expect("a SHA-256 digest has 32 bytes"));
    [half(0), half(16)]
}
