//! The dense rows of one encoder: texts, centroids and borders of every tool.
//!
//! Owns: which row is whose, the centroids, what "not similar" means in this space.
//! Does not know: how rows near a vector are found ([`crate::index`]).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::centre::Centre;
use crate::index::{DenseIndex, IndexError};
use crate::types::{Spread, Vector, vector};

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

/// `counts` holds how many texts of its own and how many border texts each tool has.
pub(super) fn dense_rows(
    vectors: Vec<Vector>,
    counts: &[(usize, usize)],
    earlier: Option<&DenseRows>,
    index: impl FnOnce(Vec<Vector>) -> Result<DenseIndex, IndexError>,
) -> Result<DenseRows, IndexError> {
    let known = earlier.map(Centroids::of).unwrap_or_default();
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
        let mean = (span.len() > 1).then(|| known.mean(&rows[span.clone()])).flatten();
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

/// The centroids of an earlier catalog: where all texts of a tool are the same vectors, so is their mean, and the graph
/// knows it again.
#[derive(Default)]
struct Centroids<'a> {
    earlier: Option<&'a DenseRows>,
    /// Tool by where its first vector is in memory.
    tools: HashMap<usize, usize>,
}

impl<'a> Centroids<'a> {
    fn of(earlier: &'a DenseRows) -> Self {
        let many = earlier.texts.iter().enumerate().filter(|(_, span)| span.len() > 1);
        let tools = many.map(|(tool, span)| (earlier.index.row(span.start).address(), tool)).collect();
        Self { earlier: Some(earlier), tools }
    }

    fn mean(&self, texts: &[Vector]) -> Option<Vector> {
        self.known(texts).or_else(|| Vector::centroid(texts))
    }

    fn known(&self, texts: &[Vector]) -> Option<Vector> {
        let (earlier, tool) = (self.earlier?, *self.tools.get(&texts.first()?.address())?);
        let (span, centroid) = (earlier.texts[tool].clone(), earlier.centroid[tool]);
        let there = span.clone().map(|row| earlier.index.row(row).address());
        let same = span.len() == texts.len() && there.eq(texts.iter().map(Vector::address));
        (same && centroid != span.start).then(|| earlier.index.row(centroid).clone())
    }
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
